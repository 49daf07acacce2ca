"""Faults: breaks one rule at one sound job, for tests and demos.

Two rules are not injectable, because a job that breaks them breaks others as well, or is never sound: one that stands in two
sorted sets stands wrongly in one of them (BEE-14 never comes without BEE-11, 12 or 13); and the worker of a running job is
never known to be alive in a keyspace that was written, since heartbeats belong to running installations (BEE-16).
Called by ``family.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...schema.family import Command, Target
from ...schema.job import Job
from .. import lua_json
from ..faults import FaultTarget
from ..overflow import FIELD, TRUNCATED
from .keys import UNFINISHED, layout
from .record import Record
from .writer import record_for

NOBODY = b"nobody"
"""An id that no job has."""


class BeeFaultTarget(FaultTarget):
    """A sound job as it was written, and where."""

    def __init__(self, job: Job, target: Target) -> None:
        super().__init__(job, target)
        self.stored: Record = record_for(job, target)

    @property
    def record(self) -> bytes:
        return self.key("record", id=self.job.id)

    @property
    def status(self) -> str:
        return self.stored.status

    @property
    def waits(self) -> bool:
        """A new job that stands in no sorted set: a place in any of them is the only one, and wrong."""
        return self.status == "new" and bool(self.stored.needs)

    @property
    def is_awaited(self) -> bool:
        """What is done to it is done to those who wait for it, too."""
        return b"dependants" in self.stored.fields

    def key(self, role: str, **names: str) -> bytes:
        return layout(self.prefix).key(role, **names)

    def set_key(self, role: str) -> bytes:
        """A sorted set of the job's queue."""
        return self.key(role, queue=self.job.queue)

    def sets(self, name: str, value: Any) -> list[Command]:
        """Changes one field of the record; bytes stand as they are, all else as JSON."""
        return [("HSET", self.record, name, value if isinstance(value, bytes) else lua_json.dump_plain(value) or b"")]

    def put_in(self, role: str, after_ms: int) -> list[Command]:
        """Puts the job into a sorted set of its queue, with a score that far after now."""
        return [("ZADD", self.set_key(role), self.now_ms + after_ms, self.id)]


def _due_time_lost(target: BeeFaultTarget) -> list[Command]:
    waits = target.status in ("new", "retried") and not target.stored.needs
    return [("ZADD", target.set_key("delayed"), "inf", target.id)] if waits else []


def _incomplete(target: BeeFaultTarget) -> list[Command]:
    return [("HDEL", target.record, "retries")]


def _undecodable(target: BeeFaultTarget) -> list[Command]:
    return target.sets("result", b"[")


def _bad_option(target: BeeFaultTarget) -> list[Command]:
    return target.sets("options", {**(lua_json.as_object(target.stored.fields[b"options"]) or {}), "retryDelay": "soon"})


def _unknown_status(target: BeeFaultTarget) -> list[Command]:
    # One that stands in no set, and dies: no other rule speaks of its place.
    return target.sets("status", b"paused") if target.status == "canceled" else []


def _lost(*words: str) -> Callable[[BeeFaultTarget], list[Command]]:
    def fault(target: BeeFaultTarget) -> list[Command]:
        role = target.stored.role
        if target.status not in words or role is None or target.is_awaited:
            return []
        return [("ZREM", target.set_key(role), target.id)]

    return fault


def _not_held(target: BeeFaultTarget) -> list[Command]:
    if target.status != "running":
        return []
    return [("SREM", target.key("held", worker=target.job.worker or ""), target.id)]


def _canceled_to_expire(target: BeeFaultTarget) -> list[Command]:
    return target.put_in("expires", 60_000) if target.status == "canceled" else []


def _misplaced(role: str) -> Callable[[BeeFaultTarget], list[Command]]:
    return lambda target: target.put_in(role, 60_000 if role != "queue" else -60_000) if target.waits else []


def _held_by_another(target: BeeFaultTarget) -> list[Command]:
    return [("SADD", target.key("held", worker="nobody:1:2:" + target.job.queue), target.id)]


def _lock_over(target: BeeFaultTarget) -> list[Command]:
    return target.put_in("locks", -60_000) if target.status == "running" else []


def _left_counter(target: BeeFaultTarget) -> list[Command]:
    return [("SET", target.key("lock_waits", worker="nobody:1:2:" + target.job.queue, id=target.job.id), 4)]


def _black_hole(target: BeeFaultTarget) -> list[Command]:
    if target.status != "canceled":
        return []
    return [("RPUSH", target.key("hashes", hashed=f"{target.job.queue}:hole of {target.job.id}"), target.id)]


