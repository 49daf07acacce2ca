"""Comparison: whether a target holds what a plan promises for its source, for keyspaces of any size.

Both sides become one table with a digest of each job. Grouping by job needs only names and digests; the jobs themselves are
looked at only where the digests differ, by the same pure functions as in the local engine. Called by the engine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from itertools import groupby

import pyarrow as pa
from attrs import evolve, field, frozen
from pyspark.sql import DataFrame, Window, functions

from ..migrations.compare import judge
from ..migrations.engine import Difference, Progress, Report, Verification
from ..migrations.order import swapped
from ..migrations.plan import Plan, carry
from ..schema.family import KeyFamily
from ..schema.job import JOB_FIELDS, Job, State
from .snapshot import Snapshot
from .stage import Batches, closing, perform, run
from .tables import DIFFERENCES, JOBS, Column, Table, batches, decode_text, encode_json, job_bytes, text_column


@frozen
class Stand:
    """One job on one side."""

    job: Job
    promised: bool
    """On the source's side: as it shall stand at the target. Else as it stands there."""
    refused_by: str | None = None
    """The rule that keeps a job at the source, which then is shown as it stands there."""
    digest: bytes = field(kw_only=True)


def _of_job(column: Column) -> Column:
    def get(stand: Stand) -> object:
        return column.get(stand.job)

    return evolve(column, get=get)


def _stand(promised: bool, refused_by: str | None, digest: bytes, **cells: object) -> Stand:
    return Stand(JOBS.make(**cells), promised, refused_by, digest=digest)


STANDS: Table[Stand] = Table(
    "stands",
    _stand,
    (
        *map(_of_job, JOBS.columns),
        Column("promised", "boolean", pa.bool_()),
        text_column("refused_by"),
        Column("digest", "binary", pa.binary()),
    ),
)


def compare_keyspaces(
    source: Snapshot, target: Snapshot, plan: Plan, tasks: int, folder: str, report: Report[Difference], progress: Progress
) -> Verification:
    """Reports every difference, and counts."""
    outcome = Verification()

    def tell(difference: Difference) -> None:
        outcome.count(difference)
        report(difference)

    promised = run(source.subjects(tasks), _promising(source, plan), STANDS, f"{folder}/promised", "reading jobs", progress)
    standing = run(target.subjects(tasks), _standing(target, plan), STANDS, f"{folder}/standing", "reading target", progress)
    for word in map(json.loads, promised.tails()):
        outcome.source_jobs += word["jobs"]
        outcome.refused += word["refused"]
    outcome.target_jobs = sum(json.loads(word)["jobs"] for word in standing.tails())
    both = promised.frame().unionByName(standing.frame())

    doubtful = _doubtful(both, f"{folder}/doubtful", progress)
    # Every other job stands on both sides, once.
    doubts = doubtful.agg(functions.sum("stands")).collect()[0][0] or 0
    outcome.matched = (outcome.source_jobs + outcome.target_jobs - doubts) // 2
    if doubts:
        seen = (
            both.join(doubtful, ["queue", "id"], "left_semi")
            .repartition(tasks, "queue", "id")
            .sortWithinPartitions("queue", "id")
        )
        found = run(seen, _judging(plan), DIFFERENCES, f"{folder}/differences", "comparing jobs", progress)
        outcome.matched += sum(json.loads(word)["matched"] for word in found.tails())
        for difference in found.rows():
            tell(difference)
    for difference in order_differences(promised.frame(), standing.frame()):
        tell(difference)
    return outcome


def order_differences(promised: DataFrame, standing: DataFrame) -> Iterator[Difference]:
    """For each queue whose waiting jobs would run in another order, the first that stands elsewhere.

    The same as ``migrations.order.order_difference``, on tables.
    """

    def waiting(frame: DataFrame, name: str) -> DataFrame:
        placed = frame.where(f"state = '{State.WAITING}' and refused_by is null and position is not null")
        return placed.select("queue", "id", functions.col("position").alias(name))

    common = waiting(promised, "wanted").join(waiting(standing, "found"), ["queue", "id"])
    for name in ("wanted", "found"):
        order = Window.partitionBy("queue").orderBy(name, "id")
        common = common.withColumn(name, functions.row_number().over(order) - 1)
    ranks = common.where("wanted <> found")
    first = ranks.groupBy("queue").agg(functions.min_by(functions.struct("id", "wanted", "found"), "wanted").alias("first"))
    instead = ranks.select("queue", functions.col("id").alias("instead"), functions.col("found").alias("place"))
    pairs = first.select("queue", "first.*").join(instead, "queue").where("place = wanted")
    for row in pairs.orderBy("queue").toLocalIterator():
        names = [decode_text(row[name]) or "" for name in ("queue", "id", "instead")]
        yield swapped(names[0], names[1], row["wanted"], row["found"], names[2])


