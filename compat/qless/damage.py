"""Damage for qless keyspaces: for each rule, the commands that break it at one sound, written job, and break no other rule.

What the accidents of real installations leave behind, in the smallest form. A job that loses its hash is a scheduled, failed or
completed one without tags, since such a job is tied to nothing else. Not planted: QLESS-35, which takes two running jobs that
share a throttle, and QLESS-RECUR, which is no damage. Called by ``family.py``, for tests and demos.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ...schema.family import Command, Target
from ...schema.job import Job, State
from ...schema.text import to_bytes, to_text
from .kept import THROTTLED, Kept
from .keys import layout, own_throttle
from .record import Record, priority_of, score_text, work_score
from .writer import stored_record

HOUR_S = 3600
DAY_S = 86_400

UNLISTED = """
redis.call('LREM', KEYS[1], 0, ARGV[1])
if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('SREM', KEYS[2], ARGV[2]) end
"""
UNTAGGED = """
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('ZINCRBY', KEYS[2], -1, ARGV[2])
if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('ZREM', KEYS[2], ARGV[2]) end
"""


def damage(rule: str, job: Job, target: Target) -> list[Command]:
    """The commands; none for a job at which this rule can't be broken."""
    plant = _PLANTS.get(rule)
    return list(plant(_Place(job, target))) if plant else []


class _Place:
    """A written job, with the names of all that belongs to it."""

    def __init__(self, job: Job, target: Target) -> None:
        self.job = job
        self.kept = Kept.of(job)
        self.stored: Record = stored_record(job, job.state, self.kept)
        self.word = to_text(self.stored.fields.get(b"state", b""))
        self.now = target.now_ms / 1000
        self.names = layout(target.prefix)
        self.prefix = target.prefix
        self.jid = to_bytes(job.id)
        self.record = self.key("record")
        self.worker = to_text(self.stored.fields.get(b"worker", b""))
        self.lock = self.stored.scores.get("locks", 0.0)

    def key(self, role: str, **told: str) -> bytes:
        return self.names.key(role, **{"id": self.job.id, "queue": self.job.queue, **told})

    def set(self, name: str, value: bytes | str | int) -> Command:
        return ("HSET", self.record, name, value)

    @property
    def waits(self) -> bool:
        return self.word == "waiting" and "work" in self.stored.scores

    @property
    def runs(self) -> bool:
        return self.job.state is State.ACTIVE

    def is_untied(self, state: State) -> bool:
        return self.job.state is state and not self.job.tags

    def leave(self, role: str) -> Command:
        return ("ZREM", self.key(role), self.jid)

    def lose_hash(self, state: State) -> Iterator[Command]:
        """As by an eviction; what it leaves without a job but harmless goes too."""
        if self.is_untied(state):
            yield ("DEL", self.record, self.key("history"))

    def remove(self) -> Iterator[Command]:
        """Removes the job, if it is a scheduled one that is tied to nothing."""
        if self.is_untied(State.SCHEDULED):
            yield from (("DEL", self.record, self.key("history")), self.leave("scheduled"))

    def lock_until(self, until: float) -> Iterator[Command]:
        if self.runs:
            yield ("ZADD", self.key("locks"), score_text(until), self.jid)
            yield self.set("expires", score_text(until))


def _if(applies: bool, *commands: Command) -> Iterator[Command]:
    return iter(commands if applies else ())


def _stub(place: _Place) -> Iterator[Command]:
    yield from _if(
        place.is_untied(State.SCHEDULED),
        place.leave("scheduled"),
        ("DEL", place.record),
        place.set("state", "waiting"),
    )


def _unlisted(place: _Place) -> Iterator[Command]:
    group = place.stored.group
    if place.job.state is State.FAILED and group is not None:
        keys = (place.key("failed", group=group), place.key("groups"))
        yield ("EVAL", UNLISTED, 2, *keys, place.jid, to_bytes(group))


def _elsewhere(place: _Place) -> Iterator[Command]:
    other = place.job.queue + ", again"
    yield from _if(
        place.waits,
        place.leave("work"),
        ("ZADD", place.key("work", queue=other), score_text(place.stored.scores.get("work", 0.0)), place.jid),
        ("ZADD", place.key("queues"), score_text(place.now), to_bytes(other)),
    )


def _left_with_worker(place: _Place) -> Iterator[Command]:
    yield from _if(
        place.waits,
        ("ZADD", place.key("held", worker="gone"), score_text(place.now), place.jid),
        ("ZADD", place.key("workers"), score_text(place.now), "gone"),
    )


def _history_alone(place: _Place) -> Iterator[Command]:
    yield from _if(place.is_untied(State.SCHEDULED), place.leave("scheduled"), ("DEL", place.record))


def _group_unregistered(place: _Place) -> Iterator[Command]:
    yield from _if(place.job.state is State.FAILED, ("SREM", place.key("groups"), to_bytes(place.stored.group or "")))


