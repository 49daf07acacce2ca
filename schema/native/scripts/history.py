"""What stands in a queue's history: the replies of its keys as values. The format is that of ``lua/_history.lua``.

Pure. Called by ``queue_scripts.py``. What a foreign hand has put there is nothing, or 0; it is never an error.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from attrs import frozen

from ...histogram import BUCKETS, Histogram, Times
from ..numbers import parse_int
from .results import COUNTERS

STEPS: Mapping[int, int] = {1: 120, 10: 72, 60: 336}
"""The minutes of a slot -> how many of them are kept."""

DEPTHS = ("waiting", "scheduled", "held", "dead")
_WIDTH = BUCKETS + 1


@frozen
class OpenSlot:
    """A slot that is not closed yet: the totals of the counters and the times when it began."""

    began_ms: int
    counters: Mapping[str, int]
    times: Times


@frozen
class Slot:
    """What has happened in some minutes, and the depths at their end."""

    began_ms: int
    minutes: int
    depths: Mapping[str, int]
    counters: Mapping[str, int]
    times: Times

    @property
    def end_ms(self) -> int:
        """When it was over."""
        return self.began_ms + self.minutes * 60_000


def times(reply: Any) -> Times:
    """The key ``times``."""
    raw = (reply if isinstance(reply, bytes) else b"")[: 16 * _WIDTH].ljust(16 * _WIDTH, b"\0")
    return _times(struct.unpack(f">{2 * _WIDTH}q", raw))


def open_slots(reply: Any) -> dict[int, OpenSlot]:
    """The key ``history``, by the minutes of its slots."""
    found = {}
    for minutes, raw in zip(STEPS, reply, strict=True):
        began, *numbers = _numbers(raw or b"", 1 + len(COUNTERS) + 2 * _WIDTH)
        if began:
            counters = dict(zip(COUNTERS, numbers, strict=False))
            found[minutes] = OpenSlot(began, counters, _times(numbers[len(COUNTERS) :]))
    return found


def slots(reply: Any, minutes: int) -> list[Slot]:
    """Entries of a list of slots."""
    found = []
    for entry in reply:
        began, *groups = entry.split(b";")
        began_ms = parse_int(began)
        if began_ms is None or len(groups) != 4:
            continue
        depths = dict(zip(DEPTHS, _numbers(groups[0], len(DEPTHS)), strict=True))
        counters = dict(zip(COUNTERS, _numbers(groups[1], len(COUNTERS)), strict=True))
        waits, runs = (_numbers(group, _WIDTH) for group in groups[2:])
        found.append(Slot(began_ms, minutes, depths, counters, _times([*waits, *runs])))
    return found


def _numbers(text: bytes, count: int) -> list[int]:
    """So many numbers of a text; 0 for what is missing or no number."""
    numbers = [max(0, parse_int(each) or 0) for each in islice(text.split(b","), count)]
    return numbers + [0] * (count - len(numbers))


def _times(numbers: Sequence[int]) -> Times:
    wait, run = (numbers[first : first + _WIDTH] for first in (0, _WIDTH))
    return Times(*(Histogram(tuple(each[:BUCKETS]), each[BUCKETS]) for each in (wait, run)))
