"""Publishing: one message to every queue that its exchange and routing key name, each exactly once.

A publish that kombu repeats because the connection broke carries the same properties object; it keeps the id of the first
try, under which the server stores it only once. The id is ours alone: an application may publish a received message again
with all its properties, and that is another message.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from kombu.exceptions import OperationalError

from ..schema.call import Call
from ..schema.errors import PublishRefused
from ..schema.native.live import Publication
from ..schema.native.results import Published
from .errors import CONNECTION_ERRORS, BrokerFull
from .message import outgoing

if TYPE_CHECKING:
    from .transport import Transport

FANOUT_MAXLEN = 10_000
"""Messages a broadcast stream keeps, about; a subscriber that is away for longer than these misses the oldest."""

UNCONFIRMED = "_ferryman_unconfirmed"
"""Attribute of kombu's Connection, which outlives the transports of its reconnects: (properties, id) of a failed publish."""


class Publisher:
    """One sequential publisher: a channel."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._name = uuid4().hex[:16]
        self._numbers = count(1)

    def publish(self, message: Mapping[str, Any], exchange: str, routing_key: str) -> None:
        """Stores a message made by ``prepare_message``.

        Raises NoRoute, BrokerFull, UsageError (priority, delay), and connection errors, after which it may be repeated.
        """
        properties = message["properties"]
        job_id = self._id(properties)
        properties["delivery_tag"] = job_id
        properties["delivery_info"] = {
            **(properties.get("delivery_info") or {}),
            "exchange": exchange,
            "routing_key": routing_key,
        }
        try:
            self._send(message, exchange, routing_key, job_id)
        except PublishRefused as error:
            raise BrokerFull(str(error)) from error
        except (*CONNECTION_ERRORS, OperationalError):
            setattr(self._transport.client, UNCONFIRMED, (properties, job_id))
            raise

    def _id(self, properties: Mapping[str, Any]) -> str:
        unconfirmed = getattr(self._transport.client, UNCONFIRMED, None)
        if unconfirmed is not None:
            delattr(self._transport.client, UNCONFIRMED)
            if unconfirmed[0] is properties:
                job_id: str = unconfirmed[1]
                return job_id
        return f"{self._name}-{next(self._numbers)}"

    def _send(self, message: Mapping[str, Any], exchange: str, routing_key: str, job_id: str) -> None:
        transport = self._transport
        job = outgoing(message)
        publication = Publication(job_id, job.frame, job.priority, job.due_ms, job.ttl_ms)
        if not exchange:
            transport.wire.run(self._call(routing_key, publication, create=True))
        elif transport.routes.is_fanout(exchange):
            transport.wire.run(transport.exchanges.fanout_publish(exchange, job.frame, FANOUT_MAXLEN))
        else:
            self._route(publication, exchange, routing_key)

    def _route(self, publication: Publication, exchange: str, routing_key: str) -> None:
        """Publishes by the cached bindings and checks them in the same round trip, until they are the current ones."""
        transport = self._transport
        table = transport.routes.table(exchange)
        stored: set[str] = set()
        while True:
            queues = [queue for queue in table.queues(routing_key) if queue not in stored]
            calls = [self._call(queue, publication, routes=table.routes[queue]) for queue in queues]
            *results, version = transport.wire.run_all([*calls, transport.exchanges.version(exchange)])
            stored.update(queue for queue, result in zip(queues, results, strict=True) if result.status == "stored")
            missing = any(result.status == "missing" for result in results)
            if version == table.version and not any(result.status == "stale" for result in results):
                break
            table = transport.routes.refresh(exchange)
        if missing:
            transport.routes.forget(exchange)
        if not stored:
            error = transport.routes.no_route(exchange, routing_key)
            if error:
                raise error

    def _call(self, queue: str, publication: Publication, *, create: bool = False, routes: int | None = None) -> Call[Published]:
        producer = publication.id.rpartition("-")[0]
        order = self._transport.settings.priority_order
        return self._transport.live.publish(queue, producer, [publication], create=create, routes=routes, priority_order=order)
