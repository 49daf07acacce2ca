"""Memo: a pure function that is asked several times in a row about one value answers from memory.

A reader and all rules of a family look at one subject after the other; what they derive from it is derived once.
Called by the readers of the foreign families. Only for functions without side effects whose result nobody changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

A = TypeVar("A")
R = TypeVar("R")


def remember_last(function: Callable[[A], R]) -> Callable[[A], R]:
    """Keeps the newest result for the very same argument (the same object, not an equal one). Safe in threads."""
    last: tuple[A, R] | None = None

    def remembered(argument: A) -> R:
        nonlocal last
        seen = last
        if seen is None or seen[0] is not argument:
            seen = last = (argument, function(argument))
        return seen[1]

    return remembered
