"""What kickq's scripts reply, as the values that the contract of keyspaces in use wants; and a job as its record tells.

Pure. Whatever stands in a record, nothing here raises but ``judge``. Called by ``live.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import field, frozen

from ...schema.errors import KeyspaceRefused, MalformedValue
from ...schema.live import ForeignDelivery
from ...schema.text import load_json, show, to_text
from ..overflow import is_ours
from .record import ITEM, LONGEST_RUN, Record, as_integer, as_number, truthy

EXTRA = b"ferryman"
"""The hash field that holds what Celery knows of a job: kickq leaves it alone, and it goes with the record."""

JOB_FIELDS = (ITEM, b"state", b"name", b"createTime", b"updateTime", EXTRA)
"""The fields of a record that ``job`` wants."""


@frozen
class KickqJob:
    """A job as its record tells. Times are Unix ms, durations ms."""

    id: str
    queue: str
    state: str
    """One of kickq's eight words."""
    payload: Any = field(repr=False)
    error: Any
    """What the last run that failed has said: any value of JSON. It stays when a later run succeeds."""
    created_at: int | None
    updated_at: int | None
    """When the record was last written: at its making, and at the end of each run."""
    finished_at: int | None
    scheduled_for: int | None
    """When a job that is delayed, retry or ghost is due, or was; when a finished one is deleted."""
    max_attempts: int
    time_limit_ms: int
    runs: tuple[Mapping[str, Any], ...] = field(repr=False)
    """Each run that has ended, as kickq notes it."""
    extra: bytes | None = field(repr=False)
    """What Celery knows of it, as JSON text; None for nothing."""

    @property
    def attempts(self) -> int:
        """How many runs have ended."""
        return len(self.runs)


def job(job_id: str, reply: Sequence[bytes | None]) -> KickqJob | None:
    values = {name: value for name, value in zip(JOB_FIELDS, reply, strict=True) if value is not None}
    if ITEM not in values:
        return None
    record = _record(values)
    data = record.item.get("data")
    return KickqJob(
        id=job_id,
        queue=record.queue,
        state=record.word,
        payload=None if data is None else data.value,
        error=record.value("lastError"),
        created_at=record.time("createTime"),
        updated_at=record.time("updateTime"),
        finished_at=as_integer(record.value("finishTime")),
        scheduled_for=as_integer(record.value("scheduledFor")),
        max_attempts=_attempts_allowed(record),
        time_limit_ms=_time_limit(record),
        runs=tuple(run for run in record.runs or () if isinstance(run, dict)),
        extra=_extra(values.get(EXTRA, b"")),
    )


def _record(fields: Mapping[bytes, bytes]) -> Record:
    """A record as Node.js reads it, which takes bytes that are no UTF-8 for replacement characters."""
    return Record.of({**fields, ITEM: fields[ITEM].decode("utf-8", "replace").encode()}, {})


def judge(reply: Sequence[bytes], prefix: str) -> None:
    match reply:
        case [b"fine"]:
            return
        case [b"type", key, found, wanted]:
            text = f"key {show(key)!r} is a {show(found)}, where kickq has a {show(wanted)}: audit the keyspace, or move it away"
        case [b"strange", key]:
            text = f"key {show(key)!r} is not kickq's: use a namespace of kickq's, or one that no other program uses"
        case [_, reason]:
            text = f"the server lets nobody write there: {show(reason)}"
        case _:
            text = f"unknown words: {reply!r}"
    raise KeyspaceRefused(f"kickq keyspace {prefix!r} can't be served: {text}")


def delivery(queue: str, raw_id: bytes, lapses: bytes, document: bytes, extra: bytes) -> ForeignDelivery:
    record = _record({ITEM: document})
    data, runs = record.item.get("data"), len(record.runs or ())
    # A large document is not checked by the script: one that is no JSON must not pass for a job without a payload.
    payload = b"null" if data is None else data.text
    return ForeignDelivery(
        id=to_text(raw_id),
        score=0,
        priority=0,
        deliveries=runs + int(lapses) + 1,
        fields={ITEM: document},
        queue=queue,
        payload=payload if record.item else document,
        extra=_extra(extra),
        attempts=runs,
        max_attempts=_attempts_allowed(record),
        time_limit_ms=_time_limit(record),
    )


def _extra(text: bytes) -> bytes | None:
    """What Celery knows of a job; None for what is no object, and for what a migration has left in the same field."""
    try:
        value = load_json(text)
    except MalformedValue:
        return None
    return text if isinstance(value, dict) and not is_ours(text) else None


def _attempts_allowed(record: Record) -> int:
    """How many runs may fail before a job has failed; those that take too long, and are granted another one, count among them."""
    times = as_number(record.value("retryTimes"))
    return max(1, int(times or 0)) if truthy(record.value("retry")) else 1


def _time_limit(record: Record) -> int:
    limit = as_number(record.value("processTimeout"))
    return int(limit) if limit is not None and 1 <= limit <= LONGEST_RUN else 1


def stats(reply: Sequence[Any]) -> Mapping[str, int]:
    return {to_text(word): count for word, count in zip(reply[::2], reply[1::2], strict=True)}
