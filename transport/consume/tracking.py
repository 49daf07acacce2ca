"""Tracking: hearing from the nodes of a cluster, or from one server, that keys have changed, on one connection to each.

A blocking pop can't wait for keys in several slots, and would take what is for others; and a worker with many queues must not
need a connection for each. The server's own cache invalidation (CLIENT TRACKING with prefixes, since Redis 6.0) can: it names
every key that changes under one of the prefixes asked for, whatever its slot, and here a prefix is the whole name of a key. A
connection is its own listener. Nothing is consumed by hearing of it, and whoever begins to listen looks once for what happened
before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import redis

from ...schema.connection.connect import new_connection
from ...schema.connection.slot_map import Node
from ..connection.blocking_connection import BLOCK
from ..connection.cluster_link import ClusterLink
from ..errors import ConnectionLost

CHANNEL = "__redis__:invalidate"
"""Where the server announces them. No channel of anybody's: no message can be published to it that another client would get."""


class Listener:
    """A connection to one node that hears of changes. Used by one thread."""

    def __init__(self, client: redis.Redis, timeout: float, on_close: Callable[[int], None]) -> None:
        self._client = client
        self._timeout = timeout
        self._on_close = on_close
        self._connection: Any = None
        self._ping_at = 0.0
        self._overdue: float | None = None
        self.keys: frozenset[bytes] = frozenset()

    def listen(self, names: frozenset[bytes]) -> None:
        """Hears of these keys from now on, and of no others. Raises connection errors."""
        self.close()
        self.keys = names
        connection = new_connection(self._client)
        connection.connect()
        self._connection = connection
        own_id = self._command("CLIENT", "ID")
        prefixes = [word for name in _shortest(names) for word in ("PREFIX", name)]
        self._command("CLIENT", "TRACKING", "ON", "REDIRECT", own_id, "BCAST", *prefixes)
        self._command("SUBSCRIBE", CHANNEL)
        self._postpone_ping()

    def _command(self, *words: Any) -> Any:
        self._connection.send_command(*words)
        return self._connection.read_response()

    def _postpone_ping(self) -> None:
        self._ping_at, self._overdue = time.monotonic() + BLOCK, None

    def changed(self) -> set[bytes]:
        """The keys that have changed since the last call. Raises connection errors."""
        names: set[bytes] = set()
        while self._connection.can_read(0):
            match self._connection.read_response():
                case [b"message", _, list() as keys]:
                    names.update(keys)
                case [b"message", _, None]:  # the whole database was flushed
                    names |= self.keys
            self._postpone_ping()
        now = time.monotonic()
        if self._overdue is not None and now > self._overdue:
            raise ConnectionLost("the server has not answered; the connection is taken for dead")
        if self._overdue is None and now > self._ping_at:
            self._connection.send_command("PING")
            self._overdue = now + self._timeout
        return names & self.keys

    def fileno(self) -> int | None:
        """The socket's file descriptor; None while there is none."""
        sock = getattr(self._connection, "_sock", None)
        return None if sock is None else sock.fileno()

    def close(self) -> None:
        """Closes the socket."""
        fd = self.fileno()
        if fd is not None:
            self._on_close(fd)
            self._connection.disconnect()
        self._connection = None


def _shortest(names: Iterable[bytes]) -> list[bytes]:
    """Prefixes that cover all names, and do not cover one another, which the server refuses."""
    prefixes: list[bytes] = []
    for name in sorted(names):
        if not prefixes or not name.startswith(prefixes[-1]):
            prefixes.append(name)
    return prefixes


class NodeTracker:
    """What one transport wants to hear of, from its one server. Used by one thread."""

    def __init__(self, client_of: Callable[[], redis.Redis], timeout: float, on_close: Callable[[int], None]) -> None:
        self._client_of = client_of
        self._timeout = timeout
        self._on_close = on_close
        self._listener: Listener | None = None
        self._changed: set[bytes] = set()

    def track(self, names: Iterable[bytes]) -> None:
        """Hears of these keys too; each counts as changed at first. Raises connection errors and error replies."""
        wanted = frozenset(names)
        if self._listener is None:
            self._listener = Listener(self._client_of(), self._timeout, self._on_close)
        if not wanted <= self._listener.keys:
            new = wanted - self._listener.keys
            self._listener.listen(wanted | self._listener.keys)
            self._changed |= new

    def changed(self, names: Iterable[bytes]) -> set[bytes]:
        """Those of these keys that have changed since they were asked about last. Raises connection errors."""
        if self._listener is not None:
            self._changed |= self._listener.changed()
        those = self._changed.intersection(names)
        self._changed -= those
        return those

    def sockets(self) -> list[int]:
        """The file descriptor that becomes readable when there is something to hear."""
        fd = None if self._listener is None else self._listener.fileno()
        return [] if fd is None else [fd]

    def close(self) -> None:
        """Closes the connection. What is tracked again counts as changed."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None


class Tracker:
    """What one transport wants to hear of, from all nodes. Used by one thread."""

    def __init__(
        self,
        link: ClusterLink,
        client_of: Callable[[str, int], redis.Redis],
        timeout: float,
        on_close: Callable[[int], None],
    ) -> None:
        self._link = link
        self._client_of = client_of
        self._timeout = timeout
        self._on_close = on_close
        self._listeners: dict[Node, Listener] = {}
        self._tracked: set[bytes] = set()
        self._changed: set[bytes] = set()
        self._slots_version = -1

    def track(self, names: Iterable[bytes]) -> None:
        """Hears of these keys too; each counts as changed at first. Raises connection errors."""
        new = set(names) - self._tracked
        if not new and self._slots_version == self._link.slots_version:
            return
        self._tracked |= new
        by_node: dict[Node, set[bytes]] = {}
        for name in self._tracked:
            by_node.setdefault(self._link.owner(name), set()).add(name)
        self._slots_version = self._link.slots_version
        for node in [node for node in self._listeners if node not in by_node]:
            self._listeners.pop(node).close()
        for node, wanted in by_node.items():
            listener = self._listeners.get(node)
            if listener is None:
                client = self._client_of(*node)
                listener = self._listeners[node] = Listener(client, self._timeout, self._on_close)
            if not wanted <= listener.keys:
                self._changed |= wanted - listener.keys
                listener.listen(frozenset(wanted))

    def changed(self, names: Iterable[bytes]) -> set[bytes]:
        """Those of these keys that have changed since they were asked about last. Raises connection errors."""
        for listener in self._listeners.values():
            self._changed |= listener.changed()
        those = self._changed.intersection(names)
        self._changed -= those
        return those

    def sockets(self) -> list[int]:
        """The file descriptors that become readable when there is something to hear."""
        return [fd for listener in self._listeners.values() if (fd := listener.fileno()) is not None]

    def close(self) -> None:
        """Closes every connection. What is tracked again counts as changed."""
        for listener in self._listeners.values():
            listener.close()
        self._listeners.clear()
        self._tracked.clear()
