"""What stands in a queue's history: the replies of its keys as values. The format is that of ``lua/_history.lua``.

Pure. Called by ``queue_scripts.py``. What a foreign hand has put there is nothing, or 0; it is never an error.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from attrs import frozen

from ..numbers import parse_int
from .results import COUNTERS

STEPS: Mapping[int, int] = {1: 120, 10: 72, 60: 336}
"""The minutes of a slot -> how many of them are kept."""

BUCKETS = 29
"""Of a histogram: bucket n has what took at most 2^n ms and more than the one before; the last one all that took longer."""
DEPTHS = ("waiting", "scheduled", "held", "dead")
_WIDTH = BUCKETS + 1


@frozen
class Histogram:
    """How many jobs took how long. ``counts`` by bucket, not cumulative; ``sum_ms`` is the sum of the times."""

    counts: tuple[int, ...] = (0,) * BUCKETS
    sum_ms: int = 0

    @property
    def count(self) -> int:
        """How many jobs."""
        return sum(self.counts)

    @property
    def mean_ms(self) -> float | None:
        """The mean of the times; None for no job."""
        return self.sum_ms / self.count if self.count else None

    def __add__(self, other: Histogram) -> Histogram:
        return Histogram(tuple(map(sum, zip(self.counts, other.counts, strict=True))), self.sum_ms + other.sum_ms)

    def since(self, before: Histogram) -> Histogram:
        """What has come to it since it was ``before``; all of it if it was begun anew."""
        counts = tuple(now - then for now, then in zip(self.counts, before.counts, strict=True))
        return self if min(counts) < 0 else Histogram(counts, max(0, self.sum_ms - before.sum_ms))

    def quantile_ms(self, share: float) -> float | None:
        """The time that this share of the jobs took at most (0.95: p95), by its bucket; None for no job.

        Times are taken to lie evenly in their bucket, as Prometheus' ``histogram_quantile`` does; the last bucket is its bound.
        """
        rank, below = share * self.count, 0
        for bucket, number in enumerate(self.counts):
            if number and below + number >= rank:
                if bucket == BUCKETS - 1:
                    return bound_ms(bucket - 1)
                low = bound_ms(bucket - 1) if bucket else 0.0
                return low + (bound_ms(bucket) - low) * max(0.0, rank - below) / number
            below += number
        return None


NO_TIMES = Histogram()


def bound_ms(bucket: int) -> float:
    """The most that a time in the bucket is, ms; infinite for the last one."""
    return float(2**bucket) if bucket < BUCKETS - 1 else float("inf")


@frozen
class Times:
    """How long jobs have waited until they were delivered for the first time, and for how long consumers then had them."""

    wait: Histogram = NO_TIMES
    run: Histogram = NO_TIMES

    def since(self, before: Times) -> Times:
        """What has come to both since they were ``before``."""
        return Times(self.wait.since(before.wait), self.run.since(before.run))


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
