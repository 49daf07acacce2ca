"""Random histories of one kickq keyspace: consumers of ours, and processes of kickq that stop or die between any two commands.

Checked after every step: what the model of our side says of who holds what and how often a job has run; and the family's own
audit, which may find nothing but what killed processes of kickq leave. In the end all jobs that they did not damage are done.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import redis
from ferryman.compat.kickq import FAMILY
from ferryman.compat.kickq.client import KickqClient
from ferryman.compat.kickq.steering import KickqSteering
from ferryman.schema.live import Failure
from ferryman.schema.steering import Action, Outcome
from ferryman.testing.keyspaces import dump, read_keyspace
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from ..support.effort import examples
from ..support.servers import Server
from .kickq_original import LOOK_MS, OriginalKickq, Process, Running, Scheduler, Steps
from .kickq_players import OURS, THEIRS, Consumer, Paused

QUEUES = ("mail", "sms")
LEASE, RUN_LIMIT, INTERVAL, DAY = 3000, 2000, 1000, 86_400_000
DELIVERY_LIMIT = 1

LIVING = frozenset({"KICKQ-13", "KICKQ-16", "KICKQ-18"})
"""Rules that kickq breaks without an accident: what is due and its schedulers have not seen, and who runs it."""

queues = st.sampled_from(QUEUES)
ranks = st.integers(0, 5)
pauses = st.none() | st.none() | st.integers(0, 9)
delays = st.sampled_from([0, 0, 500, 2500])
options = st.sampled_from(
    [{}, {"retry": True, "retryTimes": 3}, {"ghostTimes": 2, "retry": True, "retryTimes": 2}, {"ghostRetry": False}]
).map(lambda chosen: {"retryInterval": INTERVAL, "ghostInterval": INTERVAL, "processTimeout": RUN_LIMIT, **chosen})


class KickqKeyspace(RuleBasedStateMachine):
    """Two consumers of ours, of which any may vanish at any step; a producer, a worker and a scheduler of kickq."""

    client: redis.Redis

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.client.flushdb()
        self.now = 1_800_000_000_000
        self.original, self.worker = OriginalKickq(), list[Running]()
        self.paused: list[Paused] = []
        self.schedulers: list[Scheduler] = []
        self.names = 0
        self.consumers = [self.new_consumer(), self.new_consumer()]
        self.gone: list[Consumer] = []
        self.runs: Counter[str] = Counter()
        self.lapses: Counter[str] = Counter()
        self.finished: dict[str, int] = {}
        self.jobs: dict[str, str] = {}
        """The queues of all jobs."""
        self.damaged: set[str] = set()
        """What a killed process of kickq was at."""
        self.deleted: set[str] = set()
        """What an operator has deleted while a process of kickq was at it."""

    def new_consumer(self) -> Consumer:
        self.names += 1
        name = f"ours-{self.names}"
        return Consumer(KickqClient(self.client, consumer=name, lease_ms=LEASE, delivery_limit=DELIVERY_LIMIT))

    def everybody(self) -> list[Consumer]:
        return [*self.consumers, *self.gone]

    # Producing

    @initialize()
    def begin(self) -> None:
        """Most histories are about a few jobs that are there from the start."""
        for attempts in (1, 3, 3, 1):
            for queue in QUEUES:
                given = {"retryInterval": INTERVAL, "ghostInterval": INTERVAL, "processTimeout": RUN_LIMIT, "attempts": attempts}
                self.jobs[self.consumers[0].client.put(queue, 1, now=self.now, **given)] = queue

    def has_room(self) -> bool:
        """Few jobs at a time: so they go through many transitions each."""
        return len(self.jobs.keys() - self.finished.keys() - self.damaged) < 10

    def put(self, queue: str, delay: int, options: dict[str, Any]) -> None:
        self.names += 1
        publication, client = f"p{self.names}-1", self.consumers[0].client
        put = [client.put(queue, 1, delay_ms=delay, publication=publication, now=self.now, **options) for _ in range(2)]
        assert put[0] == put[1]
        assert put[0] not in self.jobs
        self.jobs[put[0]] = queue

    def original_puts(self, queue: str, delay: int, options: dict[str, Any], pause: int | None) -> None:
        given = {**options, **({"delay": delay} if delay else {})}
        process = Process(self.client, self.original.create(queue, 1, self.now, **given))
        process.send(1)
        job_id = str(int(self.client.get("kickq:id") or 0))
        self.jobs[job_id] = queue
        self.go_on(Paused(process, {job_id}, lambda _made: None), pause)

    def go_on(self, paused: Paused, commands: int | None) -> None:
        """Lets a process of kickq send so many commands."""
        paused.process.send(commands)
        if paused.process.is_done:
            paused.end(paused.process.results[0])
        else:
            self.paused.append(paused)

    @precondition(lambda self: self.paused)
    @rule(rank=ranks, commands=pauses)
    def original_goes_on(self, rank: int, commands: int | None) -> None:
        self.go_on(self.paused.pop(rank % len(self.paused)), commands)

    def original_dies(self, rank: int) -> None:
        if self.paused:
            self.damaged |= self.paused.pop(rank % len(self.paused)).job_ids

    def unsettled(self) -> set[str]:
        """Jobs that a process of kickq is at, or was when it died."""
        in_memory = {job.id for scheduler in self.schedulers for _, _, job in scheduler.taken}
        return self.damaged.union(in_memory, *(paused.job_ids for paused in self.paused))

    # Consuming

    def lapse(self, queue: str, taking: Consumer | None = None) -> None:
        """What becomes of consumers whose lease has ended when somebody looks at a queue."""
        for consumer in self.everybody():
            if consumer is not taking and consumer.leases.get(queue, self.now + 1) <= self.now:
                del consumer.leases[queue]
                for job_id in [each for each, (job, _) in consumer.held.items() if job.queue == queue]:
                    del consumer.held[job_id]
                    self.lapses[job_id] += 1
                    if self.lapses[job_id] > DELIVERY_LIMIT:
                        self.runs[job_id] += 1
                        self.finish(job_id)

    def finish(self, job_id: str, at: int | None = None) -> None:
        self.finished[job_id] = self.now if at is None else at
        self.lapses.pop(job_id, None)

    def running(self) -> set[str]:
        return {job_id for consumer in self.everybody() for job_id in consumer.held} | {job.id for job in self.worker}

    def busy(self, queue: str) -> str:
        """A queue in which something waits, this one if it can be."""
        return max((queue, *QUEUES), key=lambda name: min(1, self.client.llen(f"kickq:queue:{name}")))

    def take(self, rank: int, queue: str, n: int) -> None:
        consumer, queue = self.consumers[rank % len(self.consumers)], self.busy(queue)
        self.lapse(queue, consumer)
        consumer.leases[queue] = self.now + LEASE
        before = self.running()
        for job in consumer.client.take(queue, n, now=self.now):
            assert job.id not in before, "it is being run already"
            assert job.id not in self.finished or job.id in self.unsettled(), "it has been done already"
            assert job.queue == self.jobs[job.id] == queue
            if job.id not in self.unsettled():
                assert job.attempts == self.runs[job.id]
                assert job.deliveries == self.runs[job.id] + self.lapses[job.id] + 1
            consumer.held[job.id] = (job, self.now)

    def end_run(self, rank: int, how: str) -> None:
        holders = [(consumer, job_id) for consumer in self.everybody() for job_id in consumer.held]
        if not holders:
            return
        consumer, job_id = holders[rank % len(holders)]
        job, _ = consumer.held.pop(job_id)
        outcome: Any
        match how:
            case "complete":
                outcome = consumer.client.complete(job, now=self.now)
            case "fail":
                outcome = consumer.client.fail(job, "no", now=self.now)
            case "time out":
                outcome = consumer.client.fail(job, Failure("slow", exception="TimeLimitExceeded"), now=self.now)
            case "retry":
                outcome = consumer.client.retry(job, 700, now=self.now)
            case "requeue":
                assert consumer.client.requeue(job, now=self.now)
                return
            case _:
                outcome = consumer.client.fail(job, Failure("no", is_final=True), now=self.now)
        assert outcome in (("completed",) if how == "complete" else ("scheduled", "failed"))
        self.runs[job_id] += 1
        if outcome != "scheduled":
            self.finish(job_id)

    def renew(self, rank: int, queue: str) -> None:
        consumer = self.consumers[rank % len(self.consumers)]
        assert consumer.client.heartbeat(queue, now=self.now) == (queue in consumer.leases)
        if queue in consumer.leases:
            consumer.leases[queue] = self.now + LEASE
            for job_id, (job, started) in list(consumer.held.items()):
                if job.queue == queue and self.now - started >= (job.time_limit_ms or 0):
                    del consumer.held[job_id]
                    self.runs[job_id] += 1
                    if self.state(job_id) == "fail":
                        self.finish(job_id)

    def leave(self, rank: int, in_order: bool) -> None:
        """A consumer of ours ends, or is not heard of any more, or only once."""
        number = rank % len(self.consumers)
        if in_order:
            self.consumers[number].client.close(now=self.now)
        else:
            self.gone.append(self.consumers[number])
        self.consumers[number] = self.new_consumer()

    @rule()
    def run_timers(self) -> None:
        for queue in QUEUES:
            self.lapse(queue)
        self.consumers[0].client.run_timers(now=self.now)

    # kickq's own worker and scheduler

    def original_pops(self, queue: str, pause: int | None) -> None:
        queue = self.busy(queue)
        head = {raw.decode() for raw in self.client.lrange(f"kickq:queue:{queue}", 0, 0)}
        assert not head & self.running()

        def end(job: Running | None) -> None:
            if job is not None:
                self.worker.append(job)

        process = Process(self.client, self.original.pop(queue, self.now))
        process.send(1)
        self.go_on(Paused(process, head, end), pause)

    def original_ends(self, rank: int, how: str, pause: int | None) -> None:
        if not self.worker:
            return
        job, began = self.worker.pop(rank % len(self.worker)), self.now

        def end(_result: None) -> None:
            self.runs[job.id] += 1
            if job.state in ("success", "fail"):
                self.finish(job.id, began)  # by the clock at which it looked before it was paused

        steps: Steps[None]
        match how:
            case "succeed":
                steps = self.original.succeed(job, self.now)
            case "fail":
                steps = self.original.fail(job, "no", self.now)
            case "time out":
                steps = self.original.time_out(job, self.now)
            case _:
                self.damaged.add(job.id)
                return
        self.go_on(Paused(Process(self.client, steps), {job.id}, end), pause)

    def original_looks(self, pause: int | None) -> None:
        """A scheduler takes what is due within 1.5 s, and has it in its memory until then."""
        scheduler = Scheduler(self.original)
        keys = ("kickq:scheduled", "kickq:scheduled-purge")
        seen = {raw.decode() for key in keys for raw in self.client.zrange(key, 0, -1)}

        def end(_result: None) -> None:
            self.schedulers.append(scheduler)
            if seen & self.deleted:  # it forgets all that it has found with them
                kept = {raw.decode() for key in keys for raw in self.client.zrange(key, 0, -1)}
                self.damaged |= seen - kept - {job.id for _, _, job in scheduler.taken}

        self.go_on(Paused(Process(self.client, scheduler.look(self.now)), seen, end), pause)

    def original_schedules(self, rank: int, pause: int | None, dies: bool) -> None:
        """It queues what is due by now, or dies."""
        if not self.schedulers:
            return
        scheduler = self.schedulers.pop(rank % len(self.schedulers))
        taken = {job.id for _, _, job in scheduler.taken}
        if dies:
            self.damaged |= taken
        elif taken:
            process = Process(self.client, scheduler.fire(self.now))
            self.go_on(Paused(process, taken, lambda _: self.schedulers.append(scheduler)), pause)

    # Operators

    @precondition(lambda self: self.jobs)
    @rule(rank=st.integers(0, 30), action=st.sampled_from(sorted(KickqSteering.actions)))
    def an_operator_steers(self, rank: int, action: Action) -> None:
        """One that a process of kickq has in its hands may be deleted only long after it should have let go of it."""
        in_memory = self.about_to_be_queued()
        job_id = sorted(self.jobs, key=lambda each: (each not in in_memory, int(each)))[rank % len(self.jobs)]
        queue, state, is_settled = self.jobs[job_id], self.state(job_id), job_id not in self.unsettled()
        steering, client = KickqSteering(self.consumers[0].client.live), self.consumers[0].client
        outcome = client.send(steering.act(action, queue, job_id, now=self.now))
        if is_settled:
            assert outcome == self.expected(action, job_id, state)
        elif job_id in in_memory:
            assert outcome == "held"
        if outcome != "done":
            assert self.state(job_id) == state
        elif action is Action.PROMOTE:
            assert self.state(job_id) == "queued"
        else:
            assert state != "processing"
            assert self.state(job_id) is None
            self.forget(job_id, is_settled)

    def about_to_be_queued(self) -> set[str]:
        """What schedulers of kickq have in their memory no longer than it should take them to queue it."""
        taken = (each for scheduler in self.schedulers for each in scheduler.taken)
        return {job.id for due, role, job in taken if role == "scheduled" and self.now <= due + LOOK_MS and job.id in self.jobs}

    def expected(self, action: Action, job_id: str, state: str | None) -> Outcome:
        """What becomes of an action on a job that no process of kickq has in its memory."""
        if state is None:
            return "missing"
        if job_id in self.running():
            return "held"
        is_scheduled, is_waiting = state in ("delayed", "retry", "ghost"), state in ("new", "queued")
        fits = {Action.PROMOTE: is_scheduled, Action.CANCEL: is_scheduled or is_waiting, Action.DELETE: True}[action]
        return "done" if fits else "refused"

    def forget(self, job_id: str, is_settled: bool) -> None:
        self.lapses.pop(job_id, None)
        if is_settled:
            del self.jobs[job_id]
            self.finished.pop(job_id, None)
        else:
            self.damaged.add(job_id)
            self.deleted.add(job_id)

    # Time

    @rule(ms=st.sampled_from([1, 100, 700, 1000, 1500, 3000, 10_000, DAY]))
    def wait(self, ms: int) -> None:
        self.now += ms

    # What happens: few rules, since hypothesis leaves out some in each history

    @precondition(has_room)
    @rule(queue=queues, delay=delays, options=options, by_ours=st.booleans(), pause=pauses)
    def somebody_puts(self, queue: str, delay: int, options: dict[str, Any], by_ours: bool, pause: int | None) -> None:
        if by_ours:
            self.put(queue, delay, options)
        else:
            self.original_puts(queue, delay, options, pause)

    @rule(acts=st.lists(st.tuples(st.sampled_from(OURS), ranks, queues), min_size=1, max_size=4))
    def ours_act(self, acts: list[tuple[str, int, str]]) -> None:
        for what, rank, queue in acts:
            self.act(what, rank, queue)

    def act(self, what: str, rank: int, queue: str) -> None:
        match what:
            case "take":
                self.take(rank, queue, 1 + rank % 2)
            case "look":
                self.take(rank, queue, 0)
            case "renew":
                self.renew(rank, queue)
            case "leave" | "vanish":
                self.leave(rank, what == "leave")
            case _:
                self.end_run(rank, what)

    @rule(acts=st.lists(st.tuples(st.sampled_from(THEIRS), ranks, queues, pauses), min_size=1, max_size=3))
    def kickqs_own_act(self, acts: list[tuple[str, int, str, int | None]]) -> None:
        for what, rank, queue, pause in acts:
            self.original_act(what, rank, queue, pause)

    def original_act(self, what: str, rank: int, queue: str, pause: int | None) -> None:
        match what:
            case "pop":
                self.original_pops(queue, pause)
            case "look":
                self.original_looks(pause)
            case "schedule" | "schedule no more":
                self.original_schedules(rank, pause, what == "schedule no more")
            case "stop for ever":
                self.original_dies(rank)
            case _:
                self.original_ends(rank, what, pause)

    # What must hold

    def state(self, job_id: str) -> str | None:
        raw = self.client.hget(f"kickq:job:{job_id}", "state")
        return None if raw is None else raw.decode()

    @invariant()
    def our_consumers_hold_what_the_model_says(self) -> None:
        for consumer in self.everybody():
            held = {job_id for queue in QUEUES for job_id in consumer.client.held(queue)}
            assert held == set(consumer.held)

    @invariant()
    def nothing_is_lost_and_every_run_is_counted(self) -> None:
        found = {job_id: self.consumers[0].client.get(job_id) for job_id in set(self.jobs) - self.unsettled()}
        for job_id, job in found.items():
            if job is None:
                assert self.now >= self.finished[job_id] + DAY - 1500
            else:
                assert job.attempts == self.runs[job_id]
                assert (job.state in ("success", "fail")) == (job_id in self.finished)

    @invariant()
    def an_audit_finds_nothing_but_what_killed_processes_of_kickq_leave(self) -> None:
        entries = [entry for key, entry in dump(self.client).items() if key.startswith(b"kickq:")]
        unsettled = self.unsettled()
        for finding in read_keyspace(FAMILY, entries, "kickq", self.now).findings():
            assert finding.rule in LIVING or finding.job_id in unsettled, finding

    def teardown(self) -> None:
        """All processes of kickq have gone, and all consumers but one: it does what there is to do."""
        self.damaged = self.unsettled() | {job.id for job in self.worker}
        last = self.new_consumer().client
        for consumer in self.consumers:
            consumer.client.close(now=self.now)
        for _ in range(12):
            self.now += LEASE
            last.run_timers(now=self.now)
            for queue in QUEUES:
                for job in last.take(queue, 100, now=self.now):
                    last.complete(job, now=self.now)
        states = {job_id: self.state(job_id) for job_id in set(self.jobs) - self.damaged}
        assert set(states.values()) <= {"success", "fail", None}
        assert self.client.keys("kickq:queue:*") == []
        assert self.client.zcard("kickq:scheduled") == 0
        last.close(now=self.now)
        left = {key for key in self.client.keys("ferryman:live:*") if b":publisher:" not in key}
        # How often consumers have lapsed is remembered of a job, for a day, that a killed worker of kickq has kept for ever.
        lapses = {key for key in left if b":lapses:" in key}
        assert left == lapses
        assert {raw.decode() for key in lapses for raw in self.client.hkeys(key)} <= self.damaged


def test_a_kickq_keyspace_in_use_stays_sound_in_random_histories(any_server: Server) -> None:
    with any_server.client(db=9) as client:
        machine = type("Keyspace", (KickqKeyspace,), {"client": client})
        run_state_machine_as_test(  # type: ignore[no-untyped-call]
            machine,
            settings=settings(
                max_examples=examples(35),
                stateful_step_count=40,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
