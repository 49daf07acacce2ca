"""Comparison: whether a target holds what a plan promises for its source, for keyspaces of any size.

    subjects -> stands (stands.py): name and digest -> by bucket: those that differ -> their subjects -> jobs, field by field

Millions of equal jobs pass as stands; those that differ are read again, from the snapshots, and compared by the same pure
functions as in the local engine. Called by the engine.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import pyarrow as pa
from attrs import frozen
from pyspark.sql import DataFrame, Window, functions

from ..migrations.compare import judge
from ..migrations.engine import Difference, Progress, Report, Verification
from ..migrations.order import swapped
from ..migrations.plan import Plan
from .buckets import read_bucket
from .chosen import choose
from .snapshot import Snapshot
from .stage import Batches, closing, run
from .stands import SIDES, STANDS, Promised, See, Stand, Standing, naming, showing
from .tables import DIFFERENCES, Column, Table, batches, bigint_column, decode_text, text_column


def compare_keyspaces(
    source: Snapshot, target: Snapshot, plan: Plan, folder: str, report: Report[Difference], progress: Progress
) -> Verification:
    """Reports every difference, and counts."""
    outcome = Verification()

    def tell(difference: Difference) -> None:
        outcome.count(difference)
        report(difference)

    sides: tuple[tuple[Snapshot, See, str], ...] = ((source, Promised(plan), "source"), (target, Standing(), "target"))
    files = []
    for snapshot, see, name in sides:
        path, phase = f"{folder}/stands-{name}", f"reading {name} jobs"
        os.mkdir(path)
        done = snapshot.work(naming(see, plan.writer, path, source.tasks), STANDS, f"{path}/told", phase, progress)
        told = list(map(json.loads, done.tails()))
        files.append(sorted(word["file"] for word in told if "file" in word))
        if snapshot is source:
            outcome.source_jobs = sum(word["jobs"] for word in told)
            outcome.refused = sum(word["refused"] for word in told)
        else:
            outcome.target_jobs = sum(word["jobs"] for word in told)
    steps = done.spark.range(0, source.tasks, 1, source.tasks)
    task = _comparing(files[0], files[1], source.tasks)
    compared = run(steps, task, COMPARED, f"{folder}/compared", "comparing digests", progress)
    outcome.matched = sum(map(int, compared.tails()))
    doubtful = compared.frame().where("part is not null")
    if not doubtful.isEmpty():
        shown = []
        for snapshot, see, name in sides:
            path, phase = f"{folder}/differing-{name}", f"reading differing {name} jobs"
            differing = doubtful.where(functions.col("promised") == (snapshot is source))
            chosen = choose(differing.selectExpr("scope", "subject as job_id", "part"), f"{path}-chosen")
            shown.append(snapshot.work(showing(see), SIDES, path, phase, progress, chosen).frame())
        by_job = shown[0].unionByName(shown[1]).repartition(source.tasks, "queue", "id").sortWithinPartitions("queue", "id")
        found = run(by_job, _judging(plan), DIFFERENCES, f"{folder}/differences", "comparing jobs", progress)
        outcome.matched += sum(json.loads(word)["matched"] for word in found.tails())
        for difference in found.rows():
            tell(difference)
    for difference in order_differences(compared.frame().where("wanted is not null")):
        tell(difference)
    return outcome


@frozen
class Compared:
    """What comparing the stands of a job has told: its turns on both sides, or what to look at again. Else null."""

    queue: str
    id: str
    wanted: int | None = None
    found: int | None = None
    scope: str | None = None
    subject: str | None = None
    part: str | None = None
    promised: bool | None = None


COMPARED: Table[Compared] = Table(
    "compared",
    Compared,
    (
        text_column("queue"),
        text_column("id"),
        bigint_column("wanted"),
        bigint_column("found"),
        text_column("scope"),
        text_column("subject"),
        text_column("part"),
        Column("promised", "boolean", pa.bool_()),
    ),
)


def _comparing(source: Sequence[str], target: Sequence[str], buckets: int) -> Callable[[Batches], Batches]:
    """The task that compares the stands in some buckets; it tells how many jobs stand on both sides with the same digest."""

    def compare(rows: Batches) -> Batches:
        matched = 0

        def compared() -> Iterator[Compared]:
            nonlocal matched
            for bucket in (bucket for row in rows for bucket in row.column("id").to_pylist()):
                wanted, found = (_stands(paths, bucket, buckets) for paths in (source, target))
                for name in wanted.keys() | found.keys():
                    ours, theirs = wanted.get(name, ()), found.get(name, ())
                    turns = [(one.turn, other.turn) for one in ours for other in theirs]
                    yield from (Compared(*name, *pair) for pair in turns if None not in pair)
                    if len(ours) == len(theirs) == 1 and ours[0].digest == theirs[0].digest:
                        matched += 1
                        continue
                    for each in ours:
                        yield Compared(*name, None, None, each.scope, each.subject, each.part, True)
                    for each in theirs:
                        yield Compared(*name, None, None, each.scope, each.subject, each.part, False)

        yield from closing(batches(COMPARED, compared()), COMPARED, lambda: str(matched))

    return compare


def _stands(paths: Sequence[str], bucket: int, buckets: int) -> dict[tuple[str, str], list[Stand]]:
    """The stands in a bucket, by queue and id."""
    found: dict[tuple[str, str], list[Stand]] = {}
    for batch in read_bucket(paths, bucket, buckets, range(len(STANDS.columns))):
        for stand in STANDS.rows(batch):
            found.setdefault((stand.queue, stand.id), []).append(stand)
    return found


def order_differences(common: DataFrame) -> Iterator[Difference]:
    """For each queue whose waiting jobs would run in another order, the first that stands elsewhere.

    The same as ``migrations.order.order_difference``, on a table of jobs with their turns, ``wanted`` and ``found``.
    """
    common = common.select("queue", "id", "wanted", "found")
    along = Window.partitionBy("queue").orderBy("wanted", "id")
    place = functions.struct("found", "id")
    steps = common.select("queue", (functions.lag(place).over(along) > place).alias("is_back"))
    elsewhere = steps.where("is_back").select("queue").distinct()
    if elsewhere.isEmpty():
        return
    common = common.join(elsewhere, "queue", "left_semi")
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


def _judging(plan: Plan) -> Callable[[Batches], Batches]:
    """The task that compares jobs field by field. Its rows come with both sides of one job in a row."""

    def compare(rows: Batches) -> Batches:
        matched = 0

        def found() -> Iterator[Difference]:
            nonlocal matched
            shown = (side for batch in rows for side in SIDES.rows(batch))
            for _, group in groupby(shown, key=lambda side: (side.job.queue, side.job.id)):
                sides = {side.promised: side for side in group}
                wanted, there = sides.get(True), sides.get(False)
                differences = list(
                    judge(
                        wanted.job if wanted else None,
                        wanted.refused_by if wanted else None,
                        there.job if there else None,
                        plan.writer,
                    )
                )
                matched += wanted is not None and wanted.refused_by is None and not differences
                yield from differences

        yield from closing(batches(DIFFERENCES, found()), DIFFERENCES, lambda: json.dumps({"matched": matched}))

    return compare
