"""Random histories of one queue of bee that ferryman serves beside bee itself: nothing is lost, and nothing runs twice.

Clients and workers of both kinds, crashes between any two scripts of bee's workers, consumers of ours that forget to beat. After
every step the audit of the family finds no more than what a dead worker leaves in any keyspace of bee. In the end all of bee's
own processes are gone, and one consumer of ours brings every job to an end.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

import pytest
import redis
from attrs import define, field
from ferryman.compat.bee import FAMILY
from ferryman.compat.bee.live import BeeLive
from ferryman.compat.bee.steering import BeeSteering
from ferryman.schema.connection.call import Call, Command, run
from ferryman.schema.live import Failure, NewJob
from ferryman.schema.steering import Action
from ferryman.testing.keyspaces import dump, read_keyspace
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from ..support.bee import side_keys
from ..support.effort import examples
from ..support.servers import Server
from .bee_original import UNFINISHED, OriginalBee, default_hash

T = TypeVar("T")

QUEUE = "mail"
LEASE = 30_000

FROM_DEAD_WORKERS = {"BEE-16", "BEE-17", "BEE-18"}
"""What a dead worker leaves until its locks have expired, and its counters after that."""
FROM_CANCELLATIONS = {"BEE-23"}
"""What a cancelled job still waits for."""
FROM_NEGATIVE_PRIORITIES = {"BEE-31"}
"""A job that is to come last stands behind now; where it is the only one, so do those that are put then."""

ranks = st.integers(0, 7)
ends = st.sampled_from(["complete", "fail", "retry", "reject", "requeue", "release"])
times_in_a_row = st.integers(1, 3)


@define
class Worker:
    """A worker of bee: what it remembers of the jobs it has popped."""

    bee: OriginalBee
    popped: list[str] = field(factory=list)
    """Not hashed yet."""
    running: list[str] = field(factory=list)


class BeeKeyspace(RuleBasedStateMachine):
    """Two workers of bee and two consumers of ours; who crashes comes back under another name."""

    client: redis.Redis

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.client.flushdb()
        self.now = 1_800_000_000_000
        self.names = 0
        self.jobs: list[str] = []
        self.given_back: dict[str, int] = {}
        self.theirs = OriginalBee(self.client, "app:1:theirs")
        self.theirs.connect()
        self.ours = BeeLive(hive="app:2:ours")
        self.workers = [Worker(OriginalBee(self.client, self.new_name())) for _ in range(2)]
        self.consumers = [self.new_name() for _ in range(2)]
        self.beating = [True, True]
        for worker in self.workers:
            worker.bee.heartbeat(self.now, QUEUE)

    def new_name(self) -> str:
        self.names += 1
        return f"host:{self.names}:x"

    def send(self, call: Call[T] | Command[T]) -> T:
        return run(self.client, call)

    def status(self, jid: str) -> str:
        raw = self.client.hget(f"bee:h:jobs:{jid}", "status")
        return "" if raw is None else str(raw.decode())

    def pick(self, rank: int) -> str | None:
        """A job, the last ones first; None before there is any."""
        return self.jobs[-1 - rank % len(self.jobs)] if self.jobs else None

    def has_work(self) -> bool:
        return bool(self.client.exists(f"bee:ss:queue:{QUEUE}", f"bee:ss:delayed:{QUEUE}"))

    def held(self, consumer: str) -> tuple[str, ...]:
        return self.send(self.ours.held(QUEUE, consumer))

    # Clients

    @initialize(many=st.integers(2, 6), are_ours=st.booleans())
    def begin_with_jobs(self, many: int, are_ours: bool) -> None:
        for number in range(many):
            self.put(are_ours, number, 0, 0, 2, None, None, (), number == 0)

    @rule(
        is_ours=st.booleans(),
        content=st.integers(0, 12),
        priority=st.sampled_from([0, 0, 0, 5, -1, 10]),
        delay=st.sampled_from([0, 0, 0, 10_000, 100_000]),
        retries=st.sampled_from([0, 1, 2]),
        needs=st.sampled_from([None, None, None, 0, 1, 2, 5]),
        parent=st.sampled_from([None, None, None, 0, 1, 3]),
        tags=st.sampled_from([(), (), ("x",), ("x", 1.5)]),
        is_of_celery=st.booleans(),
    )
    def put(
        self,
        is_ours: bool,
        content: int,
        priority: int,
        delay: int,
        retries: int,
        needs: int | None,
        parent: int | None,
        tags: tuple[str | float, ...],
        is_of_celery: bool,
    ) -> None:
        jid = f"job{len(self.jobs)}"
        depends = [each for each in [None if needs is None else self.pick(needs)] if each is not None]
        above = None if parent is None else self.pick(parent)
        if above is not None and self.client.pttl(f"bee:h:jobs:{above}") >= 0:
            above = None  # cancelled, or about to go
        if is_ours:
            options: dict[str, Any] = {"retries": retries, "depends": depends, "tags": tags, "parent": above}
            extra = b'{"task":"mail","id":"some"}' if is_of_celery else None
            job = NewJob(QUEUE, b"[%d]" % content, None, extra, priority, delay, jid, f"producer-{len(self.jobs)}", options)
            for _ in range(2):
                assert self.send(self.ours.put(job, now=self.now)) == jid
        else:
            given = {"priority": priority, "delay": delay, "retries": retries, "dependencies": depends}
            self.theirs.put(self.now, jid, QUEUE, [content], given, tags, above)
        self.jobs.append(jid)

    @rule(is_ours=st.booleans(), rank=ranks)
    def cancel(self, is_ours: bool, rank: int) -> None:
        jid = self.pick(rank)
        if jid is None or not self.may_be_cancelled(jid):
            return
        if is_ours:
            self.send(self.ours.cancel(jid, now=self.now))
        else:
            self.theirs.cancel(self.now, jid)

    @rule(rank=ranks, action=st.sampled_from(sorted(BeeSteering.actions)))
    def an_operator_steers(self, rank: int, action: Action) -> None:
        jid = self.pick(rank)
        if jid is None or (action is Action.CANCEL and not self.may_be_cancelled(jid)):
            return
        is_running = self.status(jid) == "running"
        outcome = self.send(BeeSteering(self.ours).act(action, QUEUE, jid, now=self.now))
        assert outcome == "held" or not is_running

    def may_be_cancelled(self, jid: str) -> bool:
        """bee lets an original die that still runs, if a duplicate of it is cancelled; and cancels what is dead already."""
        original = self.client.hget(f"bee:h:jobs:{jid}", "duplicate")
        if self.client.pttl(f"bee:h:jobs:{jid}") >= 0 or (original and self.status(original.decode()) in UNFINISHED):
            return False
        return all(self.may_be_cancelled(raw.decode()) for raw in self.client.smembers(f"bee:s:{jid}:children"))

    # Workers of bee

    @precondition(lambda self: self.has_work())
    @rule(which=st.integers(0, 1), most=times_in_a_row)
    def pop(self, which: int, most: int) -> None:
        worker = self.workers[which]
        worker.popped += worker.bee.pop(self.now, QUEUE, most)

    @precondition(lambda self: any(worker.popped for worker in self.workers))
    @rule(which=st.integers(0, 1))
    def hash(self, which: int) -> None:
        worker = self.workers[which]
        for jid in worker.popped:
            job = worker.bee.load(jid)
            if job["worker"] != f"{worker.bee.hive}:{QUEUE}" or job["status"] != "running":
                continue
            if job["hash"] is not False or worker.bee.hash(self.now, QUEUE, jid, default_hash(job["data"])) is None:
                worker.running.append(jid)
        worker.popped = []

    @precondition(lambda self: any(worker.running for worker in self.workers))
    @rule(which=st.integers(0, 1), end=st.sampled_from(["done", "done", "failed", "final"]))
    def end(self, which: int, end: str) -> None:
        worker = self.workers[which]
        if worker.running:
            jid = worker.running.pop()
            if end == "done":
                worker.bee.done(self.now, QUEUE, jid, {"by": worker.bee.hive})
            else:
                worker.bee.failed(self.now, QUEUE, jid, "Error: no", end != "final")

    @precondition(lambda self: self.has_work())
    @rule(which=st.integers(0, 1), most=times_in_a_row, end=st.sampled_from(["done", "failed", "final"]))
    def work(self, which: int, most: int, end: str) -> None:
        self.pop(which, most)
        self.hash(which)
        while self.workers[which].running:
            self.end(which, end)

    @precondition(lambda self: any(worker.popped or worker.running for worker in self.workers))
    @rule(which=st.integers(0, 1))
    def crash(self, which: int) -> None:
        self.workers[which] = Worker(OriginalBee(self.client, self.new_name()))

    @rule(which=st.integers(0, 1))
    def expire(self, which: int) -> None:
        self.workers[which].bee.expired(self.now, QUEUE)

    # Consumers of ours

    @precondition(lambda self: self.has_work())
    @rule(which=st.integers(0, 1), n=st.integers(0, 3))
    def take(self, which: int, n: int) -> None:
        self.beating[which] = True
        before = set(self.held(self.consumers[which]))
        taken = self.send(self.ours.take(QUEUE, self.consumers[which], n, LEASE, now=self.now))
        assert not before.intersection(job.id for job in taken.jobs)
        assert before.union(job.id for job in taken.jobs) == set(self.held(self.consumers[which]))

    @precondition(lambda self: self.jobs)
    @rule(which=st.integers(0, 1), rank=ranks, end=ends)
    def end_ours(self, which: int, rank: int, end: str) -> None:
        consumer = self.consumers[which]
        held = self.held(consumer)
        jid = held[rank % len(held)] if held and rank else self.pick(rank)
        if jid is None:
            return
        before = self.client.hgetall(f"bee:h:jobs:{jid}")
        is_held = self.end_by_us(consumer, jid, end)
        assert is_held == (jid in held)
        if not is_held:
            assert self.client.hgetall(f"bee:h:jobs:{jid}") == before

    @precondition(lambda self: self.has_work())
    @rule(which=st.integers(0, 1), n=times_in_a_row, end=ends)
    def work_ours(self, which: int, n: int, end: str) -> None:
        self.take(which, n)
        for jid in self.held(self.consumers[which]):
            assert self.end_by_us(self.consumers[which], jid, end)

    def end_by_us(self, consumer: str, jid: str, end: str) -> bool:
        failure = Failure("no")
        match end:
            case "complete":
                return self.send(self.ours.complete(QUEUE, consumer, [(jid, b'"done"')], now=self.now)) == ("completed",)
            case "fail":
                return self.send(self.ours.fail(QUEUE, consumer, jid, failure, now=self.now)) != "lost"
            case "retry":
                return self.send(self.ours.retry(QUEUE, consumer, jid, 5000, failure=failure, now=self.now)) != "lost"
            case "reject":
                return self.send(self.ours.reject(QUEUE, consumer, jid, "rejected", now=self.now))
            case "requeue":
                (is_held,) = self.send(self.ours.requeue(QUEUE, consumer, [jid], now=self.now))
            case _:
                is_held = bool(self.send(self.ours.release(QUEUE, consumer, [jid], now=self.now)))
        self.given_back[jid] = self.given_back.get(jid, 0) + is_held
        return is_held

    @precondition(lambda self: any(map(self.held, self.consumers)))
    @rule(which=st.integers(0, 1))
    def forget(self, which: int) -> None:
        self.leave(which)

    def leave(self, which: int) -> None:
        for jid in self.held(self.consumers[which]):
            self.given_back[jid] = self.given_back.get(jid, 0) + 1
        self.send(self.ours.forget(QUEUE, self.consumers[which], now=self.now))
        assert self.held(self.consumers[which]) == ()

    @precondition(lambda self: any(map(self.held, self.consumers)))
    @rule(which=st.integers(0, 1))
    def crash_ours(self, which: int) -> None:
        self.consumers[which] = self.new_name()

    @rule(which=st.integers(0, 1))
    def freeze_ours(self, which: int) -> None:
        self.beating[which] = False

    @rule()
    def timers(self) -> None:
        for call in self.ours.timers(now=self.now):
            self.send(call)

    # Time

    @rule(step=st.sampled_from([1, 100, 9000, 30_000, 30_000]), times=times_in_a_row)
    def time_passes(self, step: int, times: int) -> None:
        for _ in range(times):
            self.now += step
            self.beat()

    def beat(self) -> None:
        """As all do that live."""
        for worker in self.workers:
            worker.bee.heartbeat(self.now, QUEUE)
        for consumer, beats in zip(self.consumers, self.beating, strict=True):
            if beats:
                self.send(self.ours.renew(QUEUE, consumer, LEASE, now=self.now))

    # After every step

    @invariant()
    def the_audit_finds_what_dead_workers_leave_and_nothing_else(self) -> None:
        entries = [entry for key, entry in dump(self.client).items() if key.startswith(b"bee:")]
        findings = read_keyspace(FAMILY, entries, "bee", self.now).findings()
        allowed = FROM_DEAD_WORKERS | FROM_CANCELLATIONS | FROM_NEGATIVE_PRIORITIES
        assert [finding for finding in findings if finding.rule not in allowed and "overdue" not in finding.detail] == []

    @invariant()
    def every_run_ends_before_the_next_one_begins(self) -> None:
        for jid in self.jobs:
            history = json.loads(self.client.hget(f"bee:h:jobs:{jid}", "history") or b"[]")
            names = [event["event"] for event in history]
            runs = names.count("popped")
            ended = names.count("exception") + names.count("expiredLock") + self.given_back.get(jid, 0)
            assert ended <= runs <= ended + 1, (jid, names)

    def teardown(self) -> None:
        """bee is gone. One consumer of ours ends all jobs, and then nothing of ours is left."""
        self.consumers.append(self.new_name())
        self.beating = [False, False, True]
        for _ in range(80):
            taken = self.send(self.ours.take(QUEUE, self.consumers[2], 5, LEASE, now=self.now))
            for job in taken.jobs:
                assert self.end_by_us(self.consumers[2], job.id, "complete")
            if not any(self.status(jid) in UNFINISHED for jid in self.jobs):
                break
            self.now += 20_000
        assert [jid for jid in self.jobs if self.status(jid) in ("", *UNFINISHED)] == []
        self.the_audit_finds_what_dead_workers_leave_and_nothing_else()
        self.now += 200_000
        self.timers()
        self.leave(2)
        assert side_keys(self.client) == []


@pytest.mark.usefixtures("server")
def test_nothing_is_lost_or_runs_twice_beside_bee_itself(server: Server) -> None:
    with server.client() as client:
        machine = type("Machine", (BeeKeyspace,), {"client": client})
        run_state_machine_as_test(  # type: ignore[no-untyped-call]
            machine,
            settings=settings(
                max_examples=examples(30),
                stateful_step_count=25,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                derandomize=False,
            ),
        )
