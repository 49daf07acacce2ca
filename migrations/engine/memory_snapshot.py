"""MemorySnapshot: a keyspace in this process's memory, read from one end to the other. Called by memory_engine.py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from attrs import field, frozen

from ...schema.connection.address import Address
from ...schema.fact import Subject
from ..fact_reader import FactReader
from ..prefiltering_reader import InMemoryPrefilterReader, has_prefilter
from ..source import open_source
from ..subjects import SubjectBuilder
from ..throttle import UNTHROTTLED, Throttle
from . import Census, Progress, silent
from .jobs import FactJobs
from .output import RowsInMemory
from .runner import InProcess
from .snapshot import Snapshot, Work
from .tables import Table

T = TypeVar("T")

PARTITION = "local"
"""The only one."""
STEP = 1000
"""Jobs between two reports of progress."""


@frozen
class MemorySnapshot(Snapshot):
    """See Snapshot."""

    subjects: Sequence[Subject] = field(repr=False)
    """In an order that depends on nothing but their ids, so that a second reading of the same keys gives the same."""

    @property
    def partitions(self) -> list[str]:
        return [PARTITION]

    def work(self, work: Work[T], table: Table[T], path: str, phase: str, progress: Progress = silent) -> RowsInMemory[T]:
        return RowsInMemory.of(work(PARTITION, FactJobs(self.keyspace, self._counted(phase, progress))))

    def check(self, work: Work[T], table: Table[T], path: str, progress: Progress = silent) -> RowsInMemory[T]:
        return self.work(work, table, path, "checking jobs", progress)

    def _counted(self, phase: str, progress: Progress) -> Iterator[Subject]:
        for done, subject in enumerate(self.subjects):
            if done % STEP == 0:
                progress(phase, done, len(self.subjects))
            yield subject
        progress(phase, len(self.subjects), len(self.subjects))


def read(
    address: Address, now_ms: int, progress: Progress = silent, throttle: Throttle = UNTHROTTLED, *, prefiltered: bool = False
) -> MemorySnapshot:
    """Reads a keyspace. ``prefiltered``: jobs in which no rule can find anything may be left out; they are counted."""
    family = address.key_family
    prefiltering = InMemoryPrefilterReader(address, now_ms) if prefiltered and has_prefilter(address) else None
    reader = prefiltering or FactReader(address)
    builder = SubjectBuilder(family)
    keys = 0
    phase = f"reading {address.family} keys"
    progress(phase, 0, None)
    with open_source(address, throttle) as source:
        for batch in source.entries(now_ms, reader.is_record):
            for entry in batch:
                for fact in reader.facts(entry):
                    builder.add(fact)
            keys += len(batch)
            progress(phase, keys, source.expected(keys))
        for fact in reader.rest():
            builder.add(fact)
        progress(phase, keys, keys)
        remarks = tuple(source.remarks())
    accepted = Census()
    if prefiltering is not None:
        remembered, accepted = prefiltering.settle()
        for fact in remembered:
            builder.add(fact)
    summary = reader.close()
    return MemorySnapshot(
        InProcess(),
        address,
        now_ms,
        1,
        summary.totals,
        summary.has_content,
        remarks,
        summary.left,
        accepted,
        tuple(builder.subjects()),
    )
