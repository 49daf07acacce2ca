"""Damage for kombu keyspaces: for each rule, the commands that break it at one sound, written job, and break no other rule.

What killed consumers, other software and old settings leave behind, in the smallest form; every rule has one. Called by
``family.py``, for tests and demos.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping

from ...schema.family import Command, Target
from ...schema.job import Job
from ...schema.text import to_bytes
from .keys import VISIBILITY_TIMEOUT_MS, bucket_key, layout
from .record import encode, encode_delivery, eta_text
from .rules import SWEEP_MS
from .writer import stand_of

OTHER_BUCKETS = (5, 4)
"""Buckets that consumers with the usual steps never read; one in which a message of its priority stands is of other steps."""


def damage(rule: str, job: Job, target: Target) -> list[Command]:
    """The commands; none for a job at which this rule can't be broken."""
    plant = _PLANTS.get(rule)
    return list(plant(_Place(job, target))) if plant else []


class _Place:
    """A written message, with the names of all that belongs to it."""

    def __init__(self, job: Job, target: Target) -> None:
        stand = stand_of(job, target.now_ms)
        names = layout(target.prefix)
        self.queue = job.queue
        self.now_ms = target.now_ms
        self.prefix = target.prefix
        self.tag = to_bytes(job.id)
        self.text = stand.text
        self.message = stand.record.message
        self.is_held = stand.record.held
        self.list = bucket_key(target.prefix, job.queue, stand.step)
        self.unacked, self.index = names.key("unacked"), names.key("index")
        self.deadlines = names.key("deadlines")

    def since(self, ms: int) -> Command:
        """As if a consumer had taken it so long ago."""
        return ("ZADD", self.index, repr((self.now_ms - ms) / 1000), self.tag)


def _cut_short(place: _Place) -> Iterator[Command]:
    if place.is_held:
        yield ("HSET", place.unacked, place.tag, place.text[:-9])
    else:
        yield from (("LREM", place.list, 1, place.text), ("LPUSH", place.list, place.text[:-9]))


def _not_indexed(place: _Place) -> Iterator[Command]:
    yield ("ZREM", place.index, place.tag) if place.is_held else place.since(0)


def _copied(place: _Place) -> Iterator[Command]:
    if not place.is_held:
        yield ("LPUSH", place.list, place.text)


def _without_way_back(place: _Place) -> Iterator[Command]:
    if place.is_held:
        value, _, _ = json.loads(place.text)
        yield ("HSET", place.unacked, place.tag, json.dumps([value, "no such exchange", place.queue]))


def _not_swept(place: _Place) -> Iterator[Command]:
    if place.is_held:
        yield place.since(VISIBILITY_TIMEOUT_MS + SWEEP_MS + 60_000)


def _due_late(place: _Place) -> Iterator[Command]:
    if place.is_held:
        due = place.message.with_headers(eta=eta_text(place.now_ms + 2 * VISIBILITY_TIMEOUT_MS))
        yield ("HSET", place.unacked, place.tag, encode_delivery(due))


def _in_another_bucket(place: _Place) -> Iterator[Command]:
    if not place.is_held:
        step = next(step for step in OTHER_BUCKETS if step != place.message.properties.get("priority"))
        yield from (
            ("LREM", place.list, 1, place.text),
            ("LPUSH", bucket_key(place.prefix, place.queue, step), place.text),
        )


def _reply_left(place: _Place) -> Iterator[Command]:
    yield ("RPUSH", bucket_key(place.prefix, "1d0b7c3e-9a55-3f7a-8a1c-2d3e0b4cde1e.reply.celery.pidbox", 0), place.text)


def _eta_lost(place: _Place) -> Iterator[Command]:
    soon = place.message.with_headers(eta="soon")
    if place.is_held:
        yield ("HSET", place.unacked, place.tag, encode_delivery(soon))
    else:
        yield from (("LREM", place.list, 1, place.text), ("LPUSH", place.list, encode(soon)))


_PLANTS: Mapping[str, Callable[[_Place], Iterator[Command]]] = {
    "KOMBU-1": _cut_short,
    "KOMBU-2": _not_indexed,
    "KOMBU-3": _copied,
    "KOMBU-4": _without_way_back,
    "KOMBU-5": _not_swept,
    "KOMBU-6": _due_late,
    "KOMBU-7": _in_another_bucket,
    "KOMBU-8": _reply_left,
    "KOMBU-9": lambda place: iter([("SET", place.deadlines, "1")]),
    "KOMBU-10": _eta_lost,
}

PLANTABLE = frozenset(_PLANTS)
"""Every rule."""
