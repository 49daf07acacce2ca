"""Job story: everything that is known of one job, for people and as JSON. Called by ``ferryman jobs --id``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..operations.lookup import FoundJob
from ..schema.fact import Fact, FactKind
from ..schema.job import JOB_FIELDS
from ..schema.text import jsonable, payload_json, show
from .output import Output

TIMES = ("created_at", "updated_at", "due_at", "started_at", "finished_at", "lease_expires_at")
MOST_SHOWN = 2000
"""Characters of a payload, of one of a record's fields, or of a log line."""


def story_json(found: FoundJob) -> dict[str, Any]:
    """The canonical fields, why it died, and what each key says."""
    fields = {name: getattr(found.job, name) for name in JOB_FIELDS}
    fields |= {"payload": payload_json(found.job.payload), "result": payload_json(found.job.result)}
    return fields | {"reason": found.reason, "task_id": found.task_id, "keys": [_fact_json(fact) for fact in found.facts]}


def _fact_json(fact: Fact) -> dict[str, Any]:
    told: dict[str, Any] = {"key": fact.key, "type": fact.redis_type, "role": fact.role}
    for name in ("queue", "label", "member", "score", "index", "ttl_ms"):
        if getattr(fact, name) is not None:
            told[name] = getattr(fact, name)
    if fact.values:
        told |= {"fields": [list(pair) for pair in fact.fields.items()]} if fact.redis_type == "hash" else {"values": fact.values}
    return {name: jsonable(value) for name, value in told.items()}


def show_story(output: Output, found: FoundJob, time_text: Any) -> None:
    """The same as a table of two columns."""
    job = found.job
    rows: list[tuple[str, object]] = []
    for name in JOB_FIELDS:
        value = getattr(job, name)
        if value in (None, (), {}) or name in ("extra", "logs", "history"):
            continue
        if name in TIMES:
            value = time_text(value)
        rows.append((name.replace("_", " "), show(value, MOST_SHOWN) if isinstance(value, bytes) else value))
    if found.reason:
        rows.append(("reason", found.reason))
    if found.task_id:
        rows.append(("task id", found.task_id))
    rows += [("log", show(line, MOST_SHOWN)) for line in job.logs]
    rows += [("history", " ".join(f"{name}={value}" for name, value in event.items())) for event in job.history]
    rows += _headers(job.extra)
    rows += [("key", _place(fact)) for fact in found.facts]
    output.table("", ("field", "value"), rows, fold=("value",))


def _headers(extra: Any) -> Iterator[tuple[str, object]]:
    for own in extra.values():
        if isinstance(own, dict) and isinstance(own.get("head"), bytes):
            yield "headers", show(own["head"], MOST_SHOWN)


def _place(fact: Fact) -> str:
    """Where a key has the job: its name, type, and the score or rank in it."""
    score = "" if fact.score is None else f", score {fact.score!r}"
    rank = "" if fact.index is None else f", at {fact.index}"
    size = f", {len(fact.values) // 2} fields" if fact.redis_type == "hash" and fact.kind is FactKind.RECORD else ""
    return f"{show(fact.key)} ({fact.redis_type}{score}{rank}{size})"
