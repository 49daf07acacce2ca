"""WakeTimer: one timer of kombu's event loop, which ends the loop's poll at a moment. The poller has one for each reason to wake.

kombu fires ten timers a turn and sleeps for a second if more of them are due, so a timer for each turn would hold up everybody's,
and the tasks that become due meanwhile.
"""

from __future__ import annotations

import math
import time
from typing import Any

EARLIEST = 0.001
"""Seconds: no timer is set to go off sooner, and none is moved for less."""
LOST = 1.0
"""Seconds after its time at which a timer that has not gone off never will: Celery has cleared all of the loop's."""


class WakeTimer:
    """At most one timer is under way. Used by the loop's thread."""

    def __init__(self) -> None:
        self._entry: Any = None
        self._at = math.inf
        """On the monotonic clock; infinite while no timer is under way."""

    def wake_within(self, loop: Any, seconds: float) -> None:
        """Ends the loop's poll in so many seconds, or sooner if that was wanted. Who still waits then has to ask again."""
        now = time.monotonic()
        at = now + max(seconds, EARLIEST)
        if now - LOST < self._at < at + EARLIEST:
            return
        self.cancel()
        self._at = at
        self._entry = loop.call_later(max(seconds, EARLIEST), self._fired)

    def cancel(self) -> None:
        """Wakes nobody any more."""
        if self._entry is not None:
            self._entry.cancel()
        self._entry, self._at = None, math.inf

    def _fired(self) -> None:
        self._entry, self._at = None, math.inf
