"""Publishing from one connection: message by message, and in kombu 5.7's batches."""

from __future__ import annotations

import time
from collections.abc import Callable

from kombu import Producer

from ..brokers import QUEUE, Broker
from ..server import Server
from .measure import Figure, Measure, ratio_at_least
from .messages import TaskMessage, task_message

BODY = 500
SINGLES = 2000
BATCHED = 5000
WARM_UP = 100


def _rate(broker: Broker, server: Server, send: Callable[[Producer, TaskMessage], int]) -> tuple[float, ...]:
    message = task_message(BODY)
    with broker.connection(server) as connection, connection.Producer() as producer:
        producer.maybe_declare(QUEUE)
        for _ in range(WARM_UP):
            message.publish(producer)
        start = time.perf_counter()
        sent = send(producer, message)
        return (sent / (time.perf_counter() - start),)


def _one_by_one(exchange: str) -> Callable[[Producer, TaskMessage], int]:
    def send(producer: Producer, message: TaskMessage) -> int:
        for _ in range(SINGLES):
            message.publish(producer, exchange)
        return SINGLES

    return send


def _batch(producer: Producer, message: TaskMessage) -> int:
    with producer.batch():
        for _ in range(BATCHED):
            message.publish(producer)
    return BATCHED


def _measure(name: str, figure: Figure, send: Callable[[Producer, TaskMessage], int], *, has_floor: bool) -> Measure:
    return Measure(name, (figure,), lambda broker, server: _rate(broker, server, send), has_floor=has_floor)


PUBLISH = _measure(
    "publish",
    Figure("publish one by one, 500-byte body, named exchange", "msg/s", ratio_at_least(2.0)),
    _one_by_one(QUEUE.exchange.name),
    has_floor=True,
)
DELAY = _measure(
    "delay", Figure("publish one by one, 500-byte body, anonymous exchange", "msg/s"), _one_by_one(""), has_floor=True
)
BATCH = _measure(
    "batch", Figure("publish with Producer.batch, 500-byte body", "msg/s", ratio_at_least(4.0)), _batch, has_floor=False
)
