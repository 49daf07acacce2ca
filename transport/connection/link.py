"""ServerLink: the connection to a server over which calls are sent, by any thread; NodeLink is that to a single server.

All I/O of the transport goes through the classes of this package. They know nothing of queues: a call comes in, its parsed result
goes out. A link that failed stays failed, because kombu answers a connection error with a new transport; what was asked of the
failed one is either known to have happened (its reply was read) or safe to ask again (every transition is).
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import hiredis
import redis
from redis.exceptions import MovedError, NoScriptError
from redis.sentinel import SentinelManagedConnection

from ...schema.connection import incapable, permission
from ...schema.connection.after_fork import renew_in_children
from ...schema.connection.call import Argument, Call, Command
from ...schema.connection.connect import new_connection
from ...schema.connection.pipeline import PipelineConnection, has_errors
from ...schema.errors import FerrymanError, UsageError
from ..errors import CONNECTION_ERRORS, Unavailable, transient

T = TypeVar("T")

pack: Callable[[tuple[Argument, ...]], bytes] = hiredis.pack_command  # type: ignore[assignment]  # its stub names tuples of one
"""A command as bytes."""

IDLE = 1.0
"""Seconds after which a connection may have been closed by the server or by somebody in between: it is looked at before use."""

AnyCall = Call[Any] | Command[Any]


class ServerLink(ABC):
    """Sends scripts and plain commands, several in one round trip. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.failed = False
        """True after a connection error. Nothing is sent any more by anybody who asks first."""
        renew_in_children(self)

    def after_fork(self) -> None:
        """In a forked child: another thread of the parent may hold the lock."""
        self._lock = threading.RLock()

    def run(self, call: Call[T] | Command[T]) -> T:
        """Sends one call and waits for its result."""
        result: T = self.run_all([call])[0]
        return result

    def run_all(self, calls: Sequence[AnyCall]) -> list[Any]:
        """Sends all calls at once and waits for all results, in order.

        The first error reply is raised after every reply has been read, so that the connection stays usable.
        """
        with self._lock:
            replies = self.replies(calls)
            self._raise_first(replies)
        return [call.parse(reply) for call, reply in zip(calls, replies, strict=True)]

    def outcomes(self, calls: Sequence[AnyCall]) -> list[Any]:
        """Like ``run_all``, but the error of one call stands in the place of its result. Raises connection errors."""
        with self._lock:
            replies = self.replies(calls)
            self._raise_first([reply for reply in replies if isinstance(reply, CONNECTION_ERRORS)])
        return [_outcome(call, reply) for call, reply in zip(calls, replies, strict=True)]

    @abstractmethod
    def run_confirmed(self, calls: Sequence[AnyCall], confirmation: Command[int]) -> tuple[list[Any], int]:
        """Sends calls and then a confirmation to every server that they went to; gives the results and its lowest reply."""

    def command(self, *words: Argument) -> Any:
        """One plain command and its raw reply."""
        return self.run(Command(words, _as_it_is))

    @abstractmethod
    def replies(self, calls: Sequence[AnyCall]) -> list[Any]:
        """The raw reply to each call; error replies stand among them as exceptions. Raises connection errors."""

    @abstractmethod
    def scan(self, pattern: str) -> Iterator[bytes]:
        """Every key whose name fits a glob pattern; some may come twice."""

    @abstractmethod
    def reopen(self) -> None:
        """Opens a new connection, with which a failed link is usable again. Raises connection errors."""

    @abstractmethod
    def close(self) -> None:
        """Closes the socket."""

    def _raise_first(self, replies: Sequence[Any]) -> None:
        for reply in replies:
            if isinstance(reply, Exception):
                if isinstance(reply, CONNECTION_ERRORS):
                    # This server can't serve us now, and perhaps never again: who tries again must connect anew.
                    self.failed = True
                    self.close()
                if isinstance(reply, MovedError):
                    raise UsageError("this server is a node of a cluster; write ferryman+cluster:// instead of ferryman://")
                raise reply


