"""The job hash of kue, both ways: hash fields to canonical fields, and canonical fields to what kue itself would write.

``canonical`` reads any bytes and never fails; ``standard`` writes what a sound kue 0.11 job looks like. What ``standard``
would not reproduce of a hash stands in passthrough.py, so that together they are exact. Called by the reader and the writer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from attrs import evolve

from ...schema.frozen import frozen
from ...schema.job import Job, State, differences, rank_of
from ...schema.text import is_json, to_bytes, to_text
from ..numbers import int64_or_none, number_text, parse_int, parse_number, score_to_int
from .keys import EARLIEST_TIME, STATES, WORDS, valid_id

SHORTEST_LEASE = 100_000
"""kue takes a score of the active index for the end of a lease from here on; below, it is a negated priority."""

INDEXES = ("all", "by_state", "by_type")
"""The roles of the three indexes that hold every sound job."""


@frozen
class Record:
    """A job as kue stores it: the hash, and its score in each of the indexes where it belongs."""

    fields: Mapping[bytes, bytes]
    scores: Mapping[str, float]
    """By role, of INDEXES; absent where the job does not stand."""


def state_of(fields: Mapping[bytes, bytes]) -> State:
    """The state that the hash names. Without a type kue calls the job invalid, whatever else it says."""
    return STATES.get(fields.get(b"state", b""), State.UNKNOWN) if fields.get(b"type") else State.UNKNOWN


def canonical(
    job_id: str,
    record: Record,
    logs: tuple[bytes, ...] = (),
    extra: Mapping[str, Any] | None = None,
    waiting: tuple[int | None, float | None] = (None, None),
) -> Job:
    """The job that a record describes. What has no sensible value is None.

    ``waiting``: its place in the index from which workers take it, and its score there.
    """
    get = record.fields.get
    queue = to_text(get(b"type", b""))
    priority = parse_number(get(b"priority"))
    position, score_there = waiting
    state = state_of(record.fields)
    ttl = parse_int(get(b"ttl"))
    error = get(b"error")
    worker = get(b"workerId")
    created_at = parse_int(get(b"created_at"))
    updated_at = parse_int(get(b"updated_at"))
    started_at = parse_int(get(b"started_at"))
    due_at = finished_at = lease_expires_at = None
    match state:
        case State.SCHEDULED:
            due_at = due_of(record.fields, record.scores.get("by_state"))
        case State.COMPLETED:
            duration = parse_int(get(b"duration"))
            if started_at is None or duration is None:
                # Before 0.9 the start is unknown; the last touch of a completed job is the best upper bound of its end.
                finished_at = updated_at
            else:
                finished_at = int64_or_none(started_at + duration)
        case State.FAILED:
            finished_at = parse_int(get(b"failed_at"))
        case State.ACTIVE:
            score = record.scores.get("by_state")
            if ttl is not None and ttl > 0 and score is not None and score >= SHORTEST_LEASE:
                lease_expires_at = score_to_int(score)
    return Job(
        id=job_id,
        queue=queue,
        name=queue,
        state=state,
        priority=priority,
        payload=get(b"data"),
        created_at=created_at,
        updated_at=updated_at,
        due_at=due_at,
        started_at=started_at,
        finished_at=finished_at,
        attempts=parse_int(get(b"attempts", b"0")),
        max_attempts=parse_int(get(b"max_attempts", b"1")),
        progress=progress_of(get(b"progress")),
        result=get(b"result"),
        error=None if error is None else to_text(error),
        worker=None if worker is None else to_text(worker),
        lease_expires_at=lease_expires_at,
        ttl=ttl,
        logs=logs,
        extra={} if extra is None else extra,
        position=position,
        # The index decides when a job runs, whatever its hash says of its priority (KUE-12).
        rank=rank_of(priority if score_there is None else score_there),
    )


def due_at(fields: Mapping[bytes, bytes]) -> int | None:
    """When the hash alone says that a delayed job is due: what kue up to 0.8 goes by. None where a part of that is lost."""
    base = parse_int(fields.get(b"failed_at", fields.get(b"created_at")))
    delay = parse_number(fields.get(b"delay"))
    return None if base is None or delay is None else int64_or_none(base + int(delay))


def due_of(fields: Mapping[bytes, bytes], score: float | None) -> int | None:
    """When a delayed job with this hash and this score in the index of its state is due; None where nothing tells.

    kue 0.9 and later promotes by the score. A score that is no time is a priority of an older version, or damage.
    """
    time = score_to_int(score)
    if time is not None and time > EARLIEST_TIME:
        return time
    promote_at = parse_int(fields.get(b"promote_at"))
    return due_at(fields) if promote_at is None else promote_at


def progress_of(raw: bytes | None) -> float | None:
    """From 0 to 1, of a text in percent; None where it says anything else."""
    if raw is None:
        return 0.0
    percent = parse_number(raw)
    return percent / 100 if percent is not None and 0 <= percent <= 100 else None


def standard(job: Job) -> Record:
    """What kue 0.11 itself would have written for this job. A state that kue has no word for is left out."""
    return Record(_standard_fields(job), _standard_scores(job))


def _standard_fields(job: Job) -> dict[bytes, bytes]:
    fields = {b"priority": number_text(_priority(job)), b"max_attempts": b"%d" % max(1, job.max_attempts or 1)}
    if job.queue:
        fields[b"type"] = to_bytes(job.queue)
    if job.payload is not None:
        fields[b"data"] = job.payload
    if job.state in WORDS:
        fields[b"state"] = WORDS[job.state].encode()
    if job.created_at is not None:
        fields[b"created_at"] = fields[b"promote_at"] = b"%d" % job.created_at
    if job.updated_at is not None:
        fields[b"updated_at"] = b"%d" % job.updated_at
    if job.state is State.SCHEDULED and job.due_at is not None:
        fields[b"promote_at"] = b"%d" % job.due_at
        if job.created_at is not None and job.due_at > job.created_at:
            fields[b"delay"] = b"%d" % (job.due_at - job.created_at)
    if job.ttl is not None and job.ttl > 0:
        fields[b"ttl"] = b"%d" % job.ttl
    if job.attempts:
        fields[b"attempts"] = b"%d" % job.attempts
    if job.progress:
        fields[b"progress"] = b"%d" % round(min(1.0, max(0.0, job.progress)) * 100)
    if job.started_at is not None:
        fields[b"started_at"] = b"%d" % job.started_at
    if job.worker is not None:
        fields[b"workerId"] = to_bytes(job.worker)
    if job.result is not None:
        fields[b"result"] = job.result
    if job.error is not None:
        fields[b"error"] = to_bytes(job.error)
    if job.finished_at is not None:
        if job.state is State.FAILED:
            fields[b"failed_at"] = b"%d" % job.finished_at
        elif job.state is State.COMPLETED and job.started_at is not None:
            fields[b"duration"] = b"%d" % (job.finished_at - job.started_at)
    return fields


def _standard_scores(job: Job) -> dict[str, float]:
    """Floats, as Redis keeps them: a time that a float can't hold must be seen to be lost."""
    priority = float(_priority(job))
    if job.state not in WORDS:
        return {"all": priority}
    by_state = priority
    if job.state is State.SCHEDULED:
        # kue never promotes a score below 0.
        by_state = float(max(0, job.due_at or job.created_at or 0))
    elif job.state is State.ACTIVE:
        leased = job.ttl is not None and job.ttl > 0 and job.lease_expires_at is not None
        by_state = float(job.lease_expires_at or 0) if leased else -abs(priority)
    return {"all": priority, "by_state": by_state, "by_type": priority}


