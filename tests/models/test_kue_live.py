"""Random histories of a kue keyspace that kue's own processes and consumers of ferryman share, and in which either may die.

kue is modelled with all its windows (``kue_original.py``). What a process of kue that dies in one of them leaves behind is kue's
own damage; what must never be is more than that.
"""

from __future__ import annotations

from typing import Any, TypeVar

import redis
from attrs import define
from ferryman.compat.kue.live import KueLive
from ferryman.compat.kue.steering import KueSteering
from ferryman.schema.connection.call import Call, run
from ferryman.schema.live import Failure, NewJob
from ferryman.schema.native.scripts.results import Renewed
from ferryman.schema.rule import Finding
from ferryman.schema.steering import Action, Value
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from ..support.dumps import findings
from ..support.effort import examples
from ..support.servers import Server
from .kue_original import Original

T = TypeVar("T")

QUEUES = ("mail", "video")
CONSUMERS = ("ann", "bob")
LEASE = 3000
DELIVERY_LIMIT = 2
START = 1_800_000_000_000

queues = st.sampled_from(["mail", "mail", "mail", "video"])
consumers = st.sampled_from(CONSUMERS)
holders = st.none() | consumers
"""None: whoever holds the job, as far as side keys tell."""
ranks = st.integers(0, 3)
actions = st.sampled_from(sorted(KueSteering.actions))
meanwhile = st.sampled_from([None, "take", "timers", "complete", "fail", "requeue", "cancel", "restart"])
"""What happens between two commands of a process of kue."""
options = st.fixed_dictionaries(
    {"attempts": st.integers(1, 3)},
    optional={
        "priority": st.sampled_from([-10, 5]),
        "delay": st.sampled_from([400, 1500]),
        "ttl": st.sampled_from([900, 4000]),
        "backoff": st.just("true"),
        "removeOnComplete": st.just("true"),
    },
)


@define
class Run:
    """A job that a consumer of ours has taken."""

    consumer: str
    queue: str
    taken_at: int
    ttl: int | None
    is_lapsed: bool = False
    """Whether its consumer's lease, or its ttl, has ended at some time: it may be others' now."""


