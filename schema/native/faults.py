"""Faults of native keyspaces: for each rule, the commands that break it at one correct, written job, and break no other rule.

What lost writes, evictions and foreign hands leave behind, in the smallest form; every rule has one. A rule about a consumer or a
queue then speaks of all its jobs. Called by ``family.py``, for tests and demos.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ..family import Command, Target
from ..job import Job, State
from ..text import to_bytes
from . import keys
from .keys import QueueKeys
from .record import Passthrough, Stored, standard
from .rules import LATE_MS, STALE_MS

LATER_MS = 60_000


def inject(rule: str, job: Job, target: Target) -> list[Command]:
    """The commands; none for a job at which this rule can't be broken."""
    fault = _FAULTS.get(rule)
    return list(fault(FaultTarget(job, target))) if fault else []


class FaultTarget:
    """A written job, with the names of all that belongs to it."""

    def __init__(self, job: Job, target: Target) -> None:
        self.names = QueueKeys(target.prefix, job.queue)
        self.prefix = target.prefix
        self.now_ms = target.now_ms
        self.state = job.state
        self.queue = to_bytes(job.queue)
        self.id = to_bytes(job.id)
        self.record = self.names.job(job.id)
        self.stored: Stored = standard(job, Passthrough.of(job))
        self.worker = to_bytes(job.worker or "")
        self.role_key: bytes = (
            self.names.held(job.worker or "") if self.stored.role == "held" else getattr(self.names, self.stored.role or "done")
        )

    @property
    def is_in_queue(self) -> bool:
        """Whether its score there is a priority and a sequence."""
        return self.state in (State.WAITING, State.ACTIVE)

    def set(self, name: str, value: str) -> Command:
        return ("HSET", self.record, name, value)

    def leave(self) -> Command:
        return ("ZREM", self.role_key, self.id)


def _in_two_keys(target: FaultTarget) -> Iterator[Command]:
    elsewhere = target.names.scheduled if target.state is State.FAILED else target.names.dead
    yield ("ZADD", elsewhere, target.now_ms, target.id)


def _lease_lost(target: FaultTarget) -> Iterator[Command]:
    if target.state is State.ACTIVE:
        yield ("ZREM", target.names.consumers, target.worker)


def _score_inexact(target: FaultTarget) -> Iterator[Command]:
    if target.is_in_queue:
        yield ("ZADD", target.role_key, repr((target.stored.score or 0.0) + 0.5), target.id)


def _score_forgotten(target: FaultTarget) -> Iterator[Command]:
    if not target.is_in_queue:
        yield target.set("score", "soon")


def _overdue(target: FaultTarget) -> Iterator[Command]:
    if target.state is State.SCHEDULED:
        yield ("ZADD", target.role_key, target.now_ms - LATE_MS - LATER_MS, target.id)


def _lapsed(target: FaultTarget) -> Iterator[Command]:
    if target.state is State.ACTIVE:
        yield ("ZADD", target.names.consumers, target.now_ms - LATE_MS - LATER_MS, target.worker)


def _token_lost(target: FaultTarget) -> Iterator[Command]:
    if target.state is State.WAITING:
        yield ("DEL", target.names.wake)


def _sequence_lost(target: FaultTarget) -> Iterator[Command]:
    if target.is_in_queue:
        yield ("HSET", target.names.meta, "sequence", 0)


def _dead_letter_stale(target: FaultTarget) -> Iterator[Command]:
    if target.stored.role == "dead":
        yield ("ZADD", target.names.outbox, (target.now_ms - STALE_MS - LATER_MS) * keys.OUTBOX_NUMBERS_PER_MS, target.id)


def _outbox_not_dead(target: FaultTarget) -> Iterator[Command]:
    if target.stored.role != "dead":
        yield ("ZADD", target.names.outbox, target.now_ms * keys.OUTBOX_NUMBERS_PER_MS, target.id)


def _deliveries_lost(target: FaultTarget) -> Iterator[Command]:
    if target.stored.role not in ("dead", "done"):
        yield target.set("deliveries", "many")


def _due_time_lost(target: FaultTarget) -> Iterator[Command]:
    if target.state is State.SCHEDULED:
        yield ("ZADD", target.role_key, "inf", target.id)


_FAULTS: Mapping[str, Callable[[FaultTarget], Iterator[Command]]] = {
    "NATIVE-1": lambda target: iter([("DEL", target.record)]),
    "NATIVE-2": lambda target: iter([target.leave()]),
    "NATIVE-3": _in_two_keys,
    "NATIVE-4": _lease_lost,
    "NATIVE-5": lambda target: iter([target.set("message", "cut sho")]),
    "NATIVE-6": _score_inexact,
    "NATIVE-7": _score_forgotten,
    "NATIVE-8": lambda target: iter([target.leave(), ("SADD", target.names.blocked, target.id)]),
    "NATIVE-9": _overdue,
    "NATIVE-10": _lapsed,
    "NATIVE-11": lambda target: iter([target.set("job", "{")]),
    "NATIVE-12": lambda target: iter([("HSET", target.names.meta, "schema", 2)]),
    "NATIVE-13": lambda target: iter([("DEL", target.names.meta)]),
    "NATIVE-14": _token_lost,
    "NATIVE-15": _sequence_lost,
    "NATIVE-16": lambda target: iter([("SET", f"{target.prefix}:notes", "mine")]),
    "NATIVE-17": lambda target: iter([("PEXPIRE", target.record, 3_600_000)]),
    "NATIVE-18": lambda target: iter([("SREM", keys.queues(target.prefix), target.queue)]),
    "NATIVE-19": _dead_letter_stale,
    "NATIVE-20": _outbox_not_dead,
    "NATIVE-21": lambda target: iter([("SET", target.names.unique("of one that is gone"), target.id)]),
    "NATIVE-22": lambda target: iter([("HSET", target.names.meta, "dead_letter_exchange", '"graves"')]),
    "NATIVE-23": _deliveries_lost,
    "NATIVE-24": _due_time_lost,
    "NATIVE-25": lambda target: iter([target.set("delivered_at", "soon")]),
}

INJECTABLE = frozenset(_FAULTS)
"""Every rule."""
