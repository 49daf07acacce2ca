"""Waits: how many jobs wait with one priority, and since when the first of them does. Plain values.

Told by ``KeyFamily.waits`` without reading more than one job of each priority; shown by ``ferryman queues`` and ``metrics``.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any

from attrs import frozen

MOST_PRIORITIES = 32
"""Priorities of a queue that are told apart; of one with more, nothing is told."""


@frozen
class Waits:
    """The waiting jobs of one queue and priority."""

    number: int
    since_ms: int | None
    """When the first of them could have been taken, Unix ms; None where it does not tell."""


WaitsQuery = Generator[Sequence[tuple[bytes | str | int | float, ...]], Sequence[Any], Mapping[str, Mapping[str, Waits]]]
"""A question that takes several rounds: yields commands, is sent their replies, returns each queue's waits by priority."""
