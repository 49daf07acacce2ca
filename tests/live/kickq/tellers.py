"""Two ways to tell the same story of a kickq keyspace: by kickq's own commands, and by ferryman's calls."""

from __future__ import annotations

import json
from typing import Any, Protocol

import redis
from attrs import define, field
from ferryman.compat.kickq.client import KickqClient
from ferryman.schema.fact import Entry
from ferryman.schema.live import Failure, ForeignDelivery
from ferryman.testing.keyspaces import dump

from ...models.kickq_original import OriginalKickq, Running, Scheduler, perform

SIDE = b"ferryman:live:"


class Teller(Protocol):
    """Whoever tells a story. A job that is being run is anything."""

    def put(self, queue: str, data: Any, now: int, **options: Any) -> str: ...

    def take(self, queue: str, now: int) -> Any: ...

    def succeed(self, job: Any, now: int) -> None: ...

    def fail(self, job: Any, problem: str, now: int) -> None: ...

    def time_out(self, job: Any, now: int) -> None: ...

    def run_timers(self, now: int) -> None: ...


@define
class OriginalTeller:
    """By kickq's own commands."""

    client: redis.Redis
    kickq: OriginalKickq = field(factory=OriginalKickq)
    scheduler: Scheduler = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.scheduler = Scheduler(self.kickq)

    def put(self, queue: str, data: Any, now: int, **options: Any) -> str:
        return perform(self.client, self.kickq.create(queue, data, now, **options))

    def take(self, queue: str, now: int) -> Running | None:
        return perform(self.client, self.kickq.pop(queue, now))

    def succeed(self, job: Running, now: int) -> None:
        perform(self.client, self.kickq.succeed(job, now))

    def fail(self, job: Running, problem: str, now: int) -> None:
        perform(self.client, self.kickq.fail(job, problem, now))

    def time_out(self, job: Running, now: int) -> None:
        perform(self.client, self.kickq.time_out(job, now))

    def run_timers(self, now: int) -> None:
        perform(self.client, self.scheduler.look(now))
        perform(self.client, self.scheduler.fire(now))


@define
class OurTeller:
    """By ferryman's calls. ``renews``: a run's time is up when its consumer renews its lease, and not when it says so."""

    client: redis.Redis
    namespace: str = "kickq"
    renews: bool = False
    kickq: KickqClient = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.kickq = KickqClient(self.client, self.namespace, consumer="ours", lease_ms=10**12)

    def put(self, queue: str, data: Any, now: int, **options: Any) -> str:
        return self.kickq.put(queue, data, delay_ms=options.pop("delay", 0), now=now, **options)

    def take(self, queue: str, now: int) -> ForeignDelivery | None:
        return next(iter(self.kickq.take(queue, now=now)), None)

    def succeed(self, job: ForeignDelivery, now: int) -> None:
        assert self.kickq.complete(job, now=now) == "completed"

    def fail(self, job: ForeignDelivery, problem: str, now: int) -> None:
        assert self.kickq.fail(job, problem, now=now) in ("scheduled", "failed")

    def time_out(self, job: ForeignDelivery, now: int) -> None:
        if self.renews:
            assert self.kickq.heartbeat(job.queue, now=now)
            assert job.id not in self.kickq.held(job.queue)
        else:
            assert self.kickq.fail(job, Failure("too long", exception="TimeLimitExceeded"), now=now) != "lost"

    def run_timers(self, now: int) -> None:
        self.kickq.run_timers(now=now)


def keys_of(client: redis.Redis) -> dict[bytes, Entry]:
    """The whole database. Documents that say the same in other bytes would differ."""
    return {key: entry for key, entry in dump(client).items() if not key.startswith(SIDE)}


def side_keys(client: redis.Redis) -> list[bytes]:
    """What ferryman keeps beside the keyspace."""
    return [key for key in client.scan_iter(count=1000) if key.startswith(SIDE)]


@define
class Listener:
    """Everything that is published while it listens."""

    client: redis.Redis

    def __enter__(self) -> Listener:
        self._pubsub = self.client.pubsub()
        self._pubsub.psubscribe("*")
        self._pubsub.get_message(timeout=60)
        return self

    def __exit__(self, *_error: object) -> None:
        self._pubsub.close()

    _pubsub: Any = None

    def heard(self) -> list[tuple[str, Any]]:
        """The channels and what was said there, up to now."""
        self.client.publish("that's all", "0")
        found = []
        while (message := self._pubsub.get_message(timeout=60)) is not None and message["channel"] != b"that's all":
            found.append((message["channel"].decode(), json.loads(message["data"])))
        return found
