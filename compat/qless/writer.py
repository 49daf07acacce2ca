"""Writing qless: a Job to the Redis commands that store it as qless of 2013 to 2024 would; reqless runs such jobs too.

The writer takes a job out of every place where the target's record of it says that it stands, and leaves it in exactly one, so
commands may be sent again, for the same job or for a newer version of it. The last command is the one that makes the job
visible to workers. A job's commands belong in one transaction where workers are live; none is for a cluster, as nothing of
qless is. Never writes what a worker could not read. Called by ``family.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain

from attrs import evolve

from ...schema.errors import MalformedValue
from ...schema.family import Command, KeyFamily, Target
from ...schema.incompatibilities import error, warning
from ...schema.job import Job, State, replaced
from ...schema.rule import Finding
from ...schema.text import load_loose_json, show, to_bytes, to_text
from ...schema.totals import Totals
from ..generated import GeneratedJob
from ..scripts import script
from .keys import layout
from .passthrough import THROTTLED, Memberships, Passthrough, tagged_at, with_overflow
from .record import FIRST_POSITION_S, NAME, RUNNING, WORDS, Record, lost, priority_of, score_text, work_score

_script = partial(script, __package__)

TO_RUN = frozenset({State.WAITING, State.SCHEDULED, State.BLOCKED, State.ACTIVE})

DAY_S = 86_400


# What qless can't express


def incompatibilities(job: Job) -> Iterator[Finding]:
    """Errors for a job that qless could not hold or run; warnings for what it would keep in the record but not act on."""
    for name, text in (("id", job.id), ("name", job.name), ("queue", job.queue)):
        if to_text(to_bytes(text)) != text:
            yield error(job, "QLESS-W1", f"the {name} {show(text, 60)!r} has a lone surrogate, which has no bytes")
    if job.state not in WORDS:
        yield error(job, "QLESS-W3", f"qless has no state for {job.state} jobs")
    if job.state in TO_RUN and not _is_data(job.payload):
        yield error(job, "QLESS-W4", "the payload is not JSON, or false, which qless does not take")
    if job.state is State.SCHEDULED and job.due_at is None:
        yield warning(job, "QLESS-W5", "a scheduled job without a due time: the next pop promotes it")
    idle = [name for name in ("unique_key", "ttl") if getattr(job, name)]
    if idle:
        yield warning(job, "QLESS-W6", f"kept in the record, but without effect in qless: {', '.join(idle)}")
    try:
        passthrough = Passthrough.of(job)
    except MalformedValue as reason:
        yield error(job, "QLESS-W7", str(reason))
        return
    if job.state is State.BLOCKED and not job.depends_on and THROTTLED not in passthrough.scores:
        yield error(job, "QLESS-W8", "a blocked job that names no other: nothing would ever release it")
    if _written_state(job, passthrough) is not job.state:
        yield warning(job, "QLESS-W9", "no qless worker holds this active job: it is written as waiting")
    if job.state in TO_RUN and not job.name and NAME not in job.extra:
        yield warning(job, "QLESS-W10", "a job without a name: no worker can tell what to run")


def _is_data(payload: bytes | None) -> bool:
    try:
        return payload is not None and load_loose_json(payload) is not False
    except MalformedValue:
        return False


# What is stored


def write(job: Job, target: Target) -> list[Command]:
    """The commands that store the job. Raises MalformedValue for a job that ``incompatibilities`` refuses."""
    passthrough = Passthrough.of(job)
    state = _written_state(job, passthrough)
    record = job.record if isinstance(job, GeneratedJob) else record_for(job, state, passthrough)
    names, jid = layout(target.prefix), to_bytes(job.id)
    key = names.key("record", id=job.id)
    commands: list[Command] = [] if target.generated else [("EVAL", _script("leave"), 1, key, to_bytes(target.prefix), jid)]
    if record.history:
        commands.append(("RPUSH", names.key("history", id=job.id), *record.history))
    commands.append(("HSET", key, *chain.from_iterable(record.fields.items())))
    # The first weeks had no registers, and no sets of tags or of workers.
    early = b"jid" not in record.fields
    for tag in () if early else dict.fromkeys(record.tags or ()):
        at = passthrough.tagged.get(tag, tagged_at(job))
        keys = (names.key("tagged", tag=tag), names.key("tags"))
        if target.generated:
            commands += (("ZADD", keys[0], score_text(at), jid), ("ZINCRBY", keys[1], 1, to_bytes(tag)))
        else:
            commands.append(("EVAL", _script("tag"), 2, *keys, score_text(at), jid, to_bytes(tag)))
    if record.depends_on:
        commands.append(("SADD", names.key("dependencies", id=job.id), *map(to_bytes, record.depends_on)))
        commands.extend(("SADD", names.key("dependents", id=other), jid) for other in record.depends_on)
    if passthrough.tracked is not None:
        commands.append(("ZADD", names.key("tracked"), score_text(passthrough.tracked), jid))
    for name, score in passthrough.scores.items() if passthrough.state == to_text(record.fields.get(b"state", b"")) else ():
        role, _, throttle = name.partition(":")
        if role in ("slot", "pending"):
            key_there = names.key("slots" if role == "slot" else "pending", throttle=throttle)
            commands.append(("ZADD", key_there, score_text(score), jid))
        elif role == "worker" and state is not State.ACTIVE:
            worker = to_text(record.fields.get(b"worker", b""))
            commands.append(("ZADD", names.key("held", worker=worker), score_text(score), jid))
    if not early and (job.queue or state is not State.COMPLETED):
        # The earliest of its jobs tells how old a queue is.
        commands.append(("ZADD", names.key("queues"), "LT", score_text(tagged_at(job)), to_bytes(job.queue)))
    return [*commands, *_into_index(job, state, record, passthrough, target)]


def record_for(job: Job, state: State, passthrough: Passthrough) -> Record:
    """Hash, history and places that the job gets."""
    written = job if state is job.state else replaced(job, state=state)
    record = passthrough.record(written)
    return with_overflow(job, record, lost(job, record))


def expressed(job: Job) -> Job:
    """The job with its score, where the priority is so large that the score has no digits left for a place.

    A reader takes such a score for one that qless itself has set, unless all else of the job is as the writer writes it.
    """
    if NAME not in job.extra or work_score(priority_of(job), FIRST_POSITION_S) != priority_of(job):
        return job
    passthrough = Passthrough.of(job)
    state = _written_state(job, passthrough)
    record = record_for(job, state, passthrough)
    score = Passthrough.of_difference(replaced(job, state=state), record, Memberships()).scores.get("work")
    if score is None:
        return job
    bound = evolve(passthrough, state=to_text(record.fields[b"state"]), scores={**passthrough.scores, "work": score})
    return replaced(job, extra={**job.extra, NAME: bound.to_extra()})


def _written_state(job: Job, passthrough: Passthrough) -> State:
    """An active job whose worker is not qless's would only time out, so it waits."""
    held_elsewhere = job.state is State.ACTIVE and passthrough.state not in RUNNING
    return State.WAITING if held_elsewhere else job.state


