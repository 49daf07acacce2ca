"""Output: what a part of a step makes, and the results of all parts, wherever they are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from attrs import frozen

T = TypeVar("T")
Row = TypeVar("Row", covariant=True)


@frozen
class Output(Generic[T]):
    """What a part has made."""

    rows: Iterable[T] = ()
    summary: Callable[[], str] = str
    """Asked for when all rows have been taken."""


class Results(Protocol[Row]):
    """What a step has made."""

    @property
    def summaries(self) -> Sequence[str]:
        """Of all parts."""

    def rows(self) -> Iterator[Row]:
        """The rows, one part's after the other's. A few are in memory, if there are files."""


@frozen
class RowsInMemory(Generic[T]):
    """Results that are kept in memory."""

    found: Sequence[T]
    summaries: tuple[str, ...]

    @classmethod
    def of(cls, output: Output[T]) -> RowsInMemory[T]:
        """Those of a step of one part."""
        found = list(output.rows)
        return cls(found, (output.summary(),))

    def rows(self) -> Iterator[T]:
        """See Results.rows."""
        return iter(self.found)
