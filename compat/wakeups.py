"""Wakeups: when a client of a foreign keyspace should look at a queue again, without looking meanwhile.

What wakes it: the server's announcement that one of the keys has changed that the family names (``signals``), and the moments
that the client's last take has told. What is put off meanwhile changes other keys (``schedules``): then ``size`` tells the time.
Nothing is consumed by listening, so that system's own workers are woken as before. Called by ``client.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable

import redis
from attrs import define, field

from ..schema.connection.call import Call
from ..schema.connection.connect import SOCKET_TIMEOUT
from ..schema.connection.listener import Listener
from ..schema.live import ForeignFamily
from ..schema.native.scripts.results import Size, Taken


@define(eq=False)
class Wakeups:
    """Of one client, with a connection of its own once it is waited for. ``send`` sends a call and gives its result."""

    _live: ForeignFamily
    _server: redis.Redis
    _send: Callable[[Call[Size]], Size]
    _listener: Listener | None = None
    _look_at: dict[str, float] = field(factory=dict)
    """When to look at a queue, on the monotonic clock: what is over was to be looked at, and was not yet."""
    _signals: dict[bytes, set[str]] = field(factory=dict)
    """The queues in which there may be something to take when a key changes."""
    _schedules: dict[bytes, set[str]] = field(factory=dict)
    """The queues that must be asked when a key changes."""
    _stale: set[str] = field(factory=set)
    """Queues that must be asked."""

    def taken(self, queue: str, n: int, taken: Taken) -> None:
        """Notes what a take of ``n`` jobs has told."""
        has_more = taken.more or len(taken.jobs) >= n
        self._look_at[queue] = 0.0 if has_more else time.monotonic() + (taken.next_event_ms - taken.now) / 1000
        self._stale.discard(queue)

    def wait(self, queues: Collection[str], seconds: float) -> bool:
        """Waits until one of the queues should be looked at, at most for so many seconds; False then."""
        end = time.monotonic() + seconds
        if self._is_time(queues):
            return True
        try:
            listener = self._catch_up(queues)
            while not self._is_time(queues):
                now = time.monotonic()
                if now >= end:
                    return False
                self._note(listener.changed(min(end, *map(self._time_of, queues)) - now), queues)
        except BaseException:
            self.close()  # the next wait asks for all that was not heard
            raise
        return True

    def _is_time(self, queues: Iterable[str]) -> bool:
        now = time.monotonic()
        return any(self._time_of(queue) <= now for queue in queues)

    def _time_of(self, queue: str) -> float:
        return self._look_at.get(queue, float("inf"))

    def _catch_up(self, queues: Collection[str]) -> Listener:
        """Listens to these queues too, and asks those of which something was not heard, or that changed before this wait began.

        That may have been the client's own take, so here it is no reason to wake.
        """
        listener = self._listener
        if listener is None:
            timeout = self._server.connection_pool.connection_kwargs.get("socket_timeout") or SOCKET_TIMEOUT
            listener = self._listener = Listener(self._server, timeout)
        for queue in queues:
            for key in self._live.signals(queue):
                self._signals.setdefault(key, set()).add(queue)
            for key in self._live.schedules(queue):
                self._schedules.setdefault(key, set()).add(queue)
        names = frozenset((*self._signals, *self._schedules))
        if names <= listener.keys:
            changed: Collection[bytes] = listener.changed_until_now()
        else:
            listener.listen(names)
            changed = names
        for key in changed:
            self._stale |= self._signals.get(key, set()) | self._schedules.get(key, set())
        self._ask(queues)
        return listener

    def _note(self, changed: Iterable[bytes], queues: Collection[str]) -> None:
        for key in changed:
            self._stale |= self._schedules.get(key, set())
            if key not in self._schedules:
                self._look_at.update(dict.fromkeys(self._signals[key], 0.0))
        self._ask(queues)

    def _ask(self, queues: Collection[str]) -> None:
        """Asks the stale ones of these queues what there is."""
        for queue in self._stale.intersection(queues):
            size = self._send(self._live.size(queue))
            if size.waiting:
                self._look_at[queue] = 0.0
            elif size.next_due_ms is not None:
                due = time.monotonic() + (size.next_due_ms - size.now) / 1000
                self._look_at[queue] = min(due, self._time_of(queue))
            self._stale.discard(queue)

    def close(self) -> None:
        """Closes the connection."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
