"""QoS: what a channel has been given and has not settled, and how much more it may take.

Celery binds its own ``can_consume`` over the one here (``worker_disable_prefetch``), so everybody calls the method and nobody
reads the counts behind it. Acks come from any thread; dict operations used here are atomic.
"""

from __future__ import annotations

from typing import NamedTuple


class Unacked(NamedTuple):
    """Where a delivery came from."""

    queue: str
    job_id: str
    size: int = 0
    """Bytes of its body."""


class QoS:
    """Prefetch limit and unsettled deliveries of one channel."""

    def __init__(self, prefetch_count: int = 0) -> None:
        self.prefetch_count = prefetch_count
        """How many deliveries may be unsettled at once; 0 = no limit."""
        self.is_flowing = True
        """False while no deliveries are wanted (``Channel.flow``)."""
        self._unsettled: dict[int, Unacked] = {}

    def __len__(self) -> int:
        return len(self._unsettled)

    def can_consume(self) -> bool:
        """Whether one more delivery is allowed."""
        return self.is_flowing and (not self.prefetch_count or len(self._unsettled) < self.prefetch_count)

    def can_consume_max_estimate(self) -> int | None:
        """How many more deliveries are allowed; None = no limit."""
        if not self.prefetch_count:
            return None
        return max(self.prefetch_count - len(self._unsettled), 0)

    def room(self, limit: int) -> int:
        """How many deliveries to take, at most ``limit``; 0 if none may come now.

        Without a prefetch limit it is one: what is taken and not yet worked on is withheld from other consumers.
        """
        if not self.can_consume():
            return 0
        estimate = self.can_consume_max_estimate()
        return 1 if estimate is None or self.is_replaced else min(estimate, limit)

    @property
    def is_replaced(self) -> bool:
        """Whether another ``can_consume`` stands in the place of ours.

        It counts what has been handed out and is worked on, so messages must come one by one; and nothing says when it changes
        its mind.
        """
        return "can_consume" in vars(self)

    @property
    def is_well_filled(self) -> bool:
        """Whether more than half of what may be unsettled is: there is work enough for a moment."""
        return bool(self.prefetch_count) and 2 * len(self._unsettled) > self.prefetch_count

    def append(self, tag: int, unacked: Unacked) -> None:
        """Remembers a delivery until it is settled."""
        self._unsettled[tag] = unacked

    def get(self, tag: int) -> Unacked | None:
        """The delivery behind a tag; None once it is settled."""
        return self._unsettled.get(tag)

    def pop(self, tag: int) -> Unacked | None:
        """Settles a delivery; None if it was settled before."""
        return self._unsettled.pop(tag, None)

    def unsettled(self) -> dict[int, Unacked]:
        """Everything unsettled, by tag."""
        return dict(self._unsettled)

    def queues(self) -> set[str]:
        """The queues of which something is unsettled."""
        return {unacked.queue for unacked in self.unsettled().values()}
