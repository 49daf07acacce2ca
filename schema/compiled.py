"""Compiled: functions as machine code, made by numba, which needs the extra ``spark``.

For loops over the bytes of millions of values (texts.py). What is kept of a function is made anew when its own file changes, but
not when one changes whose functions it calls: who changes such a one while developing deletes ``__pycache__``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """The function as machine code, made when it is first called, and kept beside its source or in the user's cache.

    Where neither can be written to, each process makes it anew; numba's NUMBA_CACHE_DIR names another folder.
    """
    made: F
    try:
        made = njit(cache=True, nogil=True)(function)
    except RuntimeError:  # no place to keep it
        made = njit(nogil=True)(function)
    return made
