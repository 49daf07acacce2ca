"""What kue keeps of a new job's options, and of what is said of a job that runs: the values that scripts get for them.

Pure. Called by ``live.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ...schema.errors import UsageError
from ..numbers import number_text, parse_number

PRIORITIES: Mapping[str, int] = {"low": 10, "normal": 0, "medium": -5, "high": -10, "critical": -15}
"""kue's names for priorities; the lowest number runs first."""

OPTIONS = ("attempts", "backoff", "ttl", "removeOnComplete")
"""What ``put`` takes as options of a job."""


def priority_text(priority: float | None) -> bytes:
    if priority is not None and not math.isfinite(priority):
        raise UsageError("a kue priority is a finite number")
    return number_text(priority or 0)


def hash_fields(options: Mapping[str, Any]) -> dict[str, bytes]:
    """The hash fields that the options of a new job become."""
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        raise UsageError(f"kue has no option {unknown[0]!r}; known are: {', '.join(OPTIONS)}")
    fields = {}
    attempts, ttl, backoff = options.get("attempts"), options.get("ttl"), options.get("backoff")
    if attempts is not None:
        if not _is_number(attempts) or attempts < 1 or attempts != int(attempts):
            raise UsageError("option 'attempts' must be a whole number above 0")
        fields["max_attempts"] = b"%d" % attempts
    if ttl:
        if not _is_number(ttl) or ttl < 0:
            raise UsageError("option 'ttl' must be a number of ms")
        fields["ttl"] = number_text(ttl)
    if options.get("removeOnComplete"):
        fields["removeOnComplete"] = b"true"
    if backoff:
        fields["backoff"] = _backoff(backoff)
    return fields


def _backoff(backoff: Any) -> bytes:
    if backoff is True:
        return b"true"
    if not isinstance(backoff, Mapping) or backoff.get("type") not in ("fixed", "exponential"):
        raise UsageError("option 'backoff' must be true, or have the type fixed or exponential")
    numbers = {name: backoff[name] for name in ("delay", "maxDelay") if backoff.get(name) is not None}
    if set(backoff) - {"type", "delay", "maxDelay"} or not all(_is_number(each) and each >= 0 for each in numbers.values()):
        raise UsageError("option 'backoff' has a type, a delay and a maxDelay, both numbers of ms, and nothing else")
    parts = [b'"type":"%s"' % backoff["type"].encode()]
    parts += [b'"%s":%s' % (name.encode(), number_text(each)) for name, each in numbers.items()]
    return b"{%s}" % b",".join(parts)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_truthy(raw: bytes | None) -> bool:
    """Whether a JSON text stands for something that JavaScript takes for true: kue keeps no other result."""
    if raw is None or raw in (b"null", b"false", b"0", b'""', b""):
        return False
    number = parse_number(raw)
    return number is None or number != 0


def percent(current: float, total: float) -> int:
    """How far a job is, as kue counts: whole percent, at most 100."""
    try:
        share = current * 100 / total
    except (ZeroDivisionError, OverflowError):
        return 0
    return min(100, int(share)) if abs(share) < 2**31 else 0
