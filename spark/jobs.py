"""Jobs: those of one part of a snapshot, as the work on them sees them.

Each by itself, as a subject; or many of a kind at once, as a table, where they are sound and the work takes tables. Called by
snapshot.py, which has the parts, and by whatever works on them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TypeVar

from attrs import frozen

from ..schema.fact import Subject
from ..schema.jobtable import JobTable
from ..schema.rule import Keyspace
from ..schema.voucher import SoundJobs, Voucher
from .sound import Traces

T = TypeVar("T")

One = Callable[[Subject], T]
Many = Callable[[JobTable], Sequence[T] | None]
"""As One for each job of a table; None where each must be looked at by itself."""
Some = Callable[[JobTable], Iterable[T] | None]
"""The same, but for how many things it makes."""


class Jobs(ABC):
    """The jobs of a part, in an order that is always the same."""

    keyspace: Keyspace

    @abstractmethod
    def in_any_order(self, one: One[T], many: Some[T]) -> Iterator[T]:
        """What ``one`` makes of each job and ``many`` of those in a table, one or more things, in any order."""

    @abstractmethod
    def in_order(self, one: One[T], many: Many[T] | None = None) -> Iterator[T]:
        """What ``one`` makes of the subject of each job. ``many`` must make the same of jobs in a table."""


@frozen
class FactJobs(Jobs):
    """Jobs that are facts. They can be gone through once."""

    keyspace: Keyspace
    subjects: Iterable[Subject]

    def in_order(self, one: One[T], many: Many[T] | None = None) -> Iterator[T]:
        return map(one, self.subjects)

    def in_any_order(self, one: One[T], many: Some[T]) -> Iterator[T]:
        return map(one, self.subjects)


@frozen
class BucketJobs(Jobs):
    """The sound jobs of a bucket."""

    keyspace: Keyspace
    traces: Traces
    bucket: int
    only: Collection[tuple[str, str]] | None = None
    """These, by scope and id."""

    def in_any_order(self, one: One[T], many: Some[T]) -> Iterator[T]:
        voucher = self.traces.voucher()
        for groups in self.traces.slabs(self.bucket, self.only):
            for _, jobs in groups:
                yield from self._made(voucher, jobs, one, many)

    def in_order(self, one: One[T], many: Many[T] | None = None) -> Iterator[T]:
        voucher = self.traces.voucher()
        for groups in self.traces.slabs(self.bucket, self.only):
            found: dict[int, T] = {}
            for rows, jobs in groups:
                found.update(zip(rows, self._made(voucher, jobs, one, many), strict=True))
            yield from map(found.__getitem__, range(len(found)))

    def _made(self, voucher: Voucher, jobs: SoundJobs, one: One[T], many: Some[T] | None) -> Iterable[T]:
        table = None if many is None else voucher.table(jobs, self.keyspace.totals)
        made = None if many is None or table is None else many(table)
        return map(one, jobs.subjects(voucher)) if made is None else made
