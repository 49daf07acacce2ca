"""Publisher: one message to every queue that its exchange and routing key name, each exactly once.

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
from typing import Any
from uuid import uuid4

from kombu import Connection
from kombu.exceptions import OperationalError

from ...schema.errors import MalformedValue, PublishRefused
from ...schema.native.routing import NO_HEADERS
from ..dead_letters import DeadLetters
from ..errors import CONNECTION_ERRORS, NoRoute
from ..message import content, is_task, publication
from ..session import Session
from .sender import OutgoingMessage, Sender

UNCONFIRMED = "_ferryman_unconfirmed"
"""Attribute of kombu's Connection, which outlives the transports of its reconnects: (properties, id) of a failed publish."""


OnReturn = Callable[[NoRoute, OutgoingMessage], None]
"""Called with each mandatory message that no queue takes. It may raise the error."""


class Publisher:
    """One sequential publisher: a channel."""

    def __init__(self, session: Session, dead_letters: DeadLetters, client: Connection) -> None:
        self._session = session
        self._dead_letters = dead_letters
        self._sender = Sender(session, dead_letters.mark)
        self._client = client
        self._new_producer()

    def _new_producer(self) -> None:
        self._producer = uuid4().hex[:16]
        self._numbers = count(1)
        self._pid = os.getpid()

    def publish(
        self, message: Mapping[str, Any], exchange: str, routing_key: str, on_return: OnReturn, *, is_mandatory: bool = False
    ) -> None:
        """Stores a message made by ``prepare_message``.

        Raises NoRoute, BrokerFull, UsageError (a delay, a dedup key), and connection errors, after which it may be repeated.
        """
        if self._is_retry(message, exchange, routing_key):
            return
        telemetry = self._session.settings.telemetry
        if telemetry is None:
            self._publish(message, exchange, routing_key, on_return, is_mandatory=is_mandatory)
            return
        with telemetry.publishing(message, exchange, routing_key) as traced:
            self._publish(traced, exchange, routing_key, on_return, is_mandatory=is_mandatory)

    def _publish(
        self, message: Mapping[str, Any], exchange: str, routing_key: str, on_return: OnReturn, *, is_mandatory: bool
    ) -> None:
        properties = message["properties"]
        prepared = self.prepare(message, exchange, routing_key, self._repeated(properties), is_mandatory=is_mandatory)
        try:
            self.send([prepared], on_return)
        except (*CONNECTION_ERRORS, OperationalError):
            setattr(self._client, UNCONFIRMED, (properties, prepared.publication.id))
            raise

    def _is_retry(self, message: Mapping[str, Any], exchange: str, routing_key: str) -> bool:
        """Whether a task publishes itself once more that is a job of another system: that is a transition of this job."""
        foreign = self._session.foreign
        if foreign is None or exchange:
            return False
        from ..celery.foreign_retry import take_over

        headers = message.get("headers") or NO_HEADERS
        return take_over(headers, routing_key, lambda: foreign.replacement(routing_key, publication("", message)))

    def prepare(
        self,
        message: Mapping[str, Any],
        exchange: str,
        routing_key: str,
        job_id: str | None = None,
        *,
        is_mandatory: bool = False,
    ) -> OutgoingMessage:
        """The stored form of a message, under a new id unless one is given.

        Raises UsageError for a wrong delay, and for a task that can't be a job of the system that carries the tasks.
        """
        properties = message["properties"]
        if self._pid != os.getpid():
            # A forked child would give its messages the ids of its parent's, and the server would take them for repeated ones.
            self._new_producer()
        is_repeated = job_id is not None
        job_id = job_id or f"{self._producer}-{next(self._numbers)}"
        properties["delivery_tag"] = job_id
        info = properties.get("delivery_info") or {}
        properties["delivery_info"] = {**info, "exchange": exchange, "routing_key": routing_key}
        headers = message.get("headers") or NO_HEADERS
        stored = publication(job_id, message)
        foreign = self._session.foreign
        if foreign is not None and headers.get("task") and (exchange or foreign.is_lasting(routing_key)):
            foreign.messages.check(headers, message.get("content-type"), stored)
        return OutgoingMessage(stored, exchange, routing_key, is_repeated, headers, is_mandatory)

    def send(self, messages: Sequence[OutgoingMessage], on_return: OnReturn) -> None:
        """Stores messages, those for one queue in one call. Sending them again, ``is_repeated``, stores none twice.

        What no queue takes is returned if it is mandatory, and dropped and counted otherwise, as by any AMQP broker. Raises
        NoRoute for a Celery task, and for an exchange that was never declared; the other messages are stored then.
        """
        unroutable = self._sender.send(messages)
        self._dead_letters.forward()
        if unroutable:
            self._return_or_drop(unroutable, on_return)

    def _return_or_drop(self, unroutable: Sequence[OutgoingMessage], on_return: OnReturn) -> None:
        returned = [message for message in unroutable if message.is_mandatory]
        # To nobody: that is nothing unusual for a broadcast, such as a worker's heartbeat.
        others = [each for each in unroutable if not each.is_mandatory and not self._session.routes.is_fanout(each.exchange)]
        refused = [message for message in others if not self._may_be_dropped(message)]
        self._count_unroutable(Counter(message.exchange for message in others if message not in refused))
        for message in returned:
            on_return(self._no_route(message), message)
        if refused:
            raise self._no_route(refused[0])

    def _may_be_dropped(self, message: OutgoingMessage) -> bool:
        if not message.exchange or not self._session.routes.is_known(message.exchange):
            return False
        return not is_task(content(message.publication.id, "", {b"message": message.publication.message}))

    def _count_unroutable(self, dropped: Mapping[str, int]) -> None:
        exchanges = self._session.exchanges
        with contextlib.suppress(PublishRefused, MalformedValue):  # no room for a number, or no place: that harms no message
            self._session.link.run_all([exchanges.count_unroutable(name, number) for name, number in dropped.items()])

    def _no_route(self, message: OutgoingMessage) -> NoRoute:
        return self._session.routes.no_route(message.exchange, message.routing_key)

    def _repeated(self, properties: Mapping[str, Any]) -> str | None:
        """The id under which this very message was published before without an answer."""
        unconfirmed = getattr(self._client, UNCONFIRMED, None)
        if unconfirmed is None:
            return None
        delattr(self._client, UNCONFIRMED)
        job_id: str | None = unconfirmed[1] if unconfirmed[0] is properties else None
        return job_id
