"""Limits: how fast a server itself is, asked by clients that do nothing with its answers.

Commands that are prepared beforehand, over two connections at once: what is measured is the one thread in which a server
works. The figures of ``__main__`` are shares of these, from the same run.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence

from ferryman.schema.family import Command
from hiredis import pack_command

BATCH = 100
CONNECTIONS = 2
END = b"batch-end"
READ_BYTES = 1 << 18


def rate(port: int, db: int, commands: Sequence[Command]) -> float:
    """Commands a second that a server on this machine answers."""
    threads = []
    for number in range(CONNECTIONS):
        batches = _packed(commands[number::CONNECTIONS])
        threads.append(threading.Thread(target=_drain, args=(port, db, batches)))
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(commands) / (time.perf_counter() - started)


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
