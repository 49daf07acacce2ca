"""Histogram: how many jobs took how long, in buckets of powers of two, ms. Plain values.

What a queue's history has of waits and runs, be it one of ferryman's own (``native/scripts/history.py``) or of a system that
keeps statistics itself (``KeyFamily.days``).
"""

from __future__ import annotations

from attrs import frozen

BUCKETS = 29
"""Of a histogram: bucket n has what took at most 2^n ms and more than the one before; the last one all that took longer."""


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


def bucket_of(ms: float) -> int:
    """The bucket of a time, ms."""
    return next(bucket for bucket in range(BUCKETS) if ms <= bound_ms(bucket))


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
