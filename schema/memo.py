"""Memo: a function's values, remembered: all of them (Memo), or the last one (remember_last).

Thousands of records share a few names; and a reader and all rules of a family look at one subject after the other, so that what
they derive from it is derived once. Only for functions without side effects whose result nobody changes.
Called by prefilters, Spark's tables and the views of the foreign families.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

A = TypeVar("A")
R = TypeVar("R")

MOST = 100_000
"""Values that are remembered at once."""


class Memo(dict[Any, Any]):
    """The values by argument. Forgets all of them when there are too many: names may be different for each job."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def __missing__(self, argument: Any) -> Any:
        if len(self) >= MOST:
            self.clear()
        value = self[argument] = self._function(argument)
        return value


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
