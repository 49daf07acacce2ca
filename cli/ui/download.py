"""Download: a field of a hash, be it 500 MB, passed on as it comes, so that this process never holds more than a piece of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from ...schema.connection.address import Address
from ...schema.connection.connect import connect, server_errors
from ...schema.connection.pipeline import open_pipeline
from ...schema.errors import ServerError

PIECE = 256 << 10
"""Bytes that are held at once."""
MOST_AT_ONCE = 2
"""The server makes a copy of what it sends."""
PATIENCE_S = 30.0

_turn = threading.BoundedSemaphore(MOST_AT_ONCE)


def pieces(address: Address, key: bytes, field: bytes) -> Iterator[bytes]:
    """The field, piece by piece; nothing where there is none any more. Raises ServerError."""
    if not _turn.acquire(timeout=PATIENCE_S):
        raise ServerError("others are downloading: try again later")
    try:
        # A connection of its own: who stops in the middle leaves a reply behind that nobody else may read.
        with server_errors(address), connect(address) as client, open_pipeline(client) as pipe:
            pipe.send([("HGET", key, field)])
            buffer = memoryview(bytearray(PIECE))
            head = b""
            while b"\r\n" not in head:
                head += bytes(buffer[: pipe.receive(buffer)])
            length, _, rest = head.partition(b"\r\n")
            left = int(length[1:]) if length[:1] == b"$" else -1
            if left < 0:
                raise ServerError("the job has gone meanwhile")
            while left > 0:
                piece = rest[:left] or bytes(buffer[: pipe.receive(buffer)])[:left]
                rest = b""
                left -= len(piece)
                yield piece
            client.connection_pool.disconnect()
    finally:
        _turn.release()
