"""Fanout: reading the broadcast streams that this connection's queues are bound to.

A broadcast is stored once, in the exchange's stream, and each bound queue has a cursor in Redis: where it has read to. A queue
gets what is published after it was bound, also while its consumer is away for a moment. On one server the wait is one blocking
XREAD over all streams, on a connection of its own, because Redis can't wait for lists and streams at once. On a cluster the nodes
announce which streams have changed (``tracking.py``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from attrs import define

from ...schema.connection.call import Call, Command
from ...schema.native import keys
from ..connection.blocking_connection import BLOCK, BlockingConnection
from ..session import Session
from .tracking import Tracker

COUNT = 100
"""Broadcasts read at once."""


@define
class Subscription:
    """How far one queue has read one exchange's stream."""

    exchange: str
    queue: str
    expires_ms: int | None
    cursor: bytes
    saved: bytes


class Broadcast(NamedTuple):
    """A message for a queue."""

    queue: str
    stream_id: bytes
    frame: bytes


class Fanout(ABC):
    """The subscriptions of one connection. Not thread-safe: used by the thread that drains events."""

    def __init__(self, session: Session) -> None:
        self._prefix = session.settings.prefix
        self._exchanges = session.exchanges
        self._link = session.link
        self._bound: dict[str, dict[str, int | None]] = {}
        """Queue -> fanout exchange -> life in ms: what this connection has bound."""
        self._consumed: set[str] = set()
        """The queues that this connection consumes."""
        self._subscriptions: dict[tuple[str, str], Subscription] = {}

    def __bool__(self) -> bool:
        return bool(self._subscriptions)

    def bind(self, exchange: str, queue: str, expires_ms: int | None) -> None:
        """The queue was bound here: reads the exchange for it while it is consumed. Raises connection errors."""
        self._bound.setdefault(queue, {})[exchange] = expires_ms
        if queue in self._consumed:
            self._subscribe(exchange, queue, expires_ms)

    def unbind(self, queue: str) -> None:
        """The queue was unbound: nothing more is read for it."""
        self._unsubscribe(queue)
        self._bound.pop(queue, None)

    def consume(self, queue: str) -> None:
        """The queue is being consumed: reads what it is bound to. Raises connection errors."""
        self._consumed.add(queue)
        for exchange, expires_ms in self._bound.get(queue, {}).items():
            self._subscribe(exchange, queue, expires_ms)

    def cancel(self, queue: str) -> None:
        """The queue's last consumer on this connection has gone."""
        self._consumed.discard(queue)
        self._unsubscribe(queue)

    def _subscribe(self, exchange: str, queue: str, expires_ms: int | None) -> None:
        """Reads the exchange for this queue from its cursor on."""
        if (exchange, queue) not in self._subscriptions:
            cursor = self._link.run(self._exchanges.fanout_bind(exchange, queue, expires_ms))
            self._subscriptions[exchange, queue] = Subscription(exchange, queue, expires_ms, cursor, cursor)
            self._changed()

    def _unsubscribe(self, queue: str) -> None:
        """Reads nothing more for this queue."""
        gone = [key for key in self._subscriptions if key[1] == queue]
        for key in gone:
            del self._subscriptions[key]
        if gone:
            self._changed()

    @abstractmethod
    def wait(self) -> None:
        """Waits for broadcasts, or goes on waiting. Raises connection errors."""

    @abstractmethod
    def receive(self) -> Iterator[Broadcast]:
        """What has come. Raises connection errors."""

    @abstractmethod
    def sockets(self) -> list[int]:
        """The file descriptors that become readable when something has come."""

    @abstractmethod
    def on_readable(self) -> None:
        """For event loops: one of the sockets is readable, and the next tick will call ``receive``."""

    @abstractmethod
    def close(self) -> None:
        """Ends the wait."""

    @abstractmethod
    def _changed(self) -> None:
        """There are other subscriptions than before."""

    def _stream(self, subscription: Subscription) -> bytes:
        return keys.fanout(self._prefix, subscription.exchange)

    def _read(self, subscriptions: Iterable[Subscription], reply: Sequence[Any]) -> Iterator[Broadcast]:
        """The reply of an XREAD for some subscriptions, whose cursors move on."""
        by_stream: dict[bytes, list[Subscription]] = {}
        for each in subscriptions:
            by_stream.setdefault(self._stream(each), []).append(each)
        for name, entries in reply:
            for stream_id, fields in entries:
                message = dict(zip(fields[::2], fields[1::2], strict=False)).get(b"message", b"")
                for subscription in by_stream[name]:
                    if position(subscription.cursor) < position(stream_id):
                        subscription.cursor = stream_id
                        yield Broadcast(subscription.queue, stream_id, message)

    def save(self) -> None:
        """Stores cursors that have moved: what was handed out before is not read again."""
        moved = [each for each in self._subscriptions.values() if each.cursor != each.saved]
        if not moved:
            return
        bound = self._link.run_all([self._exchanges.fanout_advance(s.exchange, s.queue, s.cursor, s.expires_ms) for s in moved])
        for subscription, is_bound in zip(moved, bound, strict=True):
            subscription.saved = subscription.cursor
            if not is_bound:
                self._link.run(self._bind(subscription))

    def _bind(self, subscription: Subscription) -> Call[bytes]:
        return self._exchanges.fanout_bind(subscription.exchange, subscription.queue, subscription.expires_ms)


