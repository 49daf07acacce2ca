"""Publishing: one message to every queue that its exchange and routing key name, each exactly once.

A publish that kombu repeats because the connection broke carries the same properties object; it keeps the id of the first
try, under which the server stores it only once. The id is ours alone: an application may publish a received message again
with all its properties, and that is another message.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from kombu.exceptions import OperationalError

from ..schema.call import Call
from ..schema.errors import PublishRefused
from ..schema.native.live import Publication
from ..schema.native.results import Published
from .errors import CONNECTION_ERRORS, BrokerFull, NoRoute
from .message import outgoing

if TYPE_CHECKING:
    from .transport import Transport

FANOUT_MAXLEN = 10_000
"""Messages a broadcast stream keeps, about; a subscriber that is away for longer than these misses the oldest."""

UNCONFIRMED = "_ferryman_unconfirmed"
"""Attribute of kombu's Connection, which outlives the transports of its reconnects: (properties, id) of a failed publish."""


class Outbox(NamedTuple):
    """A message on its way."""

    publication: Publication
    exchange: str
    routing_key: str
    is_repeated: bool = False
    """Whether it was sent before, and no answer came."""


class Publisher:
    """One sequential publisher: a channel."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._client = transport.client
        """kombu's connection. A transport that is closed forgets it."""
        self._begin()

    def _begin(self) -> None:
        self._name = uuid4().hex[:16]
        self._numbers = count(1)
        self._pid = os.getpid()

    def publish(self, message: Mapping[str, Any], exchange: str, routing_key: str) -> None:
        """Stores a message made by ``prepare_message``.

        Raises NoRoute, BrokerFull, UsageError (priority, delay), and connection errors, after which it may be repeated.
        """
        properties = message["properties"]
        prepared = self.prepare(message, exchange, routing_key, self._repeated(properties))
        try:
            self.send([prepared])
        except (*CONNECTION_ERRORS, OperationalError):
            setattr(self._client, UNCONFIRMED, (properties, prepared.publication.id))
            raise

    def prepare(self, message: Mapping[str, Any], exchange: str, routing_key: str, job_id: str | None = None) -> Outbox:
        """The stored form of a message, under a new id unless one is given. Raises UsageError for a wrong priority or delay."""
        properties = message["properties"]
        if self._pid != os.getpid():
            # A forked child would give its messages the ids of its parent's, and the server would take them for repeated ones.
            self._begin()
        is_repeated = job_id is not None
        job_id = job_id or f"{self._name}-{next(self._numbers)}"
        properties["delivery_tag"] = job_id
        info = properties.get("delivery_info") or {}
        properties["delivery_info"] = {**info, "exchange": exchange, "routing_key": routing_key}
        job = outgoing(message)
        publication = Publication(job_id, job.frame, job.priority, job.due_ms, job.ttl_ms)
        return Outbox(publication, exchange, routing_key, is_repeated)

    def send(self, messages: Sequence[Outbox]) -> None:
        """Stores messages, those for one queue in one call. Sending them again, ``is_repeated``, stores none twice.

        Raises NoRoute when one of them has no queue to go to; the others are stored then.
        """
        try:
            self._send(messages)
        except PublishRefused as error:
            raise BrokerFull(str(error)) from error

    def _repeated(self, properties: Mapping[str, Any]) -> str | None:
        """The id under which this very message was published before without an answer."""
        unconfirmed = getattr(self._client, UNCONFIRMED, None)
        if unconfirmed is None:
            return None
        delattr(self._client, UNCONFIRMED)
        job_id: str | None = unconfirmed[1] if unconfirmed[0] is properties else None
        return job_id

    def _send(self, messages: Sequence[Outbox]) -> None:
        transport = self._transport
        direct: dict[str, list[Publication]] = {}
        routed: dict[str, list[Outbox]] = {}
        broadcasts = []
        for message in messages:
            if not message.exchange:
                direct.setdefault(message.routing_key, []).append(message.publication)
            elif transport.routes.is_fanout(message.exchange):
                frame, is_repeated = message.publication.message, message.is_repeated
                broadcasts.append(transport.exchanges.fanout_publish(message.exchange, frame, FANOUT_MAXLEN, is_repeated))
            else:
                routed.setdefault(message.exchange, []).append(message)
        calls = [self._call(queue, publications, create=True) for queue, publications in direct.items()]
        if calls or broadcasts:
            results = transport.wire.run_all([*calls, *broadcasts])
            for queue, result in zip(direct, results, strict=False):
                _check_room(queue, result)
        unwanted = [error for exchange, those in routed.items() for error in self._route(exchange, those)]
        if unwanted:
            raise unwanted[0]

    def _route(self, exchange: str, messages: Sequence[Outbox]) -> list[NoRoute]:
        """Publishes by the cached bindings and checks them in the same round trip, until they are the current ones.

        Gives an error for each message that no queue has taken and that should have gone to one.
        """
        transport = self._transport
        table = transport.routes.table(exchange)
        stored: set[tuple[str, str]] = set()
        while True:
            wanted: dict[str, list[Publication]] = {}
            for message in messages:
                for queue in table.queues(message.routing_key):
                    if (queue, message.publication.id) not in stored:
                        wanted.setdefault(queue, []).append(message.publication)
            calls = [self._call(queue, those, routes=table.routes[queue]) for queue, those in wanted.items()]
            *results, version = transport.wire.run_all([*calls, transport.exchanges.version(exchange)])
            for (queue, those), result in zip(wanted.items(), results, strict=True):
                _check_room(queue, result)
                if result.status == "stored":
                    stored.update((queue, publication.id) for publication in those)
            if version == table.version and not any(result.status == "stale" for result in results):
                break
            table = transport.routes.refresh(exchange)
        if any(result.status == "missing" for result in results):
            transport.routes.forget(exchange)
        arrived = {job_id for _, job_id in stored}
        lost = (message for message in messages if message.publication.id not in arrived)
        errors = (transport.routes.no_route(exchange, message.routing_key) for message in lost)
        return [error for error in errors if error is not None]

    def _call(
        self, queue: str, publications: Sequence[Publication], *, create: bool = False, routes: int | None = None
    ) -> Call[Published]:
        producer = publications[0].id.rpartition("-")[0]
        order = self._transport.settings.priority_order
        return self._transport.live.publish(queue, producer, publications, create=create, routes=routes, priority_order=order)


def _check_room(queue: str, result: Published) -> None:
    """Raises BrokerFull for a queue that is at its x-max-length and rejects what comes more."""
    if result.status == "overflow":
        raise BrokerFull(f"queue {queue!r} is full (x-max-length) and rejects new messages; nothing was stored in it")
