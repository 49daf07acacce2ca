"""Audit: the rules of a family, run on every job of a snapshot. Called by the engine and by Spark's frames."""

from __future__ import annotations

from collections.abc import Iterator

from ...schema.connection.address import Address
from ...schema.rule import Finding
from ..recheck import MOST, Found, Recheck, open_recheck
from ..throttle import Throttle
from . import Census, Progress, silent
from .jobs import Jobs
from .output import Output, Results
from .snapshot import Snapshot, Work
from .tables import FINDINGS


def findings(snapshot: Snapshot, path: str, progress: Progress = silent, again: Throttle | None = None) -> Results[Finding]:
    """What all rules say about single jobs, as a table in the folder ``path``; its summaries count the jobs that are facts.

    ``again``: look at a live source again, no faster than this with all tasks together, and tell what still holds.
    """
    pace = None if again is None else again.shared(min(snapshot.tasks, snapshot.runner.cores))
    return snapshot.check(_check_work(snapshot.address, snapshot.now_ms, pace, MOST // snapshot.tasks), FINDINGS, path, progress)


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
    for summary in map(Census.from_json, found.summaries):
        total.merge(summary)
    return total


def _check_work(address: Address, now_ms: int, again: Throttle | None, most: int) -> Work[Finding]:
    """The work that checks jobs. ``most``: how many of a partition it looks at again."""

    def check(_partition: str, jobs: Jobs) -> Output[Finding]:
        known = jobs.keyspace
        family, counted = known.family, Census()

        def checked() -> Iterator[Found]:
            for subject in jobs.subjects():
                job = family.counted(subject, known)
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

        return Output(found(), counted.to_json)

    return check
