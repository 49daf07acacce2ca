"""Writing native keyspaces: a Job to the Redis commands that store it as the scripts would have.

The writer replaces whatever the target holds of a job's id and leaves it in exactly one place, so commands may be sent again.
What makes a queue of the jobs (its order, sequence and wake token) comes last and for all at once (``finish``). Called by
``family.py``.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import MalformedValue
from ..family import Command, Target
from ..job import Job, State
from ..rule import Finding, Severity
from ..text import to_bytes
from ..totals import Totals
from . import keys
from .aside import stored_with_aside
from .keys import QueueKeys
from .place import ASCENDING, DESCENDING, sequence_of
from .record import PLACE_OF, Own, Stored, standard, whole_score
from .scripts import script


def obstacles(job: Job) -> Iterator[Finding]:
    """Errors for a job that a native queue could not hold."""
    if not job.id:
        yield _error(job, "NATIVE-W1", "the job has no id")
    if not job.queue:
        yield _error(job, "NATIVE-W2", "the job names no queue")
    if job.state not in PLACE_OF:
        yield _error(job, "NATIVE-W3", f"a {job.state} job has no place in a queue")
    if job.state is State.ACTIVE and (not job.worker or job.lease_expires_at is None):
        yield _error(job, "NATIVE-W4", "an active job needs a worker and the end of its lease: write it as waiting instead")
    if job.state is State.BLOCKED and not job.depends_on:
        yield _error(job, "NATIVE-W5", "a blocked job that waits for nothing would never go on")
    try:
        Own.of(job)
    except MalformedValue as error:
        yield _error(job, "NATIVE-W6", str(error))


def _error(job: Job, rule: str, detail: str) -> Finding:
    return Finding(rule, Severity.ERROR, job.id, "", job.queue, detail)


def write(job: Job, target: Target) -> list[Command]:
    """The commands that store the job, all in one cluster slot. Raises MalformedValue where ``obstacles`` says so."""
    stored = stored_with_aside(job, Own.of(job))
    names = QueueKeys(target.prefix, job.queue)
    job_id = to_bytes(job.id)
    key = names.job(job.id)
    commands: list[Command] = [("DEL", key)]
    commands += (("ZREM", place, job_id) for place in (names.waiting, names.scheduled, names.dead, names.done))
    commands += (("SREM", names.blocked, job_id), ("DEL", names.needs(job.id)))
    commands.append(("HSET", key, *(text for pair in stored.fields.items() for text in pair)))
    commands += _into_place(job_id, job, stored, names)
    if _holds_key(job):
        commands.append(("SET", names.unique(job.unique_key or ""), job_id, "NX"))
    return commands


def _holds_key(job: Job) -> bool:
    """Whether no other job may have its dedup key: it has not ended."""
    return bool(job.unique_key) and PLACE_OF[job.state] not in ("dead", "done")


def _into_place(job_id: bytes, job: Job, stored: Stored, names: QueueKeys) -> Iterator[Command]:
    score = _text(stored.score)
    match stored.place:
        case "held":
            yield ("ZADD", names.held(stored.holder or ""), score, job_id)
            # Another of the worker's jobs may have told a later end of its lease.
            yield ("ZADD", names.consumers, "GT", stored.lease or 0, to_bytes(stored.holder or ""))
        case "blocked":
            yield ("SADD", names.blocked, job_id)
            yield ("SADD", names.needs(job.id), *map(to_bytes, stored.needs))
            for needed in stored.needs:
                yield ("SADD", names.unblocks(needed), job_id)
        case _:
            place = {"waiting": names.waiting, "scheduled": names.scheduled, "dead": names.dead, "done": names.done}
            yield ("ZADD", place[stored.place or ""], score, job_id)


def _text(score: float | None) -> str:
    """A score as Redis reads it back exactly."""
    whole = whole_score(score)
    return str(whole) if whole is not None and whole == score else repr(score or 0.0)


def tally_written(job: Job, totals: Totals) -> None:
    """Adds what ``finish`` needs beside the number of jobs by queue: priority order, dedup keys, the highest sequence given."""
    own = Own.of(job)
    if own.order == DESCENDING:
        totals.name("descending", [job.queue])
    if _holds_key(job):
        totals.name("unique", [job.queue])
    place = whole_score(standard(job, own).waiting_score)
    if place is not None:
        totals.maximum("highest sequence", sequence_of(place), job.queue)


def finish(target: Target, written: Totals) -> list[Command]:
    """Registers each queue, raises its sequence over every place given, and wakes a consumer."""
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
