"""Stands: how each job stands on one side of a comparison, as a line that is short enough for millions of them.

A stand names a job and has a digest of all that would be compared. Stands lie in files by bucket (buckets.py); jobs themselves,
as sides, become rows of a table only where the stands of two sides differ. Called by comparison.py.
"""

from __future__ import annotations

import hashlib
import json
import marshal
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from operator import attrgetter
from typing import Any

import pyarrow as pa
from attrs import evolve, frozen

from ..migrations.plan import Plan, carry
from ..schema.fact import Subject
from ..schema.family import KeyFamily
from ..schema.job import JOB_FIELDS, Job, State
from ..schema.text import to_bytes
from .buckets import BucketFile
from .snapshot import Jobs, Work
from .stage import Batches, closing
from .tables import JOBS, Column, Table, batches, bigint_column, job_bytes, text_column


@frozen
class Side:
    """One job on one side."""

    job: Job
    promised: bool
    """On the source's side: as it shall stand at the target. Else as it stands there."""
    refused_by: str | None = None
    """The rule that keeps a job at the source, which then is shown as it stands there."""


@frozen
class Stand:
    """What tells whether the sides of a job differ, and where the facts about it are."""

    number: int
    """The same for jobs of the same queue and id, and most likely no others."""
    queue: str
    id: str
    turn: int | None
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


def _side(promised: bool, refused_by: str | None, **cells: object) -> Side:
    return Side(JOBS.make(**cells), promised, refused_by)


SIDES: Table[Side] = Table(
    "sides",
    _side,
    (*map(_of_job, JOBS.columns), Column("promised", "boolean", pa.bool_()), text_column("refused_by")),
)

STANDS: Table[Stand] = Table(
    "stands",
    Stand,
    (
        bigint_column("number"),
        text_column("queue"),
        text_column("id"),
        bigint_column("turn"),
        text_column("scope"),
        text_column("subject"),
        text_column("part"),
        Column("digest", "binary", pa.binary()),
    ),
)
ROWS = 20_000
"""Stands in a round of a file."""

See = Callable[[Jobs], Iterator[tuple[Subject, Side]]]
"""Tells the sides of jobs."""


def promised(plan: Plan) -> See:
    """What shall stand at the target, and what shall not."""

    def see(jobs: Jobs) -> Iterator[tuple[Subject, Side]]:
        for subject, keyspace in jobs:
            carried = carry(subject, keyspace, plan)
            if carried.original is not None:
                yield subject, Side(carried.job or carried.original, True, carried.refused_by)

    return see


def standing(jobs: Jobs) -> Iterator[tuple[Subject, Side]]:
    """What stands at the target."""
    for subject, keyspace in jobs:
        job = keyspace.family.read(subject, keyspace)
        if job is not None:
            yield subject, Side(job, False)


def naming(see: See, target: KeyFamily, folder: str, buckets: int) -> Work:
    """The work that leaves stands in a file in ``folder``; it tells its path, their number, and how many of them are refused."""

    def name(part: str, jobs: Jobs) -> Batches:
        told: dict[str, Any] = {"jobs": 0, "refused": 0}

        def stands() -> Iterator[Stand]:
            for subject, side in see(jobs):
                job = side.job
                told["jobs"] += 1
                told["refused"] += side.refused_by is not None
                mark = b"" if side.refused_by else digest(job, target)
                turn = job.position if job.state is State.WAITING and side.refused_by is None else None
                yield Stand(_number(job), job.queue, job.id, turn, subject.scope, subject.job_id, part, mark)

        file, rows = None, stands()
        while round_of := list(islice(rows, ROWS)):
            if file is None:
                told["file"] = os.path.join(folder, f"{uuid.uuid4()}.arrow")
                file = BucketFile(told["file"], STANDS.arrow, buckets)
            file.write(STANDS.batch(round_of))
        if file is not None:
            file.close()
        yield from closing(iter(()), STANDS, lambda: json.dumps(told))

    return name


def _number(job: Job) -> int:
    name = to_bytes(f"{job.queue}\0{job.id}")
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest()) >> 1


def showing(see: See) -> Work:
    """The work that shows whole jobs."""

    def show(_part: str, jobs: Jobs) -> Batches:
        yield from closing(batches(SIDES, (side for _, side in see(jobs)), _bytes), SIDES, str)

    return show


_compared = attrgetter(*(name for name in JOB_FIELDS if name not in ("state", "history", "extra")))


def digest(job: Job, target: KeyFamily) -> bytes:
    """Equal for jobs between which a comparison would find no difference, but for rare ones that it then acquits.

    Different jobs have different digests, but for one in 2^128.
    """
    extra = job.extra if target.keeps_extra else job.extra.get(target.name)
    # Version 2 writes equal values in the same way, later ones by how often they are referred to.
    cells = marshal.dumps((str(job.state), _compared(job), _ordered(job.history), _ordered(extra)), 2)
    return hashlib.blake2b(cells, digest_size=16).digest()


def _ordered(value: Any) -> Any:
    """The value with its mappings in one order."""
    if isinstance(value, Mapping):
        return {key: _ordered(value[key]) for key in sorted(value)}
    return [_ordered(each) for each in value] if isinstance(value, list | tuple) else value


def _bytes(side: Side) -> int:
    return job_bytes(side.job)
