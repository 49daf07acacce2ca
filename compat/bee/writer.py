"""Writing bee: a Job to the Redis commands that store it as the newest bee would.

The commands of one job belong in one transaction: its record stands before anything names it, and the wake-up message comes
last. They may be sent again for the same job. Who waits for whom is told to both sides once all jobs stand (``finish``). Scripts
of bee, heartbeats and lock counters belong to a running installation, and are never written. Called by ``family.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from itertools import chain

from attrs import evolve

from ...schema.errors import MalformedValue
from ...schema.family import Command, KeyFamily, Target
from ...schema.incompatibilities import NOT_BY_JOBS, error, warning
from ...schema.job import Job, State, replaced, was_active
from ...schema.rule import Finding
from ...schema.text import show, to_bytes, to_text
from ...schema.totals import Totals
from .. import lua_json
from ..generated import GeneratedJob
from ..scripts import script
from ..waiting_place import lease_end
from .history import event_names
from .keys import DYING, EARLIEST_TIME, LOCK_MS, OPTIONS_TTL, SETS, hashed, layout
from .passthrough import Passthrough, with_overflow
from .record import Record, is_readable, readable, tag_names, word_for

_script = partial(script, __package__)

TO_RUN = frozenset({State.WAITING, State.SCHEDULED, State.BLOCKED, State.ACTIVE})

LONGEST_TTL = 10**15
"""Redis refuses times to live that end beyond 64 bits."""

TICKS = 4096
"""Scores of queues have so many steps in a ms: a double keeps them apart at today's times."""


# What bee can't express


def incompatibilities(job: Job) -> Iterator[Finding]:
    """Errors for a job that bee could not hold or run; warnings for what bee would keep in the record but not act on."""
    if not job.id or not _is_unicode(job.id):
        yield error(job, "BEE-W1", f"the id {show(job.id, 60)!r} is empty, or not UTF-8")
    if not _is_unicode(job.queue):
        yield error(job, "BEE-W2", f"the queue {show(job.queue, 60)!r} is not UTF-8")
    try:
        passthrough = Passthrough.of(job)
    except MalformedValue as reason:
        yield error(job, "BEE-W7", str(reason))
        return
    word = word_for(job, passthrough.status)
    if word is None:
        yield error(job, "BEE-W3", f"bee has no word for {job.state} jobs")
    if job.state in TO_RUN and not lua_json.is_json(job.payload or b""):
        yield error(job, "BEE-W4", "the payload is not JSON: the pop that takes the job would abort")
    if job.state is State.BLOCKED and word == "new" and not job.depends_on:
        yield error(job, "BEE-W10", NOT_BY_JOBS)
    if job.state is State.SCHEDULED and job.due_at is None:
        yield warning(job, "BEE-W5", "a scheduled job without a due time: bee runs it at once")
    idle = ["name"] if job.name != job.queue else []
    idle += ["logs"] if job.logs else []
    if job.depends_on and job.state is not State.BLOCKED:
        idle.append("depends_on")
    if idle:
        yield warning(job, "BEE-W6", f"kept in the record, but without effect in bee: {', '.join(idle)}")
    unreadable = [show(name) for name, raw in passthrough.fields.items() if not is_readable(name, raw)]
    if unreadable:
        yield warning(job, "BEE-W8", f"left out, since bee can't read it: {', '.join(unreadable)}")
    if job.state is State.ACTIVE and passthrough.status != "running":
        yield warning(job, "BEE-W9", "no worker of bee holds this active job: it is written as waiting")


def _is_unicode(text: str) -> bool:
    return to_text(to_bytes(text)) == text and lua_json.dump_plain(text) is not None


# What is stored


def record_for(job: Job, target: Target) -> Record:
    """The record that a job gets, and its place. Raises MalformedValue for a job that ``incompatibilities`` refuses."""
    if isinstance(job, GeneratedJob):
        record: Record = job.record
        return record
    passthrough = Passthrough.of(job)
    held_elsewhere = job.state is State.ACTIVE and passthrough.status != "running"
    written = replaced(job, state=State.WAITING) if held_elsewhere else job
    stored = readable(passthrough.record(written))
    role = stored.role
    scores = {}
    if role is not None:
        score = stored.scores.get(role)
        overdue = role == "expires" and role not in passthrough.scores and (score or 0) < target.now_ms
        scores[role] = _score(written, stored, role, target.now_ms) if score is None or overdue else score
    return with_overflow(written, evolve(stored, scores=scores))


