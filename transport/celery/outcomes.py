"""What a Celery task's end is in another system: the JSON of its return value, the text of its failure. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from kombu.utils.json import JSONEncoder

from ...schema.live import Failure

PROGRESS = "PROGRESS"
"""The state of ``update_state`` that says how far a task is."""


def to_json(value: Any) -> bytes:
    """A value as JSON text, without spaces, as JavaScript writes it.

    Dates, UUIDs, decimals and bytes get kombu's form for them. What has none, NaN included, becomes a text: its ``repr``.
    """
    try:
        text = _dump(value)
    except (TypeError, ValueError, RecursionError):
        text = _dump(repr(value))
    return text.encode("utf-8", "backslashreplace")  # half a surrogate pair has no UTF-8 form, but JSON can escape it


def _dump(value: Any) -> str:
    return json.dumps(value, cls=JSONEncoder, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def result(value: Any) -> bytes | None:
    """What a job's result is; None for a task that has returned nothing."""
    return None if value is None else to_json(value)


def failure(error: BaseException, traceback: str | None = None, *, is_final: bool = False) -> Failure:
    """Why a task has failed. ``traceback``: with the whole text, as Celery has it."""
    reason = getattr(error, "reason", None) if type(error).__name__ == "Reject" else None
    if isinstance(reason, BaseException):
        error = reason
    text = str(error if reason is None else reason)
    name = getattr(error, "exc_cls_name", None) or type(error).__name__  # of one that can't be pickled
    message = next((line for line in text.splitlines() if line.strip()), name)
    return Failure(message, f"{message}\n{traceback.rstrip()}" if traceback else text or message, str(name), is_final=is_final)


def progress(meta: Any) -> tuple[float, float, bytes | None] | None:
    """``(current, total, data)`` of what was given to ``update_state``; None if it does not say how far the task is."""
    if not isinstance(meta, Mapping):
        return None
    current, total = _number(meta.get("current")), _number(meta.get("total"))
    if current is None or total is None:
        return None
    rest = {name: value for name, value in meta.items() if name not in ("current", "total")}
    return current, total, to_json(rest) if rest else None


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return value if is_number else None


def revoked(reason: str) -> Failure:
    """Why a job has failed that a worker was told to give up: ``terminated``, ``expired``."""
    return Failure(reason or "revoked", exception="TaskRevokedError", is_final=True)


def rejected() -> Failure:
    """Why a job has failed whose message a worker has rejected."""
    return Failure("rejected", exception="Reject", is_final=True)
