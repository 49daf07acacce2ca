"""Waker: what any thread uses to end another one's wait for sockets. The poller has one."""

from __future__ import annotations

import contextlib
import socket


class Waker:
    """A file descriptor that any thread can make readable, to end a poll.

    A pair of sockets, not a pipe: under eventlet, reading an empty pipe blocks, even where the pipe is set not to.
    """

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._is_set = False

    def fileno(self) -> int:
        return self._reader.fileno()

    def wake(self) -> None:
        """Makes the next poll return at once."""
        if not self._is_set:
            self._is_set = True
            self._writer.send(b"!")

    def reset(self) -> None:
        """Makes it ready to wake again."""
        self._is_set = False
        with contextlib.suppress(BlockingIOError):
            self._reader.recv(16)

    def close(self) -> None:
        self._reader.close()
        self._writer.close()
