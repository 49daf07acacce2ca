"""The job of pjq, both ways: its hash and scores to canonical fields, and canonical fields to what the program would write.

``canonical`` reads any bytes and never fails; ``standard`` writes what a sound job of the current program looks like. What
``standard`` would not reproduce stands in passthrough.py, so that together they are exact. Scores are seconds, job times
milliseconds. Called by the reader and the writer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ...schema.frozen import frozen
from ...schema.job import Job, State, differences
from ...schema.text import to_bytes, to_text
from ..numbers import int64_or_none, number_text, parse_number, score_to_int
from ..timestamps import parse_timestamp, timestamp_text
from .keys import LEASE_MS
from .payload import Members, Text, compose, has_failed, key_texts, members_of, output

FINISHED = frozenset({State.COMPLETED, State.FAILED})


@frozen
class Record:
    """A job as pjq stores it."""

    role: str | None
    """The role of the container that tells its state; ``finished`` also for one that only its hash says to be."""
    fields: Mapping[bytes, bytes]
    """The hash."""
    scores: Mapping[str, float]
    """By role, where it has one. ``seen``: when the worker that has accepted it gave its last sign, if that worker is still
    among the busy ones of the queue."""


# Reading


def state_of(record: Record) -> State:
    """The state by the place. Without a payload nobody can run the job, or tell what it was."""
    raw = record.fields.get(b"json")
    if raw is None:
        return State.UNKNOWN
    match record.role:
        case "finished":
            return State.FAILED if has_failed(members_of(raw) or {}) else State.COMPLETED
        case "processing" | "dispatched" | "js_leased":
            return State.ACTIVE
        case "queued" | "js_queued":
            return State.WAITING
    return State.UNKNOWN


def canonical(job_id: str, queue: str, record: Record, extra: Mapping[str, Any] | None = None) -> Job:
    """The job that a record describes. What has no sensible value is None."""
    get, scores = record.fields.get, record.scores
    raw = get(b"json")
    readable = members_of(raw)
    members: Members = readable or {}
    state = state_of(record)
    name, stdout = members.get("command"), output(members, "stdout") if state in FINISHED else None
    dispatched = milliseconds(scores.get("dispatched"))
    touched = [dispatched, milliseconds(scores.get("processing")), milliseconds(scores.get("finished"))]
    touched.append(score_to_int(scores.get("js_leased")))
    progress = scores.get("progress", scores.get("js_progress"))
    # Who has a job that was dispatched and not yet accepted stands nowhere; the hash may name an earlier worker.
    worker = None if record.role == "dispatched" else get(b"worker_uuid")
    return Job(
        id=job_id,
        queue=queue,
        name=name if isinstance(name, str) else "",
        state=state,
        payload=raw if readable is not None else None,
        created_at=parse_timestamp(members.get("created_at")),
        updated_at=max((each for each in touched if each is not None), default=None),
        started_at=started_ms(get(b"started_at")),
        finished_at=finished_ms(record) if state in FINISHED else None,
        attempts=int(b"dispatched_at" in record.fields or b"leased_at" in record.fields),
        progress=progress if progress is not None and 0 <= progress <= 1 else None,
        result=None if stdout is None else to_bytes(stdout),
        error=output(members, "stderr") if state is State.FAILED else None,
        worker=to_text(worker) if worker else None,
        lease_expires_at=None if dispatched is None or record.role != "dispatched" else int64_or_none(dispatched + LEASE_MS),
        extra={} if extra is None else extra,
    )


def started_ms(raw: bytes | None) -> int | None:
    """When a job was begun: a date, as workers are told to send it, or a number of seconds."""
    found = parse_timestamp(_text(raw))
    return milliseconds(parse_number(raw)) if found is None else found


def finished_ms(record: Record) -> int | None:
    """When a job was finished: a number of seconds, as the program needs it, or a date, as workers are told to send it."""
    raw = record.fields.get(b"finished_at")
    seconds = parse_number(raw)
    if seconds is None and raw is not None:
        found = parse_timestamp(_text(raw))
        if found is not None:
            return found
    return milliseconds(record.scores.get("finished") if seconds is None else seconds)


def milliseconds(seconds: float | None) -> int | None:
    """Seconds as milliseconds; None for what is no time that 64 bits hold."""
    if seconds is None or not math.isfinite(seconds) or abs(seconds) > 1e16:
        return None
    return int64_or_none(round(seconds * 1000))


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else to_text(raw)


# Writing


def text_of(job: Job) -> Text:
    """The JSON text of a job: its payload, and what the program and its workers need to find there."""
    members = members_of(job.payload) or {}
    more: dict[str, Any] = {}
    for name, value in (("uuid", job.id), ("queue_name", job.queue)):
        if name not in members or value not in key_texts(members, name):
            more[name] = value
    if job.name and "command" not in members:
        more["command"] = job.name
    if job.created_at is not None and "created_at" not in members:
        created_at = timestamp_text(job.created_at)
        if created_at is not None:
            more["created_at"] = created_at
    if job.state in FINISHED:
        more |= _outcome(job, members)
    return compose(job.payload, more)


def _outcome(job: Job, members: Members) -> dict[str, Any]:
    """How a finished job went, as far as its payload does not say so."""
    more: dict[str, Any] = {}
    if has_failed(members) != (job.state is State.FAILED):
        more["exitcode"] = 1 if job.state is State.FAILED else 0
    if job.result is not None and output(members, "stdout") != to_text(job.result):
        more["stdout"] = to_text(job.result)
    if job.state is State.FAILED and job.error is not None and output(members, "stderr") != job.error:
        more["stderr"] = job.error
    return more


def standard(job: Job, role: str, text: Text) -> Record:
    """What the program itself would have written for a job in this place."""
    fields, scores = {b"json": text.raw}, {}
    times = (job.started_at, job.updated_at, job.finished_at, job.created_at)
    some_time = next((each for each in times if each is not None), 0)
    dispatched = some_time
    match role:
        case "dispatched":
            if job.lease_expires_at is not None:
                dispatched = job.lease_expires_at - LEASE_MS
            scores["dispatched"] = dispatched / 1000
        case "processing":
            scores["processing"] = (some_time if job.updated_at is None else job.updated_at) / 1000
            scores["progress"] = float(job.progress or 0)
        case "finished":
            scores["finished"] = (some_time if job.finished_at is None else job.finished_at) / 1000
            fields[b"finished_at"] = number_text(scores["finished"])
    if role != "queued" or job.attempts:
        fields[b"dispatched_at"] = to_bytes(timestamp_text(dispatched) or "")
    if job.started_at is not None and (started_at := timestamp_text(job.started_at)) is not None:
        fields[b"started_at"] = to_bytes(started_at)
    if role == "finished" or (job.worker and role != "dispatched"):
        # Every finished job names its worker; an empty name is none.
        fields[b"worker_uuid"] = to_bytes(job.worker or "")
    return Record(role, fields, scores)


def lost(job: Job, record: Record) -> dict[str, Any]:
    """The canonical fields of ``job`` that reading ``record`` back would not give, with the values that the job has."""
    return differences(job, canonical(job.id, job.queue, record, job.extra))
