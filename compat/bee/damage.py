"""Damage: breaks one rule at one sound job, for tests and demos.

Two rules are not plantable, because a job that breaks them breaks others as well, or is never sound: one that stands in two
sorted sets stands wrongly in one of them (BEE-14 never comes without BEE-11, 12 or 13); and the worker of a running job is
never known to be alive in a keyspace that was written, since heartbeats belong to running installations (BEE-16).
Called by ``family.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen

from ...schema.family import Command, Target
from ...schema.job import Job
from ...schema.text import to_bytes
from . import texts
from .keys import UNFINISHED, layout
from .record import Stored
from .writer import stored_of

NOBODY = b"nobody"
"""An id that no job has."""


@frozen
class Victim:
    """A sound job as it was written, and where."""

    job: Job
    stored: Stored
    target: Target

    @property
    def id(self) -> bytes:
        return to_bytes(self.job.id)

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
        return layout(self.target.prefix).key(role, **names)

    def own(self, role: str) -> bytes:
        """A sorted set of the job's queue."""
        return self.key(role, queue=self.job.queue)

    def sets(self, name: str, value: Any) -> list[Command]:
        """Changes one field of the record; bytes stand as they are, all else as JSON."""
        return [("HSET", self.record, name, value if isinstance(value, bytes) else texts.dump(value) or b"")]

    def stands(self, role: str, after_ms: int) -> list[Command]:
        """Puts the job into a sorted set of its queue, with a score that far after now."""
        return [("ZADD", self.own(role), self.target.now_ms + after_ms, self.id)]


def _due_time_lost(victim: Victim) -> list[Command]:
    waits = victim.status in ("new", "retried") and not victim.stored.needs
    return [("ZADD", victim.own("delayed"), "inf", victim.id)] if waits else []


def _incomplete(victim: Victim) -> list[Command]:
    return [("HDEL", victim.record, "retries")]


def _undecodable(victim: Victim) -> list[Command]:
    return victim.sets("result", b"[")


def _bad_option(victim: Victim) -> list[Command]:
    return victim.sets("options", {**(texts.as_object(victim.stored.fields[b"options"]) or {}), "retryDelay": "soon"})


def _unknown_status(victim: Victim) -> list[Command]:
    # One that stands in no set, and dies: no other rule speaks of its place.
    return victim.sets("status", b"paused") if victim.status == "canceled" else []


def _lost(*words: str) -> Callable[[Victim], list[Command]]:
    def damage(victim: Victim) -> list[Command]:
        role = victim.stored.place
        if victim.status not in words or role is None or victim.is_awaited:
            return []
        return [("ZREM", victim.own(role), victim.id)]

    return damage


def _not_held(victim: Victim) -> list[Command]:
    if victim.status != "running":
        return []
    return [("SREM", victim.key("held", worker=victim.job.worker or ""), victim.id)]


def _canceled_to_expire(victim: Victim) -> list[Command]:
    return victim.stands("expires", 60_000) if victim.status == "canceled" else []


def _misplaced(role: str) -> Callable[[Victim], list[Command]]:
    return lambda victim: victim.stands(role, 60_000 if role != "queue" else -60_000) if victim.waits else []


def _held_by_another(victim: Victim) -> list[Command]:
    return [("SADD", victim.key("held", worker="nobody:1:2:" + victim.job.queue), victim.id)]


def _lock_over(victim: Victim) -> list[Command]:
    return victim.stands("locks", -60_000) if victim.status == "running" else []


def _left_counter(victim: Victim) -> list[Command]:
    return [("SET", victim.key("lock_waits", worker="nobody:1:2:" + victim.job.queue, id=victim.job.id), 4)]


def _black_hole(victim: Victim) -> list[Command]:
    if victim.status != "canceled":
        return []
    return [("RPUSH", victim.key("hashes", hashed=f"{victim.job.queue}:hole of {victim.job.id}"), victim.id)]


def _unlisted(victim: Victim) -> list[Command]:
    if victim.stored.dying or b"hash" in victim.stored.fields:
        return []
    return victim.sets("hash", b"hash of " + victim.id)


def _no_original(victim: Victim) -> list[Command]:
    return victim.sets("duplicate", NOBODY) if victim.status == "duplicate" and not victim.stored.dying else []


def _waits_for_nobody(victim: Victim) -> list[Command]:
    return [("SADD", victim.key("dependencies", id=victim.job.id), NOBODY)] if victim.waits else []


def _waits_though_not_new(victim: Victim) -> list[Command]:
    return [] if victim.status in ("new", "canceled") else [("SADD", victim.key("dependencies", id=victim.job.id), NOBODY)]


def _not_waited_for(victim: Victim) -> list[Command]:
    if victim.status not in UNFINISHED or victim.is_awaited:
        return []
    # It expects itself to wait, which no other job's doings depend on.
    return victim.sets("dependants", [victim.job.id])


def _wrong_tag(victim: Victim) -> list[Command]:
    return [("SADD", victim.key("tag", tag="a tag that no job has"), victim.id)]


def _untagged(victim: Victim) -> list[Command]:
    if victim.stored.dying or not victim.job.tags:
        return []
    return [("SREM", victim.key("tag", tag=victim.job.tags[0]), victim.id)]


def _wrong_parent(victim: Victim) -> list[Command]:
    return [("SADD", victim.key("children", id="nobody"), victim.id)]


def _no_options(victim: Victim) -> list[Command]:
    return [("DEL", victim.key("hive"))]


def _bad_script(victim: Victim) -> list[Command]:
    return [("HSET", victim.key("scripts"), "job/put", "unknown")]


def _unknown_key(victim: Victim) -> list[Command]:
    return [("SET", victim.target.prefix + ":nobody's", "x")]


def _ahead(victim: Victim) -> list[Command]:
    priority = victim.job.priority
    return victim.stands("queue", 60_000) if victim.status == "queued" and (priority is None or priority >= 0) else []


def _too_many_retries(victim: Victim) -> list[Command]:
    return victim.sets("retries", b"%d" % ((victim.job.max_attempts or 0) + 5))


def _cut_history(victim: Victim) -> list[Command]:
    return victim.sets("history", list(victim.job.history[:-1])) if len(victim.job.history) > 1 else []


def _ended_twice(victim: Victim) -> list[Command]:
    if victim.status != "completed":
        return []
    return victim.sets("history", [*victim.job.history, victim.job.history[-1]])


_DAMAGES: Mapping[str, Callable[[Victim], list[Command]]] = {
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
}

PLANTABLE = frozenset(_DAMAGES)
"""The ids of the rules that ``damage`` can break."""


def damage(rule: str, job: Job, target: Target) -> list[Command]:
    """The commands that break the rule at the job, and no other rule; none for a job at which it can't be broken."""
    return _DAMAGES[rule](Victim(job, stored_of(job, target), target)) if rule in _DAMAGES else []
