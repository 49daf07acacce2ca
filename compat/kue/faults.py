"""Faults of kue keyspaces: for each rule, the commands that break it at one sound, written job, and break no other rule.

What the accidents of real installations leave behind, in the smallest form; every rule has one. Rules about a type or the whole
keyspace are broken at the job's type: KUE-25 then speaks of every job of it. Called by ``family.py``, for tests and demos.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ...schema.family import Command, Target
from ...schema.job import Job, State
from ...schema.text import to_bytes
from ..faults import FaultTarget
from ..numbers import number_text
from ..overflow import FIELD, TRUNCATED
from .keys import LOCKS, WORDS, layout, padded
from .record import standard
from .repairs import TOKEN

LATE_MS = 10_000


def inject(rule: str, job: Job, target: Target) -> list[Command]:
    """The commands; none for a job at which this rule can't be broken."""
    fault = _FAULTS.get(rule)
    return list(fault(KueFaultTarget(job, target))) if fault else []


class KueFaultTarget(FaultTarget):
    """A written job, with the names of all that belongs to it."""

    def __init__(self, job: Job, target: Target) -> None:
        super().__init__(job, target)
        names, word = layout(target.prefix), WORDS[job.state]
        self.record = names.key("record", id=job.id)
        self.log = names.key("log", id=job.id)
        self.tokens = names.key("tokens", queue=job.queue)
        self.types = names.key("types")
        self.ids = names.key("ids")
        self.word = names.key("search_word", code="RST")
        self.indexes = {role: names.key(role, queue=job.queue, state=word) for role in ("all", "by_state", "by_type")}
        self.elsewhere = names.key("by_state", state=WORDS[State.COMPLETED if job.state is State.FAILED else State.FAILED])
        self.member = padded(job.id)

    @property
    def waits(self) -> bool:
        return self.job.state is State.WAITING

    def set(self, **fields: str | int) -> Command:
        return ("HSET", self.record, *(word for pair in fields.items() for word in pair))

    def drop(self, name: str) -> Command:
        return ("HDEL", self.record, name)

    def leave(self, role: str) -> Command:
        return ("ZREM", self.indexes[role], self.member)

    def take_token(self) -> Iterator[Command]:
        if self.waits:
            yield ("LREM", self.tokens, 1, TOKEN)

    def remove(self) -> Iterator[Command]:
        """Removes the job as kue would."""
        yield ("DEL", self.record, self.log)
        yield from (self.leave(role) for role in self.indexes)
        yield from self.take_token()


def _hash_lost(target: KueFaultTarget) -> Iterator[Command]:
    yield ("DEL", target.record, target.log)


def _written_after_removal(target: KueFaultTarget) -> Iterator[Command]:
    yield from target.remove()
    yield target.set(progress=50, updated_at=target.now_ms)


def _out_of_type(target: KueFaultTarget) -> Iterator[Command]:
    yield target.leave("by_type")
    yield from target.take_token()


def _strange_token(target: KueFaultTarget) -> Iterator[Command]:
    if target.waits:
        yield from (*target.take_token(), ("LPUSH", target.tokens, "x"))


def _other_score(target: KueFaultTarget) -> Iterator[Command]:
    yield ("ZADD", target.indexes["all"], number_text(standard(target.job).scores["all"] + 1), target.member)


def _other_due_time(target: KueFaultTarget) -> Iterator[Command]:
    if target.job.state is State.SCHEDULED:
        yield ("ZADD", target.indexes["by_state"], (target.job.due_at or 0) + 1000, target.member)


def _overdue(target: KueFaultTarget) -> Iterator[Command]:
    if target.job.state is State.SCHEDULED:
        due = target.now_ms - LATE_MS
        yield from (target.set(promote_at=due), ("ZADD", target.indexes["by_state"], due, target.member))


def _due_time_lost(target: KueFaultTarget) -> Iterator[Command]:
    if target.job.state is State.SCHEDULED:
        yield from (target.drop("promote_at"), target.drop("delay"), ("ZADD", target.indexes["by_state"], 0, target.member))


