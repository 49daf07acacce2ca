"""Two tellers of one story: kombu's own Redis transport, and KombuClient. What they leave in Redis must be the same."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterator
from typing import Any, Protocol

import redis
from attrs import define, field
from ferryman.compat.kombu.client import KombuClient
from ferryman.compat.kombu.keys import Settings
from ferryman.schema.live import ForeignDelivery
from kombu import Connection, Exchange, Queue

from ...support.dumps import dump
from ...support.servers import Server


class Teller(Protocol):
    """What happens in a story. Messages are told by the number of their publish, from 0."""

    def publish(self, queue: str, body: Any, priority: int = 0, headers: dict[str, Any] | None = None) -> None: ...
    def route(self, exchange: str, routing_key: str, body: Any) -> None: ...
    def bind(self, queue: str, exchange: str, routing_key: str, kind: str) -> None: ...
    def take(self, queue: str) -> Any: ...
    def ack(self, taken: Any) -> None: ...
    def reject(self, taken: Any) -> None: ...
    def requeue(self, taken: Any) -> None: ...
    def leave(self) -> None: ...
    def purge(self, queue: str) -> int: ...


def tags() -> Iterator[str]:
    """The delivery tags of both."""
    return (f"tag-{number}" for number in itertools.count())


@define
class Original:
    """kombu itself."""

    server: Server
    prefix: str = ""
    connection: Connection = field(init=False)
    channel: Any = field(init=False)

    def __attrs_post_init__(self) -> None:
        options = {"global_keyprefix": self.prefix}
        self.connection = Connection(f"redis://{self.server.host}:{self.server.port}/0", transport_options=options)
        self.open()

    def open(self) -> None:
        self.channel = self.connection.channel()
        self.channel._next_delivery_tag = tags().__next__

    def publish(self, queue: str, body: Any, priority: int = 0, headers: dict[str, Any] | None = None) -> None:
        bound = Queue(queue, Exchange(queue), queue)
        with self.connection.Producer(self.channel) as producer:
            producer.publish(
                body, exchange="", routing_key=queue, priority=priority, headers=headers, serializer="json", declare=[bound]
            )

    def route(self, exchange: str, routing_key: str, body: Any) -> None:
        with self.connection.Producer(self.channel) as producer:
            producer.publish(body, exchange=exchange, routing_key=routing_key, serializer="json", priority=0)

    def bind(self, queue: str, exchange: str, routing_key: str, kind: str) -> None:
        Queue(queue, Exchange(exchange, kind), routing_key, channel=self.channel).declare()

    def take(self, queue: str) -> Any:
        message = self.channel.basic_get(queue)
        assert message is not None
        return message

    def ack(self, taken: Any) -> None:
        taken.ack()

    def reject(self, taken: Any) -> None:
        taken.reject()

    def requeue(self, taken: Any) -> None:
        taken.requeue()

    def leave(self) -> None:
        self.channel.close()
        self.open()

    def purge(self, queue: str) -> int:
        return int(self.channel.queue_purge(queue))

    def sweep(self) -> None:
        """What every process of kombu does every minute or two."""
        self.channel.qos.restore_visible(num=None, interval=1)


@define
class Ours:
    """The same by KombuClient."""

    server: Server
    prefix: str = ""
    settings: Settings = field(factory=Settings)
    client: KombuClient = field(init=False)
    tags: Iterator[str] = field(factory=tags)

    def __attrs_post_init__(self) -> None:
        self.client = KombuClient(self.server.client(), self.prefix, settings=self.settings)

    def publish(self, queue: str, body: Any, priority: int = 0, headers: dict[str, Any] | None = None) -> None:
        self.client.put(queue, message(body, priority, headers), job_id=next(self.tags))

    def route(self, exchange: str, routing_key: str, body: Any) -> None:
        self.client.put("", message(body, 0, None), job_id=next(self.tags), exchange=exchange, routing_key=routing_key)

    def bind(self, queue: str, exchange: str, routing_key: str, kind: str) -> None:
        self.client.bind(queue, exchange, routing_key, topic=kind == "topic")

    def take(self, queue: str) -> ForeignDelivery:
        (job,) = self.client.take(queue)
        return job

    def ack(self, taken: ForeignDelivery) -> None:
        assert self.client.complete(taken) == "removed"

    def reject(self, taken: ForeignDelivery) -> None:
        assert self.client.reject(taken) == "removed"

    def requeue(self, taken: ForeignDelivery) -> None:
        assert self.client.requeue(taken)

    def leave(self) -> None:
        self.client.close()
        self.client = KombuClient(self.server.client(), self.prefix, settings=self.settings)

    def purge(self, queue: str) -> int:
        return self.client.purge(queue)

    def sweep(self) -> None:
        self.client.run_timers()


def message(body: Any, priority: int, headers: dict[str, Any] | None) -> dict[str, Any]:
    """A message as a producer of kombu hands it to its transport."""
    return {
        "body": base64.b64encode(json.dumps(body).encode("utf-8")).decode("ascii"),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": headers or {},
        "properties": {"delivery_mode": 2, "delivery_info": {}, "priority": priority, "body_encoding": "base64"},
    }


def keyspace(client: redis.Redis) -> dict[str, Any]:
    """All keys but ours beside them; of the index, only the order."""
    found = {key: value for key, value in dump(client).items() if not key.startswith("ferryman:")}
    return {key: [*value] if key.endswith("unacked_index") else value for key, value in found.items()}
