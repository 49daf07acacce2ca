"""Job digests: each job on one side of a comparison, as a row that is short enough for millions of them.

A JobDigest names a job and has a digest of all that would be compared. Digests lie in files by bucket (shuffle.py); jobs
themselves, as sides, become rows of a table only where the digests of two sides differ. Called by comparison.py.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import evolve, frozen

from ...schema.columnar.binary_views import BinaryViews
from ...schema.columnar.jobnumbers import numbers_of
from ...schema.columnar.jobtable import JobTable
from ...schema.columnar.tables_of_jobs import tables_of
from ...schema.fact import Subject
from ...schema.family import Keyspace
from ...schema.job import Job, State
from ...schema.jobnumber import number_of
from ...schema.text import to_text
from ..plan import Plan, decide, decide_table
from . import storage
from .groups import Grouping
from .job_hasher import JobHasher
from .jobs import Jobs
from .key_scan import DIGEST_FACTOR
from .output import Output
from .shuffle import ShuffleFile
from .snapshot import Work
from .tables import BASE64, JOBS, Column, Table, bigint_column, encode_text, job_bytes, text_column


@frozen
class Side:
    """One job on one side."""

    job: Job
    expected: bool
    """On the source's side: as it should be at the target. Else as it is there."""
    refused_by: str | None = None
    """The rule that keeps a job at the source, which then is shown as it is there."""


class JobDigest(NamedTuple):
    """What tells whether the sides of a job differ, and where the facts about it are."""

    number: int
    """The same for jobs of the same queue and id, and most likely no others."""
    queue: str
    id: str
    position: int | None
    """Its position among the waiting jobs of its queue, if it is one."""
    scope: str
    subject: str
    part: str
    """Of ``Snapshot.work``."""
    digest: bytes
    """Empty for a job that is refused."""


def _of_job(column: Column) -> Column:
    def get(side: Side) -> object:
        return column.get(side.job)

    return evolve(column, get=get)


def _side(expected: bool, refused_by: str | None, **cells: object) -> Side:
    return Side(JOBS.make(**cells), expected, refused_by)


def _bytes(side: Side) -> int:
    return job_bytes(side.job)


SIDES: Table[Side] = Table(
    "sides",
    _side,
    (*map(_of_job, JOBS.columns), Column("expected", "boolean"), text_column("refused_by")),
    _bytes,
)


def _job_of(side: Side) -> tuple[str, str]:
    return side.job.queue, side.job.id


SIDES_BY_JOB = Grouping(SIDES, _job_of)

DIGESTS: Table[JobDigest] = Table(
    "digests",
    JobDigest,
    (
        bigint_column("number"),
        text_column("queue"),
        text_column("id"),
        bigint_column("position"),
        text_column("scope"),
        text_column("subject"),
        text_column("part"),
        Column("digest", "binary"),
    ),
)
ROWS = 20_000
"""Digests that go to a file at once."""


class SideView(ABC):
    """How the subjects of one side become jobs to compare."""

    @abstractmethod
    def side(self, subject: Subject, keyspace: Keyspace) -> Side | None:
        """The side of a job; None where there is none."""

    @abstractmethod
    def table(self, jobs: JobTable) -> JobTable | None:
        """The sides of all of these jobs; None where each must be looked at by itself."""


@frozen
class ExpectedView(SideView):
    """The jobs that should be at the target, and those that should not."""

    plan: Plan

    def side(self, subject: Subject, keyspace: Keyspace) -> Side | None:
        decision = decide(subject, keyspace, self.plan)
        return Side(decision.job or decision.original, True, decision.refused_by) if decision.original else None

    def table(self, jobs: JobTable) -> JobTable | None:
        found = decide_table(jobs, self.plan)
        return None if found is None else found[1]


@frozen
class ActualView(SideView):
    """The jobs that are at the target."""

    def side(self, subject: Subject, keyspace: Keyspace) -> Side | None:
        job = keyspace.family.read(subject, keyspace)
        return Side(job, False) if job else None

    def table(self, jobs: JobTable) -> JobTable | None:
        return jobs


