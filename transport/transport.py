"""Transport: one kombu connection to one Redis server.

kombu makes a new one for each (re)connection. ``driver_type`` is ``redis``, because Celery switches mingle, gossip, events and
prefetch on that word.
"""

from __future__ import annotations

import contextlib
import time
from itertools import count
from typing import Any

import redis
from kombu.transport import base
from kombu.transport.virtual import Management

from ..schema.native.keys import wake
from . import flower
from .celery import pool_flush, scheduled_tasks
from .channel import Channel
from .connection.cluster_link import ClusterLink
from .consume import soon
from .consume.poller import Poller
from .dead_letters import DeadLetters
from .errors import CHANNEL_ERRORS, CONNECTION_ERRORS
from .publish.declarations import EXCHANGE_TYPES
from .session import Session
from .settings import Settings

RECONNECT_TIMEOUT = 1.0
"""Seconds for which ``drain_events`` tries to connect again after a connection error."""
RECONNECT_INTERVAL = 0.2
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
        exchange_type=frozenset(EXCHANGE_TYPES),
        heartbeats=False,
    )

    def __init__(self, client: Any, **_: Any) -> None:
        super().__init__(client)
        flower.install()
        scheduled_tasks.install()
        pool_flush.install()
        soon.install()
        self.session = Session.of(Settings.of(client))
        if self.session.settings.foreign is not None:
            from .celery import foreign_request  # which a broker of ferryman's own queues need not wait for

            foreign_request.install()
        self.dead_letters = DeadLetters(self.session)
        self.channels: list[Channel] = []
        self.poller = Poller(self.session, self.dead_letters, self.channels)
        self._channel_ids = count(1)

    @property
    def broken(self) -> bool:
        """Whether a connection error has happened: kombu will replace this transport."""
        return self.session.is_broken

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
        address = self.session.settings.address
        return address.url() if include_password else address.display().replace("***", mask)

    def establish_connection(self) -> Transport:
        """Connects and greets the server. Raises connection errors; kombu tries again with the same transport then.

        Raises KeyspaceRefused for a keyspace of another system that can't be served; nothing was written then.
        Consumers that a lost connection has left go on with the new one.
        """
        was_broken = self.session.is_broken or self.session.lapsed
        self.session.link.reopen()
        if self.session.foreign is not None:
            self.session.link.run(self.session.foreign.family.look())
        if not isinstance(self.session.link, ClusterLink):
            self._check_writable()
        if was_broken:
            self._resume()
        return self

    def _resume(self) -> None:
        """The connection is back, and kombu has not put another transport in the place of this one. Raises connection errors."""
        self.session.failed = self.session.lapsed = False
        for channel in list(self.channels):
            channel.leases.reconcile()
        self.poller.restart()

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
                time.sleep(min(RECONNECT_INTERVAL, left))
            else:
                return

    def _check_writable(self) -> None:
        """Raises a connection error if the server takes no writes now: a replica, or a master that has lost its replicas.

        kombu pauses between attempts to connect, but not between attempts at what comes after.
        """
        with contextlib.suppress(redis.exceptions.NoPermissionError):  # what the user may not do, its first use says
            self.session.link.command("DEL", wake(self.session.settings.prefix, "nobody"))

    def verify_connection(self, connection: Any) -> bool:
        """Whether the connection still works, as far as is known."""
        return not self.session.is_broken

    def close_connection(self, connection: Transport) -> None:
        """Closes every channel and socket. Exclusive queues go too; if the connection is lost, their time runs out."""
        if self.session.is_inherited:
            return
        if self.session.exclusive:
            self.create_channel(connection).delete_exclusive()
        for channel in list(self.channels):
            channel.close()
        self.poller.close()
        if self.session.foreign is not None:
            from .live.timers import timers

            timers().remove(self.session)
        self.session.link.close()

    def create_channel(self, connection: Transport) -> Channel:
        """A new channel of a connection that is established.

        Of that, and not of this transport: while it was being established, kombu may have gone on to another URL of its list.
        """
        channel = Channel(
            connection,
            next(connection._channel_ids),
            connection.session,
            connection.dead_letters,
            connection.poller,
            connection.poller.fanout,
        )
        connection.channels.append(channel)
        return channel

    def close_channel(self, channel: Channel) -> None:
        """Forgets a channel that has closed itself."""
        if channel in self.channels:
            self.channels.remove(channel)

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Hand out one message. Return without one after ``interrupt``.

        Raises ``socket.timeout`` if no message comes in ``timeout`` seconds, and connection errors.
        Who catches a connection error and calls again goes on where he was, as soon as the server is back.
        """
        with self.session.watching_for_failure():
            if self.session.is_broken or self.session.lapsed:
                self._reconnect(RECONNECT_TIMEOUT if timeout is None else min(timeout, RECONNECT_TIMEOUT))
            self.poller.drain(timeout)

    def interrupt(self) -> None:
        """End ``drain_events``, without a message. From any thread."""
        self.poller.interrupt()

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Lets Celery's event loop drive this connection."""
        self.poller.register(loop)