def _score(job: Job, stored: Record, role: str, now_ms: int) -> float:
    """The score where the job does not tell it."""
    match role:
        case "queue" if was_active(job) and "popped" in event_names(job.history):
            # A worker of bee had it. It runs before the jobs that come back with the scores that they had in bee.
            return EARLIEST_TIME + lease_end(job) / 1000
        case "queue" if job.position is not None:
            # As if all had come within the last second, in their order.
            return now_ms - 1000 + job.position / TICKS
        case "queue":
            # A worker had it: its turn was before that of those who wait.
            came = job.created_at or 0
            return float(came if EARLIEST_TIME < came < now_ms - 1001 else now_ms - 1001)
        case "locks":
            return float(now_ms + LOCK_MS)
        case "expires":
            # Nothing may vanish at once for having been carried.
            return float(now_ms + ttl_of(stored))
    return float(now_ms)


def ttl_of(stored: Record) -> int:
    """How long the job is to stay after its end, ms."""
    ttl = lua_json.numeric((lua_json.as_object(stored.fields.get(b"options")) or {}).get("ttl"))
    return int(min(ttl, LONGEST_TTL)) if ttl is not None and ttl >= 1 else OPTIONS_TTL


def write(job: Job, target: Target) -> list[Command]:
    """The commands that store the job. Raises MalformedValue for a job that ``incompatibilities`` refuses."""
    stored = record_for(job, target)
    names, job_id, role = layout(target.prefix), to_bytes(job.id), stored.role
    record, waits_for = names.key("record", id=job.id), names.key("dependencies", id=job.id)
    commands: list[Command] = [] if target.generated else [("DEL", record, waits_for)]
    commands.append(("HSET", record, *chain.from_iterable(stored.fields.items())))
    if stored.dying:
        commands.append(("PEXPIRE", record, ttl_of(stored)))
    if not target.generated:
        commands += (("ZREM", names.key(each, queue=job.queue), job_id) for each in SETS if each != role)
    if role is not None:
        commands.append(("ZADD", names.key(role, queue=job.queue), stored.scores[role], job_id))
    if stored.needs:
        commands.append(("SADD", waits_for, *map(to_bytes, stored.needs)))
    commands += _memberships(job_id, stored, target)
    if stored.status == "queued" and not target.generated:
        message = {"queue": job.queue, "jid": job.id, "type": "new"}
        commands.append(("PUBLISH", to_bytes(f"{target.prefix}:ch:q:{job.queue}"), lua_json.dump_plain(message) or b"{}"))
    return commands


def _memberships(job_id: bytes, stored: Record, target: Target) -> Iterator[Command]:
    """Where the job is named beside its own keys. Nothing names a record that is to vanish."""
    if stored.dying:
        return
    names, get = layout(target.prefix), stored.fields.get
    for tag in dict.fromkeys(tag_names(get(b"tags"))):
        yield ("SADD", names.key("tag", tag=tag), job_id)
    parent, unique_key = get(b"parent"), get(b"hash")
    if parent is not None:
        yield ("SADD", names.key("children", id=to_text(parent)), job_id)
    if stored.status == "running":
        yield ("SADD", names.key("held", worker=to_text(get(b"worker", b""))), job_id)
    if unique_key is not None and stored.status not in DYING:
        key = names.key("hashes", hashed=hashed(to_text(get(b"queue", b"")), to_text(unique_key)))
        end = "tail" if stored.status == "duplicate" else "head"
        if target.generated:
            yield ("RPUSH" if end == "tail" else "LPUSH", key, job_id)
        else:
            yield ("EVAL", _script("enlist"), 1, key, job_id, end)


# What is done once


def tally_written(job: Job, totals: Totals) -> None:
    """Adds what ``finish`` needs: who waits for whom. It grows with the number of blocked jobs."""
    KeyFamily.tally_written(job, totals)
    if job.state is State.BLOCKED and word_for(job, Passthrough.of(job).status) == "new":
        totals.name("links", (json.dumps([job.id, needed]) for needed in job.depends_on))


def finish(target: Target, written: Totals) -> list[Command]:
    """Lets every job know who waits for it, and gives the keyspace the options without which bee's scripts abort."""
    names = layout(target.prefix)
    commands: list[Command] = [("SET", names.key("hive"), b'{"log":false}', "NX")]
    for waiting, needed in map(json.loads, sorted(written.names.get("links", ()))):
        keys = (names.key("record", id=needed), names.key("dependencies", id=waiting))
        commands.append(("EVAL", _script("link"), len(keys), *keys, to_bytes(needed), to_bytes(waiting)))
    return commands
