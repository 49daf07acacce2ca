"""Producing: the half of a channel that kombu's producers talk to. How messages find their queues stands in ``publish.py``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .errors import ConnectionLost, NoRoute
from .message import Message, content
from .publish.batch import PublishBatch
from .publish.declarations import Declarations
from .publish.publisher import OutgoingMessage, Publisher

if TYPE_CHECKING:
    from .transport import Transport


class Producing(Declarations):
    """What kombu calls to publish."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self.closed = False
        self.events: dict[str, set[Callable[..., Any]]] = {"basic_return": set()}
        """kombu's ``Producer(on_return=…)`` adds itself here."""
        self._publisher = Publisher(transport)

    def prepare_message(
        self,
        body: Any,
        priority: int | None = None,
        content_type: str | None = None,
        content_encoding: str | None = None,
        headers: Mapping[str, Any] | None = None,
        properties: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """kombu's parts of a message in one dict. The properties object is kept: it marks a repeated publish."""
        properties = {} if properties is None else properties
        if priority is not None:
            properties["priority"] = priority
        return {
            "body": body,
            "content-type": content_type,
            "content-encoding": content_encoding,
            "headers": headers or {},
            "properties": properties,
        }

    def basic_publish(
        self, message: Mapping[str, Any] | str, exchange: str = "", routing_key: str = "", mandatory: bool = False, **_: Any
    ) -> None:
        """Stores a message, once, in every queue it is routed to; returns when the server has it.

        ``message``: what ``prepare_message`` made, or a mere text, as ``celery amqp`` has it. What no queue takes is dropped and
        counted, unless it is a Celery task. ``mandatory``: it goes to the handlers of ``events["basic_return"]`` instead, and
        is an error without any.
        Raises NoRoute, BrokerFull, UsageError for a header or property that can't be, and connection errors. A closed channel is
        one of those: kombu, which closes it when a declaration finds the connection broken, goes on with a new one then.
        """
        if self.closed:
            raise ConnectionLost("the channel is closed")
        if isinstance(message, str):
            message = self.prepare_message(message, content_type="text/plain", content_encoding="utf-8")
        self._publisher.publish(message, exchange or "", routing_key or "", self._return, is_mandatory=mandatory)

    def _return(self, error: NoRoute, message: OutgoingMessage) -> None:
        """AMQP's ``basic.return``."""
        if not self.events["basic_return"]:
            raise error
        found = content(message.publication.id, "", {b"message": message.publication.message})
        returned = Message(self, 0, found)
        for handler in list(self.events["basic_return"]):
            handler(error, message.exchange, message.routing_key, returned)

    def create_publish_batch(self, max_size: int) -> PublishBatch:
        """What ``Producer.batch()`` collects its messages in."""
        return PublishBatch(self, self._publisher, max_size, self._return)