def digest(job: Job, target: KeyFamily) -> bytes:
    """Equal for jobs between which a comparison would find no difference, but for rare ones that it then acquits."""
    cells = [getattr(job, name) for name in JOB_FIELDS if name != "extra"]
    cells.append(job.extra if target.keeps_extra else job.extra.get(target.name))
    return hashlib.blake2b(encode_json(cells, sort_keys=True).encode(), digest_size=16).digest()


def _promising(source: Snapshot, plan: Plan) -> Callable[[Batches], Batches]:
    """The task that decides what shall stand at the target."""
    read = source.reader()

    def promise(rows: Batches) -> Batches:
        jobs = refused = 0

        def stands() -> Iterator[Stand]:
            nonlocal jobs, refused
            for subject, keyspace in read(rows):
                carried = carry(subject, keyspace, plan)
                if carried.original is None:
                    continue
                jobs += 1
                refused += carried.refused
                if carried.job is None:
                    yield Stand(carried.original, True, carried.findings[0].rule, digest=b"")
                else:
                    yield Stand(carried.job, True, digest=digest(carried.job, plan.writer))

        yield from closing(batches(STANDS, stands(), _bytes), STANDS, lambda: json.dumps({"jobs": jobs, "refused": refused}))

    return promise


def _standing(target: Snapshot, plan: Plan) -> Callable[[Batches], Batches]:
    """The task that reads what stands at the target."""
    read = target.reader()

    def stand(rows: Batches) -> Batches:
        jobs = 0

        def stands() -> Iterator[Stand]:
            nonlocal jobs
            for subject, keyspace in read(rows):
                job = keyspace.family.read(subject, keyspace)
                if job is not None:
                    jobs += 1
                    yield Stand(job, False, digest=digest(job, plan.writer))

        yield from closing(batches(STANDS, stands(), _bytes), STANDS, lambda: json.dumps({"jobs": jobs}))

    return stand


def _doubtful(both: DataFrame, path: str, progress: Progress) -> DataFrame:
    """The names of the jobs that do not stand on both sides with the same digest, and how often each stands."""
    groups = both.groupBy("queue", "id").agg(
        functions.count("*").alias("stands"),
        functions.count_if("promised").alias("promised"),
        functions.min("digest").alias("least"),
        functions.max("digest").alias("greatest"),
        functions.max("refused_by").alias("refused_by"),
    )
    doubts = groups.where("stands <> 2 or promised <> 1 or least <> greatest or refused_by is not null")
    perform(both.sparkSession, lambda: doubts.select("queue", "id", "stands").write.parquet(path), "comparing digests", progress)
    return both.sparkSession.read.schema("queue string, id string, stands bigint").parquet(path)


def _judging(plan: Plan) -> Callable[[Batches], Batches]:
    """The task that compares jobs field by field. Its rows come with all stands of one job in a row."""

    def compare(rows: Batches) -> Batches:
        matched = 0

        def found() -> Iterator[Difference]:
            nonlocal matched
            stands = (stand for batch in rows for stand in STANDS.rows(batch))
            for _, group in groupby(stands, key=lambda stand: (stand.job.queue, stand.job.id)):
                sides = {stand.promised: stand for stand in group}
                promised, standing = sides.get(True), sides.get(False)
                differences = list(
                    judge(
                        promised.job if promised else None,
                        promised.refused_by if promised else None,
                        standing.job if standing else None,
                        plan.writer,
                    )
                )
                matched += promised is not None and promised.refused_by is None and not differences
                yield from differences

        yield from closing(batches(DIFFERENCES, found()), DIFFERENCES, lambda: json.dumps({"matched": matched}))

    return compare


def _bytes(stand: Stand) -> int:
    return job_bytes(stand.job)
