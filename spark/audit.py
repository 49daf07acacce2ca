"""Audit: the rules of a family, run on every subject of a snapshot. Called by the engine and by frames.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..migrations.engine import Census, Progress, silent
from ..migrations.recheck import MOST, Found, Recheck, open_recheck
from ..migrations.throttle import Throttle
from ..schema.rule import Finding
from ..schema.totals import Totals
from .audit_input import input_of
from .snapshot import Snapshot, keyspace, subjects
from .step import Batches, Results, run_step, with_summary
from .tables import FINDINGS, batches


def findings(snapshot: Snapshot, path: str, progress: Progress = silent, again: Throttle | None = None) -> Results[Finding]:
    """What all rules say about single jobs, as a table in the folder ``path``; its summaries count the jobs that are facts.

    ``again``: look at a live source again, no faster than this with all tasks together, and tell what still holds.
    """
    jobs = input_of(snapshot)
    tasks, frame = jobs.tasks, jobs.frame
    pace = None if again is None else again.shared(min(tasks, frame.sparkSession.sparkContext.defaultParallelism))
    task = _check_task(snapshot, jobs.facts, pace, MOST // tasks)
    return run_step(frame, task, FINDINGS, path, "checking jobs", progress)


def of_keyspace(snapshot: Snapshot, counted: Census | None = None) -> list[Finding]:
    """What there is to say of the source itself, and what all rules say about the keyspace as a whole.

    ``counted``: look at a live source again, tell what still holds, and add here what does not.
    """
    keyspace = snapshot.keyspace
    found = keyspace.family.keyspace_findings(keyspace)
    if counted is None:
        return [*snapshot.remarks, *found]
    with open_recheck(snapshot.address, keyspace) as recheck:
        confirmed = [*snapshot.remarks, *recheck.still_holding_of_keyspace(found)]
    counted.passing += recheck.passing
    return confirmed


def census(found: Results[Finding], counted: Census) -> Census:
    """How many jobs the rules were run on, added to what was counted beside them."""
    total = Census()
    total.merge(counted)
    for summary in map(Census.from_json, found.summaries()):
        total.merge(summary)
    return total


def _check_task(
    snapshot: Snapshot, facts: Callable[[Batches], Batches], again: Throttle | None, most: int
) -> Callable[[Batches], Batches]:
    """The task that checks the jobs of its partition, of which ``facts`` tells. ``most``: how many it looks at again."""
    address, now_ms, totals = snapshot.address, snapshot.now_ms, snapshot.totals.to_json()

    def check(rows: Batches) -> Batches:
        known = keyspace(address, now_ms, Totals.from_json(totals))
        family, counted = known.family, Census()

        def checked() -> Iterator[Found]:
            for subject in subjects(facts(rows)):
                job = family.describe(subject, known)
                if job is not None:
                    counted.count(job, now_ms)
                yield subject, family.findings(subject, known)

        def found() -> Iterator[Finding]:
            if again is None:
                yield from Recheck(known, None).still_holding(checked())
                return
            with open_recheck(address, known, again, most) as recheck:
                yield from recheck.still_holding(checked())
            counted.passing, counted.unconfirmed = recheck.passing, recheck.unconfirmed

        yield from with_summary(batches(FINDINGS, found()), FINDINGS, counted.to_json)

    return check
