"""Batches: what ``Producer.batch()`` collects, sent with one call for each queue.

A batch that broke with its connection is sent again over a new one, under the same ids, so that it is stored exactly once.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from typing import Any

from kombu.transport.base import StdChannel

from ..errors import CONNECTION_ERRORS, BatchPublishError
from ..session import Session
from .publisher import OnReturn, Publisher
from .sender import OutgoingMessage

logger = logging.getLogger("ferryman.transport")

MAX_MESSAGES = 1000
"""Messages in one flush at most, whatever the caller allows: a script is a stop of the server."""
MAX_BYTES = 4 << 20
"""Bytes of messages, after which they are flushed for the same reason."""


class PublishBatch:
    """kombu's contract of a batch: ``publish``, ``flush``, ``discard``, ``close`` and ``channel``."""

    def __init__(self, channel: StdChannel, session: Session, publisher: Publisher, max_size: int, on_return: OnReturn) -> None:
        self.channel = channel
        self._session = session
        self._publisher = publisher
        self._on_return = on_return
        self._max_size = min(max_size, MAX_MESSAGES)
        self._messages: list[OutgoingMessage] = []
        self._bytes = 0

    def publish(
        self, message: Mapping[str, Any], exchange: str = "", routing_key: str = "", mandatory: bool = False, **_: Any
    ) -> None:
        """Adds a message; sends what has gathered when the batch is full."""
        telemetry = self._session.settings.telemetry
        with (
            contextlib.nullcontext(message)
            if telemetry is None
            else telemetry.publishing(message, exchange, routing_key) as traced
        ):
            prepared = self._publisher.prepare(traced, exchange or "", routing_key or "", is_mandatory=mandatory)
        self._messages.append(prepared)
        self._bytes += len(prepared.publication.message)
        if len(self._messages) >= self._max_size or self._bytes >= MAX_BYTES:
            self.flush()

    def flush(self) -> None:
        """Stores what has gathered. Raises BatchPublishError when the server can't be reached, NoRoute, BrokerFull."""
        messages = self._messages
        self.discard()
        if not messages:
            return
        try:
            self._publisher.send(messages, self._on_return)
        except CONNECTION_ERRORS as error:
            logger.info("connection lost while publishing a batch, sending it again: %s", error)
            try:
                self._session.link.reopen()
                self._publisher.send([message._replace(is_repeated=True) for message in messages], self._on_return)
            except CONNECTION_ERRORS as again:
                raise BatchPublishError(f"a batch of {len(messages)} messages may or may not be stored: {again}") from again

    def discard(self) -> None:
        """Forgets what has gathered."""
        self._messages, self._bytes = [], 0

    def close(self) -> None:
        """Nothing is left to do."""