def digest_work(view: SideView, hasher: JobHasher, folder: str, buckets: int) -> Work[JobDigest]:
    """The work that leaves digests in a file in ``folder``; its summary has the path, their number, and how many are refused."""

    def write(partition: str, jobs: Jobs) -> Output[JobDigest]:
        summary: dict[str, Any] = {"jobs": 0, "refused": 0}

        def one(subject: Subject) -> _Found | None:
            side = view.side(subject, jobs.keyspace)
            return None if side is None else _Found(subject.scope, subject.job_id, side)

        def many(table: JobTable) -> pa.RecordBatch | None:
            shown = view.table(table)
            return None if shown is None else digests_of(shown, partition, hasher)

        def digests() -> Iterator[JobDigest | pa.RecordBatch]:
            for batch in jobs.batches(one, many, DIGEST_FACTOR):
                yield from (made for _, made in batch.tables)
                tables, others = _in_tables([found for _, found in batch.singly if found is not None])
                yield from (digests_of(table, partition, hasher) for table in tables)
                yield from (digest_of(found, partition, hasher) for found in others)

        file = None
        for rows in _in_batches(digests()):
            if file is None:
                summary["file"] = storage.new_name(folder)
                file = ShuffleFile(summary["file"], DIGESTS.arrow, buckets)
            file.write(rows)
            summary["jobs"] += rows.num_rows
            summary["refused"] += pc.sum(pc.equal(rows.column("digest"), b"")).as_py()
        if file is not None:
            file.close()
        return Output(summary=partial(json.dumps, summary))

    return write


class _Found(NamedTuple):
    """A side, and the subject whose it is."""

    scope: str
    subject: str
    side: Side


def _in_tables(found: Sequence[_Found]) -> tuple[list[JobTable], list[_Found]]:
    """Those of which tables can be made; and all others."""
    able: list[_Found] = []
    left: list[_Found] = []
    for each in found:
        (able if each.side.refused_by is None and each.subject == each.side.job.id else left).append(each)
    tables: list[JobTable] = []
    are_left: Any = np.ones(len(able), bool)
    for table in tables_of([each.side.job for each in able], [each.scope for each in able]):
        tables.append(evolve(table, scope=able[table.rows.argmax()].scope))
        are_left &= ~table.rows
    return tables, [*left, *compress(able, are_left)]


def digest_of(found: _Found, partition: str, hasher: JobHasher) -> JobDigest:
    """The digest of one job."""
    job, is_refused = found.side.job, found.side.refused_by is not None
    position = job.position if job.state is State.WAITING and not is_refused else None
    digest = b"" if is_refused else hasher.digest(job)
    return JobDigest(number_of(job.queue, job.id), job.queue, job.id, position, found.scope, found.subject, partition, digest)


def _in_batches(found: Iterable[JobDigest | pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Digests, which come one by one or many at once, in batches of some ROWS."""
    single: list[JobDigest] = []
    tables: list[pa.RecordBatch] = []
    rows = 0

    def all_rows() -> pa.RecordBatch:
        (batch,) = pa.Table.from_batches([DIGESTS.batch(single), *tables]).combine_chunks().to_batches()
        return batch

    for each in found:
        if isinstance(each, JobDigest):
            single.append(each)
            rows += 1
        else:
            tables.append(each)
            rows += each.num_rows
        if rows >= ROWS:
            yield all_rows()
            single, tables, rows = [], [], 0
    if rows:
        yield all_rows()


def digests_of(jobs: JobTable, partition: str, hasher: JobHasher) -> pa.RecordBatch:
    """The digests of the jobs of a table."""
    queue, ids, rows = jobs.common.queue, jobs.ids, len(jobs)
    names = _text_array(ids)
    has_position = jobs.common.state is State.WAITING and "position" in jobs.columns
    cells = {
        "number": pa.array(numbers_of(ids, [queue], np.zeros(rows, np.int64))),
        "queue": _same(queue, rows),
        "id": names,
        "position": pa.array(jobs.columns["position"]) if has_position else pa.nulls(rows, pa.int64()),
        "scope": _same(jobs.scope, rows),
        "subject": names,
        "part": _same(partition, rows),
        "digest": hasher.digest_table(jobs),
    }
    return pa.RecordBatch.from_arrays([cells[name] for name in DIGESTS.arrow.names], schema=DIGESTS.arrow)


def _text_array(texts: BinaryViews) -> pa.Array:
    """``encode_text`` of each."""
    raw = texts.to_arrow()
    text = raw.buffers()[2].to_pybytes()
    if text.isascii() and BASE64.encode() not in text:
        return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())
    return pa.array([encode_text(to_text(each)) for each in raw.to_pylist()], pa.string())


def _same(text: str, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(encode_text(text), pa.string()), rows)


def side_work(view: SideView, folder: str, buckets: int) -> Work[Side]:
    """The work that leaves whole jobs in a file in ``folder``, by job, and has its path in its summary."""

    def show(_partition: str, jobs: Jobs) -> Output[Side]:
        sides = filter(None, jobs.in_order(lambda subject: view.side(subject, jobs.keyspace)))
        files = SIDES_BY_JOB.write(sides, folder, buckets)
        return Output(summary=partial(json.dumps, files))

    return show
