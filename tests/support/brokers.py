"""The same few steps on ``ferryman://`` and on kombu's ``redis://``, for tests that hold one beside the other."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, Protocol

import ferryman.transport  # noqa: F401 - registers the URL schemes
import pytest
from attrs import frozen
from kombu import Connection, Consumer, Producer, Queue
from kombu.message import Message

ROOT = Path(__file__).parents[2]

NEEDS_BATCHES = pytest.mark.skipif(not hasattr(Producer, "batch"), reason="kombu collects batches since 5.7")


class HasPort(Protocol):
    """A server, or a proxy in front of one."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...


@frozen
class Broker:
    """A kind of broker, by its URL scheme."""

    scheme: str

    def __str__(self) -> str:
        return self.scheme

    def url(self, server: HasPort) -> str:
        """The broker's URL on database 0 of a server."""
        return f"{self.scheme}://{server.host}:{server.port}/0"

    def lease(self, seconds: float) -> dict[str, Any]:
        """The transport option that says how long a dead consumer keeps its messages, by this broker's name for it."""
        return {"lease" if self == FERRYMAN else "visibility_timeout": seconds}

    def connection(self, server: HasPort, **options: Any) -> Connection:
        """A new connection with transport options."""
        return Connection(self.url(server), transport_options=options)


FERRYMAN = Broker("ferryman")
REDIS = Broker("redis")


def publish(connection: Connection, bodies: list[Any], queue: str = "q", **options: Any) -> None:
    """Publishes through the default exchange, or through the one that ``options`` name."""
    with connection.channel() as channel:
        for body in bodies:
            Producer(channel).publish(body, **{"routing_key": queue, **options})


def drain(connection: Connection, queues: list[Queue], count: int, seconds: float = 2.0) -> list[Any]:
    """The payloads of at most ``count`` messages, acked, as long as one comes in each so many seconds."""
    payloads: list[Any] = []
    consume(connection, queues, payloads, count, seconds)
    return payloads


def received(connection: Connection, queues: list[Queue], expected: int) -> list[Any]:
    """The payloads, acked, of so many messages, for which it waits patiently, and of what comes in a second more."""
    payloads: list[Any] = []
    consume(connection, queues, payloads, expected, 60.0, for_more=1.0)
    return payloads


def consume(
    connection: Connection, queues: list[Queue], payloads: list[Any], count: int, seconds: float, for_more: float = 0.0
) -> None:
    """As ``drain``, into a list of the caller's, who has it also when there is an error; then ``for_more`` seconds for others."""

    def receive(message: Message) -> None:
        payloads.append(message.payload)
        message.ack()

    with (
        connection.channel() as channel,
        Consumer(channel, queues, on_message=receive),
        contextlib.suppress(TimeoutError),
    ):
        while len(payloads) < count:
            connection.drain_events(timeout=seconds)
        while for_more:
            connection.drain_events(timeout=for_more)


def script(text: str, *arguments: str) -> subprocess.Popen[str]:
    """A Python process of its own."""
    command = [sys.executable, "-c", textwrap.dedent(text), *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str], seconds: float = 120.0) -> str:
    """What the process said; fails when it failed."""
    output, errors = process.communicate(timeout=seconds)
    assert process.returncode == 0, errors
    return output
