"""BeeJob: a job as bee's own clients see it. Made of what ``get.lua`` gives; called by ``client.py``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen


@frozen
class BeeJob:
    """A job of bee. Times are Unix ms, None where there is none."""

    id: str
    queue: str
    status: str
    """new, queued, running, completed, failed, retried, duplicate, canceled, expired."""
    arguments: tuple[Any, ...] = field(repr=False)
    retries: int
    """How many retries it has had."""
    submitted: int | None
    due: int | None
    """When it may be queued, while it waits for that."""
    worker: str | None
    """Who took it last."""
    result: Any = field(repr=False)
    """None without one. Empty lists and objects are the same for bee."""
    failed_reason: str | None
    duplicate_of: str | None
    hash: str | None
    parent: str | None
    tags: tuple[Any, ...]
    dependants: tuple[str, ...]
    """The jobs that wait for it, or have waited."""
    options: Mapping[str, Any] = field(repr=False)
    history: tuple[Mapping[str, Any], ...] = field(repr=False)


def job_of(found: Mapping[str, Any]) -> BeeJob:
    """The job that this JSON object of bee describes; of what has another form than bee's, what there is."""
    data, duplicate = found.get("data"), found.get("duplicate")
    return BeeJob(
        id=str(found["jid"]),
        queue=str(found["queue"]),
        status=str(found["status"]),
        arguments=tuple(data) if isinstance(data, list) else () if data == {} else (data,),
        retries=_int(found.get("retries")) or 0,
        submitted=_int(found.get("submitted")),
        due=_int(found.get("due")),
        worker=found.get("worker") or None,
        result=found.get("result") if found["status"] in ("completed", "expired") else None,
        failed_reason=_text(found.get("failedReason")),
        duplicate_of=_text(duplicate.get("jid")) if isinstance(duplicate, dict) else None,
        hash=_text(found.get("hash")),
        parent=_text(found.get("parent")),
        tags=_tuple(found.get("tags")),
        dependants=_tuple(found.get("dependants")),
        options=found["options"] if isinstance(found.get("options"), dict) else {},
        history=tuple(each for each in _tuple(found.get("history")) if isinstance(each, dict)),
    )


def _tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list) else ()


def _text(value: Any) -> str | None:
    return None if value is None or value is False else str(value)


def _int(value: Any) -> int | None:
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
