"""BlockingConnection: a connection on which one command at a time blocks: the poller's wait for messages or for broadcasts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import redis

from ...schema.connection.call import Argument
from ...schema.connection.connect import new_connection
from ...schema.connection.listener import ConnectionLost
from ..errors import transient
from .link import explain, is_stale

BLOCK = 5.0
"""Seconds that a blocking command lasts at most; then the connection has shown that it lives."""


class BlockingConnection:
    """A connection with at most one blocking command under way.

    ``wait`` sends it, ``readable`` and ``fileno`` are for event loops, ``receive`` takes the reply. Used by one thread.
    """

    def __init__(self, client: redis.Redis, timeout: float, on_close: Callable[[int], None]) -> None:
        self._client = client
        self._timeout = timeout
        """Seconds after a command's own time in which its reply must have come."""
        self._connection: Any = None
        self._overdue = 0.0
        self._command: tuple[Argument, ...] = ()
        """The command under way."""
        self.waiting = False
        self._on_close = on_close
        """Called with the file descriptor of a socket that is about to be closed."""

    def wait(self, seconds: float, *arguments: Argument) -> None:
        """Sends a command that blocks for at most ``seconds``, whose reply ``receive`` will bring."""
        if self.waiting:
            raise RuntimeError("a blocking command is under way already")
        if self._connection is not None and is_stale(self._connection):
            self.close()
        if self._connection is None:
            connection = new_connection(self._client)
            connection.connect()
            self._connection = connection
        self._connection.send_packed_command(self._connection.pack_command(*arguments))
        self._overdue = time.monotonic() + seconds + self._timeout
        self._command = arguments
        self.waiting = True

    def receive(self) -> Any:
        """The reply of the command under way; blocks until it is there. Raises error replies and connection errors."""
        self.waiting = False
        try:
            return self._connection.read_response()
        except redis.exceptions.ResponseError as error:
            raise explain(transient(error), self._command, self._info) from None

    def _info(self) -> Any:
        self._connection.send_command("INFO", "server")
        return self._connection.read_response()

    def readable(self) -> bool:
        """Whether a reply is there. Raises ConnectionLost when it should be and is not: only the socket looks open."""
        if not self.waiting:
            return False
        if self._connection.can_read(0):
            return True
        if time.monotonic() > self._overdue:
            raise ConnectionLost("the server has not answered a blocking command; the connection is taken for dead")
        return False

    def close_if_idle(self) -> None:
        """For event loops, when the socket has something to say and no command is under way: the server has closed it."""
        if not self.waiting:
            self.close()

    def sockets(self) -> list[int]:
        """The file descriptor that becomes readable with the reply; none while no command is under way."""
        fd = self.fileno()
        return [fd] if self.waiting and fd is not None else []

    def fileno(self) -> int | None:
        """The socket's file descriptor; None while there is none."""
        sock = getattr(self._connection, "_sock", None)
        return None if sock is None else sock.fileno()

    def close(self) -> None:
        """Closes the socket. A command under way is forgotten: it popped nothing but a wake-up token."""
        self.waiting = False
        if self._connection is not None:
            fd = self.fileno()
            if fd is not None:
                self._on_close(fd)
            self._connection.disconnect()
            self._connection = None
