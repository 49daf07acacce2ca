"""A queue of ferryman's own and another, for tests of what an operator does to it, at moments that the test says."""

from __future__ import annotations

from typing import Any, TypeVar

import redis
from ferryman.schema.connection.call import Call, Command, run
from ferryman.schema.job import State
from ferryman.schema.native import codec
from ferryman.schema.native.scripts.publication import Publication
from ferryman.schema.native.scripts.queue_scripts import QueueScripts
from ferryman.schema.native.steering import NativeSteering
from ferryman.schema.steering import Action, BulkStep, JobFilter, Outcome, Value
from ferryman.testing.keyspaces import dump

T = TypeVar("T")

QUEUE, OTHER = "mail", "bulk"
NOW = 1_000_000_000_000
LATER = NOW + 3_600_000
scripts, steering = QueueScripts(), NativeSteering()
keys = scripts.keys(QUEUE)
ANY = JobFilter()


def frame(body: bytes = b'[["ann"],{},{}]', task: str = "send", **headers: Any) -> bytes:
    properties = {"priority": 3, "delivery_info": {"exchange": "", "routing_key": QUEUE}}
    head = {"headers": {"task": task, "id": "t", **headers}, "content-type": "application/json", "content-encoding": "utf-8"}
    return codec.encode(head | {"properties": properties}, body)


class Queue:
    """One queue, at moments that the test says."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client

    @classmethod
    def made(cls, client: redis.Redis) -> Queue:
        """The queue, declared, as the other one is."""
        for queue in (QUEUE, OTHER):
            run(client, scripts.declare(queue, {}, now=NOW))
        return cls(client)

    def send(self, call: Call[T] | Command[T]) -> T:
        return run(self.client, call)

    def publish(self, *jobs: str, due: int | None = None, message: bytes = frame(), now: int = NOW, **options: Any) -> None:
        publications = [Publication(job, message, due_ms=due, **options) for job in jobs]
        self.send(scripts.publish(QUEUE, "p", publications, now=now))

    def bury(self, *jobs: str, now: int = NOW, error: str = "ValueError: no such mailbox") -> None:
        self.publish(*jobs, now=now)
        for job in self.take(len(jobs), now=now):
            self.send(scripts.reject(QUEUE, "ann", job, "rejected", error, now=now))

    def take(self, n: int = 100, now: int = NOW, queue: str = QUEUE, consumer: str = "ann") -> list[str]:
        return [job.id for job in self.send(scripts.take(queue, consumer, n, 30_000, now=now)).jobs]

    def act(self, action: Action, job: str, value: Value = None, now: int = NOW) -> Outcome:
        return self.send(steering.act(action, QUEUE, job, value, now=now))

    def act_on_matching(
        self,
        action: Action,
        state: State,
        chosen: JobFilter = ANY,
        value: Value = None,
        *,
        limit: int = 3,
        now: int = NOW + 1,
        dry_run: bool = False,
        one_server: bool = False,
    ) -> list[BulkStep]:
        """All steps of it."""
        found: list[BulkStep] = []
        cursor: str | None = None
        while not found or cursor is not None:
            call = steering.act_on_matching(
                *(action, QUEUE, state, chosen, value),
                cursor=cursor,
                limit=limit,
                dry_run=dry_run,
                one_server=one_server,
                now=now,
            )
            found.append(self.send(call))
            cursor = found[-1].next
        return found

    def settle(self) -> dict[str, Outcome]:
        mover = steering.settle(QUEUE)
        try:
            calls = next(mover)
            while True:
                calls = mover.send([self.send(call) for call in calls])
        except StopIteration as end:
            outcomes: dict[str, Outcome] = end.value
            return outcomes

    def message(self, job: str, queue: str = QUEUE) -> tuple[dict[str, Any], bytes]:
        return codec.decode(self.client.hget(scripts.keys(queue).job(job), "message"))


def done(steps: list[BulkStep]) -> int:
    return sum(step.done for step in steps)


def everything(client: redis.Redis) -> dict[bytes, Any]:
    return {key: entry.value for key, entry in dump(client).items() if not key.endswith(b":wake")}
