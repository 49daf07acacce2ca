"""What the scripts of a kue keyspace in use reply, as values.

Pure; raises nothing for what stands in the keyspace. Called by ``live.py``.
"""

from __future__ import annotations

from typing import Any

from attrs import frozen

from ...schema.errors import MalformedValue
from ...schema.job import Job
from ...schema.live import ForeignDelivery
from ...schema.text import load_json, to_text
from ..numbers import parse_int, parse_number
from .record import Record, canonical


@frozen
class KueStats:
    """How many jobs have which state, and how long all completed ones have run."""

    waiting: int
    scheduled: int
    active: int
    completed: int
    failed: int
    work_time_ms: int
    queues: tuple[str, ...]
    """All that ever had a job."""


def delivery(
    queue: str,
    job_id: bytes,
    raw_priority: bytes,
    lapses: int,
    data: bytes,
    extra: bytes,
    attempts: int,
    max_attempts: bytes,
    ttl: bytes,
) -> ForeignDelivery:
    """A job that a worker has begun, or that is to come."""
    priority = int(parse_number(raw_priority) or 0)
    limit = parse_number(ttl)
    return ForeignDelivery(
        to_text(job_id),
        priority,
        priority,
        lapses + attempts + 1,
        {},
        queue=queue,
        payload=data,
        extra=extra if is_extra(extra) else None,
        attempts=attempts,
        max_attempts=parse_int(max_attempts),
        time_limit_ms=None if limit is None else max(1, int(limit)),
    )


def is_extra(raw: bytes) -> bool:
    """Whether a field ``ferryman`` is what Celery knows of a job, not what a migration left there (``compat/overflow.py``)."""
    if not raw:
        return False
    try:
        value = load_json(raw)
    except MalformedValue:
        return False
    return isinstance(value, dict) and "as_of" not in value


def jobs(reply: Any) -> tuple[Job, ...]:
    return tuple(_job(*each) for each in reply)


def _job(job_id: bytes, pairs: list[bytes], logs: list[bytes], score: bytes) -> Job:
    fields = dict(zip(pairs[::2], pairs[1::2], strict=True))
    scores = {"by_state": float(score)} if score else {}
    return canonical(to_text(job_id), Record(fields, scores), tuple(logs))


def stats(reply: Any) -> KueStats:
    waiting, scheduled, active, completed, failed, work_time, queues = reply
    names = tuple(sorted(map(to_text, queues)))
    return KueStats(waiting, scheduled, active, completed, failed, parse_int(work_time) or 0, names)
