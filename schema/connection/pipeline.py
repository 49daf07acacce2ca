"""PipelineConnection: one connection on which many commands go out before the first reply is read.

redis-py's own pipelines build a dict or a callback for every reply, which halves the rate at which a keyspace can be read;
this is the same connection (its login, TLS, timeouts) with nothing between the reply and the caller. Errors are replies
too: who sends a batch decides per reply what an error means. Never used by two threads at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import redis
from hiredis import Reader, pack_command

from ..frozen import frozen
from .permission import explained_each

if TYPE_CHECKING:
    from ..family import Command

BUFFER = 1 << 18
"""Bytes to take from the socket at once."""
SEND_BYTES = 1 << 20
"""Bytes that are sent at once."""
_PENDING = object()


@frozen(eq=False)
class PackedCommands:
    """Commands as they go over the wire."""

    data: bytes | memoryview
    number: int
    """How many they are."""

    @classmethod
    def of(cls, commands: Sequence[Command]) -> PackedCommands:
        """These commands."""
        # hiredis' type stub takes a command for a tuple of exactly one word.
        return cls(b"".join(map(pack_command, commands)), len(commands))  # type: ignore[arg-type]

    def commands(self) -> Iterator[Command]:
        """Each command by itself: its name, and all other words as bytes."""
        reader = Reader()
        reader.feed(bytes(self.data))
        for _ in range(self.number):
            name, *words = reader.gets()
            yield (name.decode(), *words)


class PipelineConnection:
    """Batches over an open connection of redis-py's: one that a client lends (``open_pipeline``), or the caller's own."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._peer = _peer(getattr(connection, "host", None), getattr(connection, "port", None))
        self._reader: Any = Reader(
            protocolError=redis.exceptions.InvalidResponse,
            replyError=connection._parser.parse_error,
            notEnoughData=_PENDING,
        )
        self._buffer = bytearray(BUFFER)
        self.received = 0
        """Bytes of replies so far."""

    @property
    def socket(self) -> Any:
        """What the connection goes through: another one once it was lost."""
        return self._connection._sock

    def call(self, commands: Iterable[Command]) -> list[Any]:
        """Sends all commands at once and returns one reply each; an error reply stands in the list as an exception.

        Raises what redis-py raises when the connection itself fails; what the server then did is unknown.
        """
        batch = list(commands)
        self.send(batch)
        replies = self.replies(len(batch))
        return explained_each(replies, batch) if has_errors(replies) else replies

    def ask_each(self, keys: Sequence[bytes], *commands: Sequence[bytes]) -> list[list[Any]]:
        """The replies to each of these commands about every key, sent at once; the key comes after a command's first word.

        ``call`` for thousands of keys in half of the time. Error replies stand in the lists as exceptions.
        """
        number = len(keys)
        if not number:
            return [[] for _ in commands]
        self.send_packed(*(packed_each(command, keys) for command in commands))
        replies = self.replies(number * len(commands))
        if has_errors(replies):
            replies = explained_each(replies, [(command[0], key) for command in commands for key in keys])
        return [replies[start : start + number] for start in range(0, len(replies), number)]

    def call_packed(self, those: Sequence[PackedCommands]) -> list[Any]:
        """``call`` of all of these."""
        self.send_packed(*(packed.data for packed in those))
        replies = self.replies(sum(packed.number for packed in those))
        if not has_errors(replies):
            return replies
        return explained_each(replies, [command for packed in those for command in packed.commands()])

    def send(self, commands: Sequence[Command]) -> None:
        """Sends all commands at once and reads nothing: ``replies`` must fetch what is answered."""
        if commands:
            self.send_packed(PackedCommands.of(commands).data)

    def ask(self, *command: bytes | str | int | float) -> Any:
        """The reply to one command. Raises the error reply, if it is one."""
        (reply,) = self.call([command])
        if isinstance(reply, Exception):
            raise reply
        return reply

    def replies(self, number: int) -> list[Any]:
        """The next replies, as from ``call``. redis-py takes microseconds for each, so the socket is read here."""
        if self._reader.has_data():  # the first of them have come with those before
            replies = [self._reply() for _ in range(number)]
        else:
            # All of them are taken as one, an array whose head no server has sent.
            self._reader.feed(b"*%d\r\n" % number)
            replies = self._reply()
        if has_errors(replies):
            for reply in replies:
                if isinstance(reply, redis.exceptions.ConnectionError):
                    raise reply  # of no single command: the server is loading, or nobody has logged in
        return replies

    def _reply(self) -> Any:
        while (reply := self._reader.gets()) is _PENDING:
            self._reader.feed(self._buffer, 0, self.receive(memoryview(self._buffer)))
        return reply

    def send_packed(self, *parts: Any) -> None:
        """Sends commands as they go over the wire: bytes, or buffers of them."""
        self._connection.send_packed_command(_segments(b"".join(parts)))

    def feed(self, received: bytes) -> None:
        """Gives back what ``receive`` has taken, for ``replies`` to begin with."""
        self._reader.feed(received)

    def receive(self, buffer: memoryview) -> int:
        """Takes bytes of replies as they come, for who takes all of them apart himself; gives their number, at least 1.

        Waits as long as the client's ``socket_timeout`` says.
        """
        try:
            size: int = self._connection._sock.recv_into(buffer)
        except TimeoutError as error:
            raise _silent(self._peer) from error
        except OSError as error:
            raise redis.exceptions.ConnectionError(f"the connection to {self._peer} broke: {error}") from error
        if not size:
            raise redis.exceptions.ConnectionError(f"{self._peer} has closed the connection")
        self.received += size
        return size


