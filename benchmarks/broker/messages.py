"""The messages that are published: task messages, built by Celery itself, with a body of an exact size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen
from celery import Celery
from kombu import Producer
from kombu.utils.json import dumps

from ..brokers import QUEUE


@frozen
class TaskMessage:
    """The parts that Celery hands to ``Producer.publish``."""

    body: Any
    headers: Mapping[str, Any]
    properties: Mapping[str, Any]

    def publish(self, producer: Producer, exchange: str = QUEUE.exchange.name) -> None:
        """Publishes it once; the empty exchange is the one that Celery's ``delay`` uses."""
        producer.publish(
            self.body,
            exchange=exchange,
            routing_key=QUEUE.routing_key,
            serializer="json",
            headers=dict(self.headers),
            delivery_mode=2,
            **self.properties,
        )


def task_message(body_size: int) -> TaskMessage:
    """A call of a task with one text argument, whose JSON body has ``body_size`` bytes."""
    amqp = Celery("bench", broker="memory://", set_as_current=False).amqp
    task_id = "4f1c1d0e-8c5b-4a5e-9d8e-2b1f0e6a7c11"
    empty = amqp.as_task_v2(task_id, "bench.empty", args=("",), kwargs={})
    text = "x" * (body_size - len(dumps(empty.body)))
    message = amqp.as_task_v2(task_id, "bench.empty", args=(text,), kwargs={}, argsrepr="('…',)")
    assert len(dumps(message.body)) == body_size
    return TaskMessage(message.body, message.headers, message.properties)
