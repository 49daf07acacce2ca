"""Job: the canonical record of one job, the same for every key family.

Readers make jobs, writers consume them, and everything between (engines, verify, reports) knows nothing else. A job is a
value: no method here talks to a server.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from operator import attrgetter
from typing import Any, NamedTuple

from attrs import field, fields

from .frozen import frozen


class State(StrEnum):
    """Where a job stands, in the words that all families are translated to."""

    SCHEDULED = "scheduled"
    WAITING = "waiting"
    ACTIVE = "active"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    BLOCKED = "blocked"
    UNKNOWN = "unknown"


@frozen
class Job:
    """One job.

    Times are integer Unix milliseconds and durations integer milliseconds, both None where the source says nothing.
    ``payload`` and ``result`` are the exact bytes that stand in Redis; they are decoded only for display.
    """

    id: str
    queue: str
    name: str
    state: State
    priority: int | float | None = None
    """In the source family's own numbers; which end runs first is the family's knowledge."""
    payload: bytes | None = None
    created_at: int | None = None
    updated_at: int | None = None
    due_at: int | None = None
    started_at: int | None = None
    finished_at: int | None = None
    attempts: int | None = None
    max_attempts: int | None = None
    progress: float | None = None
    """From 0 to 1."""
    result: bytes | None = None
    error: str | None = None
    worker: str | None = None
    lease_expires_at: int | None = None
    tags: tuple[str, ...] = ()
    depends_on: tuple[str, ...] = ()
    unique_key: str | None = None
    ttl: int | None = None
    """Longest run time, ms; not a lifetime of the record."""
    logs: tuple[bytes, ...] = ()
    history: tuple[Mapping[str, Any], ...] = ()
    extra: Mapping[str, Any] = field(factory=dict)
    """What has no canonical field, one mapping per family name: what the way back to that family needs, byte for byte."""
    position: int | None = field(default=None, eq=False, repr=False)
    """How many jobs of its queue would run before it when it was read. Belongs to the moment, not to the job: never compared."""
    rank: int | None = field(default=None, eq=False, repr=False)
    """Its priority as ``rank_of`` gives it, where the family knows which end runs first. Follows from others: never compared."""


class Counted(NamedTuple):
    """What a census counts of a job."""

    queue: str
    state: State
    created_at: int | None


JOB_FIELDS: tuple[str, ...] = tuple(each.name for each in fields(Job) if each.eq)
"""The canonical fields in their order, as in ``ferryman jobs --format json`` and the Spark table ``jobs``."""

_VALUES = attrgetter(*JOB_FIELDS)
_ALL = tuple(each.name for each in fields(Job))
_ALL_VALUES = attrgetter(*_ALL)
_INDEXES = {name: index for index, name in enumerate(_ALL)}


def replaced(job: Job, **changes: Any) -> Job:
    """The job with other values in these fields: ``attrs.evolve`` for millions of them."""
    values = list(_ALL_VALUES(job))
    for name, value in changes.items():
        values[_INDEXES[name]] = value
    return Job(*values)


CARRIED_FROM = "migration"
"""The name in ``Job.extra`` under which a migration keeps what it had to change about a job."""


def was_active(job: Job) -> bool:
    """Whether a worker held the job when an earlier migration read it, so that the migration requeued it."""
    before = job.extra.get(CARRIED_FROM)
    return isinstance(before, Mapping) and before.get("state") == State.ACTIVE


def differences(job: Job, other: Job) -> dict[str, Any]:
    """The canonical fields in which ``other`` is not what ``job`` is, with the values that ``job`` has."""
    values, theirs = _VALUES(job), _VALUES(other)
    if values == theirs:
        return {}
    return {name: value for name, value, their in zip(JOB_FIELDS, values, theirs, strict=True) if value != their}


FIRST_RANK, LAST_RANK = -256, 255


def rank_of(priority: float | None) -> int | None:
    """The rank of a priority of which the lowest runs first: whole, and within what every queue can keep apart."""
    if priority is None or math.isnan(priority):
        return None
    return math.floor(min(max(priority, FIRST_RANK), LAST_RANK))
