"""Session: what the parts of one connection share, from the settings and the link to the server on to whether it still works.

Made by ``Transport`` for itself; its channels, poller, publishers and dead letters get it instead of the transport, of which they
know nothing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import redis
from attrs import define, field

from ..schema.native.scripts.exchange import Exchanges
from ..schema.native.scripts.queue_scripts import QueueScripts
from .connection.link import ServerLink
from .errors import CONNECTION_ERRORS
from .live.foreign_queue import ForeignQueue
from .publish.routes import Routes
from .settings import Settings

if TYPE_CHECKING:
    from ..schema.live import LiveFamily
    from .live.keyspace import ForeignKeyspace


@define(eq=False)
class Session:
    """One connection to one server or cluster."""

    settings: Settings
    link: ServerLink
    scripts: QueueScripts
    exchanges: Exchanges
    routes: Routes
    foreign: ForeignKeyspace | None = None
    """The keyspace of another system that carries the tasks; None: ferryman's own carries all."""
    exclusive: set[str] = field(factory=set)
    """The queues that go with this connection."""
    lapsed: bool = False
    """Whether a lease was lost. The poller makes a connection error of it."""
    failed: bool = False
    """Whether a connection error has passed through ``watching_for_failure``."""
    _pid: int = field(factory=os.getpid)

    @classmethod
    def of(cls, settings: Settings) -> Session:
        """A new session; its link connects when it is first used."""
        scripts, exchanges, link = QueueScripts(settings.prefix), Exchanges(settings.prefix), settings.links.link()
        foreign = None
        if settings.foreign is not None:
            from .live.keyspace import ForeignKeyspace  # which a broker of ferryman's own queues need not wait for

            foreign = ForeignKeyspace(settings.foreign, settings, link, scripts)
        return cls(settings, link, scripts, exchanges, Routes(scripts, exchanges, link), foreign)

    def family_of(self, queue: str) -> LiveFamily:
        """Whose transitions a queue has: those of another system for a ForeignQueue, ferryman's own for any other."""
        if self.foreign is not None and type(queue) is ForeignQueue:
            return self.foreign.family
        return self.scripts

    def sides(self, queue: str) -> list[str]:
        """The queues behind a plain name: two where tasks stand in another system's keyspace. Raises connection errors."""
        return [queue] if self.foreign is None else self.foreign.sides(queue)

    @property
    def is_broken(self) -> bool:
        """Whether a connection error has happened: kombu will replace the transport."""
        return self.failed or self.link.failed

    @property
    def is_inherited(self) -> bool:
        """Whether this is a forked child's copy: its sockets and what its channels hold are the parent's."""
        return self._pid != os.getpid()

    @contextlib.contextmanager
    def watching_for_failure(self) -> Iterator[None]:
        """Notes a connection error that passes through the block."""
        try:
            yield
        except TimeoutError:
            raise  # the caller's own time is up
        except CONNECTION_ERRORS:
            self.failed = True
            raise

    def register(self, registry: bytes, queue: str) -> None:
        """Lists a queue in a set of them. At maxmemory it has to do without: a full server must still be drained."""
        if not self.link.command("SISMEMBER", registry, queue):
            with contextlib.suppress(redis.exceptions.OutOfMemoryError):
                self.link.command("SADD", registry, queue)
