"""Timestamps: ISO 8601 texts found in Redis, as Unix milliseconds and back.

What is no timestamp, or none that a text of this form can name, is None: the caller keeps the text as it is. Never raises for any
text. Called by the readers and writers of foreign families.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


def parse_timestamp(text: Any) -> int | None:
    """The Unix milliseconds of an ISO 8601 text, rounded, in UTC where it names no zone; None for anything else."""
    if not isinstance(text, str):
        return None
    try:
        parsed = datetime.fromisoformat(text)
        return (parsed.replace(tzinfo=parsed.tzinfo or UTC) - EPOCH + MILLISECOND / 2) // MILLISECOND
    except (ValueError, OverflowError):
        return None


def timestamp_text(unix_ms: int) -> str | None:
    """The ISO 8601 text of a moment, in UTC with a Z; None for one outside the years 1 to 9999."""
    try:
        return (EPOCH + unix_ms * MILLISECOND).replace(tzinfo=None).isoformat() + "Z"
    except OverflowError:
        return None
