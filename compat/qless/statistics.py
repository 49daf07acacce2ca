"""Statistics: what qless has kept of what a queue did on each day, as days of ferryman's own record. Called by ``family.py``.

    P:s:wait:<day>:<queue>    hash   total, mean and spread (vk) of the seconds from put to pop, and a histogram
    P:s:run:<day>:<queue>     hash   the same from pop to completion
    P:s:stats:<day>:<queue>   hash   retries (locks that were lost), failures, failed (those not put again or cancelled)

``<day>``: its first second, UTC. A histogram has cells of whole seconds ``s0`` to ``s59``, minutes ``m1`` to ``m59``, hours
``h1`` to ``h23``, and days from ``d1`` on; each counts here as the middle of its cell. Qless never deletes them. The first
version that had statistics (2012) named the third key otherwise; what it counted there is not read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...schema.day import Day, DaysQuery
from ...schema.histogram import BUCKETS, Histogram, Times, bucket_of
from ..numbers import parse_number
from .keys import layout

COUNTERS: Mapping[str, str] = {"retries": "reclaimed", "failures": "dead"}
"""Field -> what ferryman's own queues call it. Jobs popped are delivered, jobs completed are acked."""

_ROUND = 300
_CELL = re.compile(rb"([smhd])([0-9]{1,6})", re.ASCII)
_UNIT_MS = {b"s": 1000, b"m": 60_000, b"h": 3_600_000, b"d": 86_400_000}


def days(prefix: str, queue: str, starts_ms: Sequence[int]) -> DaysQuery:
    """See KeyFamily.days."""
    names = layout(prefix)
    keys = [
        names.key("statistics", measure=measure, day=str(start // 1000), queue=queue)
        for start in starts_ms
        for measure in ("wait", "run", "stats")
    ]
    replies: list[Any] = []
    for first in range(0, len(keys), _ROUND):
        replies += yield [("HGETALL", key) for key in keys[first : first + _ROUND]]
    hashes = [_fields(reply) for reply in replies]
    return [_day(start, *hashes[3 * at : 3 * at + 3]) for at, start in enumerate(starts_ms)]


def _fields(reply: Any) -> Mapping[bytes, bytes]:
    """A hash; nothing where a key has another type."""
    if reply is None or isinstance(reply, dict):
        return reply or {}
    return dict(zip(reply[::2], reply[1::2], strict=True))


def _day(start_ms: int, waits: Mapping[bytes, bytes], runs: Mapping[bytes, bytes], stats: Mapping[bytes, bytes]) -> Day:
    counts = {"delivered": _whole(waits.get(b"total")), "acked": _whole(runs.get(b"total"))}
    counts |= {ours: _whole(stats.get(theirs.encode())) for theirs, ours in COUNTERS.items()}
    return Day(start_ms, {name: number for name, number in counts.items() if number}, Times(_histogram(waits), _histogram(runs)))


def _histogram(fields: Mapping[bytes, bytes]) -> Histogram:
    counts = [0] * BUCKETS
    for name, raw in fields.items():
        found = _CELL.fullmatch(name)
        if found is not None:
            counts[bucket_of((int(found[2]) + 0.5) * _UNIT_MS[found[1]])] += _whole(raw)
    sum_ms = _whole(fields.get(b"total")) * 1000 * max(0.0, parse_number(fields.get(b"mean")) or 0.0)
    return Histogram(tuple(counts), round(sum_ms) if sum_ms < 2**63 else 0)


def _whole(raw: bytes | None) -> int:
    """A number of jobs; 0 for what is none."""
    number = parse_number(raw)
    return int(number) if number is not None and 0 < number < 2**53 else 0