class StreamFanout(Fanout):
    """One server: one blocking read of all streams."""

    def __init__(self, session: Session, blocking: BlockingConnection) -> None:
        super().__init__(session)
        self._blocking = blocking
        self._waiting_for: list[Subscription] = []

    def wait(self) -> None:
        if self._blocking.waiting or not self._subscriptions:
            return
        self._waiting_for = list(self._subscriptions.values())
        # Each stream once, from where the queue that is furthest behind has read to: a server that wakes a blocked reader
        # answers for a stream only once, and does not say for which of several questions.
        cursors: dict[bytes, bytes] = {}
        for each in sorted(self._waiting_for, key=lambda each: position(each.cursor)):
            cursors.setdefault(self._stream(each), each.cursor)
        self._blocking.wait(BLOCK, "XREAD", "COUNT", COUNT, "BLOCK", round(BLOCK * 1000), "STREAMS", *cursors, *cursors.values())

    def receive(self) -> Iterator[Broadcast]:
        if self._blocking.readable():
            yield from self._read(self._waiting_for, self._blocking.receive() or [])

    def sockets(self) -> list[int]:
        return self._blocking.sockets()

    def on_readable(self) -> None:
        self._blocking.close_if_idle()

    def close(self) -> None:
        self._blocking.close()

    def _changed(self) -> None:
        """Drops a read under way, which has taken nothing: the next one asks for other streams."""
        self._blocking.close()


class ClusterFanout(Fanout):
    """A cluster: a read of each stream that has changed, from the node that has it."""

    def __init__(self, session: Session, tracker: Tracker) -> None:
        super().__init__(session)
        self._tracker = tracker
        self._full: set[bytes] = set()
        """Streams whose last read was cut off at COUNT."""

    def wait(self) -> None:
        self._tracker.track({self._stream(each) for each in self._subscriptions.values()})

    def receive(self) -> Iterator[Broadcast]:
        streams = {self._stream(each) for each in self._subscriptions.values()}
        changed = self._tracker.changed(streams) | self._full & streams
        self._full.clear()
        behind = [each for each in self._subscriptions.values() if self._stream(each) in changed]
        reads = [Command(("XREAD", "COUNT", COUNT, "STREAMS", self._stream(each), each.cursor), list_of) for each in behind]
        for subscription, reply in zip(behind, self._link.run_all(reads), strict=True):
            if any(len(entries) == COUNT for _, entries in reply):
                self._full.add(self._stream(subscription))
            yield from self._read([subscription], reply)

    def sockets(self) -> list[int]:
        return self._tracker.sockets()

    def on_readable(self) -> None:
        """A closed socket is an error at the next tick, which reads from every connection."""

    def close(self) -> None:
        self._tracker.close()

    def _changed(self) -> None:
        """The next ``wait`` sees to it."""


def position(stream_id: bytes) -> tuple[int, int]:
    """What stream ids are ordered by: milliseconds and a number."""
    milliseconds, _, number = stream_id.partition(b"-")
    return int(milliseconds), int(number or 0)


def list_of(reply: Any) -> list[Any]:
    """A reply that is a list, or nil for an empty one."""
    return reply or []