def _unlisted(target: BeeFaultTarget) -> list[Command]:
    if target.stored.dying or b"hash" in target.stored.fields:
        return []
    return target.sets("hash", b"hash of " + target.id)


def _no_original(target: BeeFaultTarget) -> list[Command]:
    return target.sets("duplicate", NOBODY) if target.status == "duplicate" and not target.stored.dying else []


def _waits_for_nobody(target: BeeFaultTarget) -> list[Command]:
    return [("SADD", target.key("dependencies", id=target.job.id), NOBODY)] if target.waits else []


def _waits_though_not_new(target: BeeFaultTarget) -> list[Command]:
    return [] if target.status in ("new", "canceled") else [("SADD", target.key("dependencies", id=target.job.id), NOBODY)]


def _not_waited_for(target: BeeFaultTarget) -> list[Command]:
    if target.status not in UNFINISHED or target.is_awaited:
        return []
    # It expects itself to wait, which no other job's doings depend on.
    return target.sets("dependants", [target.job.id])


def _wrong_tag(target: BeeFaultTarget) -> list[Command]:
    return [("SADD", target.key("tag", tag="a tag that no job has"), target.id)]


def _untagged(target: BeeFaultTarget) -> list[Command]:
    if target.stored.dying or not target.job.tags:
        return []
    return [("SREM", target.key("tag", tag=target.job.tags[0]), target.id)]


def _wrong_parent(target: BeeFaultTarget) -> list[Command]:
    return [("SADD", target.key("children", id="nobody"), target.id)]


def _no_options(target: BeeFaultTarget) -> list[Command]:
    return [("DEL", target.key("hive"))]


def _bad_script(target: BeeFaultTarget) -> list[Command]:
    return [("HSET", target.key("scripts"), "job/put", "unknown")]


def _unknown_key(target: BeeFaultTarget) -> list[Command]:
    return [("SET", target.prefix + ":nobody's", "x")]


def _ahead(target: BeeFaultTarget) -> list[Command]:
    priority = target.job.priority
    return target.put_in("queue", 60_000) if target.status == "queued" and (priority is None or priority >= 0) else []


def _too_many_retries(target: BeeFaultTarget) -> list[Command]:
    return target.sets("retries", b"%d" % ((target.job.max_attempts or 0) + 5))


def _cut_history(target: BeeFaultTarget) -> list[Command]:
    return target.sets("history", list(target.job.history[:-1])) if len(target.job.history) > 1 else []


def _ended_twice(target: BeeFaultTarget) -> list[Command]:
    if target.status != "completed":
        return []
    return target.sets("history", [*target.job.history, target.job.history[-1]])


_FAULTS: Mapping[str, Callable[[BeeFaultTarget], list[Command]]] = {
    "BEE-1": _incomplete,
    "BEE-2": _undecodable,
    "BEE-3": _bad_option,
    "BEE-4": _unknown_status,
    "BEE-5": _lost("queued"),
    "BEE-6": _lost("new"),
    "BEE-7": _lost("retried"),
    "BEE-8": _not_held,
    "BEE-9": _lost("completed", "failed"),
    "BEE-10": _canceled_to_expire,
    "BEE-11": _misplaced("queue"),
    "BEE-12": _misplaced("locks"),
    "BEE-13": _misplaced("expires"),
    "BEE-15": _held_by_another,
    "BEE-17": _lock_over,
    "BEE-18": _left_counter,
    "BEE-19": _black_hole,
    "BEE-20": _unlisted,
    "BEE-21": _no_original,
    "BEE-22": _waits_for_nobody,
    "BEE-23": _waits_though_not_new,
    "BEE-24": _not_waited_for,
    "BEE-25": _wrong_tag,
    "BEE-26": _untagged,
    "BEE-27": _wrong_parent,
    "BEE-28": _no_options,
    "BEE-29": _bad_script,
    "BEE-30": _unknown_key,
    "BEE-31": _ahead,
    "BEE-32": _too_many_retries,
    "BEE-33": _cut_history,
    "BEE-34": _ended_twice,
    "BEE-35": _due_time_lost,
    "BEE-36": lambda target: [("HSET", target.record, FIELD, TRUNCATED)],
    "BEE-37": lambda target: target.sets("submitted", b"soon"),
}

INJECTABLE = frozenset(_FAULTS)
"""The ids of the rules that ``inject`` can break."""


def inject(rule: str, job: Job, target: Target) -> list[Command]:
    """The commands that break the rule at the job, and no other rule; none for a job at which it can't be broken."""
    return _FAULTS[rule](BeeFaultTarget(job, target)) if rule in _FAULTS else []
