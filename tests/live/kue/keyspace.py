"""Keyspaces of kue made by plain writes, as kue 0.11 makes them, and what tests ask of our calls on them."""

from __future__ import annotations

from typing import Any, TypeVar

import redis
from ferryman.compat.kue.live import KueLive
from ferryman.schema.connection.call import Call, Command, run
from ferryman.schema.live import ForeignDelivery

T = TypeVar("T")

NOW = 1_800_000_000_000
LEASE = 10_000
ROOT = "ferryman:live:kue:{q}:"


def at(fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A record with other values."""
    return {name: value for name, value in {**fields, **more}.items() if value is not None}


class World:
    """A server with a kue keyspace under ``q``, and the calls of our consumers."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client
        self.live = KueLive("q")

    def send(self, call: Call[T] | Command[T]) -> T:
        return run(self.client, call)

    def job(self, number: int, state: str = "inactive", queue: str = "mail", **fields: Any) -> str:
        """Writes a sound job as kue would leave it; fields that are None are left out. Gives its member."""
        base = {"type": queue, "data": "{}", "priority": "0", "max_attempts": "1", "state": state}
        times = dict.fromkeys(("created_at", "updated_at", "promote_at"), str(NOW - 1000))
        record = {name: value for name, value in {**base, **times, **fields}.items() if value is not None}
        member = f"{len(str(number)):02d}|{number}"
        priority = float(record.get("priority", 0))
        score = float(record["promote_at"]) if state == "delayed" else priority
        if state == "active":
            score = NOW - 500 + float(record["ttl"]) if "ttl" in record else -abs(priority)
        self.client.hset(f"q:job:{number}", mapping=record)
        self.client.sadd("q:job:types", queue)
        self.client.zadd("q:jobs", {member: priority})
        self.client.zadd(f"q:jobs:{state}", {member: score})
        self.client.zadd(f"q:jobs:{queue}:{state}", {member: priority})
        if state == "inactive":
            self.client.lpush(f"q:{queue}:jobs", "1")
        self.client.set("q:ids", max(number, int(self.client.get("q:ids") or 0)))
        return member

    def take(
        self, n: int = 10, consumer: str = "ann", queue: str = "mail", now: int = NOW, **options: Any
    ) -> list[ForeignDelivery]:
        taken = self.send(self.live.take("mail", consumer, n, LEASE, now=now, **options))
        return [job for job in taken.jobs if isinstance(job, ForeignDelivery)]

    def taken(self, number: int, **fields: Any) -> ForeignDelivery:
        """A job that ann has just taken."""
        self.job(number, **fields)
        (job,) = self.take()
        return job