def _segments(data: bytes) -> Sequence[bytes | memoryview]:
    """What is sent at once: a timeout is for each piece, and a large message may take longer."""
    if len(data) <= SEND_BYTES:
        return [data]
    view = memoryview(data)
    return [view[first : first + SEND_BYTES] for first in range(0, len(view), SEND_BYTES)]


FOR_A_COMMAND = () if redis.VERSION >= (5, 3) else ("PING",)
"""Before 5.3, redis-py wants to know for which command a connection is; since then it warns of who tells it."""


@contextlib.contextmanager
def open_pipeline(client: redis.Redis) -> Iterator[PipelineConnection]:
    """A pipeline over one of the client's connections, given back at the end.

    After an exception the connection is closed first: unread replies would be taken for somebody else's.
    """
    connection = _connected(client)
    try:
        yield PipelineConnection(connection)
    except BaseException:
        connection.disconnect()
        raise
    finally:
        client.connection_pool.release(connection)


def _connected(client: redis.Redis) -> Any:
    try:
        return client.connection_pool.get_connection(*FOR_A_COMMAND)
    except redis.exceptions.TimeoutError as error:
        known = client.connection_pool.connection_kwargs
        raise _silent(_peer(known.get("host"), known.get("port"))) from error


def _silent(peer: str) -> redis.exceptions.TimeoutError:
    """redis-py's own does not tell who is meant, which is one of several nodes, perhaps."""
    return redis.exceptions.TimeoutError(f"no reply from {peer}")


def _peer(host: str | None, port: int | None) -> str:
    """Who answers, by what is known of a connection: nothing of one over a Unix socket."""
    return f"{host}:{port}" if host else "the server"


def packed_each(command: Sequence[bytes], keys: Iterable[bytes]) -> bytes:
    """One command for each key, which comes after the first word, as they go over the wire."""
    name, *others = command
    before = b"*%d\r\n$%d\r\n%b\r\n$" % (1 + len(command), len(name), name)
    after = b"".join(b"\r\n$%d\r\n%b" % (len(word), word) for word in others) + b"\r\n"
    return b"".join([b"%b%d\r\n%b%b" % (before, len(key), key, after) for key in keys])


def has_errors(replies: Sequence[Any]) -> bool:
    """Whether one of them is an exception; to look at thousands so takes microseconds."""
    return any(issubclass(kind, Exception) for kind in set(map(type, replies)))


def pairs(reply: Any) -> list[tuple[Any, Any]]:
    """The pairs in a reply to HSCAN, ZRANGE WITHSCORES and their like, in whichever protocol version the client speaks."""
    if isinstance(reply, dict):
        return list(reply.items())
    if reply and isinstance(reply[0], list | tuple):
        return [(first, second) for first, second in reply]
    return list(zip(reply[::2], reply[1::2], strict=True))


def mapping(reply: Any) -> dict[Any, Any]:
    """The reply to HGETALL or its like as a dict."""
    if isinstance(reply, dict):
        return reply
    if reply and isinstance(reply[0], list | tuple):
        return dict(reply)
    words = iter(reply)
    return dict(zip(words, words, strict=True))
