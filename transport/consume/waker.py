"""Waker: any thread can use it to end another thread's wait for sockets. The poller has one."""

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
        """Whether a byte has been sent, or is being sent, that no ``reset`` has read. Saves most wakes a system call."""

    def fileno(self) -> int:
        return self._reader.fileno()

    def wake(self) -> None:
        """End the next poll at once. Call it after the change that the other thread is to see."""
        if not self._is_set:
            self._is_set = True
            with contextlib.suppress(OSError):  # closed meanwhile by the other thread, or so full that it is readable anyway
                self._writer.send(b"!")

    def reset(self) -> None:
        """Make it ready to wake again. The caller checks for changes afterwards.

        The byte is read before the flag is cleared. In the other order a wake between the two steps loses its byte and leaves
        the flag set: then every later wake believes that a byte is on its way, and none is sent again.
        """
        with contextlib.suppress(BlockingIOError):
            self._reader.recv(4096)
        self._is_set = False

    def close(self) -> None:
        self._reader.close()
        self._writer.close()