def _untagged(place: _Place) -> Iterator[Command]:
    for tag in place.job.tags[:1]:
        yield ("EVAL", UNTAGGED, 2, place.key("tagged", tag=tag), place.key("tags"), place.jid, to_bytes(tag))


def _one_sided(place: _Place) -> Iterator[Command]:
    for other in place.stored.depends_on[:1]:
        yield ("SREM", place.key("dependents", id=other), place.jid)


def _dependents_alone(place: _Place) -> Iterator[Command]:
    removed = list(place.remove())
    yield from _if(bool(removed), *removed, ("SADD", place.key("dependents"), "somebody"))


def _tracked_alone(place: _Place) -> Iterator[Command]:
    removed = list(place.remove())
    yield from _if(bool(removed), *removed, ("ZADD", place.key("tracked"), score_text(place.now), place.jid))


def _slot_lost(place: _Place) -> Iterator[Command]:
    for throttle in (place.stored.throttles or ())[:1]:
        yield from _if(place.runs, ("ZREM", place.key("slots", throttle=throttle), place.jid))


def _slot_leaked(place: _Place) -> Iterator[Command]:
    own = own_throttle(place.prefix, place.job.queue)
    needed = b"throttles" in place.stored.fields
    yield from _if(needed and place.waits, ("ZADD", place.key("slots", throttle=own), 1, place.jid))


def _pending_lost(place: _Place) -> Iterator[Command]:
    for name in place.kept.scores:
        role, _, throttle = name.partition(":")
        if role == "pending" and THROTTLED in place.stored.scores:
            yield ("ZREM", place.key("pending", throttle=throttle), place.jid)


def _time_added(place: _Place) -> Iterator[Command]:
    wrong = work_score(priority_of(place.job), -place.now)
    yield from _if(place.waits, ("ZADD", place.key("work"), score_text(wrong), place.jid))


_STATISTICS = {"measure": "stats", "day": "0"}

_PLANTS: Mapping[str, Callable[[_Place], Iterator[Command]]] = {
    "QLESS-1": lambda place: place.lose_hash(State.SCHEDULED),
    "QLESS-2": _stub,
    "QLESS-3": lambda place: _if(place.waits, place.leave("work")),
    "QLESS-4": lambda place: _if(place.job.state is State.SCHEDULED, place.leave("scheduled")),
    "QLESS-5": lambda place: _if(place.runs, place.leave("locks")),
    "QLESS-6": lambda place: _if(bool(place.stored.depends_on), place.leave("depends")),
    "QLESS-7": _unlisted,
    "QLESS-8": lambda place: _if(place.job.state is State.COMPLETED, ("ZREM", place.key("completed"), place.jid)),
    "QLESS-9": lambda place: _if(place.waits, ("ZADD", place.key("scheduled"), score_text(place.now + HOUR_S), place.jid)),
    "QLESS-10": _elsewhere,
    "QLESS-11": lambda place: _if(place.runs, place.set("expires", score_text(place.lock + 1))),
    "QLESS-12": lambda place: place.lock_until(place.now - 10),
    "QLESS-13": lambda place: _if(place.runs, ("ZREM", place.key("held", worker=place.worker), place.jid)),
    "QLESS-14": _left_with_worker,
    "QLESS-15": _history_alone,
    "QLESS-16": _group_unregistered,
    "QLESS-17": lambda place: place.lose_hash(State.FAILED),
    "QLESS-18": lambda place: place.lose_hash(State.COMPLETED),
    "QLESS-19": _untagged,
    "QLESS-20": lambda place: iter([("ZINCRBY", place.key("tags"), 1, to_bytes(tag)) for tag in place.job.tags[:1]]),
    "QLESS-21": _one_sided,
    "QLESS-22": _dependents_alone,
    "QLESS-23": lambda place: iter([("ZADD", place.key("recur"), score_text(place.now), place.jid)]),
    "QLESS-24": lambda place: iter([place.set("retries", "1.5")]),
    "QLESS-25": lambda place: _if(not place.job.tags, place.set("tags", '"urgent"')),
    "QLESS-26": lambda place: _if(
        not place.stored.scores.keys().isdisjoint(("work", "scheduled", "locks", "depends")),
        ("ZREM", place.key("queues"), to_bytes(place.job.queue)),
    ),
    "QLESS-27": lambda place: _if(place.runs, ("ZREM", place.key("workers"), to_bytes(place.worker))),
    "QLESS-28": _tracked_alone,
    "QLESS-29": lambda place: iter([("HSET", place.key("statistics", **_STATISTICS), "failed", 2, "failures", 1)]),
    "QLESS-30": lambda place: iter([("PEXPIRE", place.record, 1000 * HOUR_S)]),
    "QLESS-31": lambda place: _if(place.waits, place.set("grace", 1)),
    "QLESS-32": _slot_leaked,
    "QLESS-33": _slot_lost,
    "QLESS-34": _pending_lost,
    "QLESS-36": lambda place: place.lock_until(place.now + DAY_S),
    "QLESS-37": _time_added,
}

PLANTABLE = frozenset(_PLANTS)
"""Every rule but those that the head names."""
