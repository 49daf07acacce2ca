"""Faults of kombu keyspaces: for each rule, the commands that break it at one sound, written job, and break no other rule.

What killed consumers, other software and old settings leave behind, in the smallest form; every rule has one. Called by
``family.py``, for tests and demos.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping

from ...schema.family import Command, Target
from ...schema.job import Job
from ...schema.text import to_text
from ..faults import FaultTarget
from ..overflow import TRUNCATED
from .keys import VISIBILITY_TIMEOUT_MS, bucket_key, layout
from .passthrough import HEADER
from .record import encode, encode_delivery, eta_text
from .rules.placement import SWEEP_MS
from .writer import record_for

OTHER_BUCKETS = (5, 4)
"""Buckets that consumers with the usual steps never read; one in which a message of its priority stands is of other steps."""


def inject(rule: str, job: Job, target: Target) -> list[Command]:
    """The commands; none for a job at which this rule can't be broken."""
    fault = _FAULTS.get(rule)
    return list(fault(KombuFaultTarget(job, target))) if fault else []


class KombuFaultTarget(FaultTarget):
    """A written message, with the names of all that belongs to it."""

    def __init__(self, job: Job, target: Target) -> None:
        super().__init__(job, target)
        queued = record_for(job, target.now_ms)
        names = layout(target.prefix)
        self.text = queued.text
        self.message = queued.record.message
        self.is_held = queued.record.held
        self.list = bucket_key(target.prefix, job.queue, queued.step)
        self.unacked, self.index = names.key("unacked"), names.key("index")
        self.deadlines = names.key("deadlines")

    def since(self, ms: int) -> Command:
        """As if a consumer had taken it so long ago."""
        return ("ZADD", self.index, repr((self.now_ms - ms) / 1000), self.id)


def _cut_short(target: KombuFaultTarget) -> Iterator[Command]:
    if target.is_held:
        yield ("HSET", target.unacked, target.id, target.text[:-9])
    else:
        yield from (("LREM", target.list, 1, target.text), ("LPUSH", target.list, target.text[:-9]))


def _not_indexed(target: KombuFaultTarget) -> Iterator[Command]:
    yield ("ZREM", target.index, target.id) if target.is_held else target.since(0)


def _copied(target: KombuFaultTarget) -> Iterator[Command]:
    if not target.is_held:
        yield ("LPUSH", target.list, target.text)


def _without_way_back(target: KombuFaultTarget) -> Iterator[Command]:
    if target.is_held:
        value, _, _ = json.loads(target.text)
        yield ("HSET", target.unacked, target.id, json.dumps([value, "no such exchange", target.job.queue]))


def _not_swept(target: KombuFaultTarget) -> Iterator[Command]:
    if target.is_held:
        yield target.since(VISIBILITY_TIMEOUT_MS + SWEEP_MS + 60_000)


def _due_late(target: KombuFaultTarget) -> Iterator[Command]:
    if target.is_held:
        due = target.message.with_headers(eta=eta_text(target.now_ms + 2 * VISIBILITY_TIMEOUT_MS))
        yield ("HSET", target.unacked, target.id, encode_delivery(due))


def _in_another_bucket(target: KombuFaultTarget) -> Iterator[Command]:
    if not target.is_held:
        step = next(step for step in OTHER_BUCKETS if step != target.message.properties.get("priority"))
        yield from (
            ("LREM", target.list, 1, target.text),
            ("LPUSH", bucket_key(target.prefix, target.job.queue, step), target.text),
        )


def _reply_left(target: KombuFaultTarget) -> Iterator[Command]:
    yield ("RPUSH", bucket_key(target.prefix, "1d0b7c3e-9a55-3f7a-8a1c-2d3e0b4cde1e.reply.celery.pidbox", 0), target.text)


def _with_header(target: KombuFaultTarget, **header: str) -> Iterator[Command]:
    changed = target.message.with_headers(**header)
    if target.is_held:
        yield ("HSET", target.unacked, target.id, encode_delivery(changed))
    else:
        yield from (("LREM", target.list, 1, target.text), ("LPUSH", target.list, encode(changed)))


_FAULTS: Mapping[str, Callable[[KombuFaultTarget], Iterator[Command]]] = {
    "KOMBU-1": _cut_short,
    "KOMBU-2": _not_indexed,
    "KOMBU-3": _copied,
    "KOMBU-4": _without_way_back,
    "KOMBU-5": _not_swept,
    "KOMBU-6": _due_late,
    "KOMBU-7": _in_another_bucket,
    "KOMBU-8": _reply_left,
    "KOMBU-9": lambda target: iter([("SET", target.deadlines, "1")]),
    "KOMBU-10": lambda target: _with_header(target, eta="soon"),
    "KOMBU-11": lambda target: _with_header(target, **{HEADER: to_text(TRUNCATED)}),
}

INJECTABLE = frozenset(_FAULTS)
"""Every rule."""
