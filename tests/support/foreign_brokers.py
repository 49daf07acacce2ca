"""Connections to brokers whose tasks stand in another system's keyspace, and that system's own part beside them."""

from __future__ import annotations

import json
from typing import Any

from attrs import frozen
from ferryman.schema.connection.call import run
from ferryman.schema.live import NewJob
from ferryman.schema.native.scripts.results import Size
from kombu import Connection, Producer

from .brokers import HasPort
from .live_systems import LiveSystem
from .servers import Server

QUEUE = "mail"


@frozen
class ForeignBroker:
    """A system's keyspace as a broker on one server."""

    system: LiveSystem
    server: Server

    def __str__(self) -> str:
        return self.system.family

    def url(self, where: HasPort | None = None, **options: Any) -> str:
        """The broker's URL; ``where``: a proxy in front of the server."""
        at = where or self.server
        query = "&".join(f"{name}={value}" for name, value in {"prefix": self.system.prefix, **options}.items())
        return f"ferryman://{at.host}:{at.port}/0?family={self.system.family}&{query}"

    def connection(self, where: HasPort | None = None, **options: Any) -> Connection:
        """A new connection."""
        return Connection(self.url(where, **options))

    def put(self, value: Any, queue: str = QUEUE, **more: Any) -> str:
        """Puts a job as the original's own producers do. Its id."""
        live = self.system.live
        payload: Any = [value] if live.arguments == "list" else value
        if live.carries_messages:
            payload = message(queue, value)
        job = NewJob(queue, json.dumps(payload).encode(), name=queue if live.has_names else None, **more)
        with self.server.client() as client:
            return run(client, live.put(job))

    def size(self, queue: str = QUEUE) -> Size:
        """How many jobs are where, as the family counts."""
        with self.server.client() as client:
            return run(client, self.system.live.size(queue))


def message(queue: str, value: Any) -> dict[str, Any]:
    """A Celery task as kombu's redis:// has it."""
    return {
        "body": json.dumps([[value], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]),
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": {"lang": "py", "task": queue, "id": f"id-{json.dumps(value)}", "retries": 0},
        "properties": {"body_encoding": "utf-8"},
    }


def publish(connection: Connection, args: list[Any], task: str = QUEUE, queue: str = QUEUE, **more: Any) -> None:
    """Publishes a Celery task."""
    kwargs, headers = more.pop("kwargs", {}), {"task": task, "id": "id-1", "retries": 0, **more.pop("headers", {})}
    with connection.channel() as channel:
        body = [args, kwargs, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]
        Producer(channel).publish(body, **{"routing_key": queue, "headers": headers, "serializer": "json", **more})
