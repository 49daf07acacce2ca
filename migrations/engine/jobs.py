"""Jobs: those of one partition of a snapshot, as the work on them sees them.

Each by itself, as a subject; or many of a kind at once, as a table, where they are verified and the work takes tables. Called by
snapshot.py, which has the partitions, and by whatever works on them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from attrs import frozen

from ...schema.fact import Subject
from ...schema.family import Keyspace
from .tables import fact_bytes, gathered

if TYPE_CHECKING:
    from ...schema.columnar.jobtable import JobTable

T = TypeVar("T")
M = TypeVar("M")

BATCH_BYTES = 16 << 20
"""Of facts in a batch."""

One = Callable[[Subject], T]
Many = Callable[["JobTable"], M | None]
"""What is made of the jobs of a table; None where each must be looked at by itself."""


class JobBatch(NamedTuple, Generic[T, M]):
    """What was made of as many jobs of a partition as memory should hold. Rows tell their order, which is always the same."""

    singly: Sequence[tuple[int, T]]
    """Row, and what ``one`` has made."""
    tables: Sequence[tuple[Any, M]]
    """The rows of all jobs of a table (indexes), and what ``many`` has made."""


class Jobs(ABC):
    """The jobs of a partition."""

    keyspace: Keyspace

    @abstractmethod
    def batches(self, one: One[T], many: Many[M], times: int = 1) -> Iterator[JobBatch[T, M]]:
        """What ``one`` makes of each job, and ``many`` of those in tables of which it makes anything.

        ``times``: batches of so many times the usual size, for those who make little of a job.
        """

    def in_any_order(self, one: One[T], many: Many[Iterable[T]], times: int = 1) -> Iterator[T]:
        """What ``one`` makes of each job and ``many`` of those in a table, one or more things, in any order."""
        for batch in self.batches(one, many, times):
            yield from (made for _, made in batch.singly)
            yield from chain.from_iterable(made for _, made in batch.tables)

    def subjects(self) -> Iterator[Subject]:
        """Each job."""
        return self.in_order(_itself)

    def in_order(self, one: One[T]) -> Iterator[T]:
        """What ``one`` makes of each job, in their order."""
        batch: JobBatch[T, Any]
        for batch in self.batches(one, _nothing):
            yield from (made for _, made in sorted(batch.singly, key=itemgetter(0)))


def _itself(subject: Subject) -> Subject:
    return subject


def _bytes(subject: Subject) -> int:
    return sum(map(fact_bytes, subject.facts))


def _nothing(_table: JobTable) -> None:
    return None


@frozen
class FactJobs(Jobs):
    """Jobs that are facts. They can be gone through once. ``most``: of a batch."""

    keyspace: Keyspace
    facts: Iterable[Subject]
    most: int = 1

    def batches(self, one: One[T], many: Many[M], times: int = 1) -> Iterator[JobBatch[T, M]]:
        for subjects in gathered(self.facts, _bytes, self.most, BATCH_BYTES):
            yield JobBatch(list(enumerate(map(one, subjects))), [])

    def subjects(self) -> Iterator[Subject]:
        return iter(self.facts)
