"""Writing native keyspaces: a Job to the Redis commands that store it as the scripts would have.

The writer replaces whatever the target holds of a job's id, if it may hold anything, and leaves it in exactly one place, so
commands may be sent again.
What makes a queue of the jobs (its order, sequence and wake token) comes last and for all at once (``finish``). Called by
``family.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import chain

from attrs import evolve

from ..errors import MalformedValue
from ..family import Command, KeyFamily, Target
from ..incompatibilities import NOT_BY_JOBS, error, warning
from ..job import Job, State, replaced
from ..rule import Finding
from ..text import to_bytes
from ..totals import Totals
from . import keys
from .keys import QueueKeys
from .numbers import score_to_int
from .overflow import Overflow, stored_with_overflow
from .record import NAME, ROLE_OF, Passthrough, Stored, standard, waiting_score
from .scripts.loader import script
from .scripts.waiting_score import ASCENDING, DESCENDING, sequence_of


def incompatibilities(job: Job) -> Iterator[Finding]:
    """Errors for a job that a native queue could not hold."""
    if not job.id:
        yield error(job, "NATIVE-W1", "the job has no id")
    if not job.queue:
        yield error(job, "NATIVE-W2", "the job names no queue")
    if job.state not in ROLE_OF:
        yield error(job, "NATIVE-W3", f"{job.state} jobs have no place in a queue")
    if job.state is State.ACTIVE and (not job.worker or job.lease_expires_at is None):
        yield error(job, "NATIVE-W4", "an active job needs a worker and the end of its lease: write it as waiting instead")
    if job.state is State.BLOCKED and not job.depends_on:
        yield error(job, "NATIVE-W5", NOT_BY_JOBS)
    try:
        if Overflow.FIELD in Passthrough.of(job).fields and expressed(job) != job:
            yield warning(
                job, "NATIVE-W7", "left out: the text in its field 'job', which nobody can read, where a new one must stand"
            )
    except MalformedValue as reason:
        yield error(job, "NATIVE-W6", str(reason))


def expressed(job: Job) -> Job:
    """An unreadable text in the overflow's field goes, where the job needs that field."""
    passthrough = Passthrough.of(job)
    without = {name: value for name, value in passthrough.fields.items() if name != Overflow.FIELD}
    if len(without) == len(passthrough.fields) or not Overflow.of(job, passthrough, standard(job, passthrough)).is_needed:
        return job
    return replaced(job, extra={**job.extra, NAME: evolve(passthrough, fields=without).to_extra()})


def write(job: Job, target: Target) -> list[Command]:
    """The commands that store the job, in one cluster slot. Raises MalformedValue for one that ``incompatibilities`` refuses."""
    passthrough = Passthrough.of(job)
    stored = standard(job, passthrough) if target.generated else stored_with_overflow(job, passthrough)
    names, zsets = _keys(target.prefix, job.queue)
    job_id = to_bytes(job.id)
    key = names.job(job.id)
    commands: list[Command] = []
    if not (target.generated or target.fresh):
        commands += (("DEL", key, names.needs(job.id)), ("SREM", names.blocked, job_id))
        # What goes to its own place is moved there.
        commands += [("ZREM", at, job_id) for role, at in zsets.items() if role != stored.role]
    commands.append(("HSET", key, *chain.from_iterable(stored.fields.items())))
    commands += _into_key(job_id, job, stored, names, zsets)
    if _holds_key(job):
        commands.append(("SET", names.unique(job.unique_key or ""), job_id, "NX"))
    return commands


def _holds_key(job: Job) -> bool:
    """Whether no other job may have its dedup key: it has not ended."""
    return bool(job.unique_key) and ROLE_OF[job.state] not in ("dead", "done")


@lru_cache(maxsize=1024)
def _keys(prefix: str, queue: str) -> tuple[QueueKeys, dict[str, bytes]]:
    """The keys of a queue, and those of its places that have scores, by role: a few queues for millions of jobs."""
    names = QueueKeys(prefix, queue)
    return names, {"waiting": names.waiting, "scheduled": names.scheduled, "dead": names.dead, "done": names.done}


def _into_key(job_id: bytes, job: Job, stored: Stored, names: QueueKeys, zsets: Mapping[str, bytes]) -> Iterator[Command]:
    score = _text(stored.score)
    match stored.role:
        case "held":
            yield ("ZADD", names.held(stored.holder or ""), score, job_id)
            # Another of the worker's jobs may have set a later end of its lease.
            yield ("ZADD", names.consumers, "GT", stored.lease or 0, to_bytes(stored.holder or ""))
        case "blocked":
            yield ("SADD", names.blocked, job_id)
            yield ("SADD", names.needs(job.id), *map(to_bytes, stored.needs))
            for needed in stored.needs:
                yield ("SADD", names.unblocks(needed), job_id)
        case _:
            yield ("ZADD", zsets[stored.role or ""], score, job_id)


def _text(score: float | None) -> str:
    """A score as Redis reads it back exactly."""
    whole = score_to_int(score)
    return str(whole) if whole is not None and whole == score else repr(score or 0.0)


def tally_written(job: Job, totals: Totals) -> None:
    """Adds what ``finish`` needs beside the number of jobs by queue: priority order, dedup keys, the highest sequence given."""
    KeyFamily.tally_written(job, totals)
    passthrough = Passthrough.of(job)
    if passthrough.order == DESCENDING:
        totals.name("descending", [job.queue])
    if _holds_key(job):
        totals.name("unique", [job.queue])
    score = None if job.state is State.COMPLETED else score_to_int(waiting_score(job, passthrough))
    if score is not None:
        totals.maximum("highest sequence", sequence_of(score), job.queue)


def finish(target: Target, written: Totals) -> list[Command]:
    """Registers each queue, raises its sequence over every one given, and wakes a consumer."""
    adopt = script("adopt")
    commands: list[Command] = []
    for queue in written.labels("jobs"):
        names = QueueKeys(target.prefix, queue)
        sequence = written.maxima.get(("highest sequence", queue), 0)
        commands.append(("SADD", keys.queues(target.prefix), to_bytes(queue)))
        order = DESCENDING if queue in written.names.get("descending", ()) else ASCENDING
        commands.append(("EVAL", adopt.text, len(names.fixed), *names.fixed, "", sequence, order))
        if queue in written.names.get("unique", ()):
            commands.append(("HSET", names.meta, "unique", 1))
    return commands
