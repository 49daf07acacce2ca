"""Any story, told by bee alone in one database and by ferryman alone in another: each step ends the same, and so does all."""

from __future__ import annotations

from typing import Any

import redis
from attrs import define, field
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ...models.bee_original import UNFINISHED
from ...support.bee import events, keyspace
from ...support.effort import examples
from ...support.servers import Server
from .processes import Bee, Ferryman, Process

T = 1_800_000_000_000
WORKERS = ("ann", "bob")

Step = tuple[Any, ...]

puts = st.tuples(
    st.just("put"),
    st.integers(0, 9),
    st.fixed_dictionaries(
        {},
        optional={
            "priority": st.sampled_from([1, 2.5, 10, 99, -3]),
            "delay": st.sampled_from([1, 10_000, 60_000]),
            "retries": st.integers(0, 2),
            "retryDelay": st.sampled_from([0, 1000, 40_000]),
            "progressiveDelay": st.just(True),
            "ttl": st.sampled_from([60_000, 1_800_000]),
            "tags": st.lists(st.sampled_from(["a", "b:children", 1.5, 10**15]), min_size=1, max_size=2, unique=True),
            "preferredHostname": st.just("web-1"),
        },
    ),
    st.lists(st.integers(0, 5), max_size=2),
    st.none() | st.integers(0, 3),
)
# One job at a time: of several bee takes all before it looks which of them are duplicates, and ferryman each in its turn.
takes = st.tuples(st.just("take"), st.integers(0, 1), st.just(1))
ends = st.tuples(
    st.just("end"),
    st.integers(0, 1),
    st.integers(0, 3),
    st.sampled_from(["done", "done", "failed", "final", "later", "progress"]),
)
cancels = st.tuples(st.just("cancel"), st.integers(0, 5))
beats = st.tuples(st.just("beat"), st.integers(0, 1))
pauses = st.tuples(st.just("pause"), st.sampled_from([1, 1000, 30_000, 46_000, 600_000]))
stories = st.lists(st.one_of(puts, takes, ends, puts, takes, ends, takes, ends, cancels, beats, pauses), min_size=25, max_size=60)


@define
class Teller:
    """Tells a story, with processes of one kind."""

    redis: redis.Redis
    client: Process
    workers: tuple[Process, Process]
    now: int = T
    jobs: list[str] = field(factory=list)
    parents: set[str] = field(factory=set)
    taken: tuple[list[str], list[str]] = field(factory=lambda: ([], []))
    heard: list[Any] = field(factory=list)
    """What every step has given."""

    def tell(self, step: Step) -> None:
        self.now += 1
        match step:
            case ("put", content, options, needs, parent):
                self.put(content, options, needs, parent)
            case ("take", who, n):
                found = self.workers[who].take(self.now, n)
                self.taken[who].extend(found)
                self.heard.append(found)
            case ("end", who, rank, how) if self.taken[who]:
                jid = self.taken[who][rank % len(self.taken[who])]
                # bee lets a worker end a job that it has lost, as long as no other has popped it; then the job runs again.
                if self.redis.sismember(f"bee:s:locks:{self.workers[who].hive}:mail", jid):
                    self.heard.append(self.end(self.workers[who], jid, how))
                if how != "progress":
                    self.taken[who].remove(jid)
            case ("cancel", rank) if self.jobs:
                jid = self.jobs[-1 - rank % len(self.jobs)]
                if self.may_be_cancelled(jid):
                    self.client.cancel(self.now, jid)
            case ("beat", who):
                self.workers[who].heartbeat(self.now)
            case ("pause", ms):
                self.now += ms

    def put(self, content: int, options: dict[str, Any], needs: list[int], parent: int | None) -> None:
        jid = f"job{len(self.jobs)}"
        more: dict[str, Any] = {"dependencies": [self.jobs[rank % len(self.jobs)] for rank in needs] if self.jobs else []}
        above = self.jobs[parent % len(self.jobs)] if parent is not None and self.jobs else None
        # In which order children are cancelled is chance, and so is what comes of it.
        if above is not None and above not in self.parents and self.status(above) != "canceled":
            self.parents.add(above)
            more["parent"] = above
        self.client.put(self.now, jid, [content], **options, **more)
        self.jobs.append(jid)

    def status(self, jid: str) -> str:
        return (self.redis.hget(f"bee:h:jobs:{jid}", "status") or b"").decode()

    def may_be_cancelled(self, jid: str) -> bool:
        """With a duplicate bee lets its original die, also one that still runs; and strangers with a job that has died before."""
        original, value = self.redis.hmget(f"bee:h:jobs:{jid}", "duplicate", "hash")
        if original is not None and self.status(original.decode()) in UNFINISHED:
            return False
        if value is not None and self.redis.lpos(f"bee:l:hashes:mail:{value.decode()}", jid) is None:
            return False
        return all(map(self.may_be_cancelled, map(bytes.decode, self.redis.smembers(f"bee:s:{jid}:children"))))

    def end(self, worker: Process, jid: str, how: str) -> bool | None:
        match how:
            case "done":
                return worker.done(self.now, jid, {"number": 0.1, "list": []})
            case "progress":
                return worker.progress(self.now, jid, 100 / 3)
        return worker.failed(self.now, jid, "Error: no", retry=how != "final", delay=7 if how == "later" else None)


def test_every_story_ends_the_same(server: Server) -> None:
    with server.client() as first, server.client(db=1) as second:

        @settings(
            max_examples=examples(60),
            deadline=None,
            phases=(Phase.explicit, Phase.generate),
            suppress_health_check=list(HealthCheck),
        )
        @given(stories)
        def ends_the_same(steps: list[Step]) -> None:
            expected, found = (told(client, kind, steps) for client, kind in ((first, Bee), (second, Ferryman)))
            assert found == expected

        ends_the_same()


def told(client: redis.Redis, kind: type[Bee] | type[Ferryman], steps: list[Step]) -> tuple[list[Any], Any, Any]:
    client.flushdb()
    Bee(client, "host:0:connecting")
    teller = Teller(client, kind(client, "app-1:1:client"), (kind(client, "web-1:2:ann"), kind(client, "web-2:3:bob")))
    for worker in teller.workers:
        worker.take(T - 1)
    with events(client) as published:
        for step in steps:
            teller.tell(step)
    return teller.heard, published, keyspace(client)
