"""Faults of kickq keyspaces: for each rule, the commands that break it at one sound, written job, and break no other rule.

What the accidents of real installations leave behind, in the smallest form; every rule has one. Called by ``family.py``, for
tests and demos.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...schema.family import Command, Target
from ...schema.job import Job, State
from ..faults import FaultTarget
from ..members import Member, join
from ..numbers import number_text
from ..overflow import FIELD, TRUNCATED
from .keys import FINISHED, counted, layout
from .passthrough import time_role
from .record import ITEM, as_number
from .writer import record_for

HOUR_MS = 3_600_000


def inject(rule: str, job: Job, target: Target) -> list[Command]:
    """The commands; none for a job at which this rule can't be broken."""
    fault = _FAULTS.get(rule)
    return list(fault(KickqFaultTarget(job, target))) if fault else []


class KickqFaultTarget(FaultTarget):
    """A written job, with the names of all that belongs to it."""

    def __init__(self, job: Job, target: Target) -> None:
        super().__init__(job, target)
        stored = record_for(job, target.now_ms)
        names = layout(target.prefix)
        self.state, self.stored = stored.state, stored.record
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
        return ("ZADD", key, number_text(time), self.id)

    def lost_but_for(self, key_to_keep: bytes) -> Iterator[Command]:
        """Deletes the record, and takes the job out of everything else but one key."""
        yield ("DEL", self.record)
        removals = [("SREM", self.set), ("ZREM", self.time_index)]
        removals += [("LREM", self.queue)] if self.waits else [("ZREM", self.schedule)]
        for name, key in removals:
            if key != key_to_keep:
                yield (name, key, 0, self.id) if name == "LREM" else (name, key, self.id)


def _queue_alone(target: KickqFaultTarget) -> Iterator[Command]:
    return target.lost_but_for(target.queue) if target.waits else iter(())


def _schedule_alone(target: KickqFaultTarget) -> Iterator[Command]:
    return target.lost_but_for(target.schedule) if target.role else iter(())


def _out_of_queue(target: KickqFaultTarget) -> Iterator[Command]:
    if target.waits:
        yield ("LREM", target.queue, 0, target.id)


def _queued_though_not_waiting(target: KickqFaultTarget) -> Iterator[Command]:
    if target.role:  # a job in processing that stands in a queue may be somebody's way to have it run again
        yield ("RPUSH", target.queue, target.id)


def _unscheduled(target: KickqFaultTarget) -> Iterator[Command]:
    if target.role == "scheduled":
        yield ("ZREM", target.scheduled, target.id)


def _scheduled_though_not(target: KickqFaultTarget) -> Iterator[Command]:
    if target.role != "scheduled":
        yield target.at(target.scheduled, target.now_ms + HOUR_MS)


def _unpurged(target: KickqFaultTarget) -> Iterator[Command]:
    if target.role == "purge":
        yield ("ZREM", target.purge, target.id)


def _purged_though_alive(target: KickqFaultTarget) -> Iterator[Command]:
    if target.role != "purge":
        yield target.at(target.purge, target.now_ms + HOUR_MS)


def _missed(target: KickqFaultTarget, role: str) -> Iterator[Command]:
    """The time has passed while no scheduler ran."""
    if target.role == role:
        time = target.now_ms - HOUR_MS
        yield from (target.at(target.schedule, time), target.document(scheduledFor=time))


def _held_too_long(target: KickqFaultTarget) -> Iterator[Command]:
    if target.state is State.ACTIVE:
        time = target.now_ms - HOUR_MS - int(as_number(target.stored.value("processTimeout")) or 0)
        yield from (target.document(updateTime=time, scheduledFor=time), target.put(updateTime=time))


def _half_written(target: KickqFaultTarget) -> Iterator[Command]:
    yield target.document(state="new" if target.state in FINISHED else "success")


def _counter_back(target: KickqFaultTarget) -> Iterator[Command]:
    if counted(target.job.id) is not None:
        yield ("SET", target.ids, 0)


def _no_list_of_runs(target: KickqFaultTarget) -> Iterator[Command]:
    if target.stored.runs == []:
        yield target.document(runs=None)


def _twice(target: KickqFaultTarget) -> Iterator[Command]:
    if target.waits:
        yield ("RPUSH", target.queue, target.id)


def _in_another_queue(target: KickqFaultTarget) -> Iterator[Command]:
    if target.waits:
        yield from (("LREM", target.queue, 0, target.id), ("RPUSH", target.elsewhere, target.id))


def _other_time(target: KickqFaultTarget) -> Iterator[Command]:
    if target.role:
        yield target.at(target.schedule, target.stored.scores[target.role] + 5000)


def _limit_lost(target: KickqFaultTarget) -> Iterator[Command]:
    # Without the limit of a running job, its worker seems to be dead (KICKQ-18).
    if target.state not in FINISHED and target.state is not State.ACTIVE:
        yield target.document(processTimeout="long")


_FAULTS: Mapping[str, Callable[[KickqFaultTarget], Iterator[Command]]] = {
    "KICKQ-1": lambda target: iter([("PEXPIRE", target.record, HOUR_MS)]),
    "KICKQ-2": lambda target: iter([("HSET", target.record, ITEM, join({"id": Member.of(target.job.id)}))]),
    "KICKQ-3": lambda target: iter([target.put(state="paused")]),
    "KICKQ-4": lambda target: iter([("SREM", target.set, target.id)]),
    "KICKQ-5": lambda target: target.lost_but_for(target.set),
    "KICKQ-6": lambda target: iter([("ZREM", target.time_index, target.id)]),
    "KICKQ-7": lambda target: target.lost_but_for(target.time_index),
    "KICKQ-8": _out_of_queue,
    "KICKQ-9": _queue_alone,
    "KICKQ-10": _queued_though_not_waiting,
    "KICKQ-11": _unscheduled,
    "KICKQ-12": _scheduled_though_not,
    "KICKQ-13": lambda target: _missed(target, "scheduled"),
    "KICKQ-14": _unpurged,
    "KICKQ-15": _purged_though_alive,
    "KICKQ-16": lambda target: _missed(target, "purge"),
    "KICKQ-17": _schedule_alone,
    "KICKQ-18": _held_too_long,
    "KICKQ-19": _half_written,
    "KICKQ-20": lambda target: iter([target.document(complete=target.state not in FINISHED)]),
    "KICKQ-21": _counter_back,
    "KICKQ-22": _no_list_of_runs,
    "KICKQ-23": _twice,
    "KICKQ-24": _in_another_queue,
    "KICKQ-25": lambda target: iter([target.put(createTime=0)]),
    "KICKQ-26": _other_time,
    "KICKQ-27": _limit_lost,
    "KICKQ-28": lambda target: iter([("HSET", target.record, FIELD, TRUNCATED)]),
    "KICKQ-29": lambda target: iter([target.document(createTime="soon"), target.put(createTime="soon")]),
}

INJECTABLE = frozenset(_FAULTS)
"""Every rule."""
