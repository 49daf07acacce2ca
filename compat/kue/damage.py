"""Damage for kue keyspaces: for each rule, the commands that break it at one sound, written job, and break no other rule.

What the accidents of real installations leave behind, in the smallest form; every rule has one. Rules about a type or the whole
keyspace are broken at the job's type: KUE-25 then speaks of every job of it. Called by ``family.py``, for tests and demos.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ...schema.family import Command, Target
from ...schema.job import Job, State
from ...schema.text import to_bytes
from ..numbers import number_text
from .keys import LOCKS, WORDS, layout, padded
from .record import standard
from .repairs import TOKEN

LATE_MS = 10_000


def damage(rule: str, job: Job, target: Target) -> list[Command]:
    """The commands; none for a job at which this rule can't be broken."""
    plant = _PLANTS.get(rule)
    return list(plant(_Place(job, target))) if plant else []


class _Place:
    """A written job, with the names of all that belongs to it."""

    def __init__(self, job: Job, target: Target) -> None:
        self.job = job
        self.now_ms = target.now_ms
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


def _hash_lost(place: _Place) -> Iterator[Command]:
    yield ("DEL", place.record, place.log)


def _written_after_removal(place: _Place) -> Iterator[Command]:
    yield from place.remove()
    yield place.set(progress=50, updated_at=place.now_ms)


def _out_of_type(place: _Place) -> Iterator[Command]:
    yield place.leave("by_type")
    yield from place.take_token()


def _strange_token(place: _Place) -> Iterator[Command]:
    if place.waits:
        yield from (*place.take_token(), ("LPUSH", place.tokens, "x"))


def _other_score(place: _Place) -> Iterator[Command]:
    yield ("ZADD", place.indexes["all"], number_text(standard(place.job).scores["all"] + 1), place.member)


def _other_due_time(place: _Place) -> Iterator[Command]:
    if place.job.state is State.SCHEDULED:
        yield ("ZADD", place.indexes["by_state"], (place.job.due_at or 0) + 1000, place.member)


def _overdue(place: _Place) -> Iterator[Command]:
    if place.job.state is State.SCHEDULED:
        due = place.now_ms - LATE_MS
        yield from (place.set(promote_at=due), ("ZADD", place.indexes["by_state"], due, place.member))


def _due_time_lost(place: _Place) -> Iterator[Command]:
    if place.job.state is State.SCHEDULED:
        yield from (place.drop("promote_at"), place.drop("delay"), ("ZADD", place.indexes["by_state"], 0, place.member))


def _without_ttl(place: _Place) -> Iterator[Command]:
    if place.job.state is State.ACTIVE and place.job.ttl:
        yield place.drop("ttl")


def _lease_over(place: _Place) -> Iterator[Command]:
    if place.job.state is State.ACTIVE and place.job.ttl:
        yield ("ZADD", place.indexes["by_state"], place.now_ms - LATE_MS, place.member)


def _finished(place: _Place) -> Iterator[Command]:
    if place.job.state is State.ACTIVE:
        yield place.set(progress=100, duration=7)


def _retry_lost(place: _Place) -> Iterator[Command]:
    if place.job.state is State.FAILED:
        yield place.set(max_attempts=(place.job.attempts or 0) + 1)


def _attempt_uncounted(place: _Place) -> Iterator[Command]:
    if place.job.state is State.COMPLETED:
        yield place.set(attempts=0)


def _log_alone(place: _Place) -> Iterator[Command]:
    yield from (*place.remove(), ("RPUSH", place.log, "too late"))


def _older_member(place: _Place) -> Iterator[Command]:
    score = standard(place.job).scores["all"]
    yield from (place.leave("all"), ("ZADD", place.indexes["all"], number_text(score), place.job.id))


def _search_alone(place: _Place) -> Iterator[Command]:
    yield from (*place.remove(), ("ZADD", place.word, 1, place.job.id))


def _touched_early(place: _Place) -> Iterator[Command]:
    if place.job.created_at is not None:
        yield place.set(updated_at=place.job.created_at - 1)


_PLANTS: Mapping[str, Callable[[_Place], Iterator[Command]]] = {
    "KUE-1": _hash_lost,
    "KUE-2": _written_after_removal,
    "KUE-3": lambda place: iter([place.drop("state")]),
    "KUE-4": lambda place: iter([place.leave("all")]),
    "KUE-5": lambda place: iter([place.leave("by_state")]),
    "KUE-6": _out_of_type,
    "KUE-7": lambda place: iter([("ZADD", place.elsewhere, 0, place.member)]),
    "KUE-8": _Place.take_token,
    "KUE-9": lambda place: iter([("LPUSH", place.tokens, TOKEN)]),
    "KUE-10": _strange_token,
    "KUE-11": lambda place: iter([place.drop("priority")]),
    "KUE-12": _other_score,
    "KUE-13": _other_due_time,
    "KUE-14": _overdue,
    "KUE-15": _without_ttl,
    "KUE-16": _lease_over,
    "KUE-17": _finished,
    "KUE-18": lambda place: iter([place.set(data="undefined")]),
    "KUE-19": lambda place: iter([place.set(backoff="exponential")]),
    "KUE-20": lambda place: iter([place.set(progress_data="undefined")]),
    "KUE-21": lambda place: iter([place.drop("max_attempts")]),
    "KUE-22": _retry_lost,
    "KUE-23": _attempt_uncounted,
    "KUE-24": _log_alone,
    "KUE-25": lambda place: iter([("SREM", place.types, to_bytes(place.job.queue))]),
    "KUE-26": lambda place: iter([("SET", place.ids, int(place.job.id) - 1)]),
    "KUE-27": _older_member,
    "KUE-28": _search_alone,
    "KUE-29": lambda place: iter([("PEXPIRE", place.record, 3_600_000)]),
    "KUE-30": _touched_early,
    "KUE-31": lambda _place: iter([("SET", LOCKS[0], "held")]),
    "KUE-32": _due_time_lost,
}

PLANTABLE = frozenset(_PLANTS)
"""Every rule."""
