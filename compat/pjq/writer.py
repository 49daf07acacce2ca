"""Writing pjq: a Job to the Redis commands that store it as the current program would.

A list knows no place but its two ends, and jobs come in any order. So waiting jobs are staged, by queue, and ``finish`` puts
each queue's into its list, in the order of their places and to run before whatever stands there. Both may be sent again, for
the same jobs or for newer versions of them. Workers are never written, but for one that has an accepted job and was there when
that was read: the program would hand jobs to a worker that does not exist. Called by ``family.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain

from ...schema.errors import MalformedValue
from ...schema.family import Command, KeyFamily, Target
from ...schema.incompatibilities import error, warning
from ...schema.job import Job, State
from ...schema.rule import Finding
from ...schema.text import is_unicode, load_json, show, to_bytes
from ...schema.totals import Totals
from ..generated import GeneratedJob
from ..scripts import script
from ..waiting_place import waiting_place
from .keys import can_be_id, layout
from .passthrough import WRITABLE, Passthrough, record_for, role_of
from .payload import members_of
from .record import FINISHED

_script = partial(script, __package__)

TO_RUN = frozenset({State.WAITING, State.ACTIVE})

SCORED = ("dispatched", "processing", "progress", "finished")
"""The roles of the containers, but for lists, in which a job can stand."""


# What pjq can't express


def incompatibilities(job: Job) -> Iterator[Finding]:
    """Errors for a job that pjq could not hold or run; warnings for what it would keep in the record but not act on."""
    if not can_be_id(job.id):
        reason = "it is not UTF-8, or begins like a container"
        yield error(job, "PJQ-W1", f"the id {show(job.id, 60)!r} can't be the key of a job: {reason}")
    if not is_unicode(job.queue):
        yield error(job, "PJQ-W2", f"a queue of pjq has a name in UTF-8; this one is {show(job.queue, 60)!r}")
    if job.state not in TO_RUN | FINISHED:
        known = "it knows no due times, so keep the job elsewhere until it is due" if job.state is State.SCHEDULED else ""
        yield error(job, "PJQ-W3", f"pjq has no place for {job.state} jobs{known and ': '}{known}")
    if job.state in TO_RUN and not _can_be_run(job.payload):
        yield error(job, "PJQ-W4", "the payload is not JSON: the program would die at it")
    idle = [name for name in ("ttl", "tags", "depends_on", "unique_key", "history") if getattr(job, name)]
    if job.max_attempts is not None and job.max_attempts > 1 and job.state in TO_RUN:
        idle.insert(0, "max_attempts")
    if idle:
        yield warning(job, "PJQ-W6", f"kept in the record, but without effect in pjq: {', '.join(idle)}")
    try:
        passthrough = Passthrough.of(job)
    except MalformedValue as reason:
        yield error(job, "PJQ-W7", str(reason))
        return
    if job.state is State.ACTIVE and passthrough.role not in WRITABLE:
        yield warning(job, "PJQ-W9", "no worker of pjq has this active job: it is written as waiting")


def _can_be_run(payload: bytes | None) -> bool:
    if members_of(payload) is not None:
        return True
    try:
        load_json(payload or b"")
    except MalformedValue:
        return False
    return True


# What is stored


def write(job: Job, target: Target) -> list[Command]:
    """The commands that store the job. Raises MalformedValue for a job that ``incompatibilities`` refuses."""
    record = job.record if isinstance(job, GeneratedJob) else record_for(job)
    names, job_id = layout(target.prefix), to_bytes(job.id)

    def key(role: str) -> bytes:
        return names.key(role, queue=job.queue)

    own = {"processing", "progress"} if record.role == "processing" else {record.role}
    stored, fields = names.key("record", id=job.id), chain.from_iterable(record.fields.items())
    commands: list[Command] = []
    if target.generated:
        commands.append(("HSET", stored, *fields))
    else:
        commands.append(("EVAL", _script("store"), 1, stored, *fields))
        commands += (("ZREM", key(role), job_id) for role in SCORED if role not in own)
    if record.role == "queued":
        commands.append(("ZADD", key("staged"), waiting_place(job), job_id))
        return commands
    if not target.generated:
        commands += (("ZREM", key("staged"), job_id), ("LREM", key("queued"), 0, job_id))
    for role, score in record.scores.items():
        if role in own:
            commands.append(("ZADD", key(role), score, job_id))
    worker = record.fields.get(b"worker_uuid")
    if record.role == "processing" and "seen" in record.scores and worker:
        commands += (("SADD", key("busy"), worker), ("ZADD", key("seen"), record.scores["seen"], worker))
    return commands


# What is done once


def tally_written(job: Job, totals: Totals) -> None:
    """Adds what ``finish`` needs: which queues have jobs to put into their lists."""
    KeyFamily.tally_written(job, totals)
    role = job.record.role if isinstance(job, GeneratedJob) else role_of(job, Passthrough.of(job).role)
    if role == "queued":
        totals.name("staged", [job.queue])


def finish(target: Target, written: Totals) -> list[Command]:
    """Puts what was staged into the lists."""
    names = layout(target.prefix)
    return [
        ("EVAL", _script("queue_ids"), 3, *(names.key(role, queue=queue) for role in ("staged", "queued", "staged_list")), "tail")
        for queue in sorted(written.names.get("staged", ()))
    ]