def _priority(job: Job) -> int | float:
    """kue's default is 0; anything but a finite number would throw the job out of every index.

    A job of another system, which shows by its id, runs where its rank says: its priority may mean something else there.
    """
    if job.rank is not None and not valid_id(job.id):
        return job.rank
    return job.priority if job.priority is not None and math.isfinite(job.priority) else 0


def lost(job: Job, record: Record) -> dict[str, Any]:
    """The canonical fields of ``job`` that reading ``record`` back would not give, with the values that the job has."""
    return differences(job, canonical(job.id, record, job.logs, job.extra))


_FUNCTION = re.compile(rb"\s*(?:async\b\s*)?(?:function\b|\(|[A-Za-z_$][\w$]*\s*=>)")


def is_function(backoff: bytes) -> bool:
    """Whether a backoff that is no JSON may be the source of a JavaScript function. Only looked at, never run."""
    return _FUNCTION.match(backoff) is not None


def is_readable(name: bytes, raw: bytes | None) -> bool:
    """Whether kue can parse this text of a hash field (None: no such field); if not, the worker that takes the job drops it."""
    match name:
        case b"priority":
            return parse_number(raw) is not None
        case b"data" | b"result" | b"progress_data":
            return raw is None or is_json(raw)
        case b"backoff":
            return raw is None or is_json(raw) or is_function(raw)
    return True


def readable(record: Record) -> Record:
    """The record without the fields that kue can't parse."""
    if all(is_readable(name, raw) for name, raw in record.fields.items()):
        return record
    return evolve(record, fields={name: raw for name, raw in record.fields.items() if is_readable(name, raw)})
