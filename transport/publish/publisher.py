"""Publishing: one message to every queue that its exchange and routing key name, each exactly once.

A publish that kombu repeats because the connection broke carries the same properties object; it keeps the id of the first
try, under which the server stores it only once. The id is ours alone: an application may publish a received message again
with all its properties, and that is another message.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from kombu.exceptions import OperationalError

from ...schema.connection.call import Call
from ...schema.errors import MalformedValue, PublishRefused
from ...schema.native import keys
from ...schema.native.routing import NO_HEADERS
from ...schema.native.scripts.queue_scripts import Publication
from ...schema.native.scripts.results import Published
from ..errors import CONNECTION_ERRORS, BrokerFull, NoRoute
from ..message import content, is_task, publication
from . import revocation
from .durability import Durability

if TYPE_CHECKING:
    from ..connection.link import AnyCall
    from ..transport import Transport

FANOUT_MAXLEN = 10_000
"""Messages a broadcast stream keeps, about; a subscriber that is away for longer than these misses the oldest."""

UNCONFIRMED = "_ferryman_unconfirmed"
"""Attribute of kombu's Connection, which outlives the transports of its reconnects: (properties, id) of a failed publish."""


class OutgoingMessage(NamedTuple):
    """A message on its way."""

    publication: Publication
    exchange: str
    routing_key: str
    is_repeated: bool = False
    """Whether it was sent before, and no answer came."""
    headers: Mapping[str, Any] = NO_HEADERS
    """For exchanges that route by them."""
    is_mandatory: bool = False
    """Whether it comes back if no queue takes it."""


OnReturn = Callable[[NoRoute, OutgoingMessage], None]
"""Told of each mandatory message that no queue takes. It may raise the error."""


class QueueBatch(NamedTuple):
    """Messages for one queue."""

    queue: str
    publications: Sequence[Publication]
    routes: int | None = None
    """The version of the queue's routes by which they were found."""


MOST_LIMITED = 10_000
"""Queues that a publisher remembers as having limits."""