def _into_index(job: Job, state: State, record: Record, passthrough: Passthrough, target: Target) -> Iterator[Command]:
    """Where the job stands, and whoever must know of it. Comes last."""
    names, jid = layout(target.prefix), to_bytes(job.id)
    if state is State.FAILED:
        group = record.group
        when = score_text((job.finished_at or 0) / 1000)
        if group is not None and target.generated:
            yield ("ZADD", _staged(group, target), when, jid)
        elif group is not None:
            keys = (names.key("failed", group=group), names.key("groups"))
            script = _script("list_failed")
            yield ("EVAL", script, 2, *keys, jid, when, to_bytes(group), names.key("record", id=""))
    if state is State.ACTIVE:
        worker = to_text(record.fields.get(b"worker", b""))
        lock = passthrough.scores.get("worker", record.scores.get("locks", 0.0))
        # A worker that was told that the lock is lost does not count the job as its own any more.
        if b"jid" in record.fields and b"grace" not in record.fields:
            yield ("ZADD", names.key("held", worker=worker), score_text(lock), jid)
            yield ("ZADD", names.key("workers"), "GT", score_text((job.started_at or 0) / 1000), to_bytes(worker))
    for role, score in record.scores.items():
        yield ("ZADD", names.key(role, queue=job.queue) if role != "completed" else names.key(role), score_text(score), jid)


def _staged(group: str, target: Target) -> bytes:
    """Where generated failed jobs wait until all are there: each would have to be looked up its place in a long list."""
    return to_bytes(f"{target.prefix}:ferryman:failed:{group}")


# What is done once


def tally_written(job: Job, totals: Totals) -> None:
    """Counts failed jobs by queue and by the day on which they failed, and notes the groups that are staged."""
    KeyFamily.tally_written(job, totals)
    if job.state is State.FAILED:
        when = (job.finished_at or 0) // 1000
        totals.count("failed", f"{when - when % DAY_S}:{job.queue}")
        if isinstance(job, GeneratedJob) and job.record.group is not None:
            totals.name("staged groups", [job.record.group])


def finish(target: Target, written: Totals) -> list[Command]:
    """Makes the statistics of failures such that each written failed job can be cancelled, and lists those that were staged."""
    commands: list[Command] = []
    for group in sorted(written.names.get("staged groups", ())):
        keys = (layout(target.prefix).key("failed", group=group), layout(target.prefix).key("groups"), _staged(group, target))
        commands.append(("EVAL", _script("list_all_failed"), len(keys), *keys, to_bytes(group)))
    for label in written.labels("failed"):
        day, _, queue = label.partition(":")
        key = layout(target.prefix).key("statistics", measure="stats", day=day, queue=queue)
        commands.append(("EVAL", _script("count_failed"), 1, key, written.sums["failed", label]))
    return commands
