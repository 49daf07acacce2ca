"""Comparison: whether a target holds what a plan promises for its source, for keyspaces of any size.

    subjects -> stands (stands.py): name and digest -> by job: those that differ -> their subjects -> jobs, field by field

Millions of equal jobs pass as stands; those that differ are read again, from the snapshots, and compared by the same pure
functions as in the local engine. Called by the engine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import groupby

from pyspark.sql import DataFrame, Window, functions

from ..migrations.compare import judge
from ..migrations.engine import Difference, Progress, Report, Verification
from ..migrations.order import swapped
from ..migrations.plan import Plan
from ..schema.job import State
from .chosen import choose
from .snapshot import Snapshot
from .stage import Batches, closing, perform, run
from .stands import SIDES, STANDS, See, naming, promised, showing, standing
from .tables import DIFFERENCES, batches, decode_text


def compare_keyspaces(
    source: Snapshot, target: Snapshot, plan: Plan, folder: str, report: Report[Difference], progress: Progress
) -> Verification:
    """Reports every difference, and counts."""
    outcome = Verification()

    def tell(difference: Difference) -> None:
        outcome.count(difference)
        report(difference)

    sides: tuple[tuple[Snapshot, See, str], ...] = ((source, promised(plan), "source"), (target, standing, "target"))
    stands = []
    for snapshot, see, name in sides:
        path, phase = f"{folder}/stands-{name}", f"reading {name} jobs"
        stands.append(snapshot.work(naming(see, plan.writer), STANDS, path, phase, progress))
    for word in map(json.loads, stands[0].tails()):
        outcome.source_jobs += word["jobs"]
        outcome.refused += word["refused"]
    outcome.target_jobs = sum(json.loads(word)["jobs"] for word in stands[1].tails())
    both = stands[0].frame().unionByName(stands[1].frame())

    doubtful = _doubtful(both, f"{folder}/doubtful", progress)
    # Every other job stands on both sides, once.
    doubts = doubtful.agg(functions.sum("stands")).collect()[0][0] or 0
    outcome.matched = (outcome.source_jobs + outcome.target_jobs - doubts) // 2
    if doubts:
        shown = []
        for (snapshot, see, name), there in zip(sides, stands, strict=True):
            differing = there.frame().join(doubtful, ["queue", "id"], "left_semi")
            path, phase = f"{folder}/differing-{name}", f"reading differing {name} jobs"
            chosen = choose(differing.selectExpr("scope", "subject as job_id", "part"), f"{path}-chosen")
            shown.append(snapshot.work(showing(see), SIDES, path, phase, progress, chosen).frame())
        by_job = shown[0].unionByName(shown[1]).repartition(source.tasks, "queue", "id").sortWithinPartitions("queue", "id")
        found = run(by_job, _judging(plan), DIFFERENCES, f"{folder}/differences", "comparing jobs", progress)
        outcome.matched += sum(json.loads(word)["matched"] for word in found.tails())
        for difference in found.rows():
            tell(difference)
    for difference in order_differences(stands[0].frame(), stands[1].frame()):
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
