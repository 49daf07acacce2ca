"""Faults of qless keyspaces: for each rule, the commands that break it at one sound, written job, and break no other rule.

What the accidents of real installations leave behind, in the smallest form. A job that loses its hash is a scheduled, failed or
completed one without tags, since such a job is tied to nothing else. Not injectable: QLESS-35, which takes two running jobs that
share a throttle, and QLESS-RECUR, which is no fault. Called by ``family.py``, for tests and demos.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ...schema.family import Command, Target
from ...schema.job import Job, State
from ...schema.text import to_bytes, to_text
from ..faults import FaultTarget
from ..overflow import FIELD, TRUNCATED
from .keys import layout, own_throttle
from .passthrough import THROTTLED, Passthrough
from .record import Record, priority_of, score_text, work_score
from .writer import record_for

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


def inject(rule: str, job: Job, target: Target) -> list[Command]:
    """The commands; none for a job at which this rule can't be broken."""
    fault = _FAULTS.get(rule)
    return list(fault(QlessFaultTarget(job, target))) if fault else []


class QlessFaultTarget(FaultTarget):
    """A written job, with the names of all that belongs to it."""

    def __init__(self, job: Job, target: Target) -> None:
        super().__init__(job, target)
        self.passthrough = Passthrough.of(job)
        self.stored: Record = record_for(job, job.state, self.passthrough)
        self.word = to_text(self.stored.fields.get(b"state", b""))
        self.now_s = target.now_ms / 1000
        self.names = layout(target.prefix)
        self.record = self.key("record")
        self.worker = to_text(self.stored.fields.get(b"worker", b""))
        self.lock = self.stored.scores.get("locks", 0.0)

    def key(self, role: str, **names: str) -> bytes:
        return self.names.key(role, **{"id": self.job.id, "queue": self.job.queue, **names})

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
        return ("ZREM", self.key(role), self.id)

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
            yield ("ZADD", self.key("locks"), score_text(until), self.id)
            yield self.set("expires", score_text(until))


def _if(applies: bool, *commands: Command) -> Iterator[Command]:
    return iter(commands if applies else ())


def _stub(target: QlessFaultTarget) -> Iterator[Command]:
    yield from _if(
        target.is_untied(State.SCHEDULED),
        target.leave("scheduled"),
        ("DEL", target.record),
        target.set("state", "waiting"),
    )


def _unlisted(target: QlessFaultTarget) -> Iterator[Command]:
    group = target.stored.group
    if target.job.state is State.FAILED and group is not None:
        keys = (target.key("failed", group=group), target.key("groups"))
        yield ("EVAL", UNLISTED, 2, *keys, target.id, to_bytes(group))


def _elsewhere(target: QlessFaultTarget) -> Iterator[Command]:
    other = target.job.queue + ", again"
    yield from _if(
        target.waits,
        target.leave("work"),
        ("ZADD", target.key("work", queue=other), score_text(target.stored.scores.get("work", 0.0)), target.id),
        ("ZADD", target.key("queues"), score_text(target.now_s), to_bytes(other)),
    )


def _left_with_worker(target: QlessFaultTarget) -> Iterator[Command]:
    yield from _if(
        target.waits,
        ("ZADD", target.key("held", worker="gone"), score_text(target.now_s), target.id),
        ("ZADD", target.key("workers"), score_text(target.now_s), "gone"),
    )


def _history_alone(target: QlessFaultTarget) -> Iterator[Command]:
    yield from _if(target.is_untied(State.SCHEDULED), target.leave("scheduled"), ("DEL", target.record))


def _group_unregistered(target: QlessFaultTarget) -> Iterator[Command]:
    yield from _if(target.job.state is State.FAILED, ("SREM", target.key("groups"), to_bytes(target.stored.group or "")))


def _untagged(target: QlessFaultTarget) -> Iterator[Command]:
    for tag in target.job.tags[:1]:
        yield ("EVAL", UNTAGGED, 2, target.key("tagged", tag=tag), target.key("tags"), target.id, to_bytes(tag))


def _one_sided(target: QlessFaultTarget) -> Iterator[Command]:
    for other in target.stored.depends_on[:1]:
        yield ("SREM", target.key("dependents", id=other), target.id)


def _dependents_alone(target: QlessFaultTarget) -> Iterator[Command]:
    removed = list(target.remove())
    yield from _if(bool(removed), *removed, ("SADD", target.key("dependents"), "somebody"))


def _tracked_alone(target: QlessFaultTarget) -> Iterator[Command]:
    removed = list(target.remove())
    yield from _if(bool(removed), *removed, ("ZADD", target.key("tracked"), score_text(target.now_s), target.id))


