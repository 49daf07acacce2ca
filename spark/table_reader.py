"""Table reader: reads the tables for which all facts of a job must come together, jobs, findings and totals, in one task.

All of them or some: jobs by their ids for what these cost (``migrations/lookup.py``), jobs by indexes (``operations/pages.py``),
else the whole keyspace, of which only the wanted rows are given out. Called by source.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from attrs import define, evolve, frozen
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ..migrations.counting import count
from ..migrations.engine.tables import FINDINGS, JOBS, ROWS, Table, batches, decode_text, job_bytes
from ..migrations.lookup import jobs_by_id
from ..migrations.recheck import open_recheck
from ..migrations.throttle import Throttle
from ..operations.pages import Cursor, page
from ..schema.connection.address import Address
from ..schema.errors import UsageError
from ..schema.job import Job, State
from ..schema.rule import Finding
from .poll import TOTALS, totals
from .row_filter import RowFilter, take
from .single_task import SpilledKeyspace, read_in_one_task

TABLES: dict[str, Table[Any]] = {"jobs": JOBS, "findings": FINDINGS, "totals": TOTALS}
COSTLY = frozenset({"extra", "position", "rank", "exact"})
"""Columns of a job without which it is read for half the cost (``KeyFamily.describe``)."""
PLANNER = "pyspark.sql.worker.data_source_pushdown_filters"
"""The program in which Spark asks a reader for filters; it runs only where its setting says so."""


@frozen
class WholePartition(InputPartition):  # type: ignore[misc]
    """The partition of the only task."""


@frozen
class TableReader(DataSourceReader):  # type: ignore[misc]
    """Reads one table."""

    address: Address
    table: str
    now_ms: int | None
    throttle: Throttle
    wanted: RowFilter
    by_index: bool = False
    """Whether jobs that stand in no index are left out."""
    columns: frozenset[str] | None = None
    """Those that are asked for; None: all."""

    def partitions(self) -> Sequence[WholePartition]:
        return [WholePartition()]

    def read(self, partition: WholePartition) -> Iterator[pa.RecordBatch]:
        table = TABLES[self.table]
        rows = take(self._rows(), self.wanted.test_of(table), self.wanted.limit)
        return batches(table, rows, job_bytes if table is JOBS else None)

    def _rows(self) -> Iterable[Any]:
        match self.table:
            case "jobs":
                return self._jobs()
            case "findings":
                return self._findings()
            case _:
                return totals(self.address, self.throttle, now_ms=self.now_ms)

    def _jobs(self) -> Iterable[Job]:
        ids = self.wanted.values("id")
        if ids is not None:
            queues = self._texts("queue")
            found = jobs_by_id(self.address, sorted(_decoded(ids)), queues, now_ms=self.now_ms, throttle=self.throttle)
            if found is not None:
                return found
        if self.by_index:
            return self._indexed_jobs()
        return self._some_jobs() if self._is_listed else self._all_jobs()

    @property
    def _is_listed(self) -> bool:
        """Whether indexes may have as many jobs as are wanted, and need tell no more of them than queue and state."""
        states = self._texts("state")
        return self.wanted.limit is not None and self.wanted.columns <= {"queue", "state"} and State.UNKNOWN not in (states or ())

    def _some_jobs(self) -> Iterator[Job]:
        """As many jobs as are wanted, from indexes; all where these have fewer."""
        limit = self.wanted.limit or 0
        listed = self._listed(limit)
        found = None if listed is None else list(take(listed, self.wanted.test_of(JOBS), limit))
        yield from self._all_jobs() if found is None or len(found) < limit else found

    def _indexed_jobs(self) -> Iterable[Job]:
        listed = self._listed(ROWS)
        if listed is None:
            raise UsageError(
                f"{self.address.display()}: option 'by' can't be index: not all of these jobs stand in one; leave it out, or "
                "name other states by option 'state'"
            )
        return listed

    def _listed(self, most: int) -> Iterator[Job] | None:
        """The jobs that stand in indexes, by queue and state, so many in a round; None where some have no index."""
        counted = count(self.address, self.now_ms)
        if counted is None:
            return None
        now_ms, statuses = counted
        numbers = {status.queue: status.states for status in statuses}
        named = []
        for queue in self._texts("queue") or numbers:
            for state in State:
                if state is State.UNKNOWN or state not in (self._texts("state") or State):
                    continue
                if self.address.key_family.state_indexes(self.address.prefix, queue, state) is not None:
                    named.append((queue, state))
                elif queue not in numbers or numbers[queue][state]:
                    return None
        return (job for queue, state in named for job in self._pages(queue, state, most, now_ms))

    def _pages(self, queue: str, state: State, most: int, now_ms: int) -> Iterator[Job]:
        after: Cursor | None = Cursor()
        with_ranks = self.columns is None or not self.columns.isdisjoint(COSTLY)
        while after is not None:
            found = page(self.address, queue, state, most, after, now_ms=now_ms, throttle=self.throttle, with_ranks=with_ranks)
            if found is None:
                return
            yield from found.jobs
            after = found.next

    def _all_jobs(self) -> Iterator[Job]:
        with read_in_one_task(self.address, self.now_ms, self.throttle) as read_keyspace:
            keyspace = read_keyspace.keyspace
            needs_all = self.columns is None or not COSTLY.isdisjoint(self.columns | self.wanted.columns)
            read = keyspace.family.read if needs_all else keyspace.family.describe
            yield from filter(None, (read(subject, keyspace) for subject in read_keyspace.subjects()))

    def _findings(self) -> Iterator[Finding]:
        with read_in_one_task(self.address, self.now_ms, self.throttle) as read_keyspace:
            yield from _still_holding(self.address, read_keyspace, self.throttle)

    def _texts(self, column: str) -> list[str] | None:
        """The only values of a column that are wanted; None: any."""
        cells = self.wanted.values(column)
        return None if cells is None else sorted(_decoded(cells))


def _decoded(cells: Iterable[str]) -> Iterator[str]:
    return (decode_text(cell) or "" for cell in cells)


def _still_holding(address: Address, read_keyspace: SpilledKeyspace, throttle: Throttle) -> Iterator[Finding]:
    keyspace = read_keyspace.keyspace
    family = keyspace.family
    found = ((subject, family.findings(subject, keyspace)) for subject in read_keyspace.subjects())
    with open_recheck(address, keyspace, throttle) as recheck:
        yield from recheck.still_holding_of_keyspace(family.keyspace_findings(keyspace))
        yield from recheck.still_holding(found)


@define
class PushdownReader(DataSourceReader):  # type: ignore[misc]
    """A table reader that takes Spark's filters over."""

    reader: TableReader
    with_columns: Callable[[TableReader], DataSourceReader]

    def pushFilters(self, filters: Sequence[Any]) -> Iterable[Any]:  # noqa: N802 - Spark's name
        wanted, others = self.reader.wanted.push(filters, TABLES[self.reader.table])
        self.reader = evolve(self.reader, wanted=wanted)
        return others

    def partitions(self) -> Sequence[InputPartition]:
        return self.reader.partitions()

    def read(self, partition: WholePartition) -> Iterator[pa.RecordBatch]:
        read: Iterator[pa.RecordBatch] = self.with_columns(self.reader).read(partition)
        return read


def takes_filters() -> bool:
    """Whether Spark asks for filters in this process.

    Spark 4.1 and later ask where ``spark.sql.python.filterPushdown.enabled`` is true, in a program of its own. Elsewhere a reader
    that could take filters is an error, so there it must be one that can't.
    """
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return PLANNER in sys.modules or (spec is not None and spec.name == PLANNER)
