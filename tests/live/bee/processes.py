"""Processes of bee and of ferryman, behind one set of names, so that a story can be told by either."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import redis
from attrs import define, field
from ferryman.compat.bee.live import BeeLive
from ferryman.schema.connection.call import Call, Command, run
from ferryman.schema.live import Failure, NewJob

from ...models.bee_original import OriginalBee, default_hash
from ...support.bee import json_bytes

T = TypeVar("T")

LEASE = 10_000_000_000
"""Longer than any story: bee never forgets a worker that is silent, but for an hour's heartbeats."""


class Process(Protocol):
    """A client and worker. Times are Unix ms; jobs are named by their ids."""

    hive: str

    def put(self, now: int, jid: str, arguments: Sequence[Any], *, queue: str = "mail", **options: Any) -> None: ...

    def take(self, now: int, n: int = 1, *, queue: str = "mail") -> list[str]: ...

    def done(self, now: int, jid: str, result: Any = None, *, queue: str = "mail") -> bool: ...

    def failed(
        self, now: int, jid: str, message: str, *, retry: bool = True, delay: int | None = None, queue: str = "mail"
    ) -> bool: ...

    def heartbeat(self, now: int, *, queue: str = "mail") -> None: ...

    def timers(self, now: int, *, queue: str = "mail") -> None: ...

    def cancel(self, now: int, jid: str) -> None: ...

    def progress(self, now: int, jid: str, percentage: float, *, queue: str = "mail") -> None: ...


@define
class Bee:
    """A process of bee itself, as modelled."""

    client: redis.Redis = field(repr=False)
    hive: str
    hashes: bool = True
    bee: OriginalBee = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.bee = OriginalBee(self.client, self.hive)
        self.bee.connect()

    def put(self, now: int, jid: str, arguments: Sequence[Any], *, queue: str = "mail", **options: Any) -> None:
        tags, parent = options.pop("tags", ()), options.pop("parent", None)
        self.bee.put(now, jid, queue, arguments, options, tags, parent)

    def take(self, now: int, n: int = 1, *, queue: str = "mail") -> list[str]:
        self.bee.heartbeat(now, queue)
        self.bee.expired(now, queue)
        taken: list[str] = []
        while n:
            popped = self.bee.pop(now, queue, n)
            own = [jid for jid in popped if not self._is_duplicate(now, queue, jid)]
            taken += own
            n = len(popped) - len(own)  # their slots are free again at once
        return taken

    def _is_duplicate(self, now: int, queue: str, jid: str) -> bool:
        job = self.bee.load(jid)
        if not self.hashes or job["hash"] is not False:
            return False
        arguments = job["data"]
        return self.bee.hash(now, queue, jid, default_hash(arguments)) is not None

    def done(self, now: int, jid: str, result: Any = None, *, queue: str = "mail") -> bool:
        return self.bee.done(now, queue, jid, result)

    def failed(
        self, now: int, jid: str, message: str, *, retry: bool = True, delay: int | None = None, queue: str = "mail"
    ) -> bool:
        return self.bee.failed(now, queue, jid, message, retry, delay)

    def heartbeat(self, now: int, *, queue: str = "mail") -> None:
        self.bee.heartbeat(now, queue)

    def timers(self, now: int, *, queue: str = "mail") -> None:
        self.bee.expired(now, queue)

    def cancel(self, now: int, jid: str) -> None:
        self.bee.cancel(now, jid)

    def progress(self, now: int, jid: str, percentage: float, *, queue: str = "mail") -> None:
        self.bee.progress(queue, jid, percentage)


@define
class Ferryman:
    """A process of ours."""

    client: redis.Redis = field(repr=False)
    hive: str
    hashes: bool = True
    live: BeeLive = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.live = BeeLive(hive=self.hive, hashes=self.hashes)

    def send(self, call: Call[T] | Command[T]) -> T:
        return run(self.client, call)

    def put(self, now: int, jid: str, arguments: Sequence[Any], *, queue: str = "mail", **options: Any) -> None:
        priority, delay = options.pop("priority", None), options.pop("delay", 0)
        job = NewJob(queue, json_bytes(list(arguments)), priority=priority, delay_ms=delay, id=jid, options=options)
        assert self.send(self.live.put(job, now=now)) == jid

    def take(self, now: int, n: int = 1, *, queue: str = "mail") -> list[str]:
        return [job.id for job in self.send(self.live.take(queue, self.hive, n, LEASE, now=now)).jobs]

    def done(self, now: int, jid: str, result: Any = None, *, queue: str = "mail") -> bool:
        (outcome,) = self.send(self.live.complete(queue, self.hive, [(jid, json_bytes(result))], now=now))
        return outcome == "completed"

    def failed(
        self, now: int, jid: str, message: str, *, retry: bool = True, delay: int | None = None, queue: str = "mail"
    ) -> bool:
        failure = Failure(message, is_final=not retry)
        if delay is None:
            return self.send(self.live.fail(queue, self.hive, jid, failure, now=now)) != "lost"
        return self.send(self.live.retry(queue, self.hive, jid, delay, failure=failure, now=now)) != "lost"

    def heartbeat(self, now: int, *, queue: str = "mail") -> None:
        self.send(self.live.renew(queue, self.hive, LEASE, now=now))

    def timers(self, now: int, *, queue: str = "mail") -> None:
        for call in self.live.timers(now=now):
            self.send(call)

    def cancel(self, now: int, jid: str) -> None:
        self.send(self.live.cancel(jid, now=now))

    def progress(self, now: int, jid: str, percentage: float, *, queue: str = "mail") -> None:
        self.send(self.live.progress(queue, self.hive, jid, percentage, 100, now=now))
