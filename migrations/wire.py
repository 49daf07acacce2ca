"""Wire: one connection on which many commands go out before the first reply is read.

redis-py's own pipelines build a dict or a callback for every reply, which halves the rate at which a keyspace can be read;
this is the same connection (its login, TLS, timeouts) with nothing between the reply and the caller. Errors are replies
too: who sends a batch decides per reply what an error means. Never used by two threads at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import redis
from hiredis import pack_command

from ..schema.family import Command


class Wire:
    """A connection taken from a client for the length of a ``with wire(client)`` block."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def call(self, commands: Iterable[Command]) -> list[Any]:
        """Sends all commands at once and returns one reply each; an error reply stands in the list as an exception.

        Raises what redis-py raises when the connection itself fails; what the server then did is unknown.
        """
        batch = list(commands)
        if batch:
            # hiredis' type stub takes a command for a tuple of exactly one word.
            packed = b"".join(pack_command(command) for command in batch)  # type: ignore[arg-type]
            self._connection.send_packed_command([packed])
        return [self._reply() for _ in batch]

    def ask(self, *command: bytes | str | int | float) -> Any:
        """The reply to one command. Raises the error reply, if it is one."""
        (reply,) = self.call([command])
        if isinstance(reply, Exception):
            raise reply
        return reply

    def _reply(self) -> Any:
        try:
            return self._connection.read_response()
        except redis.exceptions.ResponseError as error:
            return error


@contextlib.contextmanager
def wire(client: redis.Redis) -> Iterator[Wire]:
    """A wire over one of the client's connections, given back at the end.

    After an exception the connection is closed first: unread replies would be taken for somebody else's.
    """
    connection = client.connection_pool.get_connection()
    try:
        yield Wire(connection)
    except BaseException:
        connection.disconnect()
        raise
    finally:
        client.connection_pool.release(connection)


def pairs(reply: Any) -> list[tuple[Any, Any]]:
    """The pairs in a reply to HSCAN, ZRANGE WITHSCORES and their like, in whichever protocol version the client speaks."""
    if isinstance(reply, dict):
        return list(reply.items())
    if reply and isinstance(reply[0], list | tuple):
        return [(first, second) for first, second in reply]
    return list(zip(reply[::2], reply[1::2], strict=True))
