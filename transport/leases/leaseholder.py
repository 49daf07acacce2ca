"""Leaseholder: what the threads that renew leases know of a channel's leases."""

from __future__ import annotations

import threading
from typing import Any, Protocol

from ...schema.connection.call import Call
from ..connection.link import ServerLink
from ..consume.acks import Acks
from ..settings import Settings


class Leaseholder(Protocol):
    """The leases of one channel."""

    settings: Settings
    renewed_at: float
    """When somebody last saw to the renewals, on the monotonic clock."""
    closed: bool
    """Whether the channel is closed."""

    @property
    def renewing(self) -> threading.Lock:
        """Held while renewals are under way."""

    @property
    def acks(self) -> Acks:
        """The channel's acks."""

    @property
    def renewal_interval(self) -> float:
        """Seconds between renewals."""

    @property
    def is_in_use(self) -> bool:
        """Whether somebody still has a message of the channel, or an ack waits to be sent."""

    def renewals(self) -> list[tuple[str, Call[Any]]]:
        """(queue, call) for everything that must not lapse, under ``renewing``."""

    def renewed(self, queue: str, at: float) -> None:
        """The server has renewed the lease of a queue, having been asked at this moment of the monotonic clock."""

    def urgent_renewals(self) -> list[Call[Any]]:
        """What must be renewed to lose nothing. Takes no lock."""

    def check_held(self, link: ServerLink) -> float | None:
        """Looks which jobs are still held, after a renewal; in how many seconds again, if soon. Raises connection errors."""

    def release_unstarted(self, link: ServerLink) -> None:
        """Gives back what nobody works on, after the channel has closed. Raises connection errors."""

    def on_lapse(self, queue: str) -> None:
        """The server has given away what the channel held of a queue."""
