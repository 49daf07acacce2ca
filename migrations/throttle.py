"""Throttle: how fast a live server is read, so that its own clients don't feel it.

Batches are small anyway (``reading.BATCH``), and hold no more keys than a tenth of a second allows; a throttle adds pauses
between them. A rate is keys a second, of all tasks that read side by side together. ``polite`` is a modest rate in still smaller
batches, which also yields when the server answers more slowly than it did: it is busy with others then. Plain values travel to
Spark's executors; the state is each task's own. Called by the scans.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TypeVar

from attrs import define, field, frozen

from ..schema.errors import UsageError
from .long_keys import WHOLE, Sizes

T = TypeVar("T")

POLITE = 20_000
"""Keys a second of the throttle ``polite``."""
POLITE_BATCH = 20
"""Keys that it reads in one round trip. Another client's command may have to wait until the server has answered for all."""
POLITE_PAGE = 100
"""Keys that one of its SCAN calls looks at: a tenth of a millisecond."""
POLITE_SIZES = Sizes(members=500, items=100)
"""How much of a long key it reads at once: a tenth of a millisecond."""
CHUNK_KEYS = 100
"""Keys for which a chunk of a long key counts at any other rate: it keeps the server busy for about as long."""
STEADY = 0.1
"""Seconds for which a batch may be followed by none: what a slow rate allows comes evenly, not in bursts."""
SLOW = 3.0
"""An answer that takes so many times as long as the quickest of its kind shows a busy server."""
LAG = 0.002
"""Seconds that a reader may be behind its rate and still catch up: sleeps last longer than they should."""
LONGEST = 1.0
"""Seconds of a pause for a busy server at most, and of one sleep, so that interrupts are seen."""


@frozen
class Throttle:
    """What the user asked for. Without a rate there are no pauses."""

    keys_per_second: float | None = None
    yields: bool = False
    """Whether to pause when the server is slow."""

    @classmethod
    def parse(cls, text: str) -> Throttle:
        """``polite``, or keys a second. Raises UsageError for anything else."""
        if text == "polite":
            return cls(POLITE, yields=True)
        if text.isascii() and text.isdigit() and int(text) > 0:
            return cls(int(text))
        raise UsageError(f"--throttle must be 'polite' or a whole number of keys a second, not {text!r}")

    def batch(self, most: int) -> int:
        """How many keys are read in one round trip, of those that would be without a throttle."""
        if self.yields:
            most = min(most, POLITE_BATCH)
        return min(most, max(1, int(self.keys_per_second * STEADY))) if self.keys_per_second else most

    def page(self, most: int) -> int:
        """How many keys a SCAN call looks at, of those that it would without a throttle."""
        return min(most, POLITE_PAGE) if self.yields else most

    @property
    def sizes(self) -> Sizes:
        """How much of a long key is read at once."""
        return POLITE_SIZES if self.yields else WHOLE

    @property
    def chunk_keys(self) -> int:
        """For how many keys a chunk of a long key counts."""
        return POLITE_BATCH if self.yields else CHUNK_KEYS

    def shared(self, tasks: int) -> Throttle:
        """The part of one of so many tasks that read side by side."""
        return Throttle(self.keys_per_second and self.keys_per_second / tasks, self.yields)

    def pace(self) -> Pace:
        """A new start."""
        return Pace(self)


UNTHROTTLED = Throttle()


@define
class Pace:
    """One reader's pauses: ``begin`` before each batch is asked for, ``end`` when it has come."""

    throttle: Throttle
    _due: float = field(default=0.0, init=False)
    """When the next batch may be asked for, on the monotonic clock."""
    _began: float = field(default=0.0, init=False)
    _quickest: float = field(default=float("inf"), init=False)
    """Seconds a key, of the quickest batch so far."""

    def begin(self) -> None:
        """Waits until a batch may be asked for."""
        while (left := self._due - time.monotonic()) > 0:
            time.sleep(min(left, LONGEST))
        self._began = time.monotonic()
        self._due = max(self._due, self._began - LAG) if self._due else self._began

    def end(self, keys: int) -> None:
        """A batch of so many keys has come."""
        if not self.throttle.keys_per_second or not keys:
            return
        now = time.monotonic()
        took = now - self._began
        self._due += keys / self.throttle.keys_per_second
        self._quickest = min(self._quickest, took / keys)
        if self.throttle.yields and took / keys > SLOW * self._quickest:
            self._due = max(self._due, now + min(LONGEST, took))

    def through(self, chunks: Iterator[T]) -> Iterator[T]:
        """The chunks of long keys, one by one, each of which counts for ``chunk_keys``."""
        while True:
            self.begin()
            chunk = next(chunks, None)
            if chunk is None:
                return
            self.end(self.throttle.chunk_keys)
            yield chunk