def _slot_lost(target: QlessFaultTarget) -> Iterator[Command]:
    for throttle in (target.stored.throttles or ())[:1]:
        yield from _if(target.runs, ("ZREM", target.key("slots", throttle=throttle), target.id))


def _slot_leaked(target: QlessFaultTarget) -> Iterator[Command]:
    own = own_throttle(target.prefix, target.job.queue)
    needed = b"throttles" in target.stored.fields
    yield from _if(needed and target.waits, ("ZADD", target.key("slots", throttle=own), 1, target.id))


def _pending_lost(target: QlessFaultTarget) -> Iterator[Command]:
    for name in target.passthrough.scores:
        role, _, throttle = name.partition(":")
        if role == "pending" and THROTTLED in target.stored.scores:
            yield ("ZREM", target.key("pending", throttle=throttle), target.id)


def _time_added(target: QlessFaultTarget) -> Iterator[Command]:
    wrong = work_score(priority_of(target.job), -target.now_s)
    yield from _if(target.waits, ("ZADD", target.key("work"), score_text(wrong), target.id))


_STATISTICS = {"measure": "stats", "day": "0"}

_FAULTS: Mapping[str, Callable[[QlessFaultTarget], Iterator[Command]]] = {
    "QLESS-1": lambda target: target.lose_hash(State.SCHEDULED),
    "QLESS-2": _stub,
    "QLESS-3": lambda target: _if(target.waits, target.leave("work")),
    "QLESS-4": lambda target: _if(target.job.state is State.SCHEDULED, target.leave("scheduled")),
    "QLESS-5": lambda target: _if(target.runs, target.leave("locks")),
    "QLESS-6": lambda target: _if(bool(target.stored.depends_on), target.leave("depends")),
    "QLESS-7": _unlisted,
    "QLESS-8": lambda target: _if(target.job.state is State.COMPLETED, ("ZREM", target.key("completed"), target.id)),
    "QLESS-9": lambda target: _if(target.waits, ("ZADD", target.key("scheduled"), score_text(target.now_s + HOUR_S), target.id)),
    "QLESS-10": _elsewhere,
    "QLESS-11": lambda target: _if(target.runs, target.set("expires", score_text(target.lock + 1))),
    "QLESS-12": lambda target: target.lock_until(target.now_s - 10),
    "QLESS-13": lambda target: _if(target.runs, ("ZREM", target.key("held", worker=target.worker), target.id)),
    "QLESS-14": _left_with_worker,
    "QLESS-15": _history_alone,
    "QLESS-16": _group_unregistered,
    "QLESS-17": lambda target: target.lose_hash(State.FAILED),
    "QLESS-18": lambda target: target.lose_hash(State.COMPLETED),
    "QLESS-19": _untagged,
    "QLESS-20": lambda target: iter([("ZINCRBY", target.key("tags"), 1, to_bytes(tag)) for tag in target.job.tags[:1]]),
    "QLESS-21": _one_sided,
    "QLESS-22": _dependents_alone,
    "QLESS-23": lambda target: iter([("ZADD", target.key("recur"), score_text(target.now_s), target.id)]),
    "QLESS-24": lambda target: iter([target.set("retries", "1.5")]),
    "QLESS-25": lambda target: _if(not target.job.tags, target.set("tags", '"urgent"')),
    "QLESS-26": lambda target: _if(
        not target.stored.scores.keys().isdisjoint(("work", "scheduled", "locks", "depends")),
        ("ZREM", target.key("queues"), to_bytes(target.job.queue)),
    ),
    "QLESS-27": lambda target: _if(target.runs, ("ZREM", target.key("workers"), to_bytes(target.worker))),
    "QLESS-28": _tracked_alone,
    "QLESS-29": lambda target: iter([("HSET", target.key("statistics", **_STATISTICS), "failed", 2, "failures", 1)]),
    "QLESS-30": lambda target: iter([("PEXPIRE", target.record, 1000 * HOUR_S)]),
    "QLESS-31": lambda target: _if(target.waits, target.set("grace", 1)),
    "QLESS-32": _slot_leaked,
    "QLESS-33": _slot_lost,
    "QLESS-34": _pending_lost,
    "QLESS-36": lambda target: target.lock_until(target.now_s + DAY_S),
    "QLESS-37": _time_added,
    "QLESS-38": lambda target: iter([target.set(to_text(FIELD), TRUNCATED)]),
}

INJECTABLE = frozenset(_FAULTS)
"""Every rule but those that the head names."""
