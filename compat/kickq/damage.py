"""Damage for kickq keyspaces: for each rule, the commands that break it at one sound, written job, and break no other rule.

What the accidents of real installations leave behind, in the smallest form; every rule has one. Called by ``family.py``, for
tests and demos.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...schema.family import Command, Target
from ...schema.job import Job, State
from ...schema.text import to_bytes
from ..members import Member, join
from ..numbers import number_text
from .keys import FINISHED, counted, layout
from .note import time_role
from .record import ITEM, as_number
from .writer import written

HOUR_MS = 3_600_000


def damage(rule: str, job: Job, target: Target) -> list[Command]:
    """The commands; none for a job at which this rule can't be broken."""
    plant = _PLANTS.get(rule)
    return list(plant(_Place(job, target))) if plant else []


class _Place:
    """A written job, with the names of all that belongs to it."""

    def __init__(self, job: Job, target: Target) -> None:
        stored = written(job, target.now_ms)
        names = layout(target.prefix)
        self.job_id, self.queue_name, self.now_ms = job.id, job.queue, target.now_ms
        self.state, self.stored = stored.state, stored.record
        self.member = to_bytes(job.id)
        self.record = names.key("record", id=job.id)
        self.queue = names.key("queue", queue=job.queue)
        self.elsewhere = names.key("queue", queue=f"{job.queue} elsewhere")
        self.set = names.key("state", state=self.stored.word)
        self.time_index, self.scheduled, self.purge = (names.key(role) for role in ("time_index", "scheduled", "purge"))
        self.ids = names.key("ids")
        self.role = time_role(self.state)

    @property
    def waits(self) -> bool:
        return self.state is State.WAITING

    @property
    def schedule(self) -> bytes:
        """The sorted set in which the job waits for its time, or for its deletion."""
        return self.purge if self.role == "purge" else self.scheduled

    def put(self, **fields: str | int) -> Command:
        return ("HSET", self.record, *(word for pair in fields.items() for word in pair))

    def document(self, **members: Any) -> Command:
        """Changes members of the document."""
        changed = {**self.stored.item, **{name: Member.of(value) for name, value in members.items()}}
        return ("HSET", self.record, ITEM, join(changed))

    def at(self, key: bytes, time: float) -> Command:
        return ("ZADD", key, number_text(time), self.member)

    def lost_but_for(self, kept: bytes) -> Iterator[Command]:
        """Deletes the record, and takes the job out of everything else but one key."""
        yield ("DEL", self.record)
        places = [("SREM", self.set), ("ZREM", self.time_index)]
        places += [("LREM", self.queue)] if self.waits else [("ZREM", self.schedule)]
        for name, key in places:
            if key != kept:
                yield (name, key, 0, self.member) if name == "LREM" else (name, key, self.member)


def _queue_alone(place: _Place) -> Iterator[Command]:
    return place.lost_but_for(place.queue) if place.waits else iter(())


def _schedule_alone(place: _Place) -> Iterator[Command]:
    return place.lost_but_for(place.schedule) if place.role else iter(())


def _out_of_queue(place: _Place) -> Iterator[Command]:
    if place.waits:
        yield ("LREM", place.queue, 0, place.member)


def _queued_though_not_waiting(place: _Place) -> Iterator[Command]:
    if place.role:  # a job in processing that stands in a queue may be somebody's way to have it run again
        yield ("RPUSH", place.queue, place.member)


def _unscheduled(place: _Place) -> Iterator[Command]:
    if place.role == "scheduled":
        yield ("ZREM", place.scheduled, place.member)


def _scheduled_though_not(place: _Place) -> Iterator[Command]:
    if place.role != "scheduled":
        yield place.at(place.scheduled, place.now_ms + HOUR_MS)


def _unpurged(place: _Place) -> Iterator[Command]:
    if place.role == "purge":
        yield ("ZREM", place.purge, place.member)


def _purged_though_alive(place: _Place) -> Iterator[Command]:
    if place.role != "purge":
        yield place.at(place.purge, place.now_ms + HOUR_MS)


def _missed(place: _Place, role: str) -> Iterator[Command]:
    """The time has passed while no scheduler ran."""
    if place.role == role:
        time = place.now_ms - HOUR_MS
        yield from (place.at(place.schedule, time), place.document(scheduledFor=time))


def _held_too_long(place: _Place) -> Iterator[Command]:
    if place.state is State.ACTIVE:
        time = place.now_ms - HOUR_MS - int(as_number(place.stored.value("processTimeout")) or 0)
        yield from (place.document(updateTime=time, scheduledFor=time), place.put(updateTime=time))


def _half_written(place: _Place) -> Iterator[Command]:
    yield place.document(state="new" if place.state in FINISHED else "success")


def _counter_back(place: _Place) -> Iterator[Command]:
    if counted(place.job_id) is not None:
        yield ("SET", place.ids, 0)


def _no_list_of_runs(place: _Place) -> Iterator[Command]:
    if place.stored.runs == []:
        yield place.document(runs=None)


def _twice(place: _Place) -> Iterator[Command]:
    if place.waits:
        yield ("RPUSH", place.queue, place.member)


def _in_another_queue(place: _Place) -> Iterator[Command]:
    if place.waits:
        yield from (("LREM", place.queue, 0, place.member), ("RPUSH", place.elsewhere, place.member))


def _other_time(place: _Place) -> Iterator[Command]:
    if place.role:
        yield place.at(place.schedule, place.stored.scores[place.role] + 5000)


def _limit_lost(place: _Place) -> Iterator[Command]:
    if place.state not in FINISHED:
        yield place.document(processTimeout="long")


_PLANTS: Mapping[str, Callable[[_Place], Iterator[Command]]] = {
    "KICKQ-1": lambda place: iter([("PEXPIRE", place.record, HOUR_MS)]),
    "KICKQ-2": lambda place: iter([("HSET", place.record, ITEM, join({"id": Member.of(place.job_id)}))]),
    "KICKQ-3": lambda place: iter([place.put(state="paused")]),
    "KICKQ-4": lambda place: iter([("SREM", place.set, place.member)]),
    "KICKQ-5": lambda place: place.lost_but_for(place.set),
    "KICKQ-6": lambda place: iter([("ZREM", place.time_index, place.member)]),
    "KICKQ-7": lambda place: place.lost_but_for(place.time_index),
    "KICKQ-8": _out_of_queue,
    "KICKQ-9": _queue_alone,
    "KICKQ-10": _queued_though_not_waiting,
    "KICKQ-11": _unscheduled,
    "KICKQ-12": _scheduled_though_not,
    "KICKQ-13": lambda place: _missed(place, "scheduled"),
    "KICKQ-14": _unpurged,
    "KICKQ-15": _purged_though_alive,
    "KICKQ-16": lambda place: _missed(place, "purge"),
    "KICKQ-17": _schedule_alone,
    "KICKQ-18": _held_too_long,
    "KICKQ-19": _half_written,
    "KICKQ-20": lambda place: iter([place.document(complete=place.state not in FINISHED)]),
    "KICKQ-21": _counter_back,
    "KICKQ-22": _no_list_of_runs,
    "KICKQ-23": _twice,
    "KICKQ-24": _in_another_queue,
    "KICKQ-25": lambda place: iter([place.put(createTime=0)]),
    "KICKQ-26": _other_time,
    "KICKQ-27": _limit_lost,
}

PLANTABLE = frozenset(_PLANTS)
"""Every rule."""
