"""Damage for native keyspaces: for each rule, the commands that break it at one sound, written job, and break no other rule.

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
from .record import Own, Stored, standard
from .rules import LATE_MS, STALE_MS

LATER_MS = 60_000


def damage(rule: str, job: Job, target: Target) -> list[Command]:
    """The commands; none for a job at which this rule can't be broken."""
    plant = _PLANTS.get(rule)
    return list(plant(_Place(job, target))) if plant else []


class _Place:
    """A written job, with the names of all that belongs to it."""

    def __init__(self, job: Job, target: Target) -> None:
        self.names = QueueKeys(target.prefix, job.queue)
        self.prefix = target.prefix
        self.now_ms = target.now_ms
        self.state = job.state
        self.queue = to_bytes(job.queue)
        self.id = to_bytes(job.id)
        self.record = self.names.job(job.id)
        self.stored: Stored = standard(job, Own.of(job))
        self.worker = to_bytes(job.worker or "")
        self.place: bytes = (
            self.names.held(job.worker or "") if self.stored.place == "held" else getattr(self.names, self.stored.place or "done")
        )

    @property
    def is_in_queue(self) -> bool:
        """Whether its score there is a priority and a sequence."""
        return self.state in (State.WAITING, State.ACTIVE)

    def set(self, name: str, value: str) -> Command:
        return ("HSET", self.record, name, value)

    def leave(self) -> Command:
        return ("ZREM", self.place, self.id)


def _second_place(place: _Place) -> Iterator[Command]:
    elsewhere = place.names.scheduled if place.state is State.FAILED else place.names.dead
    yield ("ZADD", elsewhere, place.now_ms, place.id)


def _lease_lost(place: _Place) -> Iterator[Command]:
    if place.state is State.ACTIVE:
        yield ("ZREM", place.names.consumers, place.worker)


def _between_places(place: _Place) -> Iterator[Command]:
    if place.is_in_queue:
        yield ("ZADD", place.place, repr((place.stored.score or 0.0) + 0.5), place.id)


def _place_forgotten(place: _Place) -> Iterator[Command]:
    if not place.is_in_queue:
        yield place.set("score", "soon")


def _overdue(place: _Place) -> Iterator[Command]:
    if place.state is State.SCHEDULED:
        yield ("ZADD", place.place, place.now_ms - LATE_MS - LATER_MS, place.id)


def _lapsed(place: _Place) -> Iterator[Command]:
    if place.state is State.ACTIVE:
        yield ("ZADD", place.names.consumers, place.now_ms - LATE_MS - LATER_MS, place.worker)


def _token_lost(place: _Place) -> Iterator[Command]:
    if place.state is State.WAITING:
        yield ("DEL", place.names.wake)


def _sequence_lost(place: _Place) -> Iterator[Command]:
    if place.is_in_queue:
        yield ("HSET", place.names.meta, "sequence", 0)


def _letter_stale(place: _Place) -> Iterator[Command]:
    if place.stored.place == "dead":
        yield ("ZADD", place.names.outbox, (place.now_ms - STALE_MS - LATER_MS) * keys.POSTED_PER_MS, place.id)


def _letter_not_dead(place: _Place) -> Iterator[Command]:
    if place.stored.place != "dead":
        yield ("ZADD", place.names.outbox, place.now_ms * keys.POSTED_PER_MS, place.id)


def _deliveries_lost(place: _Place) -> Iterator[Command]:
    if place.stored.place not in ("dead", "done"):
        yield place.set("deliveries", "many")


def _due_time_lost(place: _Place) -> Iterator[Command]:
    if place.state is State.SCHEDULED:
        yield ("ZADD", place.place, "inf", place.id)


_PLANTS: Mapping[str, Callable[[_Place], Iterator[Command]]] = {
    "NATIVE-1": lambda place: iter([("DEL", place.record)]),
    "NATIVE-2": lambda place: iter([place.leave()]),
    "NATIVE-3": _second_place,
    "NATIVE-4": _lease_lost,
    "NATIVE-5": lambda place: iter([place.set("message", "cut sho")]),
    "NATIVE-6": _between_places,
    "NATIVE-7": _place_forgotten,
    "NATIVE-8": lambda place: iter([place.leave(), ("SADD", place.names.blocked, place.id)]),
    "NATIVE-9": _overdue,
    "NATIVE-10": _lapsed,
    "NATIVE-11": lambda place: iter([place.set("job", "{")]),
    "NATIVE-12": lambda place: iter([("HSET", place.names.meta, "schema", 2)]),
    "NATIVE-13": lambda place: iter([("DEL", place.names.meta)]),
    "NATIVE-14": _token_lost,
    "NATIVE-15": _sequence_lost,
    "NATIVE-16": lambda place: iter([("SET", f"{place.prefix}:notes", "mine")]),
    "NATIVE-17": lambda place: iter([("PEXPIRE", place.record, 3_600_000)]),
    "NATIVE-18": lambda place: iter([("SREM", keys.queues(place.prefix), place.queue)]),
    "NATIVE-19": _letter_stale,
    "NATIVE-20": _letter_not_dead,
    "NATIVE-21": lambda place: iter([("SET", place.names.unique("of one that is gone"), place.id)]),
    "NATIVE-22": lambda place: iter([("HSET", place.names.meta, "dead_letter_exchange", '"graves"')]),
    "NATIVE-23": _deliveries_lost,
    "NATIVE-24": _due_time_lost,
}

PLANTABLE = frozenset(_PLANTS)
"""Every rule."""
