"""The clockwork of kue and ours: promotion, ttl, lapsed consumers, jobs that are half taken."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from ferryman.schema.native.scripts.results import Renewed

from ...support.dumps import changes, dump
from .keyspace import LEASE, NOW, ROOT, World, at

pytestmark = pytest.mark.in_turn


def tick(world: World, now: int, **options: Any) -> Any:
    (call,) = world.live.timers(now=now, **options)
    return world.send(call)


def test_a_due_job_is_promoted_and_a_later_one_is_not(world: World) -> None:
    world.job(1, "delayed", promote_at=str(NOW), priority="4", delay="10")
    world.job(2, "delayed", promote_at=str(NOW + 1))
    before = dump(world.client)
    assert tick(world, NOW) == 0
    assert changes(before, dump(world.client)) == {
        "q:job:1": at(before["q:job:1"], state="inactive", updated_at=str(NOW)),
        "q:jobs:delayed": {"01|2": NOW + 1.0},
        "q:jobs:mail:delayed": {"01|2": 0.0},
        "q:jobs:inactive": {"01|1": 4.0},
        "q:jobs:mail:inactive": {"01|1": 4.0},
        "q:mail:jobs": ["1"],
    }


def test_nothing_is_promoted_while_a_process_of_kue_does_it(world: World) -> None:
    world.job(1, "delayed", promote_at=str(NOW))
    world.client.set("promotion:lock", "x", px=60_000)
    before = dump(world.client)
    taken = world.send(world.live.take("mail", "ann", 1, LEASE, now=NOW))
    assert (taken.jobs, taken.next_event_ms) == ((), NOW + 50)
    tick(world, NOW)
    assert {key: value for key, value in dump(world.client).items() if key.startswith("q:")} == {
        key: value for key, value in before.items() if key.startswith("q:")
    }
    world.client.persist("promotion:lock")  # nobody holds a lock without an end, and kue never promotes again
    assert [job.id for job in world.take()] == ["1"]


def test_a_take_says_when_to_come_again(world: World) -> None:
    world.job(1, "delayed", promote_at=str(NOW + 300))
    assert world.send(world.live.take("mail", "ann", 1, LEASE, now=NOW)).next_event_ms == NOW + 300
    assert world.send(world.live.take("mail", "bob", 1, 200, now=NOW)).next_event_ms == NOW + 200
    world.job(2)
    world.job(3)
    assert world.send(world.live.take("mail", "ann", 1, LEASE, now=NOW)).more


def test_a_due_job_that_has_another_state_only_leaves_the_index(world: World) -> None:
    world.job(1, "delayed", promote_at=str(NOW))
    world.client.hset("q:job:1", "state", "complete")
    tick(world, NOW)
    assert dump(world.client)["q:job:1"]["state"] == "complete"
    assert world.client.exists("q:jobs:delayed", "q:jobs:mail:delayed", "q:mail:jobs") == 0


EXPIRED = {"error": "TTL exceeded", "attempts": "1"}


def test_a_run_of_ours_past_its_ttl_fails_at_once(world: World) -> None:
    world.taken(1, ttl="500", max_attempts="2")
    before = dump(world.client)
    tick(world, NOW + 499)
    assert dump(world.client) == before
    tick(world, NOW + 500)
    keys = dump(world.client)
    assert keys["q:job:1"] == at(
        before["q:job:1"], state="inactive", failed_at=str(NOW + 500), updated_at=str(NOW + 500), **EXPIRED
    )
    assert ROOT + "held:mail" not in keys


def test_a_run_of_kues_past_its_ttl_is_kues_to_fail_for_two_seconds(world: World) -> None:
    world.job(1, "active", ttl="500", workerId="kue:host:1:mail:1")
    before = dump(world.client)
    tick(world, NOW + 1999)
    assert dump(world.client) == before
    world.client.set("activeJobsTTL:lock", "x", px=60_000)
    tick(world, NOW + 2000)
    world.client.delete("activeJobsTTL:lock")
    assert dump(world.client) == before
    tick(world, NOW + 2000)
    assert dump(world.client)["q:job:1"]["state"] == "failed"


def test_an_end_past_the_ttl_is_refused_while_kue_fails_the_job(world: World) -> None:
    world.taken(1, ttl="20")
    world.client.set("activeJobsTTL:lock", "x", px=60_000)
    assert world.send(world.live.complete("mail", "ann", [("1", None)], now=NOW + 21)) == ("lost",)


def test_what_a_lapsed_consumer_held_waits_again_until_it_has_lapsed_too_often(world: World) -> None:
    world.job(1, max_attempts="3")
    moment = NOW
    for _ in range(2):
        assert [job.attempts for job in world.take(now=moment, delivery_limit=2)] == [0]
        moment += LEASE
        tick(world, moment - 1, delivery_limit=2)
        assert dump(world.client)["q:job:1"]["state"] == "active"
        tick(world, moment, delivery_limit=2)
        keys = dump(world.client)
        assert (keys["q:job:1"]["state"], keys["q:mail:jobs"]) == ("inactive", ["1"])
        assert world.send(world.live.renew("mail", "ann", LEASE, now=moment)) is Renewed.LAPSED
    assert [job.deliveries for job in world.take(now=moment, delivery_limit=2)] == [3]
    assert world.take(now=moment + LEASE, consumer="bob", delivery_limit=2) == []
    keys = dump(world.client)
    assert (keys["q:job:1"]["state"], keys["q:job:1"]["attempts"]) == ("failed", "3")
    assert keys["q:job:1"]["error"].startswith("delivery_limit: 3 consumers")
    assert [key for key in keys if "held" in key or "lapses" in key] == []


def test_lapses_of_jobs_that_kue_has_ended_are_forgotten(world: World) -> None:
    world.taken(1)
    tick(world, NOW + LEASE)
    assert world.client.exists(ROOT + "lapses:mail")
    world.client.hset("q:job:1", "state", "complete")
    world.take(0, "bob", now=NOW + LEASE)
    tick(world, NOW + LEASE)
    assert not world.client.exists(ROOT + "lapses:mail")


def test_a_job_that_a_killed_worker_of_kue_had_half_taken_is_listed_again(world: World) -> None:
    world.job(1, priority="2")
    sound = dump(world.client)
    world.client.zrem("q:jobs:mail:inactive", "01|1")
    world.client.lpop("q:mail:jobs")
    for later in (0, 5_000, 9_999):
        tick(world, NOW + later)
        assert not world.client.exists("q:jobs:mail:inactive")
    tick(world, NOW + 10_000)
    assert {key: value for key, value in dump(world.client).items() if key.startswith("q:")} == sound
    tick(world, NOW + 10_001)
    assert dump(world.client) == sound


def test_a_job_that_is_touched_meanwhile_counts_from_then_on(world: World) -> None:
    world.job(1)
    world.client.zrem("q:jobs:mail:inactive", "01|1")
    tick(world, NOW)
    world.client.hset("q:job:1", "started_at", "5")
    tick(world, NOW + 10_000)
    assert not world.client.exists("q:jobs:mail:inactive")
    tick(world, NOW + 20_000)
    assert world.client.exists("q:jobs:mail:inactive")


def test_timers_ask_to_be_sent_again_while_there_is_more(world: World) -> None:
    pipeline = world.client.pipeline()
    for number in range(1, 1102):
        pipeline.hset(f"q:job:{number}", mapping={"type": "mail", "state": "delayed", "priority": 0, "data": "1"})
        pipeline.zadd("q:jobs:delayed", {f"{len(str(number)):02d}|{number}": NOW - 1})
        pipeline.zadd("q:jobs:mail:delayed", {f"{len(str(number)):02d}|{number}": 0})
    pipeline.execute()
    assert [tick(world, NOW) for _ in range(3)] == [1, 0, 0]
    assert world.client.llen("q:mail:jobs") == 1101


@pytest.mark.parametrize(
    ("sign", "due"),
    [
        ({"max_attempts": "1"}, {"1", "3"}),
        ({}, {"1", "4"}),
    ],
    ids=["0.8 counts from the last failure", "0.6 counts from the creation"],
)
def test_up_to_0_8_a_delay_counts_from_what_the_record_says(client: redis.Redis, sign: dict[str, str], due: set[str]) -> None:
    """There the index says nothing of it."""
    long_ago, soon = {"created_at": NOW - 900, "delay": 500}, {"created_at": NOW - 900, "delay": 901}
    jobs = [long_ago, soon, {**soon, "failed_at": NOW - 901}, {**long_ago, "failed_at": NOW - 100}]
    for number, times in enumerate(jobs, 1):
        client.hset(f"q:job:{number}", mapping={"type": "mail", "priority": 7, "state": "delayed", "data": "1", **sign, **times})
        client.sadd("q:job:types", "mail")
        for index in ("q:jobs", "q:jobs:delayed", "q:jobs:mail:delayed"):
            client.zadd(index, {str(number): 7})
    tick(World(client), NOW)
    keys = dump(client)
    assert keys["q:jobs:mail:inactive"] == keys["q:jobs:inactive"] == dict.fromkeys(due, 7.0)
    assert len(keys["q:mail:jobs"]) == len(due)
    assert "promote_at" not in keys["q:job:1"]
