"""Random histories of one queue of qless that its own workers and consumers of ours share, all of whom may die at any moment.

Each job stands in the one place that its state tells, no job is lost, none runs twice unless a lock was lost before, and an audit
finds nothing but what qless itself leaves.
"""

from __future__ import annotations

from typing import Any

import redis
from ferryman.compat.qless.live import QlessLive
from ferryman.compat.qless.steering import QlessSteering
from ferryman.schema.connection.call import Call, run
from ferryman.schema.live import Failure, ForeignDelivery, NewJob
from ferryman.schema.steering import Action, Value
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from ..support.dumps import findings
from ..support.effort import examples
from ..support.foreign_keys import side_keys
from ..support.qless_original import OriginalQless
from ..support.servers import Server

QUEUE = "mail"
THEIRS = ("w1", "w2")
OURS = ("ann", "bob")
LEASE = 20_000
START = 1_795_000_000_125

LEFT_BY_QLESS = {"QLESS-12", "QLESS-29", "QLESS-31"}
"""Locks that are over until somebody looks, counts below zero (jobs out of attempts are not counted), grace that stays."""

INDEXES = {"waiting": "work", "running": "locks", "scheduled": "scheduled"}

ranks = st.integers(0, 5)


class QlessInUse(RuleBasedStateMachine):
    """One queue with two workers of qless-py and two consumers of ours."""

    client: redis.Redis

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.client.flushdb()
        self.live = QlessLive(core="unified")
        self.original = OriginalQless(self.client, QUEUE)
        self.now = START
        self.made: list[str] = []
        self.cancelled: set[str] = set()
        self.published = 0
        self.incarnation = dict.fromkeys((*THEIRS, *OURS), 0)
        self.runs: dict[str, str] = {}
        """Who runs a job, as far as they know."""

    def send(self, call: Call[Any]) -> Any:
        return run(self.client, call)

    def name(self, worker: str) -> str:
        return f"{worker}-{self.incarnation[worker]}"

    def held(self, worker: str, rank: int) -> str | None:
        mine = sorted(job for job, holder in self.runs.items() if holder == self.name(worker))
        return mine[rank % len(mine)] if mine else None

    def begun(self, job_id: str, worker: str) -> None:
        """A worker was given a job: whoever ran it before has lost the lock."""
        self.runs[job_id] = self.name(worker)

    def check_free(self) -> dict[str, float]:
        """The locks that hold now."""
        locks = self.client.zrange(f"ql:q:{QUEUE}-locks", 0, -1, withscores=True)
        return {job.decode(): until for job, until in locks if until * 1000 > self.now}

    # Time, and deaths

    @rule(step=st.sampled_from([1, 900, 3_000, 11_000, 30_000, 61_000]))
    def time_goes_by(self, step: int) -> None:
        self.now += step

    @rule(worker=st.sampled_from((*THEIRS, *OURS)))
    def a_worker_dies(self, worker: str) -> None:
        name = self.name(worker)
        self.incarnation[worker] += 1
        self.runs = {job: holder for job, holder in self.runs.items() if holder != name}

    # Jobs in

    @rule(priority=st.sampled_from([0, 0, 3, -1]), delay=st.sampled_from([0, 0, 5]), retries=st.integers(0, 2))
    def the_original_puts(self, priority: int, delay: int, retries: int) -> None:
        self.made.append(f"theirs-{len(self.made)}")
        self.original.put(self.now / 1000, self.made[-1], priority=priority, delay=delay, retries=retries)

    @rule(priority=st.sampled_from([None, 0, 3]), delay=st.sampled_from([0, 5_000]), again=st.booleans())
    def we_put(self, priority: float | None, delay: int, again: bool) -> None:
        self.published += 1
        publication = f"p-{self.published}"
        job = NewJob(QUEUE, b"1", "x", b'{"task": "x"}', priority, delay, f"ours-{len(self.made)}", publication, {"retries": 1})
        made = self.send(self.live.put(job, now=self.now))
        self.made.append(made)
        if again:
            self.now += 1_000
            assert self.send(self.live.put(job, now=self.now)) == made

    @rule(rank=ranks)
    def the_original_puts_anew(self, rank: int) -> None:
        if self.made:
            job_id = self.made[rank % len(self.made)]
            self.original.put(self.now / 1000, job_id)
            self.cancelled.discard(job_id)
            self.runs.pop(job_id, None)

    @rule(rank=ranks, is_ours=st.booleans())
    def somebody_cancels(self, rank: int, is_ours: bool) -> None:
        if not self.made:
            return
        job_id = self.made[rank % len(self.made)]
        if is_ours:
            is_running = self.client.hget(f"ql:j:{job_id}", "state") == b"running"
            role = self.send(self.live.remove(QUEUE, job_id, now=self.now))
            assert (role == "held") == is_running
            if role in (None, "held"):
                return
        elif self.client.hget(f"ql:j:{job_id}", "state") == b"complete":
            return
        else:
            self.original.cancel(job_id)
        self.cancelled.add(job_id)

    @rule(
        rank=ranks, action=st.sampled_from(sorted(set(QlessSteering.actions) - {Action.MOVE})), priority=st.sampled_from([3, -1])
    )
    def an_operator_steers(self, rank: int, action: Action, priority: int) -> None:
        if not self.made:
            return
        job_id = self.made[rank % len(self.made)]
        state = self.client.hget(f"ql:j:{job_id}", "state")
        value: Value = {Action.REPRIORITISE: priority, Action.EDIT: b"[1]"}.get(action)
        outcome = self.send(QlessSteering(self.live).act(action, QUEUE, job_id, value, now=self.now))
        assert (outcome == "held") == (state == b"running")
        assert (outcome == "missing") == (state is None)
        if outcome == "done" and action in (Action.CANCEL, Action.DELETE):
            self.cancelled.add(job_id)

    # Runs of the original's

    @rule(worker=st.sampled_from(THEIRS), hears=st.booleans())
    def the_original_pops(self, worker: str, hears: bool) -> None:
        locked = self.check_free()
        job_id = self.original.pop(self.now / 1000, self.name(worker))
        if job_id is not None:
            assert job_id not in locked
            self.begun(job_id, worker)
            if not hears:
                self.a_worker_dies(worker)

    @rule(worker=st.sampled_from(THEIRS), rank=ranks, end=st.sampled_from(["complete", "fail", "heartbeat"]))
    def the_original_ends(self, worker: str, rank: int, end: str) -> None:
        job_id = self.held(worker, rank)
        if job_id is not None:
            getattr(self.original, end)(self.now / 1000, job_id, self.name(worker))
            if end != "heartbeat":
                del self.runs[job_id]

    # Runs of ours

    @rule(worker=st.sampled_from(OURS), n=st.integers(1, 3), tasks=st.sampled_from([None, ["x"], ["unknown"]]))
    def we_take(self, worker: str, n: int, tasks: list[str] | None) -> None:
        locked = self.check_free()
        taken = self.send(self.live.take(QUEUE, self.name(worker), n, LEASE, tasks=tasks, now=self.now))
        assert len(taken.jobs) <= (n if tasks != ["unknown"] else 0)
        for job in taken.jobs:
            assert isinstance(job, ForeignDelivery)
            assert job.id not in locked
            self.begun(job.id, worker)

    @rule(worker=st.sampled_from(OURS), rank=ranks, end=st.sampled_from(["complete", "fail", "retry", "requeue"]))
    def we_end(self, worker: str, rank: int, end: str) -> None:
        job_id = self.held(worker, rank)
        if job_id is None:
            return
        name = self.name(worker)
        holds = self.client.hmget(f"ql:j:{job_id}", ["state", "worker"]) == [b"running", name.encode()]
        calls = {
            "complete": self.live.complete(QUEUE, name, [(job_id, None)], now=self.now),
            "fail": self.live.fail(QUEUE, name, job_id, Failure("it failed"), now=self.now),
            "retry": self.live.retry(QUEUE, name, job_id, 2_000, failure=Failure("not yet"), now=self.now),
            "requeue": self.live.requeue(QUEUE, name, [job_id], now=self.now),
        }
        outcome = self.send(calls[end])
        is_lost = outcome in ("lost", ("lost",), (False,))
        assert is_lost != holds
        del self.runs[job_id]

    @rule(worker=st.sampled_from(OURS))
    def we_renew(self, worker: str) -> None:
        name = self.name(worker)
        self.send(self.live.renew(QUEUE, name, LEASE, now=self.now))
        for job_id in self.send(self.live.held(QUEUE, name)):
            assert self.runs[job_id] == name
            assert self.client.zscore(f"ql:q:{QUEUE}-locks", job_id) == self.now / 1000 + 60

    @rule(worker=st.sampled_from(OURS))
    def we_leave(self, worker: str) -> None:
        self.send(self.live.forget(QUEUE, self.name(worker), now=self.now))
        assert self.send(self.live.held(QUEUE, self.name(worker))) == ()
        self.a_worker_dies(worker)

    @rule()
    def our_timers_run(self) -> None:
        for call in self.live.timers(now=self.now):
            assert not self.send(call)

    # What holds at any time

    @invariant()
    def each_job_stands_where_its_state_tells(self) -> None:
        for job_id in self.made:
            state = self.client.hget(f"ql:j:{job_id}", "state")
            assert (state is None) == (job_id in self.cancelled), job_id
            places = {index for index in INDEXES.values() if self.client.zscore(f"ql:q:{QUEUE}-{index}", job_id) is not None}
            expected = INDEXES.get(state.decode()) if state else None
            assert places == ({expected} if expected else set())

    @invariant()
    def an_audit_finds_nothing_that_is_ours(self) -> None:
        assert {each.rule for each in findings(self.client, "qless", "ql", self.now)} <= LEFT_BY_QLESS

    def teardown(self) -> None:
        """All die; a last consumer of ours works off what is left."""
        for _ in range(40):
            self.now += 75_000
            for job in self.send(self.live.take(QUEUE, "last", 100, LEASE, now=self.now)).jobs:
                assert self.send(self.live.complete(QUEUE, "last", [(job.id, None)], now=self.now)) == ("completed",)
            if not self.client.keys("ql:q:*"):
                break
        self.send(self.live.forget(QUEUE, "last", now=self.now))
        for call in self.live.timers(now=self.now):
            self.send(call)
        states = {job_id: self.client.hget(f"ql:j:{job_id}", "state") for job_id in self.made}
        assert all(states[job_id] in (b"complete", b"failed") for job_id in self.made if job_id not in self.cancelled), states
        assert not self.client.keys("ql:w:*")
        assert side_keys(self.client) == []


def test_histories_of_a_queue_that_qless_and_ferryman_share(server: Server) -> None:
    with server.client() as client:
        machine = type("QlessInUse", (QlessInUse,), {"client": client})
        profile = settings(
            max_examples=examples(40),
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        run_state_machine_as_test(machine, settings=profile)  # type: ignore[no-untyped-call]
