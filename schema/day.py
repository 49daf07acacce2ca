"""Day: what a system itself has kept of what a queue did on one day. Plain values.

Told by ``KeyFamily.days``; shown by ``ferryman history`` and the page of a queue.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any

from attrs import frozen

from .histogram import Times

DAY_MS = 86_400_000


@frozen
class Day:
    """One day of a queue, UTC. ``counts``: how often things happened, by the names of ferryman's own counters."""

    start_ms: int
    counts: Mapping[str, int]
    times: Times


DaysQuery = Generator[Sequence[tuple[bytes | str | int | float, ...]], Sequence[Any], Sequence[Day]]
"""A question that takes several rounds: yields commands that read one key each, is sent their replies, returns the days."""
