"""The brokers that are compared: kombu's ``redis://``, ``ferryman://`` on its own queues and on those of another system, and
kombu's ``memory://`` as the floor.

``memory://`` has no server and no durability: what it costs is what kombu itself costs. Called by ``benchmarks.broker``,
``benchmarks.versions`` and ``benchmarks.chaos``.
"""

from __future__ import annotations

from typing import Any

import ferryman.transport  # registers the URL schemes
from attrs import frozen
from ferryman.schema.connection.address import Address
from ferryman.schema.connection.call import run
from ferryman.schema.live import ForeignFamily
from ferryman.schema.native.scripts.queue_scripts import QueueScripts
from kombu import Connection, Exchange, Queue

from .server import Server

__all__ = ["BROKERS", "FERRYMAN", "MEMORY", "QUEUE", "REDIS", "Broker"]

assert ferryman.transport is not None

QUEUE = Queue("celery", Exchange("celery", "direct"), routing_key="celery")
"""The default queue of Celery with its named exchange."""


@frozen
class Broker:
    """One transport, by its URL scheme. ``family``: the system on whose keyspace it works; empty for its own queues."""

    scheme: str
    family: str = ""

    def url(self, server: Server) -> str:
        """The broker's URL on a server's database 0."""
        if self == MEMORY:
            return "memory://"
        return server.url(self.scheme) + (f"?family={self.family}" if self.family else "")

    def options(self, lease: float | None = None) -> dict[str, Any]:
        """Transport options; ``lease`` is how long (seconds) a dead worker keeps its messages, by this broker's name for it."""
        if lease is None or self == MEMORY:
            return {}
        return {"lease": lease} if self.scheme == FERRYMAN.scheme else {"visibility_timeout": lease}

    def connection(self, server: Server) -> Connection:
        """A new kombu connection."""
        return Connection(self.url(server))

    def unfinished(self, server: Server, queue: str = "celery") -> int:
        """Messages of a queue that wait or that somebody holds unacked."""
        with server.client() as client:
            if self.scheme == FERRYMAN.scheme:
                size = run(client, self._jobs(server).size(queue))
                return size.waiting + size.scheduled + size.held
            waiting = client.llen(queue)
            held = client.hlen("unacked")
            assert isinstance(waiting, int)
            assert isinstance(held, int)
            return waiting + held

    def _jobs(self, server: Server) -> QueueScripts | ForeignFamily:
        address = Address.parse(self.url(server))
        live = address.key_family.live(address.prefix, "ferryman") if self.family else None
        return QueueScripts() if live is None else live


REDIS = Broker("redis")
FERRYMAN = Broker("ferryman")
MEMORY = Broker("memory")
BROKERS = (REDIS, FERRYMAN)
