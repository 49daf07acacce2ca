"""Fanout: reading the broadcast streams that this connection's queues are bound to.

A broadcast is stored once, in the exchange's stream, and each bound queue has a cursor in Redis: where it has read to. A queue
gets what is published after it was bound, also while its consumer is away for a moment. The wait is one blocking XREAD over
all streams, on a connection of its own, because Redis can't wait for lists and streams at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from attrs import define

from ..schema.call import Call
from ..schema.native import keys
from .wire import BLOCK, Waiter

if TYPE_CHECKING:
    from .settings import Settings
    from .wire import Wire

COUNT = 100
"""Broadcasts read at once."""


@define
class Subscription:
    """One queue's place in one exchange's stream."""

    exchange: str
    queue: str
    expires_ms: int | None
    cursor: bytes
    saved: bytes


class Fanout:
    """The subscriptions of one connection. Not thread-safe: used by the thread that drains events."""

    def __init__(self, settings: Settings, wire: Wire, exchanges: Any) -> None:
        self._prefix = settings.prefix
        self._exchanges = exchanges
        self._wire = wire
        self._subscriptions: dict[tuple[str, str], Subscription] = {}
        self._asked: list[Subscription] = []
        self.waiter = Waiter(settings.client(), settings.reply_timeout)

    def __bool__(self) -> bool:
        return bool(self._subscriptions)

    def subscribe(self, exchange: str, queue: str, expires_ms: int | None) -> None:
        """Reads the exchange for this queue from its cursor on."""
        if (exchange, queue) not in self._subscriptions:
            cursor = self._wire.run(self._exchanges.fanout_bind(exchange, queue, expires_ms))
            self._subscriptions[exchange, queue] = Subscription(exchange, queue, expires_ms, cursor, cursor)
            self._interrupt()

    def unsubscribe(self, queue: str) -> None:
        """Reads nothing more for this queue."""
        gone = [key for key in self._subscriptions if key[1] == queue]
        for key in gone:
            del self._subscriptions[key]
        if gone:
            self._interrupt()

    def ask(self) -> None:
        """Starts the blocking read, unless it is under way or there is nothing to read."""
        if self.waiter.waiting or not self._subscriptions:
            return
        self._asked = list(self._subscriptions.values())
        streams = [keys.fanout(self._prefix, each.exchange) for each in self._asked]
        cursors = [each.cursor for each in self._asked]
        self.waiter.wait(BLOCK, "XREAD", "COUNT", COUNT, "BLOCK", round(BLOCK * 1000), "STREAMS", *streams, *cursors)

    def receive(self) -> Iterator[tuple[str, bytes, bytes]]:
        """What the read has brought: (queue, stream id, message frame)."""
        reply = self.waiter.receive() or []
        # Two queues on one exchange make the same stream stand twice, in the order of the question; a stream that has
        # nothing new is left out, so each answer goes to the next asked subscription of that name.
        asked = iter(self._asked)
        for name, entries in reply:
            subscription = next(each for each in asked if keys.fanout(self._prefix, each.exchange) == name)
            for stream_id, fields in entries:
                subscription.cursor = stream_id
                yield subscription.queue, stream_id, dict(zip(fields[::2], fields[1::2], strict=False)).get(b"message", b"")

    def save(self) -> None:
        """Stores cursors that have moved: what was handed out before is not read again."""
        moved = [each for each in self._subscriptions.values() if each.cursor != each.saved]
        if not moved:
            return
        bound = self._wire.run_all([self._exchanges.fanout_advance(s.exchange, s.queue, s.cursor, s.expires_ms) for s in moved])
        for subscription, is_bound in zip(moved, bound, strict=True):
            subscription.saved = subscription.cursor
            if not is_bound:
                self._wire.run(self._bind(subscription))

    def _bind(self, subscription: Subscription) -> Call[bytes]:
        call: Call[bytes] = self._exchanges.fanout_bind(subscription.exchange, subscription.queue, subscription.expires_ms)
        return call

    def _interrupt(self) -> None:
        """Drops a read under way, which has taken nothing: the next one asks for other streams."""
        self.waiter.close()

    def close(self) -> None:
        """Ends the wait."""
        self.waiter.close()
