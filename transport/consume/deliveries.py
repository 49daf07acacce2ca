"""PendingDeliveries: the messages that one connection has taken and not yet handed to their consumers. The poller has them."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Container
from typing import Any

from attrs import define
from kombu.transport.base import StdChannel

from ..channel import Channel, Consumer
from ..errors import CONNECTION_ERRORS
from ..message import Message

logger = logging.getLogger("ferryman.transport")

PROPAGATED: tuple[type[Exception], ...] = (*CONNECTION_ERRORS, MemoryError, AssertionError)
"""Errors of a callback that end the event loop; it reports all others and goes on, as kombu's does for file descriptors."""
MESSAGE_ERRORS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors of a Celery worker's handler that mean that its message is malformed. It becomes a dead letter: it would end a worker
that has no event loop, and one that has would hold it for ever."""


@define
class PendingDelivery:
    """A message that has been taken and not yet handed to its consumer."""

    channel: Channel
    consumer: Consumer
    message: Message


class PendingDeliveries(deque[PendingDelivery]):
    """In the order in which they were taken. Used by the thread that drains events."""

    def deliver_one(self) -> None:
        """Hands the first one to its consumer. Raises what that raises, but for the MESSAGE_ERRORS of a Celery worker."""
        delivery = self.popleft()
        try:
            delivery.consumer.callback(delivery.message)
        except MESSAGE_ERRORS as error:
            if not _is_workers(delivery.consumer.callback):
                raise
            logger.exception("a message of queue %r makes no sense to the worker", delivery.consumer.queue)
            delivery.channel.dead_letter(delivery.message, error)

    def deliver_guarded(self, loop: Any) -> None:
        """For event loops: an error of one callback is the loop's to report, as with any other callback of it."""
        callback = self[0].consumer.callback
        try:
            self.deliver_one()
        except PROPAGATED:
            raise
        except Exception as error:  # noqa: BLE001 - it goes to the loop's own handler
            loop.on_callback_error(callback, error)

    def forget(self, channel: StdChannel) -> None:
        """Drops all that was taken for a channel."""
        others = [delivery for delivery in self if delivery.channel is not channel]
        self.clear()
        self.extend(others)

    def drop(self, channel: StdChannel, tags: Container[int]) -> set[int]:
        """Drops those of a channel that have one of these tags. Gives the tags of what it has dropped."""
        dropped = [delivery for delivery in self if delivery.channel is channel and delivery.message.delivery_tag in tags]
        for delivery in dropped:
            self.remove(delivery)
        return {delivery.message.delivery_tag for delivery in dropped}


def _is_workers(callback: Any) -> bool:
    """Whether messages are handed to a Celery worker, which begins tasks, and not to code that sees to errors itself."""
    handler = getattr(getattr(callback, "__self__", None), "on_message", None)
    return str(getattr(handler, "__module__", "")).startswith("celery.worker")
