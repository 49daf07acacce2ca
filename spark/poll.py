"""Poll: what one poll of a living keyspace sees: the numbers of its queues, and what an operator wants to know of.

A poll is as cheap as the family allows: totals are counted by the lengths of indexes where these tell, and only read from the
jobs elsewhere. Called by the data source and its streams.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from enum import StrEnum

from attrs import frozen

from ..migrations.counting import count
from ..migrations.engine.tables import Table, bigint_column, enum_column, text_column
from ..migrations.queues import QueueStatus, counted, statuses
from ..migrations.throttle import UNTHROTTLED, Throttle
from ..schema.connection.address import Address
from ..schema.job import Job, State
from ..schema.rule import Finding
from .single_task import read_in_one_task


@frozen
class QueueTotal:
    """How many jobs of one queue are in one state."""

    url: str
    """The address, without its password."""
    family: str
    queue: str
    state: State
    count: int
    at_ms: int
    """When, by the server's clock."""


class EventKind(StrEnum):
    """What an event tells."""

    FINDING = "finding"
    DEAD = "dead letter"
    """A job has failed for good."""


@frozen
class Event:
    """Something new in a keyspace."""

    kind: EventKind
    at_ms: int
    """The moment of the poll that saw it, by the server's clock."""
    job_id: str | None
    queue: str | None
    name: str | None = None
    """Of the job, for dead letters."""
    rule: str | None = None
    severity: str | None = None
    key: str | None = None
    detail: str | None = None
    """What is wrong, or the error that the job died of."""
    repair: str | None = None
    died_at: int | None = None

    @property
    def identity(self) -> int:
        """64 bits by which two polls know the same event. A finding's detail is none of it: it may tell the time.

        Two different ones of n share them with a probability of n²/2^65.
        """
        about = (str(self.kind), self.rule, self.job_id, self.key, self.queue, self.died_at)
        return int.from_bytes(hashlib.blake2b(repr(about).encode("utf-8", "surrogatepass"), digest_size=8).digest())


TOTALS: Table[QueueTotal] = Table(
    "totals",
    QueueTotal,
    (
        text_column("url"),
        text_column("family"),
        text_column("queue"),
        enum_column("state", State),
        bigint_column("count"),
        bigint_column("at_ms"),
    ),
)
"""Every queue with every state, also where no job is in it."""

EVENTS: Table[Event] = Table(
    "events",
    Event,
    (
        enum_column("kind", EventKind),
        bigint_column("at_ms"),
        text_column("job_id"),
        text_column("queue"),
        text_column("name"),
        text_column("rule"),
        text_column("severity"),
        text_column("key"),
        text_column("detail"),
        text_column("repair"),
        bigint_column("died_at"),
    ),
)
"""Findings and dead letters."""


def totals(address: Address, throttle: Throttle = UNTHROTTLED, now_ms: int | None = None) -> Iterator[QueueTotal]:
    """The numbers of all queues, by name. Raises ServerError."""
    at_ms, found = count(address, now_ms) or _read(address, throttle, now_ms)
    for status in found:
        for state in State:
            yield QueueTotal(address.display(), address.family, status.queue, state, status.states[state], at_ms)


def _read(address: Address, throttle: Throttle, now_ms: int | None) -> tuple[int, list[QueueStatus]]:
    with read_in_one_task(address, now_ms, throttle) as read_keyspace:
        keyspace = read_keyspace.keyspace
        jobs = (keyspace.family.describe(subject, keyspace) for subject in read_keyspace.subjects())
        return keyspace.now_ms, statuses(counted(filter(None, jobs), keyspace.now_ms), keyspace)


def events(address: Address, throttle: Throttle = UNTHROTTLED) -> Iterator[Event]:
    """Everything that is there now: all findings, and every job that has failed for good. Raises ServerError."""
    with read_in_one_task(address, throttle=throttle) as read_keyspace:
        keyspace = read_keyspace.keyspace
        family, now_ms = keyspace.family, keyspace.now_ms
        for finding in family.keyspace_findings(keyspace):
            yield _finding(finding, now_ms)
        for subject in read_keyspace.subjects():
            for finding in family.findings(subject, keyspace):
                yield _finding(finding, now_ms)
            job = family.describe(subject, keyspace)
            if job is not None and job.state is State.FAILED:
                yield _dead_letter(job, now_ms)


def _finding(finding: Finding, at_ms: int) -> Event:
    return Event(
        EventKind.FINDING,
        at_ms,
        finding.job_id,
        finding.queue,
        rule=finding.rule,
        severity=str(finding.severity),
        key=finding.key,
        detail=finding.detail,
        repair=finding.repair,
    )


def _dead_letter(job: Job, at_ms: int) -> Event:
    return Event(EventKind.DEAD, at_ms, job.id, job.queue, job.name, detail=job.error, died_at=job.finished_at)