def _without_ttl(target: KueFaultTarget) -> Iterator[Command]:
    if target.job.state is State.ACTIVE and target.job.ttl:
        yield target.drop("ttl")


def _lease_over(target: KueFaultTarget) -> Iterator[Command]:
    if target.job.state is State.ACTIVE and target.job.ttl:
        yield ("ZADD", target.indexes["by_state"], target.now_ms - LATE_MS, target.member)


def _finished(target: KueFaultTarget) -> Iterator[Command]:
    if target.job.state is State.ACTIVE:
        yield target.set(progress=100, duration=7)


def _retry_lost(target: KueFaultTarget) -> Iterator[Command]:
    if target.job.state is State.FAILED:
        yield target.set(max_attempts=(target.job.attempts or 0) + 1)


def _attempt_uncounted(target: KueFaultTarget) -> Iterator[Command]:
    if target.job.state is State.COMPLETED:
        yield target.set(attempts=0)


def _log_alone(target: KueFaultTarget) -> Iterator[Command]:
    yield from (*target.remove(), ("RPUSH", target.log, "too late"))


def _older_member(target: KueFaultTarget) -> Iterator[Command]:
    score = standard(target.job).scores["all"]
    yield from (target.leave("all"), ("ZADD", target.indexes["all"], number_text(score), target.job.id))


def _search_alone(target: KueFaultTarget) -> Iterator[Command]:
    yield from (*target.remove(), ("ZADD", target.word, 1, target.job.id))


def _touched_early(target: KueFaultTarget) -> Iterator[Command]:
    if target.job.created_at is not None:
        yield target.set(updated_at=target.job.created_at - 1)


_FAULTS: Mapping[str, Callable[[KueFaultTarget], Iterator[Command]]] = {
    "KUE-1": _hash_lost,
    "KUE-2": _written_after_removal,
    "KUE-3": lambda target: iter([target.drop("state")]),
    "KUE-4": lambda target: iter([target.leave("all")]),
    "KUE-5": lambda target: iter([target.leave("by_state")]),
    "KUE-6": _out_of_type,
    "KUE-7": lambda target: iter([("ZADD", target.elsewhere, 0, target.member)]),
    "KUE-8": KueFaultTarget.take_token,
    "KUE-9": lambda target: iter([("LPUSH", target.tokens, TOKEN)]),
    "KUE-10": _strange_token,
    "KUE-11": lambda target: iter([target.drop("priority")]),
    "KUE-12": _other_score,
    "KUE-13": _other_due_time,
    "KUE-14": _overdue,
    "KUE-15": _without_ttl,
    "KUE-16": _lease_over,
    "KUE-17": _finished,
    "KUE-18": lambda target: iter([target.set(data="undefined")]),
    "KUE-19": lambda target: iter([target.set(backoff="exponential")]),
    "KUE-20": lambda target: iter([target.set(progress_data="undefined")]),
    "KUE-21": lambda target: iter([target.drop("max_attempts")]),
    "KUE-22": _retry_lost,
    "KUE-23": _attempt_uncounted,
    "KUE-24": _log_alone,
    "KUE-25": lambda target: iter([("SREM", target.types, to_bytes(target.job.queue))]),
    "KUE-26": lambda target: iter([("SET", target.ids, int(target.job.id) - 1)]),
    "KUE-27": _older_member,
    "KUE-28": _search_alone,
    "KUE-29": lambda target: iter([("PEXPIRE", target.record, 3_600_000)]),
    "KUE-30": _touched_early,
    "KUE-31": lambda _target: iter([("SET", LOCKS[0], "held")]),
    "KUE-32": _due_time_lost,
    "KUE-33": lambda target: iter([("HSET", target.record, FIELD, TRUNCATED)]),
    "KUE-34": lambda target: iter([target.set(started_at="soon")]),
}

INJECTABLE = frozenset(_FAULTS)
"""Every rule."""
