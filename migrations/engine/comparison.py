"""Comparison: whether a target holds what a plan expects of its source, for keyspaces of any size.

    subjects -> digests (job_digests.py) -> by bucket: those that differ -> their subjects -> jobs, field by field
                                         -> positions of waiting jobs (order_check.py): are they in the same order?

Millions of equal jobs pass as digests; those that differ are read again, from the snapshots, and compared by the same pure
functions as in the local engine. Called by the engine.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen

from ..compare import compare_all
from ..plan import Plan
from . import Difference, Progress, Report, Verification, storage
from .file_snapshot import FileSnapshot
from .groups import Groups
from .job_digests import DIGESTS, SIDES, SIDES_BY_JOB, JobDigest, Side, SideView, digest_work, side_work
from .job_hasher import JobHasher
from .job_selection import BY_PART, JobSelection, Mismatch
from .order_check import Positions, PositionsFile
from .output import Output
from .runner import Task
from .shuffle import read_bucket
from .step import run_step
from .tables import DIFFERENCES


@frozen
class SideDigests:
    """One side, as a digest of each job."""

    snapshot: FileSnapshot
    view: SideView
    name: str
    files: tuple[str, ...]
    """With the digests, in so many ``buckets``."""
    buckets: int
    jobs: int
    refused: int


def digest_side(
    snapshot: FileSnapshot, view: SideView, name: str, hasher: JobHasher, folder: str, buckets: int, progress: Progress
) -> SideDigests:
    """Digests the jobs of a snapshot, the source's or the target's."""
    path = storage.join(folder, f"digests-{name}")
    storage.make_folder(path)
    work = digest_work(view, hasher, path, buckets)
    done = snapshot.work(work, DIGESTS, storage.join(path, "summaries"), f"reading {name} jobs", progress)
    summaries = list(map(json.loads, done.summaries))
    files = tuple(sorted(summary["file"] for summary in summaries if "file" in summary))
    jobs, refused = (sum(summary[what] for summary in summaries) for what in ("jobs", "refused"))
    return SideDigests(snapshot, view, name, files, buckets, jobs, refused)


def compare_keyspaces(
    source: SideDigests, target: SideDigests, plan: Plan, folder: str, report: Report[Difference], progress: Progress
) -> Verification:
    """Reports every difference, and counts."""
    outcome = Verification(source.jobs, target.jobs, refused=source.refused)

    def count_and_report(difference: Difference) -> None:
        outcome.count(difference)
        report(difference)

    runner, buckets, shared = source.snapshot.runner, source.buckets, storage.join(folder, "compared")
    storage.make_folder(shared)
    match = _match_task(source.files, target.files, buckets, shared)
    summaries = list(map(json.loads, runner.run(match, buckets, "comparing digests", progress, light=True)))
    outcome.matched = sum(summary["matched"] for summary in summaries)
    mismatches = Groups(BY_PART, tuple(sorted(file for summary in summaries for file in summary["mismatches"])), buckets)
    if mismatches.files:
        files: list[str] = []
        for side in (source, target):
            path, phase = storage.join(folder, f"differing-{side.name}"), f"reading differing {side.name} jobs"
            only = JobSelection(mismatches, expected=side is source)
            shown = side.snapshot.work(side_work(side.view, shared, buckets), SIDES, path, phase, progress, only)
            files += (file for summary in map(json.loads, shown.summaries) for file in summary)
        task = _compare_task(plan, Groups(SIDES_BY_JOB, tuple(sorted(files)), buckets))
        found = run_step(
            runner, task, buckets, DIFFERENCES, storage.join(folder, "differences"), "comparing jobs", progress, light=True
        )
        outcome.matched += sum(json.loads(summary)["matched"] for summary in found.summaries)
        for difference in found.rows():
            count_and_report(difference)
    positions = Positions(tuple(sorted(file for summary in summaries for file in summary["positions"])), buckets)
    for difference in positions.differences(runner, progress):
        count_and_report(difference)
    return outcome


def _match_task(source: Sequence[str], target: Sequence[str], buckets: int, folder: str) -> Task:
    """The task that compares the digests in a bucket.

    Its summary has the number of jobs with the same digest on both sides, the files with those to be looked at again, and the
    files with the positions of waiting jobs.
    """

    def compare(bucket: int) -> str:
        wanted, found = (_read_digests(paths, bucket, buckets) for paths in (source, target))
        wanted = _without_refused(wanted, found)
        ours, theirs = _equal_rows(wanted, found)
        both = _have_position(wanted)[ours] & _have_position(found)[theirs]
        positions = PositionsFile(folder, buckets)
        _add_positions(positions, _positions(wanted, ours[both]), _positions(found, theirs[both]))
        sides = _without(wanted, ours), _without(found, theirs)
        _add_positions(positions, *_pairs(*sides))
        mismatches = (
            Mismatch(each.scope, each.subject, each.part, is_expected)
            for is_expected, digests in zip((True, False), sides, strict=True)
            for each in digests
        )
        files = BY_PART.write(mismatches, folder, buckets)
        return json.dumps({"matched": len(ours), "mismatches": files, "positions": positions.close()})

    return compare


def _read_digests(paths: Sequence[str], bucket: int, buckets: int) -> pa.Table:
    """The digests in a bucket."""
    return pa.Table.from_batches(read_bucket(paths, bucket, buckets, DIGESTS.arrow), DIGESTS.arrow).combine_chunks()


def _without_refused(wanted: pa.Table, found: pa.Table) -> pa.Table:
    """What is wanted without the jobs that stay at the source and that the target has not: as it should be."""
    refused = pc.equal(wanted.column("digest"), b"").to_numpy()
    if not refused.any():
        return wanted
    return wanted.filter(pa.array(~refused | np.isin(wanted.column("number").to_numpy(), found.column("number").to_numpy())))


def _equal_rows(wanted: pa.Table, found: pa.Table) -> tuple[Any, Any]:
    """The rows of jobs that are there once on both sides, with the same digest: in the one table, and in the other."""
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


def _without(digests: pa.Table, rows: Any) -> list[JobDigest]:
    others = np.ones(len(digests), bool)
    others[rows] = False
    return [each for batch in digests.filter(pa.array(others)).to_batches() for each in DIGESTS.rows(batch)]


def _have_position(digests: pa.Table) -> Any:
    return digests.column("position").is_valid().to_numpy()


def _positions(digests: pa.Table, rows: Any) -> pa.Table:
    return digests.select(["queue", "id", "position"]).take(pa.array(rows))


def _add_positions(positions: PositionsFile, wanted: pa.Table, found: pa.Table) -> None:
    """Adds the positions of jobs that are waiting on both sides, the same jobs in both tables."""
    columns = wanted.column("queue"), wanted.column("id"), wanted.column("position"), found.column("position")
    positions.add(*(column.combine_chunks() for column in columns))


def _pairs(wanted: Sequence[JobDigest], found: Sequence[JobDigest]) -> tuple[pa.Table, pa.Table]:
    """Each digest of a waiting job on the one side with each such of the same job on the other."""
    by_job: defaultdict[tuple[str, str], list[JobDigest]] = defaultdict(list)
    for digest in found:
        if digest.position is not None:
            by_job[digest.queue, digest.id].append(digest)
    waiting = (digest for digest in wanted if digest.position is not None)
    pairs = [(one, other) for one in waiting for other in by_job.get((one.queue, one.id), ())]
    ours, theirs = (pa.Table.from_batches([DIGESTS.batch([pair[side] for pair in pairs])]) for side in (0, 1))
    return ours, theirs


def _compare_task(plan: Plan, sides: Groups[Side]) -> Callable[[int], Output[Difference]]:
    """The task that compares the jobs of a bucket field by field."""

    def compare(bucket: int) -> Output[Difference]:
        matched = 0

        def found() -> Iterator[Difference]:
            nonlocal matched
            for group in sides.of(bucket):
                expected_jobs = [(side.job, side.refused_by) for side in group if side.expected]
                actual = next((side.job for side in group if not side.expected), None)
                equal, differences = compare_all(expected_jobs, actual, plan.writer)
                matched += equal
                yield from differences

        return Output(found(), lambda: json.dumps({"matched": matched}))

    return compare
