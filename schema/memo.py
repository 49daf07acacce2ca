"""Memo: a function's values, remembered: all of them (Memo), the last one (remember_last), or with its object (cached_property).

Thousands of records share a few names; and a reader and all rules of a family look at one subject after the other, so that what
they derive from it is derived once. Only for functions without side effects whose result nobody changes.
Called by prefilters, Spark's tables and the views of the foreign families.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

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


if TYPE_CHECKING:
    from functools import cached_property as cached_property
else:

    class cached_property:  # noqa: N801  (it takes the place of the other)
        """functools' own, without the lock that it takes before Python 3.12: views of millions of jobs have dozens of these.

        Two threads that ask at the same time may both work it out. Not for classes with slots.
        """

        def __init__(self, function: Callable[[Any], Any]) -> None:
            self._function = function
            self.__doc__ = function.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self._name] = self._function(instance)
            return value
