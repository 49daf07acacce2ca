"""Transport: one kombu connection to one Redis server.

kombu makes a new one for each (re)connection. ``driver_type`` is ``redis``, because Celery switches mingle, gossip, events and
prefetch on that word.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import redis
from kombu.transport import base
from kombu.transport.virtual import Management

from ..schema.native.keys import wake
from ..schema.native.scripts.exchange import Exchanges
from ..schema.native.scripts.queue_scripts import QueueScripts
from . import flower
from .celery import scheduled_tasks
from .channel import Channel, Consumer
from .connection.cluster_link import ClusterLink
from .consume.poller import Poller
from .dead_letters import DeadLetters
from .errors import CHANNEL_ERRORS, CONNECTION_ERRORS
from .publish.routes import Routes
from .settings import Settings

PATIENCE = 1.0
"""Seconds for which ``drain_events`` tries to connect again after a connection error."""
PAUSE = 0.2
"""Seconds between these attempts."""


class Transport(base.Transport):  # type: ignore[misc]
    """``ferryman://`` for kombu and Celery."""

    Management = Management
    can_parse_url = True
    default_port = 6379
    driver_type = "redis"
    driver_name = "redis-py"
    connection_errors = CONNECTION_ERRORS
    channel_errors = CHANNEL_ERRORS
    recoverable_connection_errors = CONNECTION_ERRORS
    recoverable_channel_errors = ()
    implements = base.Transport.implements.extend(
        asynchronous=True,
        batch_publish=True,
        exchange_type=frozenset(["direct", "topic", "fanout", "headers"]),
        heartbeats=False,
    )

    def __init__(self, client: Any, **_: Any) -> None:
        super().__init__(client)
        flower.teach()
        scheduled_tasks.teach()
        self.settings = Settings.of(client)
        self.scripts = QueueScripts(self.settings.prefix)
        self.exchanges = Exchanges(self.settings.prefix)
        self.link = self.settings.links.link()
        self.routes = Routes(self.scripts, self.exchanges, self.link)
        self.letters = DeadLetters(self)
        self.poller = Poller(self)
        self.channels: list[Channel] = []
        self.broadcasts: dict[str, dict[str, int | None]] = {}
        """Queue -> fanout exchange -> life in ms: what this connection has bound."""
        self.exclusive: set[str] = set()
        """The queues that go with this connection."""
        self._channel_ids = count(1)
        self._failed = False
        self._pid = os.getpid()
        self.lapsed = False
        """Whether a lease was lost. The poller makes a connection error of it."""

    @property
    def broken(self) -> bool:
        """Whether a connection error has happened: kombu will replace this transport."""
        return self._failed or self.link.failed

    @property
    def is_inherited(self) -> bool:
        """Whether this is a forked child's copy: its sockets and what its channels hold are the parent's."""
        return self._pid != os.getpid()

    def driver_version(self) -> str:
        """The version of redis-py."""
        version: str = redis.__version__
        return version

    @property
    def default_connection_params(self) -> dict[str, Any]:
        """What kombu assumes where a URL says nothing."""
        return {"port": self.default_port, "hostname": "localhost"}

    def as_uri(self, uri: str, include_password: bool = False, mask: str = "**") -> str:
        """The address for people, or whole for another process."""
        address = self.settings.address
        return address.url() if include_password else address.display().replace("***", mask)

    def establish_connection(self) -> Transport:
        """Connects and greets the server. Raises connection errors; kombu tries again with the same transport then.

        Consumers that a lost connection has left go on with the new one.
        """
        was_broken = self.broken or self.lapsed
        self.link.reopen()
        if not isinstance(self.link, ClusterLink):
            self._check_writable()
        if was_broken:
            self._recover()
        return self

    def _recover(self) -> None:
        """The connection is back, and kombu has not put another transport in the place of this one. Raises connection errors."""
        self._failed = self.lapsed = False
        for channel in list(self.channels):
            channel.take_stock()
        self.poller.begin_again()

    def _reconnect(self, seconds: float) -> None:
        """Tries to connect for so many seconds, so that who repeats what fails does not spin. Raises connection errors."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                self.establish_connection()
            except CONNECTION_ERRORS:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise
                time.sleep(min(PAUSE, left))
            else:
                return

    def _check_writable(self) -> None:
        """Raises a connection error if the server takes no writes now: a replica, or a master that has lost its replicas.

        kombu pauses between attempts to connect, but not between attempts at what comes after.
        """
        with contextlib.suppress(redis.exceptions.NoPermissionError):  # what the user may not do, its first use says
            self.link.command("DEL", wake(self.settings.prefix, "nobody"))

    def verify_connection(self, connection: Any) -> bool:
        """Whether the connection still works, as far as is known."""
        return not self.broken

    def close_connection(self, connection: Transport) -> None:
        """Closes every channel and socket. Exclusive queues go too; if the connection is lost, their time runs out."""
        if self.is_inherited:
            return
        if self.exclusive:
            self.create_channel(connection).delete_exclusive()
        for channel in list(self.channels):
            channel.close()
        self.poller.close()
        self.link.close()

    def create_channel(self, connection: Transport) -> Channel:
        """A new channel of a connection that is established.

        Of that, and not of this transport: while it was being established, kombu may have gone on to another URL of its list.
        """
        channel = Channel(connection)
        connection.channels.append(channel)
        return channel

    def close_channel(self, channel: Channel) -> None:
        """Forgets a channel that has closed itself."""
        if channel in self.channels:
            self.channels.remove(channel)

    def next_channel_id(self) -> int:
        """A number for kombu's debug output."""
        return next(self._channel_ids)

    def consumers_of(self, queue: str) -> list[tuple[Channel, Consumer]]:
        """Everyone on this connection who consumes a queue."""
        return [(channel, consumer) for channel in self.channels for consumer in channel.consumers(queue)]

    def enlist(self, registry: bytes, queue: str) -> None:
        """Lists a queue in a set of them. At maxmemory it has to do without: a full server must still be drained."""
        if not self.link.command("SISMEMBER", registry, queue):
            with contextlib.suppress(redis.exceptions.OutOfMemoryError):
                self.link.command("SADD", registry, queue)

    def flush_acks(self) -> None:
        """Sends the acks of all channels that still wait for company."""
        for channel in list(self.channels):
            channel.acks.flush()

    def lease_lost(self) -> None:
        """What this connection's consumers held is others' now: kombu is to begin anew. From any thread."""
        self.lapsed = True
        self.poller.changed()

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Hands out one message. Raises ``socket.timeout`` if none comes in ``timeout`` seconds, and connection errors.

        Who catches a connection error and calls again goes on where he was, as soon as the server is back.
        """
        with self.watching_for_failure():
            if self.broken or self.lapsed:
                self._reconnect(PATIENCE if timeout is None else min(timeout, PATIENCE))
            self.poller.drain(timeout)

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Lets Celery's event loop drive this connection."""
        self.poller.register(loop)

    @contextlib.contextmanager
    def watching_for_failure(self) -> Iterator[None]:
        """Notes a connection error that passes through the block."""
        try:
            yield
        except TimeoutError:
            raise  # the caller's own time is up
        except CONNECTION_ERRORS:
            self._failed = True
            raise
