"""Shared: clients and links that stay open between requests, for a process that serves many (``ferryman ui``).

Inside a block of ``sharing`` whatever opens a connection to an address (``connect.open_client``, ``operations/broker.py``) gets
one that an earlier block has used, and leaves it open. After an error all connections to that address are opened anew: the
server may be another one by now, or have become a replica. Thread-safe; the block holds for its own thread.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from attrs import define, field, frozen

from .after_fork import renew_in_children

MOST_IDLE = 16
"""Of one kind; more are closed when they are given back."""
LONGEST_S = 300.0
"""So old a connection may get: what Sentinels or a name server say is asked again."""


class Closable(Protocol):
    """A client or a link."""

    def close(self) -> None:
        """Closes its sockets."""


T = TypeVar("T", bound=Closable)


@frozen
class _Idle:
    connection: Any
    made: float


@define(eq=False)
class SharedConnections:
    """What is open and not in use."""

    _idle: dict[Hashable, list[_Idle]] = field(factory=dict)
    _lock: threading.Lock = field(factory=threading.Lock)

    def __attrs_post_init__(self) -> None:
        renew_in_children(self)

    def after_fork(self) -> None:
        """In a forked child: another thread of the parent may hold the lock. Its connections open sockets of their own."""
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def lent(self, key: Hashable, make: Callable[[], T]) -> Iterator[T]:
        """A connection of this kind for the length of the block; after an error in it, all of this kind are closed."""
        idle = self._taken(key)
        connection: T = make() if idle is None else idle.connection
        try:
            yield connection
        except BaseException:
            self.close(key)
            _close(connection)
            raise
        with self._lock:
            those = self._idle.setdefault(key, [])
            if len(those) < MOST_IDLE:
                those.append(_Idle(connection, time.monotonic() if idle is None else idle.made))
                return
        _close(connection)

    def close(self, key: Hashable | None = None) -> None:
        """Closes what is idle, of one kind or all."""
        with self._lock:
            closing = (
                list(self._idle.pop(key, ())) if key is not None else [each for kind in self._idle.values() for each in kind]
            )
            if key is None:
                self._idle.clear()
        for each in closing:
            _close(each.connection)

    def _taken(self, key: Hashable) -> _Idle | None:
        while True:
            with self._lock:
                those = self._idle.get(key)
                if not those:
                    return None
                idle = those.pop()
            if time.monotonic() - idle.made < LONGEST_S:
                return idle
            _close(idle.connection)


_current: ContextVar[SharedConnections | None] = ContextVar("ferryman_shared_connections", default=None)


def current() -> SharedConnections | None:
    """The connections that this thread shares; None outside of any block."""
    return _current.get()


@contextlib.contextmanager
def sharing(connections: SharedConnections) -> Iterator[None]:
    """For the length of the block this thread uses these connections."""
    token = _current.set(connections)
    try:
        yield
    finally:
        _current.reset(token)


def _close(connection: Closable) -> None:
    with contextlib.suppress(Exception):  # it may be broken: that is why
        connection.close()
