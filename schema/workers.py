"""Workers: who has taken jobs of late, what they hold, and when they were last heard of. Plain values.

Told by ``KeyFamily.workers`` where a system keeps a list of its workers, read by ``operations/workers.py``.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from attrs import frozen

MOST_JOBS = 10
"""Jobs of one worker that are named."""


@frozen
class HeldJob:
    """A job that a worker holds."""

    id: str
    queue: str | None
    """None where its record does not tell, or is gone."""
    lock_ends_ms: int | None
    """When its lock ends, Unix ms; None for one that never does."""


@frozen
class Worker:
    """One worker."""

    name: str
    last_seen_ms: int | None
    """When it last asked for jobs or renewed a lock, Unix ms; None where its keys hold no time."""
    held: int
    jobs: tuple[HeldJob, ...] = ()
    """Up to MOST_JOBS that it holds, the one whose lock ends first before the others."""

    @property
    def first_lock_ends_ms(self) -> int | None:
        """When the first of its locks ends, Unix ms; None if it has none."""
        return self.jobs[0].lock_ends_ms if self.jobs else None


@frozen
class WorkerPage:
    """Some workers, and how many there are."""

    workers: tuple[Worker, ...]
    """Who was heard of last comes first."""
    number: int


WorkersQuery = Generator[Sequence[tuple[bytes | str | int | float, ...]], Sequence[Any], WorkerPage]
"""A question that takes several rounds: yields commands, is sent their replies, returns the workers."""
