"""A keyspace of bee that is served, with short words for what tests do with it."""

from __future__ import annotations

import json
from typing import Any

import redis
from ferryman.compat.bee.live import BeeLive
from ferryman.schema.connection.call import Call, Command, run
from ferryman.schema.live import NewJob
from ferryman.schema.native.scripts.results import Taken

from ...support.bee import json_bytes

T = 1_800_000_000_000
ANN, BOB = "web-1:2:ann", "web-2:3:bob"


class Keyspace:
    """What tests do with one keyspace of bee."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client
        self.live = BeeLive(hive="app-1:1:client")

    def send(self, call: Call[Any] | Command[Any]) -> Any:
        return run(self.client, call)

    def put(self, jid: str, arguments: Any = (1,), *, now: int = T, **fields: Any) -> str:
        options = {
            name: fields.pop(name) for name in list(fields) if name not in ("priority", "delay_ms", "extra", "publication")
        }
        job = NewJob("mail", json_bytes(arguments), id=jid, options=options, **fields)
        return str(self.send(self.live.put(job, now=now)))

    def take(self, consumer: str = ANN, n: int = 1, *, now: int = T, **options: Any) -> Taken:
        taken: Taken = self.send(self.live.take("mail", consumer, n, 30_000, now=now, **options))
        return taken

    def ids(self, consumer: str = ANN, n: int = 1, *, now: int = T, **options: Any) -> list[str]:
        return [job.id for job in self.take(consumer, n, now=now, **options).jobs]

    def field(self, jid: str, name: str) -> str | None:
        raw = self.client.hget(f"bee:h:jobs:{jid}", name)
        return None if raw is None else str(raw.decode())

    def story(self, jid: str) -> list[str]:
        return [event["event"] for event in json.loads(self.field(jid, "history") or "[]")]
