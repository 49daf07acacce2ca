"""Limits: how fast a server itself is, asked by clients that do nothing with its answers.

Commands that are prepared beforehand, over two connections at once: what is measured is the one thread in which a server
works. The figures of ``__main__`` are shares of these, from the same run.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence

from attrs import frozen
from ferryman.schema.family import Command
from hiredis import pack_command

BATCH = 100
CONNECTIONS = 2
END = b"batch-end"
READ_BYTES = 1 << 18


@frozen
class Limit:
    """Commands for a server on this machine, ready to be sent."""

    port: int
    db: int
    connections: Sequence[Sequence[bytes]]
    """The batches of each."""
    jobs: int
    """How many jobs they are about."""

    @classmethod
    def of(cls, port: int, commands: Sequence[Command], *, db: int = 0, each: int = 1) -> Limit:
        """Commands of which a job has so many."""
        return cls(port, db, [_packed(commands[number::CONNECTIONS]) for number in range(CONNECTIONS)], len(commands) // each)

    def rate(self) -> float:
        """Jobs a second about which the server answers."""
        threads = [threading.Thread(target=_drain, args=(self.port, self.db, batches)) for batches in self.connections]
        started = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self.jobs / (time.perf_counter() - started)


def _packed(commands: Sequence[Command]) -> list[bytes]:
    """Batches, each with a command at its end whose answer can be told from all others."""
    mark = pack_command(("ECHO", END))
    starts = range(0, len(commands), BATCH)
    return [b"".join(map(pack_command, commands[start : start + BATCH])) + mark for start in starts]  # type: ignore[arg-type]


def _drain(port: int, db: int, batches: Sequence[bytes]) -> None:
    """Sends one batch after the other, and throws the answers away."""
    buffer = bytearray(READ_BYTES)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for batch in (pack_command(("SELECT", db)) + pack_command(("ECHO", END)), *batches):
            connection.sendall(batch)
            tail = b""
            while not tail.endswith(END + b"\r\n"):
                size = connection.recv_into(buffer)
                if not size:
                    raise ConnectionError("the server has closed the connection")
                tail = (tail + bytes(buffer[max(0, size - 32) : size]))[-32:]
