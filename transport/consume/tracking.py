"""Tracking: hearing from the nodes of a cluster, or from one server, that keys have changed, on one connection to each.

A blocking pop can't wait for keys in several slots, and would take what is for others; and a worker with many queues must not
need a connection for each. The server's own cache invalidation can (``schema/connection/listener.py``), whatever the keys' slots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import redis

from ...schema.connection.listener import Listener
from ...schema.connection.slot_map import Node
from ..connection.cluster_link import ClusterLink


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
