"""Verdict: what the ledger proves. Pure; nothing here looks at the broker.

A task is *lost* if its publish returned and it never came to its end. There is one exception, of the task's own choosing: early
acks mean at most once, so a killed worker's task that was accepted and not finished is *cut short*. And one of Celery's: a cold
shutdown of the solo pool, which can't end a task, makes it fail instead, and a task that failed is acked like one that did not.

A start is a *duplicate* if the same attempt of the same task has started before. It is *explained* if the worker of the start
before was killed since, or lost its lease, or the server was away for so long that leases lapsed. A kill explains nothing that
had ended well before it, because finished work is acked at once; but where the worker was told to stop, Celery itself keeps back
the acks of some pools until every task has ended. An attempt that was repeated asks for its retry again; that repeats
the next attempt, and explains it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from attrs import define, field, frozen

from .ledger import Event

ACK_SECONDS = 2.0
"""How long after its end a task's ack may still be on its way, on a machine that is very busy."""
CLOCK_SECONDS = 0.005
"""Times are rounded to milliseconds on their way through the broker."""


@frozen
class Verdict:
    """Names of tasks, by what became of them."""

    promised: int
    unsure: int
    starts: int
    lost: tuple[str, ...]
    cut_short: tuple[str, ...]
    failed: tuple[str, ...]
    explained: tuple[str, ...]
    unexplained: tuple[str, ...]
    early: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether the broker kept every promise."""
        return not (self.lost or self.unexplained or self.early)


@define
class Evidence:
    """The ledger, sorted for questions."""

    lease: float
    published: dict[str, Event] = field(factory=dict)
    starts: dict[tuple[str, int], list[Event]] = field(factory=lambda: defaultdict(list))
    ends: dict[tuple[str, int, str], list[float]] = field(factory=lambda: defaultdict(list))
    done: set[str] = field(factory=set)
    failed: set[str] = field(factory=set)
    accepted: dict[str, list[Event]] = field(factory=lambda: defaultdict(list))
    kills: dict[str, list[float]] = field(factory=lambda: defaultdict(list))
    lapses: dict[str, list[float]] = field(factory=lambda: defaultdict(list))
    stopping: dict[str, float] = field(factory=dict)
    outages: list[Event] = field(factory=list)

    def add(self, event: Event) -> None:
        """Takes in one line; lines come in the order of their times."""
        match event.kind:
            case "sent" | "unsure":
                self.published[event.task] = event
            case "accepted":
                self.accepted[event.task].append(event)
            case "start":
                self.starts[event.task, event.attempt].append(event)
            case "end":
                self.ends[event.task, event.attempt, event.worker].append(event.at)
                self.done.add(event.task)
            case "killed":
                self.kills[event.worker].append(event.at)
            case "stopping":
                self.stopping.setdefault(event.worker, event.at)
            case "failed":
                self.failed.add(event.task)
            case "lapse":
                self.lapses[event.worker].append(event.at)
            case "outage":
                self.outages.append(event)

    def was_killed_since(self, event: Event) -> bool:
        """Whether the worker of an event was killed after it."""
        return any(at >= event.at for at in self.kills.get(event.worker, ()))

    def explains(self, first: Event, second: Event) -> bool:
        """Whether something allows the second of two starts."""
        ended = min((at for at in self.ends.get((first.task, first.attempt, first.worker), ()) if at >= first.at), default=None)
        for at in self.kills.get(first.worker, ()):
            if first.at <= at <= second.at and (ended is None or self._may_owe_ack(first.worker, ended, at)):
                return True
        # A worker hears of its lapse after the others do.
        if any(first.at <= at <= second.at + self.lease for at in self.lapses.get(first.worker, ())):
            return True
        # A lease was renewed at most a third of its length before the server went away.
        return any(
            outage.until - outage.at >= self.lease * 2 / 3 and outage.at <= second.at and outage.until >= first.at
            for outage in self.outages
        )

    def _may_owe_ack(self, worker: str, ended: float, killed: float) -> bool:
        """Whether a task's ack may not have left its worker between the task's end and the kill."""
        away = any(outage.at <= killed and outage.until >= ended for outage in self.outages)
        return away or killed <= ended + ACK_SECONDS or self.stopping.get(worker, killed) < killed


def verdict_on(events: Sequence[Event], lease: float) -> Verdict:
    """The verdict on a ledger. ``lease`` in seconds."""
    evidence = Evidence(lease)
    for event in events:
        evidence.add(event)
    lost, cut_short, failed = [], [], []
    for task, sent in evidence.published.items():
        if sent.kind == "unsure" or task in evidence.done:
            continue
        given = evidence.accepted.get(task, [])
        if sent.form == "early" and any(evidence.was_killed_since(event) for event in given):
            cut_short.append(task)
        elif task in evidence.failed:
            failed.append(task)
        else:
            lost.append(task)
    explained, unexplained = _duplicates(evidence)
    early = [
        task
        for (task, _), starts in evidence.starts.items()
        if task in evidence.published and starts[0].at < evidence.published[task].due - CLOCK_SECONDS
    ]
    return Verdict(
        promised=sum(event.kind == "sent" for event in evidence.published.values()),
        unsure=sum(event.kind == "unsure" for event in evidence.published.values()),
        starts=sum(map(len, evidence.starts.values())),
        lost=tuple(lost),
        cut_short=tuple(cut_short),
        failed=tuple(failed),
        explained=tuple(explained),
        unexplained=tuple(unexplained),
        early=tuple(early),
    )


def _duplicates(evidence: Evidence) -> tuple[list[str], list[str]]:
    explained, unexplained = [], []
    for (task, attempt), starts in evidence.starts.items():
        asked_again = len(evidence.starts.get((task, attempt - 1), ())) - 1
        for first, second in pairwise(starts):
            if evidence.explains(first, second):
                explained.append(task)
            elif asked_again > 0:
                asked_again -= 1
                explained.append(task)
            else:
                unexplained.append(f"{task} (attempt {attempt}: {first.worker}, then {second.worker})")
    return explained, unexplained
