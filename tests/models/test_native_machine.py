"""Random histories of one native queue on a real server, compared with the pure model after every step."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest
import redis
from ferryman.schema.connection.call import Call, Command, run
from ferryman.schema.histogram import NO_TIMES
from ferryman.schema.job import State
from ferryman.schema.native.scripts.history import STEPS
from ferryman.schema.native.scripts.publication import Publication
from ferryman.schema.native.scripts.queue_scripts import QueueScripts
from ferryman.schema.native.scripts.results import Published
from ferryman.schema.native.scripts.waiting_score import score_of, sequence_of
from ferryman.schema.native.steering import NativeSteering
from ferryman.schema.steering import Action, JobFilter, Value
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from ..support.effort import examples
from ..support.servers import Server
from .native_queue import STEERED, QueueModel

pytestmark = pytest.mark.in_turn

T = TypeVar("T")

QUEUE = "mail"
PRODUCER = "pub"
CONSUMERS = ("ann", "bob", "cyd")
DELIVERY_LIMIT = 3
STRANGER = f"{PRODUCER}-999999"

COUNTERS = (
    *("published", "delivered", "redelivered", "acked", "cancelled", "requeued", "released", "reclaimed"),
    *("dead", "expired", "purged", "removed", "revived", "forwarded", "deduplicated", "moved"),
)
OTHER = "other"
"""The queue to which jobs are moved."""
EDITED = b'["edited", 1]'
FRAME = b'{"content-type":"application/json","headers":{"id":"x"}}\n{"body":1}'


consumers = st.sampled_from(CONSUMERS)
speakers = st.none() | consumers
leases = st.integers(1, 60)
ranks = st.integers(0, 5)


class NativeQueue(RuleBasedStateMachine):
    """One queue, three consumers that may stop at any step (their clock goes on, they don't renew), one producer."""

    client: redis.Redis
    forwards: bool

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.client.flushdb()
        self.scripts = QueueScripts()
        self.keys = self.scripts.keys(QUEUE)
        self.model = QueueModel(self.forwards)
        self.now = 1_000_000
        self.published = 0
        self.last_batch: list[Publication] = []
        self.recent: list[str] = [STRANGER]
        self.delivered_to: dict[str, str] = {}
        self.steering = NativeSteering()
        self.edited: set[str] = set()
        self.send(self.scripts.declare(QUEUE, {"x-dead-letter-exchange": "graves"} if self.forwards else {}, now=self.now))
        self.send(self.scripts.declare(OTHER, {}))

    def send(self, call: Call[T] | Command[T]) -> T:
        return run(self.client, call)

    def touch(self, *jobs: str) -> None:
        self.recent = [*jobs, *(job for job in self.recent if job not in jobs)]

    def pick(self, rank: int) -> str:
        """A job, the last touched first, so that short histories about the same job come up often. It may be gone."""
        job = self.recent[rank % len(self.recent)]
        self.touch(job)
        return job

    def who(self, consumer: str | None, job: str) -> str:
        """The consumer, or the last one the job was delivered to: whose words about it matter most."""
        return consumer or self.delivered_to.get(job, CONSUMERS[0])

    # Producing

    @rule(
        jobs=st.lists(
            st.tuples(
                st.sampled_from([-256, -1, 0, 0, 0, 9, 255]),
                st.none() | st.integers(-5, 50),
                st.none() | st.integers(0, 100),
                st.sampled_from([None, None, None, "one key", "other"]),
            ),
            min_size=1,
            max_size=4,
        )
    )
    def publish(self, jobs: list[tuple[int, int | None, int | None, str | None]]) -> None:
        batch = []
        for priority, delay, ttl, unique in jobs:
            self.published += 1
            due = None if delay is None else self.now + delay
            batch.append(Publication(f"{PRODUCER}-{self.published}", FRAME, priority, due, ttl, unique=unique))
        self.last_batch = batch
        self.touch(*(job.id for job in batch))
        result = self.send_batch(batch)
        stored = [self.model.publish(job.id, job.priority, job.due_ms, job.ttl_ms, job.unique, self.now) for job in batch]
        assert list(result.fresh) == stored

    @precondition(lambda self: self.last_batch)
    @rule()
    def publish_the_same_again(self) -> None:
        result = self.send_batch(self.last_batch)
        assert not any(result.fresh)

    # Consuming

    def send_batch(self, batch: list[Publication]) -> Published:
        """By the short script, where that will do."""
        short = self.scripts.publish_one(QUEUE, PRODUCER, batch[0], now=self.now) if len(batch) == 1 else None
        result = self.send(short) if short else None
        if result is None or result.status == "other":
            result = self.send(self.scripts.publish(QUEUE, PRODUCER, batch, now=self.now))
        return result

    @rule(consumer=consumers, n=st.integers(0, 4), lease=leases, woken=st.booleans(), finished=st.none() | ranks)
    def take(self, consumer: str, n: int, lease: int, woken: bool, finished: int | None = None) -> None:
        if woken:
            self.client.lpop(self.keys.wake)
        acked = [] if finished is None else [self.pick(finished), STRANGER]
        call = self.scripts.take(QUEUE, consumer, n, lease, delivery_limit=DELIVERY_LIMIT, acked=acked, now=self.now)
        taken = self.send(call)
        assert taken.verdicts == (() if finished is None else (self.model.ack(consumer, acked[0], self.now), "lost"))
        self.touch(*(job.id for job in taken.jobs))
        self.delivered_to.update((job.id, consumer) for job in taken.jobs)
        expected = self.model.take(consumer, n, lease, DELIVERY_LIMIT, self.now)
        assert [job.id for job in taken.jobs] == expected
        for job in taken.jobs:
            assert job.score == self.model.jobs[job.id].score
            assert job.deliveries == self.model.jobs[job.id].deliveries
            body = EDITED if job.id in self.edited else b'{"body":1}'
            assert job.fields[b"message"] == FRAME.partition(b"\n")[0] + b"\n" + body
        assert taken.next_event_ms == self.model.next_event(consumer, lease, self.now)

    @rule(speaker=speakers, rank=ranks)
    def ack(self, speaker: str | None, rank: int) -> None:
        job = self.pick(rank)
        consumer = self.who(speaker, job)
        assert self.send(self.scripts.ack(QUEUE, consumer, [job, STRANGER], now=self.now)) == (
            self.model.ack(consumer, job, self.now),
            "lost",
        )

    @rule(speaker=speakers, rank=ranks)
    def reject(self, speaker: str | None, rank: int) -> None:
        job = self.pick(rank)
        consumer = self.who(speaker, job)
        rejected = self.send(self.scripts.reject(QUEUE, consumer, job, "rejected", "no", now=self.now))
        assert rejected == self.model.reject(consumer, job, self.now)

    @rule(speaker=speakers, rank=ranks)
    def requeue(self, speaker: str | None, rank: int) -> None:
        job = self.pick(rank)
        consumer = self.who(speaker, job)
        assert self.send(self.scripts.requeue(QUEUE, consumer, [job], now=self.now)) == (self.model.requeue(consumer, job),)

    @rule(speaker=speakers, rank=ranks)
    def release_one(self, speaker: str | None, rank: int) -> None:
        job = self.pick(rank)
        consumer = self.who(speaker, job)
        assert self.send(self.scripts.release(QUEUE, consumer, [job], now=self.now)) == self.model.release(consumer, [job])

    @rule(consumer=consumers)
    def release_all(self, consumer: str) -> None:
        held = list(self.model.held.get(consumer, set()))
        assert self.send(self.scripts.release(QUEUE, consumer, None, now=self.now)) == self.model.release(consumer, held)

    @rule(consumer=consumers, lease=leases)
    def renew(self, consumer: str, lease: int) -> None:
        renewed = self.send(self.scripts.renew(QUEUE, consumer, lease, now=self.now))
        assert renewed == self.model.renew(consumer, lease, self.now)

    @rule(consumer=consumers)
    def forget(self, consumer: str) -> None:
        assert self.send(self.scripts.forget(QUEUE, consumer, now=self.now)) == self.model.forget(consumer)

    # Time and housekeeping

    @rule(step=st.integers(1, 100) | st.sampled_from([1, 10, 70_000, 4_000_000]))
    def time_passes(self, step: int) -> None:
        self.now += step

    @rule()
    def promote(self) -> None:
        assert self.send(self.scripts.promote(QUEUE, now=self.now)) == self.model.promote(self.now)

    @rule()
    def reclaim(self) -> None:
        assert self.send(self.scripts.reclaim(QUEUE, now=self.now)) == self.model.reclaim(self.now)

    @rule()
    def purge(self) -> None:
        assert self.send(self.scripts.purge(QUEUE, now=self.now)).jobs == self.model.purge()

    @rule(rank=ranks)
    def remove(self, rank: int) -> None:
        job = self.pick(rank)
        assert self.send(self.scripts.remove(QUEUE, job, now=self.now)) == self.model.remove(job)

    @precondition(lambda self: self.model.dead)
    @rule(rank=ranks)
    def revive(self, rank: int) -> None:
        dead = sorted(self.model.dead)
        job = dead[rank % len(dead)]
        assert self.send(self.scripts.revive(QUEUE, [job], now=self.now)) == (self.model.revive(job),)

    @precondition(lambda self: self.model.outbox)
    @rule(arrived=st.lists(st.booleans(), min_size=1, max_size=3))
    def forward(self, arrived: list[bool]) -> None:
        outbox = self.send(self.scripts.outbox(QUEUE, limit=len(arrived), now=self.now))
        self.model.promote(self.now)
        self.model.expire_first(self.now)
        assert outbox is not None
        assert [dead_letter.job.id for dead_letter in outbox.dead_letters] == self.model.outbox[: len(arrived)]
        forwarded = list(zip(outbox.dead_letters, arrived, strict=False))
        ended = self.send(self.scripts.forwarded(QUEUE, forwarded, now=self.now))
        assert ended == self.model.forward(arrived[: len(forwarded)])

    # After every step

    @invariant()
    def each_job_is_in_exactly_one_place_and_pops_in_order(self) -> None:
        model, keys = self.model, self.keys
        assert self.zset(keys.waiting) == [(job, model.jobs[job].score) for job in model.in_order()]
        assert dict(self.zset(keys.scheduled)) == model.scheduled
        assert {job for job, _ in self.zset(keys.dead)} == model.dead
        assert [job for job, _ in self.zset(keys.outbox)] == model.outbox
        assert {job for job, _ in self.zset(keys.letters)} <= {job for job, _ in self.zset(keys.dead)}
        assert [job for job, _ in self.zset(keys.moves)] == model.moves
        there = self.scripts.keys(OTHER)
        arrived = [job for place in (there.waiting, there.scheduled) for job, _ in self.zset(place)]
        assert sorted(arrived) == sorted(model.arrived)
        assert dict(self.zset(keys.consumers)) == model.leases
        for consumer in CONSUMERS:
            held = {job: model.jobs[job].score for job in model.held.get(consumer, set())}
            assert dict(self.zset(keys.held(consumer))) == held

    @invariant()
    def no_key_is_left_over_and_none_of_a_job_has_a_ttl(self) -> None:
        existing = set(self.client.keys())
        jobs = {self.keys.job(job) for job in self.model.jobs}
        memory = self.keys.publisher(PRODUCER)
        unique = {self.keys.unique(key) for key in self.model.keys}
        assert unique <= existing
        past = {self.keys.history, *map(self.keys.slots, STEPS)}
        held = {self.keys.held(each) for each in CONSUMERS}
        others = {*self.keys.plain, self.keys.moves, self.keys.letters, *held, memory, *unique}
        there = self.scripts.keys(OTHER)
        elsewhere = {key for key in existing if key.startswith(there.base)}
        assert jobs <= existing - elsewhere <= jobs | others | past | {self.keys.times}
        memories = {memory, there.publisher(f"moves from {QUEUE}"), there.history, *map(there.slots, STEPS)}
        assert all((self.client.pttl(key) == -1) == (key not in past) for key in existing - memories)

    @invariant()
    def a_token_waits_while_jobs_do(self) -> None:
        tokens = len(self.client.lrange(self.keys.wake, 0, -1))
        assert tokens <= 1
        assert tokens == 1 or not self.model.waiting or self.model.paused

    @invariant()
    def what_is_due_waits_whether_or_not_anybody_has_looked(self) -> None:
        size = self.send(self.scripts.size(QUEUE, now=self.now))
        due = sum(when <= self.now for when in self.model.scheduled.values())
        assert (size.due, size.waiting) == (due, len(self.model.waiting) + due)
        assert size.waiting + size.scheduled == len(self.model.waiting) + len(self.model.scheduled)

    @invariant()
    def counters_add_up(self) -> None:
        meta = self.client.hgetall(self.keys.meta)
        counted = {name: int(meta[name.encode()]) for name in COUNTERS if name.encode() in meta}
        assert counted == self.model.counters
        ended = sum(counted.get(name, 0) for name in ("acked", "cancelled", "purged", "removed", "forwarded", "moved"))
        assert counted.get("published", 0) == len(self.model.jobs) + ended

    @invariant()
    def times_are_those_of_the_jobs(self) -> None:
        times = self.send(self.scripts.times(QUEUE))
        assert (times.wait, times.run) == (self.model.wait, self.model.run)

    @rule()
    def the_history_has_what_was_counted_and_no_more(self) -> None:
        opened = self.send(self.scripts.open_slots(QUEUE))
        for minutes in opened:
            slots = self.send(self.scripts.slots(QUEUE, minutes))
            closed = {name: sum(slot.counters[name] for slot in slots) for name in COUNTERS}
            assert {name: number for name, number in closed.items() if number} == {
                name: number for name, number in opened[minutes].counters.items() if number
            }
            runs = sum((slot.times.run for slot in slots), NO_TIMES)
            assert runs == opened[minutes].times.run
            assert [slot.began_ms % (minutes * 60_000) for slot in slots] == [0] * len(slots)

    def zset(self, key: bytes) -> list[tuple[str, int]]:
        found: Any = self.client.zrange(key, 0, -1, withscores=True)
        return [(member.decode(), int(score)) for member, score in found]


class SteeredQueue(NativeQueue):
    """The same, with an operator; some jobs are there from the beginning."""

    @initialize(first=st.integers(0, 2))
    def some_jobs(self, first: int) -> None:
        self.publish([(0, None, None, None), (9, None, None, "one key"), (-1, 20, None, None), (0, 40, None, "other")])
        self.take("ann", first, 10, False)
        for _ in range(first):
            self.reject("ann", 0)
            self.pick(first)

    @rule()
    def pause(self) -> None:
        assert self.send(self.steering.pause(QUEUE, now=self.now)) == self.model.pause()

    @rule()
    def resume(self) -> None:
        assert self.send(self.steering.resume(QUEUE, now=self.now)) == self.model.resume()

    @rule(action=st.sampled_from(sorted(STEERED)), rank=ranks, priority=st.sampled_from([-256, 0, 255]))
    def steer(self, action: str, rank: int, priority: int) -> None:
        job = self.pick(rank)
        outcome = self.send(self.steering.act(Action(action), QUEUE, job, value_for(action, priority), now=self.now))
        assert outcome == self.model.steer(action, job, priority, self.now)
        if action == "edit" and outcome == "done":
            self.edited.add(job)

    @rule(
        action=st.sampled_from(sorted(STEERED)),
        state=st.sampled_from([State.WAITING, State.SCHEDULED, State.FAILED]),
        priority=st.sampled_from([-256, 0, 255]),
        limit=st.integers(1, 3),
        one_server=st.booleans(),
    )
    def steer_all(self, action: str, state: State, priority: int, limit: int, one_server: bool) -> None:
        """In steps of a few, all of them, each once."""
        place = {"failed": "dead"}.get(state, str(state))
        if place not in STEERED[action]:
            return
        call, cursor, done = Action(action), "", 0
        if place != "dead":
            self.model.promote(self.now)
        jobs = self.model.in_state(place, self.now)
        value = value_for(action, priority)
        same = [job for job in jobs if self.model.jobs[job].score == score_of(priority, sequence_of(self.model.jobs[job].score))]
        while cursor is not None:
            step = self.send(
                self.steering.act_on_matching(
                    call,
                    QUEUE,
                    state,
                    JobFilter(),
                    value,
                    cursor=cursor or None,
                    limit=limit,
                    one_server=one_server,
                    now=self.now,
                )
            )
            cursor, done = step.next, done + step.done
            assert step.left == 0
        if action == "move":  # numbered in the order of the index, which only the server knows for equal times
            jobs = sorted(jobs, key=lambda job: self.client.zscore(self.keys.moves, job) or 0)
        for job in jobs:
            if action == "move" and one_server:
                self.model.move_at_once(job)
            else:
                assert self.model.steer(action, job, priority, self.now) == "done"
        assert done == len(jobs) - (len(same) if action == "reprioritise" else 0)
        self.edited |= set(jobs) if action == "edit" else set()

    @precondition(lambda self: self.model.moves)
    @rule(twice=st.booleans())
    def settle(self, twice: bool) -> None:
        """Moved jobs arrive once, also if two bring them at the same time."""
        movers = [self.steering.settle(QUEUE, now=self.now) for _ in range(1 + twice)]
        replies: list[Any] = [None] * len(movers)
        ends: list[dict[str, str]] = []
        while len(ends) < len(movers):
            for at, mover in enumerate(movers):
                if replies[at] is not ...:
                    try:
                        replies[at] = [self.send(call) for call in mover.send(replies[at])]
                    except StopIteration as end:
                        replies[at] = ...
                        ends.append(end.value)
        expected = self.model.settle()
        assert all(end == expected for end in ends)


def value_for(action: str, priority: int) -> Value:
    """What an action needs beside the job."""
    return {"reprioritise": priority, "edit": EDITED, "move": OTHER}.get(action)


@pytest.mark.parametrize("kind", [NativeQueue, SteeredQueue])
@pytest.mark.parametrize("forwards", [False, True], ids=["dead stay", "dead go on"])
def test_every_history_keeps_each_job_in_one_place_and_in_order(
    any_server: Server, kind: type[NativeQueue], forwards: bool
) -> None:
    with any_server.client(db=9) as client:
        machine = type("NativeQueueOnServer", (kind,), {"client": client, "forwards": forwards})
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=examples(60),
                stateful_step_count=50,
                deadline=None,
                suppress_health_check=[HealthCheck.too_slow],
            ),
        )
