"""Random histories of one queue that pjq's program, its workers and consumers of ours share, all of whom may die at any step.

A program dies between any two of its units, a worker with the job that it has, a consumer of ours without a word. What the
program's own windows leave (an acceptance that comes too late, a worker that dies after it) is set apart: of all other jobs each
stands in one place, none runs twice at a time, and none is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import redis
from ferryman.compat.pjq.live import PjqLive
from ferryman.compat.pjq.steering import PjqSteering
from ferryman.schema.connection.call import Call, run
from ferryman.schema.live import Failure, NewJob
from ferryman.schema.steering import Action
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from ..support.dumps import findings
from ..support.effort import examples
from ..support.foreign_keys import everything, seen, side_keys
from ..support.pjq_program import Program, accepted, done
from ..support.servers import Server

QUEUE = "mail"
WORKERS = ("w1", "w2")
CONSUMERS = ("ann", "bob", "cyd")
LEASES = {"ann": 9_000, "bob": 20_000, "cyd": 3_000}
Q, D, P, G, F = (f"jobs_{name}:{QUEUE}".encode() for name in ("queued", "dispatched", "processing", "progress", "finished"))

LEFT_BY_THE_PROGRAM = {"PJQ-10", "PJQ-11", "PJQ-25"}
"""A lease that is over and a worker that is gone, until somebody looks or for ever."""

consumers = st.sampled_from(CONSUMERS)
workers = st.sampled_from(WORKERS)
ranks = st.integers(0, 3)
deaths = st.sampled_from([None, None, None, 0, 1, 2, 3])
"""After how many units a program dies; None: it lives."""


class PjqInUse(RuleBasedStateMachine):
    """One queue with two workers of the program's and three consumers of ours."""

    client: redis.Redis

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.client.flushdb()
        self.live = PjqLive()
        self.now = 1_795_262_501_000
        self.made = 0
        self.ids: list[str] = []
        self.given: dict[str, list[dict[str, Any]]] = {worker: [] for worker in WORKERS}
        """Assignments that have reached a worker."""
        self.begun: dict[str, dict[str, Any]] = {}
        """What a worker has accepted and runs."""
        self.set_apart: set[str] = set()
        self.cancelled: set[str] = set()
        self.finished: set[str] = set()
        self.incarnation = dict.fromkeys(CONSUMERS, 0)
        self.runs: dict[str, tuple[str, int]] = {}
        """A job that one of ours has: by whom, and until when at least."""

    def send(self, call: Call[Any]) -> Any:
        return run(self.client, call)

    def name(self, consumer: str) -> str:
        return f"{consumer}-{self.incarnation[consumer]}"

    def lease_of(self, name: str) -> int:
        return LEASES[name.partition("-")[0]]

    def held(self, consumer: str, rank: int) -> str | None:
        """A job that the consumer was given, if it has not ended it."""
        mine = [job_id for job_id, (holder, _) in self.runs.items() if holder == self.name(consumer)]
        return mine[rank % len(mine)] if mine else None

    # The program and its workers

    def say(self, program: Program, message: Iterator[None], dies_after: int | None) -> None:
        """A message to a program, which may die over it; its assignments reach their workers."""
        for number, _ in enumerate(message):
            if number == dies_after:
                break
        for worker, job in program.assigned:
            self.given[worker].append(job)

    @rule(dies_after=deaths)
    def a_producer_adds_a_job(self, dies_after: int | None) -> None:
        self.made += 1
        self.ids.append(f"theirs-{self.made}")
        program = Program(self.client, self.now)
        self.say(program, program.add_job({"uuid": self.ids[-1], "queue_name": QUEUE, "command": "x"}), dies_after)

    @rule(worker=workers, dies_after=deaths, late=st.booleans())
    def a_worker_is_idle(self, worker: str, dies_after: int | None, late: bool) -> None:
        if worker in self.begun:
            return
        program = Program(self.client, self.now)
        sent_at = program.now - 4 if late else None
        self.say(program, program.worker_idle(worker, QUEUE, sent_at), dies_after)

    @rule(worker=workers)
    def a_worker_accepts(self, worker: str) -> None:
        if worker in self.begun or not self.given[worker]:
            return
        program = Program(self.client, self.now)
        job = self.given[worker].pop()
        job_id = job["uuid"]
        stored = self.client.hget(job_id, "dispatched_at")
        if stored is None or stored.decode() != job["dispatched_at"] or self.client.zscore(D, job_id) is None:
            # Too late: it has gone back, perhaps to somebody else, or has been done. The program does not ask.
            self.set_apart.add(job_id)
        self.begun[worker] = accepted(job, program)
        list(program.job_accepted(worker, self.begun[worker]))

    @rule(worker=workers, exitcode=st.integers(0, 1))
    def a_worker_finishes(self, worker: str, exitcode: int) -> None:
        job = self.begun.pop(worker, None)
        if job is not None:
            program = Program(self.client, self.now)
            list(program.job_finished(worker, done(job, program, exitcode)))
            self.finished.add(job["uuid"])

    @rule(worker=workers)
    def a_worker_dies(self, worker: str) -> None:
        """Nothing takes back what it has accepted."""
        job = self.begun.pop(worker, None)
        if job is not None:
            self.set_apart.add(job["uuid"])
        self.given[worker].clear()

    # Ours

    @rule(again=st.booleans())
    def we_put_a_job(self, again: bool) -> None:
        self.made += 1
        self.ids.append(f"ours-{self.made}")
        new = NewJob(QUEUE, b'{"n":1}', name="x", extra=b'{"task":"x"}', id=self.ids[-1], publication=f"p-{self.made}")
        for _ in range(2 if again else 1):
            assert self.send(self.live.put(new, now=self.now)) == self.ids[-1]

    @rule(consumer=consumers, n=st.integers(0, 3))
    def we_take(self, consumer: str, n: int) -> None:
        name, lease = self.name(consumer), LEASES[consumer]
        taken = self.send(self.live.take(QUEUE, name, n, lease, now=self.now))
        assert len(taken.jobs) <= n
        for job in taken.jobs:
            holder, until = self.runs.get(job.id, ("", 0))
            assert until <= self.now or job.id in self.set_apart, f"{job.id} is still {holder}'s"
            self.runs[job.id] = (name, self.now + lease)
        self.extend(name)

    def extend(self, name: str) -> None:
        """A lease of all that a consumer holds."""
        held = self.send(self.live.held(QUEUE, name))
        for job_id in held:
            self.runs[job_id] = (name, self.now + self.lease_of(name))

    def over(self, job_id: str, outcome: Any) -> None:
        """A run has ended. One whose lease is not over was its consumer's to end."""
        _, until = self.runs.pop(job_id)
        if outcome in ("lost", False):
            assert until <= self.now or job_id in self.set_apart
        elif outcome in ("completed", "failed"):
            self.finished.add(job_id)

    @rule(consumer=consumers, rank=ranks)
    def we_complete(self, consumer: str, rank: int) -> None:
        if job_id := self.held(consumer, rank):
            call = self.live.complete(QUEUE, self.name(consumer), [(job_id, b"1")], now=self.now)
            self.over(job_id, self.send(call)[0])

    @rule(consumer=consumers, rank=ranks)
    def we_fail(self, consumer: str, rank: int) -> None:
        if job_id := self.held(consumer, rank):
            self.over(job_id, self.send(self.live.fail(QUEUE, self.name(consumer), job_id, Failure("no"), now=self.now)))

    @rule(consumer=consumers, rank=ranks, delay=st.sampled_from([0, 1, 5_000, 9_000, 40_000]))
    def we_retry(self, consumer: str, rank: int, delay: int) -> None:
        if job_id := self.held(consumer, rank):
            failure = Failure("again")
            self.over(
                job_id, self.send(self.live.retry(QUEUE, self.name(consumer), job_id, delay, failure=failure, now=self.now))
            )

    @rule(consumer=consumers, rank=ranks)
    def we_requeue(self, consumer: str, rank: int) -> None:
        if job_id := self.held(consumer, rank):
            self.over(job_id, self.send(self.live.requeue(QUEUE, self.name(consumer), [job_id], now=self.now))[0])

    @rule(consumer=consumers)
    def we_renew(self, consumer: str) -> None:
        name = self.name(consumer)
        if self.send(self.live.renew(QUEUE, name, LEASES[consumer], now=self.now)):
            self.extend(name)

    @rule(consumer=consumers, politely=st.booleans())
    def one_of_us_goes(self, consumer: str, politely: bool) -> None:
        name = self.name(consumer)
        if politely:
            self.send(self.live.forget(QUEUE, name, now=self.now))
            self.runs = {job_id: run for job_id, run in self.runs.items() if run[0] != name}
        self.incarnation[consumer] += 1

    @rule()
    def we_run_the_timers(self) -> None:
        for call in self.live.timers(now=self.now):
            self.send(call)

    @precondition(lambda self: self.ids)
    @rule(rank=st.integers(0, 30))
    def we_cancel(self, rank: int) -> None:
        job_id = self.ids[rank % len(self.ids)]
        if job_id in self.finished | self.set_apart | self.cancelled:
            return
        was = self.send(self.live.remove(QUEUE, job_id, now=self.now))
        if was in ("waiting", "scheduled"):
            self.cancelled.add(job_id)
        else:
            assert was == "held"

    @precondition(lambda self: self.ids)
    @rule(rank=st.integers(0, 30), action=st.sampled_from(sorted(PjqSteering.actions)))
    def an_operator_steers(self, rank: int, action: Action) -> None:
        """What has ended can be deleted too, but nothing that runs."""
        job_id = self.ids[rank % len(self.ids)]
        if job_id in self.set_apart:
            return
        before = seen(self.client)
        outcome = self.send(PjqSteering(self.live).act(action, QUEUE, job_id, now=self.now))
        if job_id in self.cancelled:
            assert outcome == "missing"
        elif job_id.encode() in {*before.get(Q, ()), *before.get(F, ())}:
            assert outcome == "done"
            self.cancelled.add(job_id)
        else:
            # A retry that is delayed is in the container of those that run.
            assert outcome in ("done", "held")
            if outcome == "done":
                assert job_id not in self.runs or self.runs[job_id][1] <= self.now
                self.cancelled.add(job_id)
        if outcome != "done":
            assert seen(self.client) == before

    @rule(ms=st.sampled_from([1, 500, 2_999, 3_000, 9_000, 21_000]))
    def time_passes(self, ms: int) -> None:
        self.now += ms

    # What always holds

    @invariant()
    def each_job_has_one_place(self) -> None:
        keys = seen(self.client)
        places = [*keys.get(Q, ()), *(each for key in (D, P, F) for each in keys.get(key, ()))]
        for job_id in self.ids:
            if job_id in self.set_apart:
                continue
            count = places.count(job_id.encode())
            assert count == (job_id not in self.cancelled), f"{job_id} is in {count} places"
            assert (job_id.encode() in keys) == (job_id not in self.cancelled)
        assert keys.get(P, {}).keys() == keys.get(G, {}).keys()

    @invariant()
    def nobody_of_ours_is_among_the_workers(self) -> None:
        keys = seen(self.client)
        named = {worker for key, value in keys.items() if key.startswith(b"workers_") for worker in value}
        assert named <= {worker.encode() for worker in WORKERS}

    @invariant()
    def an_audit_finds_only_what_the_program_leaves(self) -> None:
        for finding in findings(self.client, "pjq", "", self.now):
            assert finding.job_id in self.set_apart or finding.rule in LEFT_BY_THE_PROGRAM, finding

    def teardown(self) -> None:
        """All others have gone. One of ours does what there is, and then nothing of ours is left."""
        self.now += 60_000
        for _ in range(len(self.ids) * 2 + 5):
            for call in self.live.timers(now=self.now):
                self.send(call)
            for job in self.send(self.live.take(QUEUE, "last", 5, 9_000, now=self.now)).jobs:
                assert self.send(self.live.complete(QUEUE, "last", [(job.id, b"1")], now=self.now)) == ("completed",)
            self.now += 1_000
        self.send(self.live.forget(QUEUE, "last", now=self.now))
        keys = seen(self.client)
        lost = set(self.ids) - self.cancelled - self.set_apart - {job_id.decode() for job_id in keys.get(F, ())}
        running = {job["uuid"] for job in self.begun.values()}
        assert lost <= running
        assert Q not in keys
        assert D not in keys
        assert side_keys(self.client) == [], everything(self.client)


def test_no_history_loses_doubles_or_leaves_anything(any_server: Server) -> None:
    with any_server.client(db=9) as client:
        machine = type("PjqOnServer", (PjqInUse,), {"client": client})
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=examples(50),
                stateful_step_count=40,
                deadline=None,
                suppress_health_check=[HealthCheck.too_slow],
            ),
        )