class Publisher:
    """One sequential publisher: a channel."""

    creates = True
    """Whether a message to the default exchange makes a queue that was never declared, as on ``redis://``."""
    is_ordered = False
    """Whether its numbers are those of ``QueueScripts.publish(ordered=True)``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._durability = Durability(transport.settings.durability, transport.settings.reply_timeout)
        self._client = transport.client
        """kombu's connection. A transport that is closed forgets it."""
        self._limited: set[str] = set()
        """Queues that the short script does not serve."""
        self._begin()

    def _begin(self) -> None:
        self._name = uuid4().hex[:16]
        self._numbers = count(1)
        self._pid = os.getpid()

    def publish(
        self, message: Mapping[str, Any], exchange: str, routing_key: str, on_return: OnReturn, *, is_mandatory: bool = False
    ) -> None:
        """Stores a message made by ``prepare_message``.

        Raises NoRoute, BrokerFull, UsageError (a delay, a dedup key), and connection errors, after which it may be repeated.
        """
        properties = message["properties"]
        prepared = self.prepare(message, exchange, routing_key, self._repeated(properties), is_mandatory=is_mandatory)
        try:
            self.send([prepared], on_return)
        except (*CONNECTION_ERRORS, OperationalError):
            setattr(self._client, UNCONFIRMED, (properties, prepared.publication.id))
            raise
        if exchange.endswith(revocation.PIDBOX) and self._transport.settings.remove_revoked:
            revocation.heard(self._transport, message)

    def prepare(
        self,
        message: Mapping[str, Any],
        exchange: str,
        routing_key: str,
        job_id: str | None = None,
        *,
        is_mandatory: bool = False,
    ) -> OutgoingMessage:
        """The stored form of a message, under a new id unless one is given. Raises UsageError for a wrong delay."""
        properties = message["properties"]
        if self._pid != os.getpid():
            # A forked child would give its messages the ids of its parent's, and the server would take them for repeated ones.
            self._begin()
        is_repeated = job_id is not None
        job_id = job_id or f"{self._name}-{next(self._numbers)}"
        properties["delivery_tag"] = job_id
        info = properties.get("delivery_info") or {}
        properties["delivery_info"] = {**info, "exchange": exchange, "routing_key": routing_key}
        headers = message.get("headers") or NO_HEADERS
        return OutgoingMessage(publication(job_id, message), exchange, routing_key, is_repeated, headers, is_mandatory)

    def send(self, messages: Sequence[OutgoingMessage], on_return: OnReturn) -> None:
        """Stores messages, those for one queue in one call. Sending them again, ``is_repeated``, stores none twice.

        What no queue takes is returned if it is mandatory, and dropped and counted otherwise, as by any AMQP broker. Raises
        NoRoute for a Celery task, and for an exchange that was never declared; the other messages are stored then.
        """
        unwanted = self.deliver(messages)
        self._transport.letters.forward()
        if unwanted:
            self._return_or_drop(unwanted, on_return)

    def _return_or_drop(self, unwanted: Sequence[OutgoingMessage], on_return: OnReturn) -> None:
        returned = [message for message in unwanted if message.is_mandatory]
        # To nobody: that is nothing unusual for a broadcast, such as a worker's heartbeat.
        others = [each for each in unwanted if not each.is_mandatory and not self._transport.routes.is_fanout(each.exchange)]
        refused = [message for message in others if not self._may_be_dropped(message)]
        self._count_unroutable(Counter(message.exchange for message in others if message not in refused))
        for message in returned:
            on_return(self._no_route(message), message)
        if refused:
            raise self._no_route(refused[0])

    def _may_be_dropped(self, message: OutgoingMessage) -> bool:
        if not message.exchange or not self._transport.routes.is_known(message.exchange):
            return False
        return not is_task(content(message.publication.id, "", {b"message": message.publication.message}))

    def _count_unroutable(self, dropped: Mapping[str, int]) -> None:
        exchanges = self._transport.exchanges
        with contextlib.suppress(PublishRefused, MalformedValue):  # no room for a number, or no place: that harms no message
            self._transport.link.run_all([exchanges.count_unroutable(name, number) for name, number in dropped.items()])

    def _no_route(self, message: OutgoingMessage) -> NoRoute:
        return self._transport.routes.no_route(message.exchange, message.routing_key)

    def deliver(self, messages: Sequence[OutgoingMessage]) -> list[OutgoingMessage]:
        """Like ``send``, but gives the messages that no queue has taken, nor one of an alternate exchange."""
        try:
            return [message for message in self._deliver(messages) if not self._divert(message)]
        except PublishRefused as error:
            raise BrokerFull(str(error)) from error

    def _divert(self, message: OutgoingMessage) -> bool:
        """Offers a message to the alternate exchanges of its own, and then, if that is direct, to ``deadletter_queue``.

        Whether a queue has taken it.
        """
        if not message.exchange:
            return False
        routes, grave = self._transport.routes, self._transport.settings.deadletter_queue
        alternates = routes.alternates(message.exchange)
        if any(not self._deliver([message._replace(exchange=exchange)]) for exchange in alternates):
            return True
        if not grave or routes.type_of(message.exchange) != "direct":
            return False
        return not self._deliver([message._replace(exchange="", routing_key=grave)])

    def _repeated(self, properties: Mapping[str, Any]) -> str | None:
        """The id under which this very message was published before without an answer."""
        unconfirmed = getattr(self._client, UNCONFIRMED, None)
        if unconfirmed is None:
            return None
        delattr(self._client, UNCONFIRMED)
        job_id: str | None = unconfirmed[1] if unconfirmed[0] is properties else None
        return job_id

    def _deliver(self, messages: Sequence[OutgoingMessage]) -> list[OutgoingMessage]:
        transport = self._transport
        direct: dict[str, list[OutgoingMessage]] = {}
        routed: dict[str, list[OutgoingMessage]] = {}
        broadcasts: list[OutgoingMessage] = []
        for message in messages:
            if not message.exchange:
                direct.setdefault(message.routing_key, []).append(message)
            elif transport.routes.is_fanout(message.exchange):
                broadcasts.append(message)
            else:
                routed.setdefault(message.exchange, []).append(message)
        unwanted = self._send(direct, broadcasts) if direct or broadcasts else []
        for exchange, those in routed.items():
            unwanted += self._route(exchange, those)
        return unwanted

    def _send(self, direct: Mapping[str, list[OutgoingMessage]], broadcasts: Sequence[OutgoingMessage]) -> list[OutgoingMessage]:
        """Publishes what needs no routes: to queues by name, and to streams. Gives the messages that nobody has taken."""
        batches = [QueueBatch(queue, [each.publication for each in those]) for queue, those in direct.items()]
        results, stream_ids = self._send_batches(batches, [self._broadcast(message) for message in broadcasts])
        unwanted = []
        for (queue, those), result in zip(direct.items(), results, strict=True):
            if not self._is_stored(queue, result):
                unwanted += those
        return unwanted + [message for message, stream_id in zip(broadcasts, stream_ids, strict=True) if not stream_id]

    def _broadcast(self, message: OutgoingMessage) -> Call[bytes]:
        frame, is_repeated = message.publication.message, message.is_repeated
        return self._transport.exchanges.fanout_publish(message.exchange, frame, FANOUT_MAXLEN, is_repeated)

    def _route(self, exchange: str, messages: Sequence[OutgoingMessage]) -> list[OutgoingMessage]:
        """Publishes by the cached bindings and checks them in the same round trip, until they are the current ones.

        Gives the messages that no queue has taken.
        """
        transport = self._transport
        table = transport.routes.table(exchange)
        stored: set[tuple[str, str]] = set()
        while True:
            wanted: dict[str, list[Publication]] = {}
            for message in messages:
                for queue in table.queues(message.routing_key, message.headers):
                    if (queue, message.publication.id) not in stored:
                        wanted.setdefault(queue, []).append(message.publication)
            batches = [QueueBatch(queue, those, table.routes[queue]) for queue, those in wanted.items()]
            results, (version,) = self._send_batches(batches, [transport.exchanges.version(exchange)])
            for (queue, those), result in zip(wanted.items(), results, strict=True):
                if self._is_stored(queue, result):
                    stored.update((queue, publication.id) for publication in those)
            if version == table.version and not any(result.status == "stale" for result in results):
                break
            table = transport.routes.refresh(exchange)
        if any(result.status == "missing" for result in results):
            transport.routes.forget(exchange)
        arrived = {job_id for _, job_id in stored}
        return [message for message in messages if message.publication.id not in arrived]

    def _send_batches(self, batches: Sequence[QueueBatch], others: Sequence[AnyCall]) -> tuple[list[Published], list[Any]]:
        """Sends batches and other calls in one round trip, and another for what the short script leaves to the long one."""
        calls = [self._short(batch) or self._long(batch) for batch in batches]
        results = self._durability.run_all(self._transport.link, [*calls, *others])
        published, answers = results[: len(calls)], results[len(calls) :]
        left = [at for at, result in enumerate(published) if result.status == "other"]
        if left:
            rest = [self._long(batches[at]) for at in left]
            for at, result in zip(left, self._durability.run_all(self._transport.link, rest), strict=True):
                published[at] = result
                is_limited = result.status in ("stored", "overflow") and all(result.fresh) and not result.created
                if is_limited and len(self._limited) < MOST_LIMITED:
                    self._limited.add(batches[at].queue)
        return published, answers

    def _short(self, batch: QueueBatch) -> Call[Published] | None:
        """The script for one plain message and a queue without limits; None where that will not do."""
        queue, publications, routes = batch
        if self.is_ordered or len(publications) > 1 or queue in self._limited or self._durability.needed:
            return None  # nobody is to wait for the confirmation of what the short script may not have stored
        return self._transport.scripts.publish_one(queue, _producer(publications), publications[0], routes=routes)

    def _long(self, batch: QueueBatch) -> Call[Published]:
        queue, publications, routes = batch
        return self._transport.scripts.publish(
            queue,
            _producer(publications),
            publications,
            create=self.creates and routes is None,
            routes=routes,
            priority_order=self._transport.settings.priority_order,
            ordered=self.is_ordered,
        )

    def _is_stored(self, queue: str, result: Published) -> bool:
        """Whether the queue has the messages. Raises BrokerFull for one that is at its greatest length and rejects more."""
        if result.status == "overflow":
            raise BrokerFull(f"queue {queue!r} is full (x-max-length) and rejects new messages; nothing was stored in it")
        if result.created:
            self._transport.enlist(keys.queues(self._transport.settings.prefix), queue)
        if result.has_dead_letters:
            self._transport.letters.mark(queue)
        if result.more:
            self._renew_all(queue)
        return result.status == "stored"

    def _renew_all(self, queue: str) -> None:
        """Keeps the jobs of a temporary queue, of which one call renews a part: perhaps nobody else comes before they expire."""
        while self._transport.link.run(self._transport.scripts.advance(queue)).more:
            pass


def _producer(publications: Sequence[Publication]) -> str:
    """Whose numbers their ids are."""
    return publications[0].id.rpartition("-")[0]


class Forwarder(Publisher):
    """Publishes dead letters, under numbers that their queues have given them."""

    creates = False
    is_ordered = True
