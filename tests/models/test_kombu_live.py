"""Random histories of one kombu queue on a real server, with consumers of ours and processes of kombu, which may die at any time.

kombu's side is told command by command, as its format has it: between any two of them everybody else may act, and it may die.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import redis
from ferryman.compat.kombu.client import KombuClient
from ferryman.compat.kombu.keys import SEP, STEPS, Settings
from ferryman.compat.kombu.outgoing import bucket_of, task_message
from ferryman.compat.kombu.steering import KombuSteering
from ferryman.schema.live import ForeignDelivery
from ferryman.schema.steering import Action
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from ..support.dumps import findings
from ..support.effort import examples
from ..support.servers import Server

QUEUE = "mail"
VISIBILITY = 120_000
LEASES = {"ann": 30_000, "bob": 10 * VISIBILITY}
"""Ann's end long before kombu would look, bob's long after: something must keep what he has from that."""
OURS = ("ann", "bob")
THEIRS = ("xan", "yve")
LISTS = [QUEUE if step == 0 else f"{QUEUE}{SEP}{step}" for step in STEPS]

ours = st.sampled_from(OURS)
theirs = st.sampled_from(THEIRS)
picks = st.integers(0, 3)

Steps = Generator[None, None, None]


class KombuQueue(RuleBasedStateMachine):
    """Messages are told by the id of their task, which is their delivery tag as well."""

    client: redis.Redis

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.client.flushdb()
        self.now = 1_795_000_000_000
        self.published = 0
        self.ended: set[str] = set()
        self.lost_by_kombu: set[str] = set()
        self.jobs: dict[str, list[ForeignDelivery]] = {name: [] for name in OURS}
        self.clients = {name: self.joined(name, 0) for name in OURS}
        self.generation = 0
        self.running: dict[str, Steps] = {}
        self.popped: dict[str, str] = {}
        """What a process of kombu has popped and not noted yet."""
        self.noted_at: dict[str, int] = {}
        """What processes of kombu had noted, and when: until the visibility timeout only they may give it back."""
        self.disturbed: set[str] = set()
        """What one of kombu's has given back at its own will, perhaps long after others had got it."""
        self.taken: dict[str, list[str]] = {name: [] for name in THEIRS}

    def joined(self, name: str, generation: int) -> KombuClient:
        """A new consumer of ours: it must not take over what an earlier one had."""
        keyspace = Settings(visibility_timeout=VISIBILITY / 1000)
        consumer = f"{name}-{generation}"
        return KombuClient(self.client, settings=keyspace, consumer=consumer, lease_ms=LEASES[name], delivery_limit=50)

    # Producers

    @rule(priority=st.sampled_from([0, 0, 3, 9]), by_kombu=st.booleans())
    def publish(self, priority: int, by_kombu: bool) -> None:
        self.published += 1
        name = f"m{self.published}"
        message = task_message("t", task_id=name, priority=priority)
        if by_kombu:
            info = {"exchange": "", "routing_key": QUEUE}
            message["properties"] |= {"delivery_info": info, "delivery_tag": name}
            self.client.sadd(f"_kombu.binding.{QUEUE}", SEP.join((QUEUE, "", QUEUE)))
            self.client.lpush(LISTS[STEPS.index(bucket_of(priority, STEPS))], json.dumps(message))
        else:
            self.clients["ann"].put(QUEUE, message, job_id=name, now=self.now)

    # Consumers of ours

    @rule(who=ours, n=st.integers(1, 3))
    def take(self, who: str, n: int) -> None:
        held = self.held_now()
        for job in self.clients[who].take(QUEUE, n, now=self.now):
            assert job.id not in held, f"{job.id} runs twice, and no lease has lapsed"
            assert self.now - self.noted_at.pop(job.id, -VISIBILITY) >= VISIBILITY, f"{job.id} was taken from kombu too early"
            assert job.id not in self.ended or job.redelivered
            self.jobs[who].append(job)

    def held_by_live(self) -> dict[str, float]:
        """What those of ours have whose lease has not ended, with the moment at which they said so last, ms."""
        live = {name for name, until in self.leases().items() if until > self.now}
        marks = self.client.hgetall("ferryman:live:kombu:{}:marks:mail")
        held = self.client.hgetall("ferryman:live:kombu:{}:held:mail")
        return {tag.decode(): float(marks[tag]) * 1000 for tag, name in held.items() if name in live and tag in marks}

    def held_now(self) -> set[str]:
        """What of that nobody has given back meanwhile."""
        scores = dict(self.client.zrange("unacked_index", 0, -1, withscores=True))
        return {tag for tag, mark in self.held_by_live().items() if abs(scores.get(tag.encode(), 0.0) * 1000 - mark) < 0.000_1}

    def leases(self) -> dict[bytes, float]:
        return dict(self.client.zrange("ferryman:live:kombu:{}:consumers:mail", 0, -1, withscores=True))

    @precondition(lambda self: any(self.jobs.values()))
    @rule(who=ours, pick=picks, how=st.sampled_from(["complete", "complete", "fail", "requeue", "retry", "release"]))
    def end(self, who: str, pick: int, how: str) -> None:
        if not self.jobs[who]:
            return
        job = self.jobs[who].pop(pick % len(self.jobs[who]))
        client = self.clients[who]
        match how:
            case "complete":
                done = client.complete(job, now=self.now) == "removed"
            case "fail":
                done = client.fail(job, "x", now=self.now) == "removed"
            case "requeue":
                client.requeue(job, now=self.now)
                return
            case "release":
                client.send(client.live.release(QUEUE, client.consumer, [job.id], now=self.now))
                return
            case _:
                client.retry(job, 10, now=self.now)
                return
        if done:
            self.ended.add(job.id)

    @rule(who=ours)
    def renew(self, who: str) -> None:
        self.clients[who].heartbeat(QUEUE, now=self.now)

    @rule(who=ours)
    def timers(self, who: str) -> None:
        self.clients[who].run_timers(now=self.now)

    @rule(who=ours, cleanly=st.booleans())
    def go(self, who: str, cleanly: bool) -> None:
        """Another one comes in its place, of another id."""
        if cleanly:
            self.clients[who].close(now=self.now)
        self.generation += 1
        self.clients[who] = self.joined(who, self.generation)
        self.jobs[who] = []

    # Operators

    @precondition(lambda self: self.published)
    @rule(pick=st.integers(0, 30), action=st.sampled_from(sorted(KombuSteering.actions)))
    def an_operator_steers(self, pick: int, action: Action) -> None:
        """What waits can be deleted, and nothing else."""
        tag = f"m{pick % self.published + 1}"
        waits, unacked = self.waits(tag), self.client.hgetall("unacked")
        client = self.clients["ann"]
        outcome = client.send(KombuSteering(client.live).act(action, QUEUE, tag, now=self.now))
        assert outcome == ("done" if waits else "missing")
        assert self.waits(tag) == max(0, waits - 1)
        assert self.client.hgetall("unacked") == unacked
        if outcome == "done":
            self.ended.add(tag)

    def waits(self, tag: str) -> int:
        """How many copies of a message are in the queue's lists."""
        texts = [text for name in LISTS for text in self.client.lrange(name, 0, -1)]
        return [json.loads(text)["properties"]["delivery_tag"] for text in texts].count(tag)

    # Processes of kombu, command by command

    @rule(who=theirs, what=st.sampled_from(["take", "take", "ack", "requeue", "reject", "sweep"]), pick=picks)
    def begin(self, who: str, what: str, pick: int) -> None:
        if who not in self.running:
            self.running[who] = self.told(who, what, pick)
            self.step(who)

    @rule(who=theirs)
    def step(self, who: str) -> None:
        """One command more."""
        if who in self.running and next(self.running[who], "over") == "over":
            del self.running[who]

    @rule(who=theirs)
    def look_after_what_was_left(self, who: str) -> None:
        """One of kombu's sweeps when that is due, and takes what it finds, while none of ours does anything."""
        self.now += VISIBILITY + 1
        for what in ("sweep", "take"):
            self.begin(who, what, 0)
            while who in self.running:
                self.step(who)

    @rule(who=theirs)
    def die(self, who: str) -> None:
        """With all that it has popped and not noted; the rest goes back some day."""
        self.running.pop(who, None)
        popped = self.popped.pop(who, None)
        if popped is not None and not self.stands(popped):
            self.lost_by_kombu.add(popped)
        self.taken[who] = []

    def told(self, who: str, what: str, pick: int) -> Steps:
        if what == "take":
            yield from self.their_take(who)
        elif what == "sweep":
            yield from self.their_sweep()
        elif self.taken[who]:
            tag = self.taken[who].pop(pick % len(self.taken[who]))
            self.noted_at.pop(tag, None)
            if what == "requeue":
                self.disturbed.add(tag)
            if what == "requeue":
                yield from self.their_restore(tag, "LPUSH")
            else:
                self.client.pipeline().zrem("unacked_index", tag).hdel("unacked", tag).execute()
                self.ended.add(tag)

    def their_take(self, who: str) -> Steps:
        text = next((found for name in LISTS if (found := self.client.rpop(name))), None)
        if text is None:
            return
        assert isinstance(text, bytes)
        message = json.loads(text)
        tag = message["properties"]["delivery_tag"]
        if tag not in self.disturbed:
            assert self.now - self.held_by_live().get(tag, -1e18) >= VISIBILITY, f"{tag} runs twice"
        assert self.now - self.noted_at.pop(tag, -VISIBILITY) >= VISIBILITY, f"{tag} was given back too early"
        self.popped[who] = tag
        yield
        info = message["properties"]["delivery_info"]
        delivery = json.dumps([message, info["exchange"], info["routing_key"]])
        self.client.pipeline().zadd("unacked_index", {tag: self.now / 1000 + 0.000_000_3}).hset(
            "unacked", tag, delivery
        ).execute()
        self.popped.pop(who, None)
        self.noted_at[tag] = self.now
        self.taken[who].append(tag)

    def their_sweep(self) -> Steps:
        overdue = self.client.zrange("unacked_index", (self.now - VISIBILITY) / 1000, 0, desc=True, byscore=True)
        for tag in overdue:
            yield
            yield from self.their_restore(tag.decode(), "RPUSH")

    def their_restore(self, tag: str, command: str) -> Steps:
        while True:
            with self.client.pipeline() as pipe:
                pipe.watch("unacked")
                raw: Any = pipe.hget("unacked", tag)
                yield
                pipe.multi()
                pipe.zrem("unacked_index", tag)
                pipe.hdel("unacked", tag)
                if raw:
                    message, _, routing_key = json.loads(raw)
                    message["headers"]["redelivered"] = message["properties"]["delivery_info"]["redelivered"] = True
                    step = bucket_of(message["properties"]["priority"], STEPS)
                    pipe.execute_command(command, routing_key if step == 0 else f"{routing_key}{SEP}{step}", json.dumps(message))
                try:
                    pipe.execute()
                except redis.WatchError:
                    continue
                return

    # Time, and what must always be true

    @rule(ms=st.sampled_from([1, 1000, 15_000, 30_001, VISIBILITY + 1]))
    def pass_time(self, ms: int) -> None:
        self.now += ms

    def stands(self, tag: str) -> bool:
        texts = [text for name in LISTS for text in self.client.lrange(name, 0, -1)]
        return bool(self.client.hexists("unacked", tag)) or any(f'"{tag}"'.encode() in text for text in texts)

    @invariant()
    def nothing_is_lost(self) -> None:
        texts = b"".join(text for name in LISTS for text in self.client.lrange(name, 0, -1))
        known = {tag.decode() for tag in self.client.hkeys("unacked")} | set(self.popped.values())
        for number in range(1, self.published + 1):
            tag = f"m{number}"
            if tag not in known | self.ended | self.lost_by_kombu:
                assert f'"{tag}"'.encode() in texts, f"{tag} is gone, and nobody has ended it"

    @invariant()
    def an_audit_finds_nothing_but_that_somebody_must_look_after_what_was_left(self) -> None:
        found = {finding.rule for finding in findings(self.client, "kombu", "", self.now)}
        assert found <= {"KOMBU-5"}, found

    @invariant()
    def what_is_held_by_ours_stands_where_kombu_looks(self) -> None:
        for client in self.clients.values():
            for tag in client.held(QUEUE):
                assert self.client.hexists("unacked", tag)

    def teardown(self) -> None:
        for who in THEIRS:
            self.die(who)
        for who in OURS:
            self.go(who, False)
        self.now += 11 * VISIBILITY
        last = self.clients["ann"]
        last.run_timers(now=self.now)
        while jobs := last.take(QUEUE, 100, now=self.now):
            for job in jobs:
                assert last.complete(job, now=self.now) == "removed"
                self.ended.add(job.id)
        last.close(now=self.now)
        names = {f"m{number}" for number in range(1, self.published + 1)}
        assert self.ended | self.lost_by_kombu == names
        left = [key for key in self.client.scan_iter() if not key.startswith(b"_kombu.")]
        assert not left, left


def test_no_history_of_both_loses_a_message_or_runs_one_twice(any_server: Server) -> None:
    with any_server.client(db=9) as client:
        machine = type("KombuQueueOnServer", (KombuQueue,), {"client": client})
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=examples(40),
                stateful_step_count=40,
                deadline=None,
                suppress_health_check=[HealthCheck.too_slow],
            ),
        )