class KueKeyspace(RuleBasedStateMachine):
    client: redis.Redis

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.client.flushdb()
        self.live = KueLive("q")
        self.now = START
        self.originals = [Original(self.client, lambda: self.now, f"w{n}") for n in range(3)]
        self.runs: dict[str, Run] = {}
        """By id: our last runs that nobody has ended yet, as far as we know."""
        self.leases: dict[tuple[str, str], int] = {}
        self.spoiled: set[str] = set()
        """Jobs that a process of kue has left in one of its windows, or that somebody has moved under its hands."""
        self.short_of_tokens: set[str] = set()
        self.restarted: set[str] = set()
        self.published = 0
        self.last: NewJob | None = None
        self.recent: list[str] = []

    def send(self, call: Call[T]) -> T:
        return run(self.client, call)

    def touch(self, job_id: str) -> None:
        self.recent = [job_id, *(each for each in self.recent if each != job_id)]

    def pick(self, rank: int) -> str:
        return self.recent[rank % len(self.recent)] if self.recent else "1"

    def worker_of(self, job_id: str) -> Original | None:
        """The process of kue that has a job in its hands."""
        return next((each for each in self.originals if each.job and each.job.id == job_id), None)

    # kue

    @rule(rank=st.integers(0, 2), queue=queues, wanted=options, steps=st.integers(1, 5))
    def kue_creates(self, rank: int, queue: str, wanted: dict[str, Any], steps: int) -> None:
        self.begin(rank, lambda kue: kue.create(queue, **wanted), steps)

    @rule(rank=st.integers(0, 2), queue=queues, outcome=st.sampled_from(["ok", "fail"]), steps=st.integers(1, 12), then=meanwhile)
    def kue_works(self, rank: int, queue: str, outcome: str, steps: int, then: str | None) -> None:
        self.originals[rank].outcome = outcome
        self.begin(rank, lambda kue: kue.work(queue), steps, then)

    @rule(rank=st.integers(0, 2), steps=st.integers(1, 6), then=meanwhile)
    def kue_promotes(self, rank: int, steps: int, then: str | None) -> None:
        self.begin(rank, lambda kue: kue.promote(), steps, then)

    @rule(rank=st.integers(0, 2), steps=st.integers(1, 6), then=meanwhile)
    def kue_checks_ttls(self, rank: int, steps: int, then: str | None) -> None:
        self.begin(rank, lambda kue: kue.check_ttl(self.running), steps, then)

    def running(self, job_id: str) -> Original | None:
        worker = self.worker_of(job_id)
        return worker if worker and worker.stage == "running" else None

    def begin(self, rank: int, what: Any, steps: int, then: str | None = None) -> None:
        """Some steps of a process; where ``then`` is given, something else happens before it ends what it has begun."""
        kue = self.originals[rank]
        if kue.run is None:
            kue.run = what(kue)
        self.kue_goes_on(rank, steps)
        match then:
            case "take":
                self.take("ann", "mail", 2)
            case "timers":
                self.timers()
            case "complete":
                self.complete(0, None, None)
            case "fail":
                self.fail(0, None, False, None)
            case "requeue":
                self.requeue(0, None)
            case "cancel":
                self.cancel(0)
            case "restart":
                self.somebody_clicks_at_kues_page(0, True)
        if then:
            self.kue_finishes(kue)

    @rule(rank=st.integers(0, 2), steps=st.integers(1, 6))
    def kue_goes_on(self, rank: int, steps: int) -> None:
        kue = self.originals[rank]
        for _ in range(steps):
            before = len(kue.started)
            kue.step()
            for job_id in kue.started[before:]:
                self.is_begun(job_id, kue)
            if kue.job:
                self.touch(kue.job.id)

    @rule(rank=st.integers(0, 2))
    def kue_is_killed(self, rank: int) -> None:
        kue = self.originals[rank]
        if kue.job and not (kue.stage == "running" and kue.job.ttl):
            self.spoiled.add(kue.job.id)
        if kue.token:
            self.short_of_tokens.add(kue.token)
        for lock in ("promotion:lock", "activeJobsTTL:lock"):
            if self.client.get(lock) == kue.name.encode():
                self.client.delete(lock)
        self.originals[rank] = Original(self.client, lambda: self.now, kue.name)

    @rule(rank=ranks, restarts=st.booleans())
    def somebody_clicks_at_kues_page(self, rank: int, restarts: bool) -> None:
        job_id = self.pick(rank)
        if self.worker_of(job_id):
            self.spoiled.add(job_id)  # kue's workers never ask
        if self.originals[0].restart(job_id) if restarts else self.originals[0].remove(job_id):
            self.runs.pop(job_id, None)
            self.restarted.add(job_id)

    # Ours

    @rule(queue=queues, wanted=options)
    def put(self, queue: str, wanted: dict[str, Any]) -> None:
        self.published += 1
        more = {name: value for name, value in wanted.items() if name not in ("priority", "delay", "backoff")}
        if "backoff" in wanted:
            more["backoff"] = True
        job = NewJob(
            queue, b"{}", priority=wanted.get("priority"), delay_ms=wanted.get("delay", 0), options=more,
            publication=f"p-{self.published}",
        )  # fmt: skip
        self.last = job
        self.touch(self.send(self.live.put(job, now=self.now)))

    @rule()
    def put_the_same_again(self) -> None:
        if self.last:
            before = self.client.get("q:ids")
            self.send(self.live.put(self.last, now=self.now))
            assert self.client.get("q:ids") == before

    @rule(consumer=consumers, queue=queues, n=st.integers(0, 3))
    def take(self, consumer: str, queue: str, n: int) -> None:
        taken = self.send(self.live.take(queue, consumer, n, LEASE, delivery_limit=DELIVERY_LIMIT, now=self.now))
        self.leases[queue, consumer] = self.now + LEASE
        for job in taken.jobs:
            self.is_begun(job.id, None)
            self.runs[job.id] = Run(consumer, queue, self.now, getattr(job, "time_limit_ms", None))
            self.touch(job.id)

    def is_begun(self, job_id: str, by: Original | None) -> None:
        """A job begins to run: nobody else may be at it."""
        other = self.worker_of(job_id)
        if job_id not in self.spoiled:
            assert other in (None, by), f"{job_id} runs at {other}"
            assert not self.is_ours(job_id), f"{job_id} runs at {self.runs[job_id]}"
        self.runs.pop(job_id, None)

    def is_ours(self, job_id: str) -> bool:
        """Whether a consumer of ours must still hold a job: its lease and its ttl have not ended, and nobody has touched it."""
        return job_id in self.runs and not self.runs[job_id].is_lapsed

    def end(self, job_id: str, consumer: str, is_done: bool) -> None:
        """What came of an end of ours."""
        if is_done:
            assert job_id in self.runs
            assert self.runs.pop(job_id).consumer == consumer
        elif self.is_ours(job_id) and job_id not in self.spoiled:
            assert self.runs[job_id].consumer != consumer, "it was lost"

    @rule(rank=ranks, who=holders, result=st.sampled_from([None, b"0", b'"x"']))
    def complete(self, rank: int, who: str | None, result: bytes | None) -> None:
        job_id = self.pick(rank)
        consumer = self.holder(job_id, who)
        (outcome,) = self.send(self.live.complete(self.queue_of(job_id), consumer, [(job_id, result)], now=self.now))
        self.end(job_id, consumer, outcome != "lost")

    @rule(rank=ranks, who=holders, is_final=st.booleans(), delay=st.none() | st.sampled_from([0, 300]))
    def fail(self, rank: int, who: str | None, is_final: bool, delay: int | None) -> None:
        job_id = self.pick(rank)
        consumer = self.holder(job_id, who)
        queue, failure = self.queue_of(job_id), Failure("no", is_final=is_final)
        if delay is None:
            outcome = self.send(self.live.fail(queue, consumer, job_id, failure, now=self.now))
        else:
            outcome = self.send(self.live.retry(queue, consumer, job_id, delay, failure=failure, now=self.now))
        self.end(job_id, consumer, outcome != "lost")

    @rule(rank=ranks, who=holders)
    def requeue(self, rank: int, who: str | None) -> None:
        job_id = self.pick(rank)
        consumer = self.holder(job_id, who)
        (done,) = self.send(self.live.requeue(self.queue_of(job_id), consumer, [job_id], now=self.now))
        self.end(job_id, consumer, done)

    @rule(rank=ranks, who=holders)
    def progress(self, rank: int, who: str | None) -> None:
        job_id = self.pick(rank)
        consumer = self.holder(job_id, who)
        done = self.send(self.live.progress(self.queue_of(job_id), consumer, job_id, 1, 2, now=self.now))
        if done and (held := self.runs[job_id]).ttl and self.is_ours(job_id):
            held.taken_at = self.now
        if not done:
            self.end(job_id, consumer, False)

    @rule(rank=ranks)
    def cancel(self, rank: int) -> None:
        job_id = self.pick(rank)
        worker = self.worker_of(job_id)
        if worker and worker.stage != "running":
            self.spoiled.add(job_id)
        removed = self.send(self.live.remove(self.queue_of(job_id), job_id, now=self.now))
        assert removed in (None, "held") or not self.is_ours(job_id)

    @rule(rank=ranks, action=actions, priority=st.sampled_from([-10, 5]))
    def an_operator_steers(self, rank: int, action: Action, priority: int) -> None:
        job_id = self.pick(rank)
        worker = self.worker_of(job_id)
        if worker and worker.stage != "running":
            self.spoiled.add(job_id)
        value: Value = {Action.REPRIORITISE: priority, Action.EDIT: b"[1]"}.get(action)
        outcome = self.send(KueSteering(self.live).act(action, self.queue_of(job_id), job_id, value, now=self.now))
        assert outcome != "done" or not self.is_ours(job_id)
        if outcome == "done" and action is Action.REQUEUE:
            self.restarted.add(job_id)

    @rule(consumer=consumers, queue=queues)
    def renew(self, consumer: str, queue: str) -> None:
        if self.send(self.live.renew(queue, consumer, LEASE, now=self.now)) is Renewed.DONE:
            self.leases[queue, consumer] = self.now + LEASE

    @rule(consumer=consumers, queue=queues)
    def forget(self, consumer: str, queue: str) -> None:
        self.send(self.live.forget(queue, consumer, now=self.now))
        self.runs = {job_id: held for job_id, held in self.runs.items() if (held.consumer, held.queue) != (consumer, queue)}

    @rule()
    def timers(self) -> None:
        for call in self.live.timers(delivery_limit=DELIVERY_LIMIT, now=self.now):
            self.send(call)

    def holder(self, job_id: str, who: str | None) -> str:
        held = self.client.hget(f"ferryman:live:kue:{{q}}:held:{self.queue_of(job_id)}", job_id)
        return who or (held.decode() if held else CONSUMERS[0])

    def queue_of(self, job_id: str) -> str:
        queue = self.client.hget(f"q:job:{job_id}", "type")
        return queue.decode() if queue else self.runs[job_id].queue if job_id in self.runs else "mail"

    # Time

    @rule(ms=st.sampled_from([1, 300, 900, 2100, 5000]))
    def time_passes(self, ms: int) -> None:
        """What takes kue milliseconds is done by then; and it answers in time when a job has run past its ttl."""
        if ms > 1:
            for kue in self.originals:
                self.kue_finishes(kue)
        self.now += ms
        for held in self.runs.values():
            if self.now >= self.leases[held.queue, held.consumer] or (held.ttl and self.now >= held.taken_at + held.ttl):
                held.is_lapsed = True
        for kue in self.originals:
            if kue.stage == "running" and kue.job and kue.job.ttl and self.now >= kue.job.get("started_at") + kue.job.ttl:
                kue.stage, kue.run = "ending", kue.fail_attempt(kue.job, "TTL exceeded")
                kue.finish()

    @rule(late=st.sampled_from([0, 0, 0, 2000]))
    def the_next_moment_comes(self, late: int) -> None:
        """At which a delayed job is due, or a ttl or a lease ends; or somewhat later."""
        scores = [
            score for key in ("q:jobs:delayed", "q:jobs:active") for _, score in self.client.zrange(key, 0, -1, withscores=True)
        ]
        moments = [int(score) for score in (*scores, *self.leases.values()) if score > self.now]
        if moments:
            self.time_passes(min(moments) - self.now + late)

    def kue_finishes(self, kue: Original) -> None:
        while kue.run is not None and kue.stage != "running":
            before = len(kue.started)
            kue.step()
            for job_id in kue.started[before:]:
                self.is_begun(job_id, kue)

    def findings(self) -> list[Finding]:
        """What an audit finds, but for what it can't know of a keyspace at one moment: who works, how late it is, and that what
        looks done was started again."""
        unknown = {"KUE-14", "KUE-15", "KUE-16"}
        found = [each for each in findings(self.client, "kue", "q", self.now) if each.rule not in unknown]
        return [each for each in found if each.rule != "KUE-17" or each.job_id not in self.restarted]

    # What holds at any time

    @invariant()
    def nobody_waits_without_a_token(self) -> None:
        for queue in QUEUES:
            in_hand = sum(kue.token == queue for kue in self.originals)
            if queue not in self.short_of_tokens:
                assert self.client.llen(f"q:{queue}:jobs") + in_hand >= self.client.zcard(f"q:jobs:{queue}:inactive")

    @invariant()
    def every_job_is_where_it_should_be(self) -> None:
        """But those that a process of kue has in its hands or has left there."""
        excused = self.spoiled | {kue.job.id for kue in self.originals if kue.job}
        assert [each for each in self.findings() if each.job_id and each.job_id not in excused] == []

    def teardown(self) -> None:
        """All of kue is killed, and so are our consumers; another one of ours does what is left to do."""
        for rank, kue in enumerate(self.originals):
            if kue.stage == "running" and kue.job and kue.job.ttl:
                self.spoiled.add(kue.job.id)  # its attempts and log may be anything; lost it must not be
            self.kue_is_killed(rank)
        for _ in range(40):
            self.now += 11_000
            self.timers()
            self.leases["mail", "zoe"] = self.leases["video", "zoe"] = self.now + LEASE
            done = 0
            for queue in QUEUES:
                jobs = self.send(self.live.take(queue, "zoe", 100, LEASE, delivery_limit=99, now=self.now)).jobs
                self.send(self.live.complete(queue, "zoe", [(job.id, None) for job in jobs], now=self.now))
                done += len(jobs)
            if not done and not any(self.client.zcard(f"q:jobs:{state}") for state in ("inactive", "delayed")):
                break
        for consumer in (*CONSUMERS, "zoe"):
            for queue in QUEUES:
                self.send(self.live.forget(queue, consumer, now=self.now))
        ended = {b"complete", b"failed"}
        for key in self.client.scan_iter("q:job:[0-9]*"):
            job_id = key.decode().split(":")[2]
            if job_id not in self.spoiled and not key.endswith(b":log"):
                assert self.client.hget(key, "state") in ended, job_id
        assert {key for key in self.client.scan_iter("ferryman:*") if b":publisher:" not in key} == set()
        assert not self.client.exists(*(f"q:{queue}:jobs" for queue in QUEUES))
        assert [each for each in self.findings() if each.job_id not in self.spoiled] == []


def test_no_history_loses_a_job_or_runs_it_twice_or_leaves_what_an_audit_finds(any_server: Server) -> None:
    with any_server.client(db=9) as client:
        run_state_machine_as_test(
            type("KueKeyspaceOnServer", (KueKeyspace,), {"client": client}),
            settings=settings(
                max_examples=examples(60),
                stateful_step_count=40,
                deadline=None,
                suppress_health_check=[HealthCheck.too_slow],
                report_multiple_bugs=False,
            ),
        )
