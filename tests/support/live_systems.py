"""The systems whose keyspaces can be a broker, for tests that tell the same story to each: how a job is put there, and read."""

from __future__ import annotations

from typing import Any

import redis
from attrs import frozen
from celery import Celery
from ferryman.compat.client import ForeignClient
from ferryman.schema.family import family_names, get_family
from ferryman.schema.job import Job
from ferryman.schema.live import ForeignFamily
from ferryman.schema.rule import Finding
from ferryman.testing.keyspaces import KeyspaceReading, dump, read_keyspace

from .servers import Server

PREFIXES = {"kue": "q", "kickq": "kickq", "qless": "ql", "pjq": "pjq", "bee": "bee", "kombu": ""}
"""The originals' own prefixes."""


@frozen
class LiveSystem:
    """One of them."""

    family: str
    prefix: str
    counts_attempts: bool
    tries_again: bool
    """Whether a task that has raised is tried again by itself, while attempts are left."""

    def __str__(self) -> str:
        return self.family

    @property
    def live(self) -> ForeignFamily:
        """Its transitions."""
        made = get_family(self.family).live(self.prefix, "ferryman")
        assert made is not None
        return made

    def url(self, server: Server, **options: Any) -> str:
        """The broker URL of its keyspace on a server."""
        return server.url(0, family=self.family, prefix=self.prefix, **options)

    def client(self, server: Server) -> ForeignClient[ForeignFamily]:
        """A client of ours, which puts and takes without Celery."""
        return ForeignClient(self.live, server.client())

    def put(self, client: ForeignClient[ForeignFamily], queue: str, payload: Any, attempts: int = 1, **options: Any) -> str:
        """Puts a job as the original's producers do: a task named like its queue, with one argument."""
        if self.counts_attempts:
            options = {"attempts": attempts, **options}
        if self.family in WITH_PAUSES:
            options = {"backoff": 0, **options}
        if client.live.carries_messages:
            return self._publish(client, queue, payload)
        if client.live.arguments == "list":
            payload = [payload]
        return client.put(queue, payload, name=queue if client.live.has_names else None, **options)

    def _publish(self, client: ForeignClient[ForeignFamily], queue: str, payload: Any) -> str:
        """Publishes a message as kombu's own transport does. The id is the task's."""
        given = client.server.connection_pool.connection_kwargs
        with Celery(broker=f"redis://{given['host']}:{given['port']}/{given['db']}", set_as_current=False) as app:
            task_id: str = app.send_task(queue, [payload], queue=queue).id
            return task_id

    def task_id(self, job_id: str) -> str:
        """The id that a job of the original's has as a task."""
        return f"{self.prefix}:{job_id}" if self.prefix else job_id

    def reading(self, server: Server) -> KeyspaceReading:
        """The keyspace as its family sees it now."""
        with server.client() as client:
            seconds, micros = client.time()
            return read_keyspace(get_family(self.family), dump(client).values(), self.prefix, seconds * 1000 + micros // 1000)

    def jobs(self, server: Server) -> dict[str, Job]:
        """All jobs by id."""
        return {job.id: job for job in self.reading(server).jobs()}

    def findings(self, server: Server) -> list[Finding]:
        """What an audit says."""
        return self.reading(server).findings()


def side_keys(client: redis.Redis) -> set[bytes]:
    """The side keys that are left of consumers and jobs; those of publishers go by themselves."""
    return {key for key in client.scan_iter("ferryman:live:*", count=1000) if b":publisher:" not in key}


ATTEMPTS = ("kue", "kickq", "qless", "bee")
"""The systems that count attempts, and whose ``put`` is told how many there may be."""
WITH_PAUSES = ("kickq", "bee")
"""Those that pause before each attempt but the first, unless they are told not to."""
FINAL = ("qless", "pjq", "kombu")
"""The systems in which a task that raises is not tried again by itself."""


def systems() -> list[LiveSystem]:
    """All that are there."""
    found = []
    for name in family_names():
        if name in PREFIXES and get_family(name).live(PREFIXES[name], "ferryman") is not None:
            found.append(LiveSystem(name, PREFIXES[name], name in ATTEMPTS, name not in FINAL))
    return found


SYSTEMS = systems()
