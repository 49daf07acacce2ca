"""Ledger: what became of every single job of a migrated source. Pure; the demo collects the evidence and shows the result.

Each job has exactly one fate. ``unaccounted`` is the one that must never occur: a job of the source that neither ran, nor
stands at the target, nor was refused by a rule, or one that ran twice though no killed worker had begun it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from attrs import define, field, frozen

from ..schema.job import Job, State

JobKey = tuple[str, str]
"""Queue and id."""


class Fate(StrEnum):
    """What became of a job, in words for people."""

    RUN_ONCE = "run once"
    RUN_AGAIN = "run again, because its worker was killed"
    SCHEDULED = "scheduled, not due yet"
    COMPLETED = "completed before, kept"
    DEAD = "dead letter, kept"
    REFUSED = "refused by a rule, left at the source"
    UNACCOUNTED = "UNACCOUNTED FOR"


STANDING: Mapping[State, Fate] = {
    State.SCHEDULED: Fate.SCHEDULED,
    State.COMPLETED: Fate.COMPLETED,
    State.FAILED: Fate.DEAD,
}


@frozen
class Event:
    """One line that a task has written."""

    event: str
    job: JobKey
    worker: str


@define
class Entry:
    """All jobs of one fate."""

    count: int = 0
    examples: list[str] = field(factory=list)


@define
class Ledger:
    """Fates and how many jobs have them."""

    entries: dict[Fate, Entry] = field(factory=dict)

    def add(self, fate: Fate, remark: str) -> None:
        """Books one job."""
        entry = self.entries.setdefault(fate, Entry())
        entry.count += 1
        entry.examples.append(remark)

    @property
    def jobs(self) -> int:
        """All jobs booked."""
        return sum(entry.count for entry in self.entries.values())

    @property
    def balanced(self) -> bool:
        """Whether every job is accounted for."""
        return Fate.UNACCOUNTED not in self.entries


def account(
    source: Iterable[Job],
    refused: Mapping[str, str],
    events: Sequence[Event],
    standing: Mapping[JobKey, State],
    killed: str,
) -> Ledger:
    """Books every job of the source.

    ``refused``: job id -> the rule that kept it. ``standing``: what is at the target now. ``killed``: the killed worker's name.
    """
    starts: dict[JobKey, list[str]] = {}
    ends: dict[JobKey, int] = {}
    for event in events:
        if event.event == "start":
            starts.setdefault(event.job, []).append(event.worker)
        else:
            ends[event.job] = ends.get(event.job, 0) + 1
    ledger = Ledger()
    for job in source:
        key = (job.queue, job.id)
        workers = starts.get(key, [])
        shown = f"{job.queue} {job.id}"
        if job.id in refused and not workers and key not in standing:
            ledger.add(Fate.REFUSED, f"{job.id} by {refused[job.id]}")
        elif job.id in refused:
            ledger.add(Fate.UNACCOUNTED, f"{shown} (refused by {refused[job.id]}, and yet it was carried)")
        elif len(workers) == 1 and ends.get(key) and key not in standing:
            ledger.add(Fate.RUN_ONCE, shown)
        elif len(workers) > 1 and ends.get(key) and key not in standing and set(workers[:-1]) == {killed}:
            ledger.add(Fate.RUN_AGAIN, job.id)
        elif not workers and standing.get(key) in STANDING:
            ledger.add(STANDING[standing[key]], shown)
        else:
            ledger.add(Fate.UNACCOUNTED, f"{shown} (begun {len(workers)} times, at the target: {standing.get(key, 'nowhere')})")
    return ledger