class NodeLink(ServerLink):
    """A lazily opened connection to one server."""

    def __init__(self, client: redis.Redis) -> None:
        super().__init__()
        self._client = client
        self._connection: Any = None
        self._pipe: PipelineConnection | None = None
        """Over the connection, while there is one."""
        self._used = 0.0
        """When a reply was read last, on the monotonic clock."""

    def after_fork(self) -> None:
        """In a forked child: the socket belongs to the parent. The child drops it and sends nothing."""
        super().after_fork()
        self._connection = self._pipe = None

    def replies(self, calls: Sequence[AnyCall]) -> list[Any]:
        if not calls:
            return []
        with self._lock:
            replies = self._send([call.words for call in calls])
            self._rerun_unknown(calls, replies)
            return self._explain_all(calls, replies)

    def run_confirmed(self, calls: Sequence[AnyCall], confirmation: Command[int]) -> tuple[list[Any], int]:
        with self._lock:
            *replies, confirmed = self._send([call.words for call in (*calls, confirmation)])
            if self._rerun_unknown(calls, replies):
                (confirmed,) = self._send([confirmation.words])  # it was asked before everything was done
            self._raise_first(self._explain_all([*calls, confirmation], [*replies, confirmed]))
        return [call.parse(reply) for call, reply in zip(calls, replies, strict=True)], confirmation.parse(confirmed)

    def _rerun_unknown(self, calls: Sequence[AnyCall], replies: list[Any]) -> bool:
        """Runs anew, in the place of its reply, what failed because the server did not know a script. Whether there was any."""
        unknown = {at: calls[at] for at, reply in enumerate(replies) if isinstance(reply, NoScriptError)}
        again = {at: call.eval() for at, call in unknown.items() if isinstance(call, Call)}
        if again:
            for at, reply in zip(again, self._send(list(again.values())), strict=True):
                replies[at] = reply
        return bool(again)

    def _explain_all(self, calls: Sequence[AnyCall], replies: Sequence[Any]) -> list[Any]:
        """The replies, with plain words in the place of what the server refuses or can't do."""
        return [
            explain(reply, call.words, self._info, call.script.name if isinstance(call, Call) else None)
            for call, reply in zip(calls, replies, strict=True)
        ]

    def _info(self) -> Any:
        return self._send([("INFO", "server")])[0]

    def scan(self, pattern: str) -> Iterator[bytes]:
        cursor = b"0"
        while True:
            cursor, names = self.command("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
            yield from names
            if cursor == b"0":
                return

    def _send(self, commands: Sequence[tuple[Argument, ...]]) -> list[Any]:
        pipe = self._open()
        try:
            pipe.send_packed(*map(pack, commands))
            replies = pipe.replies(len(commands))
        except BaseException:
            # Even an interrupt leaves replies unread, on the socket or half read: whoever spoke next would get somebody else's
            # answer.
            self.failed = True
            self.close()
            raise
        self._used = time.monotonic()
        return list(map(_without_transient, replies)) if has_errors(replies) else replies

    def _open(self) -> PipelineConnection:
        if self._connection is not None and time.monotonic() - self._used > IDLE and is_stale(self._connection):
            self.close()
        if self._connection is None or self._pipe is None:
            connection = new_connection(self._client)
            try:
                connection.connect()
            except BaseException as error:
                self.failed = True
                if type(error) is redis.exceptions.ResponseError:
                    raise Unavailable(f"the server refuses the connection: {error}; check the database in the URL") from error
                raise
            self._connection, self._pipe = connection, PipelineConnection(connection)
            self._used = time.monotonic()
        return self._pipe

    def reopen(self) -> None:
        with self._lock:
            self.close()
            self.failed = False
            self._open()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.disconnect()
            self._connection = None


def is_stale(connection: Any) -> bool:
    """Whether a connection on which no reply is outstanding should not be used any more."""
    try:
        return bool(connection.can_read(0)) or _is_demoted(connection)
    except CONNECTION_ERRORS:
        return True


def _is_demoted(connection: Any) -> bool:
    """Whether the Sentinels call another server master now.

    A master that was frozen or cut off goes on taking messages for some seconds, and loses them when it is demoted.
    """
    if not isinstance(connection, SentinelManagedConnection):
        return False
    try:
        master = connection.connection_pool.get_master_address()
    except CONNECTION_ERRORS:
        return False  # the Sentinels' silence says nothing about the master
    return bool(master != (connection.host, connection.port))


def _outcome(call: AnyCall, reply: Any) -> Any:
    if isinstance(reply, Exception):
        return reply
    try:
        return call.parse(reply)
    except FerrymanError as error:
        return error


def explain(reply: Any, words: Sequence[Argument], info: Callable[[], Any], script: str | None = None) -> Any:
    """A reply, with plain words in its place if it says that the user may not, or the server can't. ``info`` asks what it is."""
    if not isinstance(reply, redis.exceptions.ResponseError):
        return reply
    return incapable.explained(permission.explained(reply, words, script), info)


def _as_it_is(reply: Any) -> Any:
    """For replies that their caller reads."""
    return reply


def _without_transient(reply: Any) -> Any:
    """A reply, with a connection error in its place if it tells of what passes by itself."""
    return transient(reply) if isinstance(reply, redis.exceptions.ResponseError) else reply
