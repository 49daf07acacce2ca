"""What qless tells of its jobs, queues and workers, as values, and how they are read from replies.

Times and durations are seconds, as in qless. Pure. Called by ``commands.py``; applications and tests see the classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import field, frozen

from ...schema.text import to_text
from .. import lua_json
from ..numbers import parse_int, parse_number
from . import history
from .history import Event
from .record import names_of


@frozen
class QlessJob:
    """A job as qless keeps it."""

    id: str
    queue: str
    """Empty once it is complete."""
    klass: str
    data: bytes = field(repr=False)
    """JSON text."""
    state: str
    """In qless's own word: waiting, scheduled, running, depends, failed, complete, stalled; reqless has throttled."""
    priority: float
    worker: str
    expires: float
    """When its worker's lock ends; 0 where it has none."""
    retries: int
    remaining: int
    tags: tuple[str, ...] = ()
    throttles: tuple[str, ...] = ()
    dependencies: frozenset[str] = frozenset()
    """The jobs that it waits for."""
    dependents: frozenset[str] = frozenset()
    """Those that wait for it."""
    tracked: bool = False
    failure: Mapping[str, Any] = field(factory=dict)
    """``group``, ``message``, ``when`` and ``worker`` of the last failure."""
    history: tuple[Event, ...] = field(default=(), repr=False)
    """What happened to it: ``what``, ``when``, and more."""
    spawned_from: str | None = None
    """The recurring job that made it."""

    @property
    def result(self) -> None:
        """qless keeps none."""
        return None


@frozen
class RecurringJob:
    """What makes a job every so often."""

    id: str
    queue: str
    klass: str
    data: bytes = field(repr=False)
    interval: float
    """Seconds."""
    next_at: float | None
    priority: float
    retries: int
    count: int
    """How many it has made."""
    backlog: int
    tags: tuple[str, ...] = ()
    throttles: tuple[str, ...] = ()


@frozen
class QueueCounts:
    """How many jobs a queue has in each state."""

    name: str
    waiting: int
    running: int
    stalled: int
    """Whose lock has ended."""
    scheduled: int
    depends: int
    recurring: int
    throttled: int
    paused: bool = field(kw_only=True)


@frozen
class Measure:
    """How long something took, of a day."""

    count: int = 0
    mean: float = 0.0
    std: float = 0.0
    """Standard deviation."""
    histogram: Mapping[str, int] = field(factory=dict)
    """How many of ``s<n>`` n seconds, ``m<n>`` minutes, ``h<n>`` hours, ``d<n>`` days; only cells that have any."""


@frozen
class Statistics:
    """How a queue did on one day."""

    wait: Measure
    """From the put to the pop."""
    run: Measure
    """From the pop to the end."""
    retries: int
    """Locks that were lost."""
    failures: int
    """Jobs that failed."""
    failed: int
    """Those of them that have not been put again or cancelled."""


@frozen
class WorkerCounts:
    """What a worker runs."""

    name: str
    jobs: int
    stalled: int


@frozen
class Throttle:
    """How many jobs may run at the same time (reqless)."""

    name: str
    maximum: int
    """0: any number."""
    holders: tuple[str, ...]
    pending: tuple[str, ...]
    """The jobs that wait for it, the first one first."""
    ttl: int | None
    """Seconds until the maximum is forgotten; None: never."""


def pairs(flat: Sequence[bytes]) -> dict[bytes, bytes]:
    """Fields and values that come in turn."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def job(reply: Any) -> QlessJob | None:
    """A job from the reply of ``get.lua``; None if there is none."""
    if not reply:
        return None
    raw_id, flat, entries, dependencies, dependents, tracked = reply
    fields = pairs(flat)
    text = {name: to_text(fields.get(name, b"")) for name in (b"queue", b"klass", b"state", b"worker")}
    failure = dict(lua_json.as_object(fields.get(b"failure", lua_json.EMPTY), loose=True) or {})
    spawned = fields.get(b"spawned_from_jid")
    return QlessJob(
        id=to_text(raw_id),
        queue=text[b"queue"],
        klass=text[b"klass"],
        data=fields.get(b"data", b"null"),
        state=text[b"state"],
        priority=_number(fields.get(b"priority")),
        worker=text[b"worker"],
        expires=_number(fields.get(b"expires")),
        retries=parse_int(fields.get(b"retries")) or 0,
        remaining=parse_int(fields.get(b"remaining")) or 0,
        tags=names_of(fields.get(b"tags", lua_json.EMPTY)) or (),
        throttles=names_of(fields.get(b"throttles", lua_json.EMPTY)) or (),
        dependencies=frozenset(map(to_text, dependencies)),
        dependents=frozenset(map(to_text, dependents)),
        tracked=bool(tracked),
        failure=failure,
        history=tuple(event for event in history.read_list(entries) if event is not None),
        spawned_from=None if spawned is None else to_text(spawned),
    )


def recurring(reply: Any) -> RecurringJob | None:
    """A recurring job from the reply of ``recurring.lua``; None if there is none."""
    if not reply:
        return None
    raw_id, flat, due = reply
    fields = pairs(flat)
    return RecurringJob(
        id=to_text(raw_id),
        queue=to_text(fields.get(b"queue", b"")),
        klass=to_text(fields.get(b"klass", b"")),
        data=fields.get(b"data", b"null"),
        interval=_number(fields.get(b"interval")),
        next_at=None if due is None else float(due),
        priority=_number(fields.get(b"priority")),
        retries=parse_int(fields.get(b"retries")) or 0,
        count=parse_int(fields.get(b"count")) or 0,
        backlog=parse_int(fields.get(b"backlog")) or 0,
        tags=names_of(fields.get(b"tags", lua_json.EMPTY)) or (),
        throttles=names_of(fields.get(b"throttles", lua_json.EMPTY)) or (),
    )


def counts(reply: Any) -> tuple[QueueCounts, ...]:
    """From the reply of ``counts.lua``."""
    return tuple(QueueCounts(to_text(name), *numbers, paused=bool(paused)) for name, *numbers, paused in reply)


def statistics(reply: Any) -> Statistics:
    """From the reply of ``statistics.lua``."""
    wait, run, stats = map(pairs, reply)
    numbers = (parse_int(stats.get(name)) or 0 for name in (b"retries", b"failures", b"failed"))
    return Statistics(_measure(wait), _measure(run), *numbers)


def _measure(fields: Mapping[bytes, bytes]) -> Measure:
    count = parse_int(fields.get(b"total")) or 0
    spread = _number(fields.get(b"vk"))
    cells = {to_text(name): parse_int(value) or 0 for name, value in fields.items() if name not in _SUMS}
    std = math.sqrt(max(spread, 0.0) / (count - 1)) if count > 1 else 0.0
    return Measure(count, _number(fields.get(b"mean")), std, cells)


_SUMS = frozenset({b"total", b"mean", b"vk"})


def workers(reply: Any) -> tuple[WorkerCounts, ...]:
    """From the reply of ``workers.lua``."""
    return tuple(WorkerCounts(to_text(name), jobs, stalled) for name, jobs, stalled in reply)


def throttle(name: str, reply: Any) -> Throttle:
    """From the reply of ``throttle.lua``."""
    maximum, holders, pending, ttl = reply
    ids = [tuple(map(to_text, each)) for each in (holders, pending)]
    return Throttle(name, parse_int(maximum) or 0, ids[0], ids[1], ttl if ttl >= 0 else None)


def _number(raw: bytes | None) -> float:
    return parse_number(raw) or 0
