"""Comparison: whether a target holds what a plan promises for its source, for keyspaces of any size.

    subjects -> stands (job_digests.py): name and digest -> by bucket: those that differ -> their subjects -> jobs, field by field
                                                    -> turns of waiting jobs (order_check.py): are they in the same order?

Millions of equal jobs pass as stands; those that differ are read again, from the snapshots, and compared by the same pure
functions as in the local engine. Called by the engine.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen
from pyspark.sql import functions

from ..migrations.compare import judge_all
from ..migrations.engine import Difference, Progress, Report, Verification
from ..migrations.plan import Plan
from .job_digests import SIDES, STANDS, See, Stand, naming, showing
from .job_hasher import Digests
from .job_selection import choose
from .order_check import Turns, TurnsFile
from .shuffle import read_bucket
from .snapshot import Snapshot
from .step import Batches, few_tasks, run_step, with_summary
from .tables import DIFFERENCES, Column, Table, batches, text_column


@frozen
class Seen:
    """One side, of which digests were made."""

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
    done = snapshot.work(naming(see, digests, path, buckets), STANDS, f"{path}/summaries", f"reading {name} jobs", progress)
    summaries = list(map(json.loads, done.summaries()))
    files = tuple(sorted(summary["file"] for summary in summaries if "file" in summary))
    jobs, refused = (sum(summary[what] for summary in summaries) for what in ("jobs", "refused"))
    return Seen(snapshot, see, name, files, buckets, jobs, refused)


def compare_keyspaces(
    source: Seen, target: Seen, plan: Plan, folder: str, report: Report[Difference], progress: Progress
) -> Verification:
    """Reports every difference, and counts."""
    outcome = Verification(source.jobs, target.jobs, refused=source.refused)

    def tell(difference: Difference) -> None:
        outcome.count(difference)
        report(difference)

    spark, tasks, turns_folder = source.snapshot.facts.spark, source.buckets, f"{folder}/turns"
    os.mkdir(turns_folder)
    task = _match_task(source.files, target.files, tasks, turns_folder)
    compared = run_step(few_tasks(spark, tasks), task, DOUBTFUL, f"{folder}/compared", "comparing digests", progress)
    summaries = list(map(json.loads, compared.summaries()))
    outcome.matched = sum(summary["matched"] for summary in summaries)
    if any(summary["doubtful"] for summary in summaries):
        doubtful, shown = compared.frame(), []
        for side in (source, target):
            path, phase = f"{folder}/differing-{side.name}", f"reading differing {side.name} jobs"
            differing = doubtful.where(functions.col("promised") == (side is source))
            chosen = choose(differing.selectExpr("scope", "subject as job_id", "part"), f"{path}-chosen")
            shown.append(side.snapshot.work(showing(side.see), SIDES, path, phase, progress, chosen).frame())
        by_job = shown[0].unionByName(shown[1]).repartition(tasks, "queue", "id").sortWithinPartitions("queue", "id")
        found = run_step(by_job, _compare_task(plan), DIFFERENCES, f"{folder}/differences", "comparing jobs", progress)
        outcome.matched += sum(json.loads(summary)["matched"] for summary in found.summaries())
        for difference in found.rows():
            tell(difference)
    turns = Turns(tuple(sorted(file for summary in summaries for file in summary["turns"])), tasks)
    for difference in turns.differences(spark, progress):
        tell(difference)
    return outcome


class Doubtful(NamedTuple):
    """A job of one side that must be looked at again."""

    scope: str
    subject: str
    part: str
    promised: bool


DOUBTFUL: Table[Doubtful] = Table(
    "doubtful",
    Doubtful,
    (
        text_column("scope"),
        text_column("subject"),
        text_column("part"),
        Column("promised", "boolean", pa.bool_()),
    ),
)


def _match_task(source: Sequence[str], target: Sequence[str], buckets: int, folder: str) -> Callable[[Batches], Batches]:
    """The task that compares the stands in some buckets.

    Its summary tells how many jobs stand on both sides with the same digest, how many are to be looked at again, and of the files
    with the turns of all others that have some.
    """

    def compare(rows: Batches) -> Batches:
        matched = number = 0
        turns = TurnsFile(folder, buckets)

        def doubtful() -> Iterator[Doubtful]:
            nonlocal matched, number
            for bucket in (bucket for row in rows for bucket in row.column("id").to_pylist()):
                wanted, found = (_read_stands(paths, bucket, buckets) for paths in (source, target))
                ours, theirs = _alike(wanted, found)
                matched += len(ours)
                both = _have_turn(wanted)[ours] & _have_turn(found)[theirs]
                _add_turns(turns, _turns(wanted, ours[both]), _turns(found, theirs[both]))
                sides = _without(wanted, ours), _without(found, theirs)
                _add_turns(turns, *_pairs(*sides))
                for is_promised, stands in zip((True, False), sides, strict=True):
                    number += len(stands)
                    yield from (Doubtful(each.scope, each.subject, each.part, is_promised) for each in stands)

        def summary() -> str:
            return json.dumps({"matched": matched, "doubtful": number, "turns": turns.close()})

        yield from with_summary(batches(DOUBTFUL, doubtful()), DOUBTFUL, summary)

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


def _have_turn(stands: pa.Table) -> Any:
    return stands.column("turn").is_valid().to_numpy()


def _turns(stands: pa.Table, rows: Any) -> pa.Table:
    return stands.select(["queue", "id", "turn"]).take(pa.array(rows))


def _add_turns(turns: TurnsFile, wanted: pa.Table, found: pa.Table) -> None:
    """Adds the turns of jobs, which are the same in both, and have one in both."""
    columns = wanted.column("queue"), wanted.column("id"), wanted.column("turn"), found.column("turn")
    turns.add(*(column.combine_chunks() for column in columns))


def _pairs(wanted: Sequence[Stand], found: Sequence[Stand]) -> tuple[pa.Table, pa.Table]:
    """Each stand of the one side that has a turn with each such of the same job on the other."""
    by_job: defaultdict[tuple[str, str], list[Stand]] = defaultdict(list)
    for stand in found:
        if stand.turn is not None:
            by_job[stand.queue, stand.id].append(stand)
    waiting = (stand for stand in wanted if stand.turn is not None)
    pairs = [(one, other) for one in waiting for other in by_job.get((one.queue, one.id), ())]
    ours, theirs = (pa.Table.from_batches([STANDS.batch([pair[side] for pair in pairs])]) for side in (0, 1))
    return ours, theirs


def _compare_task(plan: Plan) -> Callable[[Batches], Batches]:
    """The task that compares jobs field by field. Its rows come with both sides of one job in a row."""

    def compare(rows: Batches) -> Batches:
        matched = 0

        def found() -> Iterator[Difference]:
            nonlocal matched
            shown = (side for batch in rows for side in SIDES.rows(batch))
            for _, group in groupby(shown, key=lambda side: (side.job.queue, side.job.id)):
                sides = list(group)
                promises = [(side.job, side.refused_by) for side in sides if side.promised]
                standing = next((side.job for side in sides if not side.promised), None)
                equal, differences = judge_all(promises, standing, plan.writer)
                matched += equal
                yield from differences

        yield from with_summary(batches(DIFFERENCES, found()), DIFFERENCES, lambda: json.dumps({"matched": matched}))

    return compare
