"""The server's memory for each message that waits in a queue."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..brokers import QUEUE, Broker
from ..server import Server
from .measure import Figure, Measure, ratio_at_most
from .messages import task_message

COUNT = 2000


def _used(server: Server) -> float:
    with server.client() as client:
        info: Any = client.info("memory")
        return float(info["used_memory"])


def _bytes_each(size: int, broker: Broker, server: Server) -> tuple[float, ...]:
    message = task_message(size)
    with broker.connection(server) as connection, connection.Producer() as producer:
        producer.maybe_declare(QUEUE)
        message.publish(producer)
        before = _used(server)
        for _ in range(COUNT):
            message.publish(producer)
        return ((_used(server) - before) / COUNT,)


MEMORY_500 = Measure(
    "memory-500",
    (Figure("memory a queued message, 500-byte body", "B", ratio_at_most(1.3)),),
    partial(_bytes_each, 500),
    repeats=1,
)
MEMORY_4096 = Measure(
    "memory-4096",
    (Figure("memory a queued message, 4 KiB body", "B", ratio_at_most(0.9)),),
    partial(_bytes_each, 4096),
    repeats=1,
)
