"""Numbers of ferryman's own keys: how those that stand there as text or as scores are read. Called by all that reads replies.

Whatever else stands there gives None.
"""

from __future__ import annotations

MAX_INT64 = 2**63 - 1


def parse_int(raw: bytes | None) -> int | None:
    """The integer of a decimal text; None for anything else, and for what 64 bits can't hold."""
    if raw is None or len(raw) > 20:
        return None
    digits = raw.removeprefix(b"-")
    value = int(raw) if digits.isdigit() else None
    return value if value is not None and abs(value) <= MAX_INT64 else None


def parse_number(raw: bytes | None) -> float | None:
    """A score as the hash remembers it; None for anything but a whole number."""
    value = parse_int(raw)
    return None if value is None else float(value)


def score_to_int(score: float | None) -> int | None:
    """The integer part of a score; None for an infinite one."""
    return None if score is None or not abs(score) <= MAX_INT64 else int(score)
