"""The tests that kombu has for every transport, with ours. Run by ``tests/transport/test_upstream.py`` beside kombu's file."""

from __future__ import annotations

import os
from typing import Any

import ferryman.transport  # noqa: F401 - registers the URL schemes
import pytest
from kombu import Connection

from .common import (
    BaseEventLoop,
    BaseExchangeTypes,
    BaseFailover,
    BaseMessage,
    BasePriority,
    BaseTimeToLive,
    BasicFunctionality,
)

NOBODY = "ferryman://127.0.0.1:1/0"
"""An address at which no server listens."""


class Draining(Connection):
    """One ``drain_events`` hands out all there is, as that of an AMQP client does with what one read has brought."""

    def drain_events(self, **options: Any) -> None:
        while True:
            try:
                super().drain_events(**options)
            except TimeoutError:
                return


@pytest.fixture
def url() -> str:
    return os.environ["FERRYMAN_TEST_BROKER"]


@pytest.fixture
def connection(url: str) -> Connection:
    return Connection(url)


@pytest.fixture
def invalid_connection() -> Connection:
    return Connection(NOBODY)


@pytest.fixture
def failover_connection(url: str) -> Connection:
    # The transport reads its URLs itself, so kombu learns the first one's port from us alone.
    return Connection([NOBODY, url], port=1)


class TestBasicFunctionality(BasicFunctionality):
    """Connections, channels, queues."""


class TestExchangeTypes(BaseExchangeTypes):
    """Direct, fanout, topic, and what no queue wants."""


class TestTimeToLive(BaseTimeToLive):
    """Messages that expire."""


class TestPriority(BasePriority):
    """The lowest number first, as on ``redis://``."""

    PRIORITY_ORDER = "desc"

    @pytest.fixture
    def connection(self, url: str) -> Connection:
        return Draining(url)


class TestDescendingPriority(BasePriority):
    """The highest number first, as on RabbitMQ."""

    @pytest.fixture
    def connection(self, url: str) -> Connection:
        return Draining(url, transport_options={"priority_order": "descending", "prefix": "descending"})


class TestFailover(BaseFailover):
    """A list of brokers."""


class TestMessage(BaseMessage):
    """Acks, rejects, requeues."""


class TestEventLoop(BaseEventLoop):
    """kombu's own loop."""
