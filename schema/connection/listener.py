"""Listener: hearing from one server that keys have changed, on a connection that does nothing else.

The server's own cache invalidation (CLIENT TRACKING with prefixes, since Redis 6.0) names every key that changes under one of
the prefixes asked for, whoever changes it, and here a prefix is the whole name of a key. The connection is its own listener.
Nothing is consumed by hearing of it, and whoever begins to listen looks once for what happened before. Called by
``compat/wakeups.py`` and by the transport's ``consume/tracking.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import redis

from . import incapable, permission
from .connect import new_connection

CHANNEL = "__redis__:invalidate"
"""Where the server announces them. No channel of anybody's: no message can be published to it that another client would get."""
SILENCE = 5.0
"""Seconds without a word after which the server is asked whether it is still there."""


class ConnectionLost(redis.exceptions.ConnectionError):
    """A connection that looks open does not answer any more."""


class Listener:
    """A connection to one node that hears of changes. Used by one thread.

    ``timeout``: seconds in which the server must answer. ``on_close`` is called with the file descriptor of a socket that is
    about to be closed.
    """

    def __init__(self, client: redis.Redis, timeout: float, on_close: Callable[[int], None] | None = None) -> None:
        self._client = client
        self._timeout = timeout
        self._on_close = on_close
        self._connection: Any = None
        self._ping_at = 0.0
        self._overdue: float | None = None
        self._unanswered = 0
        self.keys: frozenset[bytes] = frozenset()
        """What it hears of; empty while it does not listen."""

    def listen(self, names: frozenset[bytes]) -> None:
        """Hears of these keys from now on, and of no others.

        Raises connection errors, and error replies: Forbidden where the user may not listen, Incapable where the server can't.
        """
        self.close()
        # What comes here are messages, so it is no connection like the client's others.
        connection = new_connection(self._client, protocol=2, health_check_interval=0)
        connection.connect()
        self._connection = connection
        try:
            own_id = self._command("CLIENT", "ID")
            prefixes = [word for name in _shortest(names) for word in ("PREFIX", name)]
            self._command("CLIENT", "TRACKING", "ON", "REDIRECT", own_id, "BCAST", *prefixes)
            self._command("SUBSCRIBE", CHANNEL)
        except BaseException:
            self.close()
            raise
        self.keys = names
        self._ping_at = time.monotonic() + SILENCE

    def _command(self, *words: Any) -> Any:
        try:
            return self._answer(*words)
        except redis.exceptions.ResponseError as error:
            plain = incapable.explained(permission.explained(error, words), lambda: self._answer("INFO", "server"))
            raise plain from error

    def _answer(self, *words: Any) -> Any:
        self._connection.send_command(*words)
        return self._connection.read_response()

    def changed(self, seconds: float = 0.0) -> set[bytes]:
        """The keys that have changed since the last call; if there are none yet, waits for one, at most for so many seconds.

        It may give none earlier than that: call it again. Raises connection errors.
        """
        names: set[bytes] = set()
        next_step = self._ping_at if self._overdue is None else self._overdue
        wait = max(0.0, min(seconds, next_step - time.monotonic()))
        while self._connection.can_read(wait):
            wait = 0.0
            match self._connection.read_response():
                case [b"message", _, list() as keys]:
                    names.update(keys)
                case [b"message", _, None]:  # the whole database was flushed
                    names |= self.keys
                case [b"pong", _]:
                    self._unanswered -= 1
            self._ping_at, self._overdue = time.monotonic() + SILENCE, None
        now = time.monotonic()
        if self._overdue is not None and now > self._overdue:
            raise ConnectionLost("the server has not answered; the connection is taken for dead")
        if self._overdue is None and now > self._ping_at:
            self._ping()
        return names & self.keys

    def changed_until_now(self) -> set[bytes]:
        """``changed``, with all that the server has done before this call. Takes one round trip; raises connection errors."""
        self._ping()
        names: set[bytes] = set()
        while self._unanswered:
            names |= self.changed(self._timeout)
        return names

    def _ping(self) -> None:
        self._connection.send_command("PING")
        self._unanswered += 1
        self._overdue = time.monotonic() + self._timeout

    def fileno(self) -> int | None:
        """The socket's file descriptor; None while there is none."""
        sock = getattr(self._connection, "_sock", None)
        return None if sock is None else sock.fileno()

    def close(self) -> None:
        """Closes the socket."""
        fd = self.fileno()
        if fd is not None:
            if self._on_close is not None:
                self._on_close(fd)
            self._connection.disconnect()
        self._connection, self._overdue, self._unanswered = None, None, 0
        self.keys = frozenset()


def _shortest(names: Iterable[bytes]) -> list[bytes]:
    """Prefixes that cover all names, and do not cover one another, which the server refuses."""
    prefixes: list[bytes] = []
    for name in sorted(names):
        if not prefixes or not name.startswith(prefixes[-1]):
            prefixes.append(name)
    return prefixes
