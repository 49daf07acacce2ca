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
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen
from pyspark.sql import DataFrame, Window, functions

from ..migrations.compare import judge
from ..migrations.engine import Difference, Progress, Report, Verification
from ..migrations.order import swapped
from ..migrations.plan import Plan
from .buckets import read_bucket
from .chosen import choose
from .digests import Digests
from .snapshot import Snapshot
from .stage import Batches, closing, run
from .stands import SIDES, STANDS, See, Stand, naming, showing
from .tables import DIFFERENCES, Column, Table, batches, bigint_column, decode_text, text_column


@frozen
class Seen:
    """One side, of which stands are told."""

    snapshot: Snapshot
    see: See
    name: str
    files: tuple[str, ...]
    """With the stands, in so many ``buckets``."""
    buckets: int
    jobs: int
    refused: int


def seen(snapshot: Snapshot, see: See, name: str, digests: Digests, folder: str, buckets: int, progress: Progress) -> Seen:
    """Tells the stands of the jobs of a snapshot, the source's or the target's."""
    path = f"{folder}/stands-{name}"
    os.mkdir(path)
    done = snapshot.work(naming(see, digests, path, buckets), STANDS, f"{path}/told", f"reading {name} jobs", progress)
    told = list(map(json.loads, done.tails()))
    files = tuple(sorted(word["file"] for word in told if "file" in word))
    jobs, refused = (sum(word[what] for word in told) for what in ("jobs", "refused"))
    return Seen(snapshot, see, name, files, buckets, jobs, refused)


def compare_keyspaces(
    source: Seen, target: Seen, plan: Plan, folder: str, report: Report[Difference], progress: Progress
) -> Verification:
    """Reports every difference, and counts."""
    outcome = Verification(source.jobs, target.jobs, refused=source.refused)

    def tell(difference: Difference) -> None:
        outcome.count(difference)
        report(difference)

    tasks = source.buckets
    steps = source.snapshot.facts.spark.range(0, tasks, 1, tasks)
    task = _comparing(source.files, target.files, tasks)
    compared = run(steps, task, COMPARED, f"{folder}/compared", "comparing digests", progress)
    outcome.matched = sum(map(int, compared.tails()))
    doubtful = compared.frame().where("part is not null")
    if not doubtful.isEmpty():
        shown = []
        for side in (source, target):
            path, phase = f"{folder}/differing-{side.name}", f"reading differing {side.name} jobs"
            differing = doubtful.where(functions.col("promised") == (side is source))
            chosen = choose(differing.selectExpr("scope", "subject as job_id", "part"), f"{path}-chosen")
            shown.append(side.snapshot.work(showing(side.see), SIDES, path, phase, progress, chosen).frame())
        by_job = shown[0].unionByName(shown[1]).repartition(tasks, "queue", "id").sortWithinPartitions("queue", "id")
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

        def compared() -> Batches:
            nonlocal matched
            for bucket in (bucket for row in rows for bucket in row.column("id").to_pylist()):
                wanted, found = (_read_stands(paths, bucket, buckets) for paths in (source, target))
                ours, theirs = _alike(wanted, found)
                matched += len(ours)
                yield from _turns(wanted.take(pa.array(ours)), found.take(pa.array(theirs)))
                yield from batches(COMPARED, _doubtful(_without(wanted, ours), _without(found, theirs)))

        yield from closing(compared(), COMPARED, lambda: str(matched))

    return compare


def _read_stands(paths: Sequence[str], bucket: int, buckets: int) -> pa.Table:
    """The stands in a bucket."""
    return pa.Table.from_batches(read_bucket(paths, bucket, buckets, STANDS.arrow), STANDS.arrow).combine_chunks()


def _alike(wanted: pa.Table, found: pa.Table) -> tuple[Any, Any]:
    """The rows of jobs that stand once on both sides, with the same digest: in the one table, and in the other."""
    once = [_once(side.column("number").to_numpy()) for side in (wanted, found)]
    _, *both = np.intersect1d(once[0][0], once[1][0], assume_unique=True, return_indices=True)
    ours, theirs = (rows[those] for (_, rows), those in zip(once, both, strict=True))
    equal = np.ones(len(ours), bool)
    for name in ("queue", "id", "digest"):
        equal &= pc.equal(wanted.column(name).take(pa.array(ours)), found.column(name).take(pa.array(theirs))).to_numpy()
    return ours[equal], theirs[equal]


def _once(numbers: Any) -> tuple[Any, Any]:
    """The numbers that are there once, and where."""
    each, first, count = np.unique(numbers, return_index=True, return_counts=True)
    return each[count == 1], first[count == 1]


def _without(stands: pa.Table, rows: Any) -> list[Stand]:
    others = np.ones(len(stands), bool)
    others[rows] = False
    return [stand for batch in stands.filter(pa.array(others)).to_batches() for stand in STANDS.rows(batch)]


def _turns(wanted: pa.Table, found: pa.Table) -> Batches:
    """The turns of jobs, which are the same in both, as far as both have one."""
    columns = [wanted.column("queue"), wanted.column("id"), wanted.column("turn"), found.column("turn")]
    nothing = [pa.nulls(len(wanted), field.type) for field in list(COMPARED.arrow)[len(columns) :]]
    both = pc.and_(columns[2].is_valid(), columns[3].is_valid())
    yield from pa.table([*columns, *nothing], COMPARED.arrow).filter(both).combine_chunks().to_batches()


def _doubtful(wanted: Sequence[Stand], found: Sequence[Stand]) -> Iterator[Compared]:
    """What to look at again, and turns, of jobs that are not simply alike."""
    sides: dict[tuple[str, str], tuple[list[Stand], list[Stand]]] = {}
    for number, stands in enumerate((wanted, found)):
        for stand in stands:
            sides.setdefault((stand.queue, stand.id), ([], []))[number].append(stand)
    for name, (ours, theirs) in sides.items():
        turns = [(one.turn, other.turn) for one in ours for other in theirs]
        yield from (Compared(*name, *pair) for pair in turns if None not in pair)
        for is_promised, stands in ((True, ours), (False, theirs)):
            yield from (Compared(*name, None, None, each.scope, each.subject, each.part, is_promised) for each in stands)


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
