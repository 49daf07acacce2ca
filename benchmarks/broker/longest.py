"""The longest command of the server, as SLOWLOG tells it, while full queues go through each operation.

A queue of 100,000 jobs of 500 bytes, one of 500 MB in messages of 1 MB, and one of 480 MB in messages of 12 MB; for each
operation the longest command that any of them has caused. Whatever has to be called again until it is done is
called as the transport does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

import redis
from attrs import define, field, frozen
from ferryman.migrations.local import LocalEngine
from ferryman.migrations.plan import Plan
from ferryman.schema.connection.address import Address
from ferryman.schema.connection.call import Call, Command, run
from ferryman.schema.native.scripts.exchange import Exchanges
from ferryman.schema.native.scripts.publication import Publication
from ferryman.schema.native.scripts.queue_scripts import MAX_PER_CALL, QueueScripts
from ferryman.schema.native.scripts.results import Delivery

from ..brokers import Broker
from ..server import Server
from .measure import Figure, Measure, at_most

T = TypeVar("T")

QUEUE = "full"
SHORT, LONG = 1, 3_600_000
"""Leases, ms."""
PREFETCH = 100
BATCH_BYTES = 4 << 20


@frozen
class Filling:
    """What a queue is filled with: so many jobs with bodies of so many bytes."""

    jobs: int
    size: int


FILLINGS = (Filling(100_000, 500), Filling(500, 1 << 20), Filling(40, 12 << 20))


@define
class LongQueue:
    """One queue, and a short way to do things to it until they are done."""

    client: redis.Redis
    filling: Filling
    scripts: QueueScripts = field(factory=QueueScripts)
    exchanges: Exchanges = field(factory=Exchanges)
    number: int = 0

    def send(self, call: Call[T] | Command[T]) -> T:
        return run(self.client, call)

    def declare(self, arguments: dict[str, Any] | None = None) -> None:
        while self.send(self.scripts.declare(QUEUE, arguments or {})).more:
            pass

    def fill(self, **fields: Any) -> None:
        """Publishes the filling, as ``Producer.batch`` does."""
        message = b'{"headers":{"id":"4f1c1d0e"}}\n"%b"' % (b"x" * (self.filling.size - 2))
        each = max(1, min(MAX_PER_CALL, BATCH_BYTES // len(message)))
        numbers = iter(range(self.filling.jobs))
        while batch := list(islice(numbers, each)):
            self.send(self.scripts.publish(QUEUE, "p", [self.publication(message, **fields) for _ in batch], create=True))

    def publication(self, message: bytes, **fields: Any) -> Publication:
        self.number += 1
        return Publication(f"p-{self.number}", message, **fields)

    def deliveries(self, consumer: str, lease: int = LONG) -> Iterator[Sequence[Delivery]]:
        """What a consumer takes, until nothing is left."""
        while True:
            taken = self.send(self.scripts.take(QUEUE, consumer, PREFETCH, lease))
            for job in taken.jobs:
                if job.is_left_out:
                    self.send(self.scripts.message(QUEUE, job.id))
            if taken.jobs:
                yield taken.jobs
            elif not taken.more:
                return

    def take(self, consumer: str, lease: int = LONG) -> None:
        for _ in self.deliveries(consumer, lease):
            pass

    def repeat(self, step: Callable[[], bool]) -> None:
        while step():
            pass

    def advance(self, now: int | None = None) -> None:
        """Promotes and reclaims what there is."""

        def step() -> bool:
            advanced = self.send(self.scripts.advance(QUEUE, now=now))
            return MAX_PER_CALL in (advanced.promoted, advanced.reclaimed) or advanced.more

        self.repeat(step)

    def dead(self) -> Iterator[list[str]]:
        while dead_letters := self.send(self.scripts.dead_letters(QUEUE, limit=100)):
            yield [dead_letter.job.id for dead_letter in dead_letters]

    def delete(self) -> None:
        self.repeat(lambda: self.send(self.scripts.delete(QUEUE)).more)

    def forward_dead_letters(self) -> None:
        """Hands all dead letters on."""
        while (outbox := self.send(self.scripts.outbox(QUEUE))) is not None and outbox.dead_letters:
            self.send(self.scripts.forwarded(QUEUE, [(dead_letter, True) for dead_letter in outbox.dead_letters]))

    def find(self) -> None:
        """Looks for a task that is not there."""
        seen, more = 0, True
        while more:
            found = self.send(self.scripts.find(QUEUE, ["no task"], seen=seen))
            seen, more = seen + found.scanned, found.more

    def add(self, command: Callable[[Any, str], object], names: Sequence[str]) -> None:
        """Sends a plain command for each name."""
        for first in range(0, len(names), MAX_PER_CALL):
            with self.client.pipeline(transaction=False) as pipe:
                for name in names[first : first + MAX_PER_CALL]:
                    command(pipe, name)
                pipe.execute()

    def migrate(self, server: Server, family: str) -> None:
        """Carries the queue to another system, in another database. Raises RuntimeError if something stays."""
        source, target = Address.parse(server.url("ferryman")), Address.parse(server.url("ferryman", 1) + f"?family={family}")
        plan = Plan.between(source, target, 0, lossy=True)
        summary = LocalEngine().migrate(source, target, plan, lambda _: None)
        if summary.written != self.filling.jobs:
            raise RuntimeError(f"{summary.written} of {self.filling.jobs} jobs went to {family}: {summary.refused}")
        with server.client(1) as client:
            client.flushdb(asynchronous=True)


def _operations(queue: LongQueue, server: Server) -> Iterator[str]:
    """Does one operation after the other, and names each when it is done."""
    scripts, now = queue.scripts, 10**13
    queue.declare()
    queue.fill()
    yield "publish"
    for family in ("kombu", "kickq", "pjq"):
        queue.migrate(server, family)
        yield f"migrate to {family}"
    queue.find()
    yield "revoke"
    queue.take("ann")
    yield "take"
    queue.repeat(lambda: queue.send(scripts.forget(QUEUE, "ann")) == MAX_PER_CALL)
    yield "release"
    queue.take("bob", SHORT)
    queue.advance()
    yield "reclaim"
    queue.declare({"x-max-length-bytes": 1 << 40})
    queue.advance()
    yield "redeclare with x-max-length-bytes"
    queue.declare({"x-max-length": 1})
    queue.repeat(lambda: _publish_one(queue) > 1)
    yield "redeclare with x-max-length"
    queue.declare({"x-max-length": 1 << 40})
    for ids in queue.dead():
        queue.send(scripts.revive(QUEUE, ids))
    yield "requeue dead letters"
    for jobs in queue.deliveries("cyd"):
        queue.send(scripts.ack(QUEUE, "cyd", [job.id for job in jobs]))
    yield "ack"
    queue.fill(due_ms=now)
    queue.advance(now)
    yield "promote"
    queue.repeat(lambda: queue.send(scripts.purge(QUEUE)).more)
    yield "purge"
    queue.fill(ttl_ms=1)
    queue.take("dan")
    yield "expire"
    queue.delete()
    yield "delete"
    queue.declare({"x-dead-letter-exchange": "graves"})
    queue.fill(ttl_ms=1)
    queue.forward_dead_letters()
    yield "dead letters to an exchange"
    queue.delete()
    queue.declare({"x-expires": LONG})
    queue.fill()
    for moment in (now, now + LONG):
        queue.advance(moment)
    yield "keep a temporary queue"
    queue.declare({"x-max-priority": 9})
    yield "make a temporary queue last"
    queue.delete()
    yield from _of_names(queue)


def _of_names(queue: LongQueue) -> Iterator[str]:
    """What is about many names instead of many messages: as many of each as the filling has jobs."""
    scripts, exchanges, client = queue.scripts, queue.exchanges, queue.client
    names = [f"queue-{number:06d}" for number in range(queue.filling.jobs)]
    queue.add(lambda pipe, name: pipe.hset("ferryman:exchange:e", f'["{name}","{name}",""]', ""), names)
    found = queue.send(exchanges.bindings("e"))
    while found.rest:
        found = found.with_part(queue.send(exchanges.bindings("e", found.rest)))
    for first in range(0, len(names), MAX_PER_CALL):
        queue.send(exchanges.unbind_all("e", found.bindings[first : first + MAX_PER_CALL]))
    yield "bindings of an exchange"
    queue.add(lambda pipe, name: pipe.hset("ferryman:fanout:{e}:cursors", name, "0-1"), names)
    queue.send(exchanges.fanout_bind("e", "last"))
    queue.send(exchanges.fanout_publish("e", b"{}\n", 100))
    queue.send(exchanges.fanout_delete("e"))
    yield "broadcast"
    for first in range(0, len(names), MAX_PER_CALL):
        queue.send(scripts.poll(names[first : first + MAX_PER_CALL], "ann", LONG))
    yield "look at quiet queues"
    queue.declare()
    keys = scripts.keys(QUEUE)
    client.hset(keys.job("last"), "payload", "1")
    client.sadd(keys.blocked, "last")
    queue.add(lambda pipe, name: pipe.sadd(keys.needs("last"), name).sadd(keys.unblocks(name), "last"), names)
    queue.repeat(lambda: queue.send(scripts.remove(QUEUE, "last")) == "more")
    yield "remove a blocked job"
    queue.delete()


def _publish_one(queue: LongQueue) -> int:
    queue.send(queue.scripts.publish(QUEUE, "p", [queue.publication(b"{}\n")]))
    return queue.send(queue.scripts.size(QUEUE)).waiting


def _longest(server: Server) -> dict[str, float]:
    """The longest command of each operation, ms."""
    longest: dict[str, float] = {}
    with server.client() as client:
        client.config_set("slowlog-log-slower-than", 2000)
        client.config_set("slowlog-max-len", 100_000)
        for filling in FILLINGS:
            client.flushall()
            client.slowlog_reset()
            for operation in _operations(LongQueue(client, filling), server):
                slow: Any = client.slowlog_get(-1)
                here = [entry["duration"] / 1000 for entry in slow if not entry["command"].startswith(b"SLOWLOG")]
                longest[operation] = max([longest.get(operation, 0.0), *here])
                client.slowlog_reset()
    return longest


OPERATIONS = (
    *("publish", "take", "ack", "release", "reclaim", "promote", "expire", "requeue dead letters", "dead letters to an exchange"),
    *("revoke", "purge", "delete", "redeclare with x-max-length", "redeclare with x-max-length-bytes", "keep a temporary queue"),
    *("make a temporary queue last", "migrate to kombu", "migrate to kickq", "migrate to pjq"),
    *("bindings of an exchange", "broadcast", "look at quiet queues", "remove a blocked job"),
)


def _run(_broker: Broker, server: Server) -> Sequence[float]:
    longest = _longest(server)
    return [longest[operation] for operation in OPERATIONS]


LONGEST = Measure(
    "longest",
    tuple(Figure(f"longest command: {operation}", "ms", at_most(100)) for operation in OPERATIONS),
    _run,
    repeats=1,
    has_rival=False,
)
