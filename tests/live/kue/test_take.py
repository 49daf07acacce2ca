"""Taking jobs: what it writes, in which order they come, which tokens go, and what becomes of jobs that are none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ferryman.schema.native.scripts.results import Renewed

from ...support.captures import capture, load
from ...support.dumps import changes, dump
from .keyspace import LEASE, NOW, ROOT, World, at

pytestmark = pytest.mark.in_turn


def test_taking_a_job_writes_what_kues_worker_writes(world: World) -> None:
    world.job(1, priority="-3", max_attempts="4", attempts="1")
    before = dump(world.client)
    (job,) = world.take()
    worker = world.client.hget("q:job:1", "workerId").decode()
    assert worker.startswith("kue:")
    assert worker.split(":")[3] == "mail"
    running = at(before["q:job:1"], state="active", started_at=str(NOW), workerId=worker, updated_at=str(NOW))
    assert changes(before, dump(world.client)) == {
        "q:job:1": running,
        "q:jobs:inactive": None,
        "q:jobs:mail:inactive": None,
        "q:jobs:active": {"01|1": -3.0},
        "q:jobs:mail:active": {"01|1": -3.0},
        "q:mail:jobs": None,
        ROOT + "consumers:mail": {"ann": NOW + LEASE},
        ROOT + "held:mail": {"1": "ann"},
        ROOT + "queues": {"mail"},
    }
    assert (job.id, job.queue, job.priority, job.attempts, job.max_attempts, job.deliveries) == ("1", "mail", -3, 1, 4, 2)
    assert (job.payload, job.extra, job.time_limit_ms) == (b"{}", None, None)


def test_a_ttl_is_the_score_of_an_active_job_and_the_limit_of_its_run(world: World) -> None:
    assert world.taken(1, ttl="900").time_limit_ms == 900
    assert dump(world.client)["q:jobs:active"] == {"01|1": NOW + 900.0}
    assert world.send(world.live.renew("mail", "ann", LEASE, now=NOW + 500)) is Renewed.DONE
    assert dump(world.client)["q:jobs:active"] == {"01|1": NOW + 900.0}


def test_jobs_come_in_kues_order(world: World) -> None:
    case = capture("kue", "healthy")
    load(case, world.client)
    for queue, order in case.expected["pop_order"].items():
        taken = world.send(world.live.take(queue, "ann", 100, LEASE, now=case.captured_at_ms))
        assert [job.id for job in taken.jobs] == order


@pytest.mark.parametrize(("tokens", "n", "left"), [(3, 1, 2), (3, 3, 0), (2, 1, 2), (5, 1, 4), (5, 9, 2), (0, 2, 0)])
def test_there_are_never_fewer_tokens_than_waiting_jobs_nor_taken_more_than_jobs(
    world: World, tokens: int, n: int, left: int
) -> None:
    """A worker of kue that holds a token it has not used is one less in the list."""
    for number in (1, 2, 3):
        world.job(number)
    world.client.delete("q:mail:jobs")
    if tokens:
        world.client.lpush("q:mail:jobs", *["1"] * tokens)
    world.take(n)
    assert world.client.llen("q:mail:jobs") == left


def test_tokens_without_jobs_go_at_the_first_empty_look(world: World) -> None:
    world.client.lpush("q:mail:jobs", "1", "1", "1")
    assert world.take() == []
    assert world.client.exists("q:mail:jobs") == 0


def test_only_jobs_whose_task_is_known_are_taken(world: World) -> None:
    world.job(1, ferryman='{"task":"tasks.a"}')
    world.job(2, ferryman='{"task":"tasks.b"}')
    world.job(3)
    world.job(4, ferryman="no json")
    world.job(5, ferryman='{"as_of":"1","extra":{}}')
    assert [job.id for job in world.take(tasks=["tasks.b"])] == ["2"]
    assert world.client.llen("q:mail:jobs") == 4
    assert [(job.id, job.extra) for job in world.take(tasks=["mail"])] == [("3", None), ("4", None), ("5", None)]
    assert [(job.id, job.extra) for job in world.take(tasks=["tasks.a", "mail"])] == [("1", b'{"task":"tasks.a"}')]


def test_a_take_names_the_tasks_of_jobs_that_it_leaves(world: World) -> None:
    for number, task in enumerate(("a", "b", "a", "mine"), 1):
        world.job(number, ferryman=f'{{"task":"{task}"}}')
    world.job(5)
    taken = world.send(world.live.take("mail", "ann", 9, LEASE, tasks=["mine"], now=NOW))
    assert ([job.id for job in taken.jobs], taken.unknown) == (["4"], ("a", "b", "mail"))
    assert not taken.more


def test_a_job_behind_thousands_for_others_is_found_in_time(world: World) -> None:
    pipeline = world.client.pipeline()
    for number in range(1, 2501):
        pipeline.hset(f"q:job:{number}", mapping={"type": "mail", "state": "inactive", "priority": 0, "data": "1"})
        pipeline.zadd("q:jobs:mail:inactive", {f"{len(str(number)):02d}|{number}": 0})
    pipeline.hset("q:job:2100", "ferryman", '{"task":"mine"}')
    pipeline.execute()
    assert any(world.take(tasks=["mine"], now=NOW + ms) for ms in range(0, 1600, 400))


def test_payloads_fill_a_reply_up_to_its_bytes(world: World) -> None:
    for number in (1, 2, 3):
        world.job(number, data='"' + "x" * 100 + '"')
    taken = world.send(world.live.take("mail", "ann", 10, LEASE, fetch_bytes=210, now=NOW))
    assert (len(taken.jobs), taken.more) == (2, True)
    taken = world.send(world.live.take("mail", "ann", 10, LEASE, fetch_bytes=1, now=NOW))
    assert (len(taken.jobs), taken.more) == (1, False)


BAD: dict[str, tuple[Callable[[World], Any], dict[str, Any]]] = {
    "a member without a job": (
        lambda world: world.client.delete("q:job:1"),
        {"q:jobs:mail:inactive": None, "q:jobs:inactive": None, "q:jobs": None},
    ),
    "a job without a type": (
        lambda world: world.client.hdel("q:job:1", "type"),
        {"q:job:1": None, "q:jobs:mail:inactive": None, "q:jobs:inactive": None, "q:jobs": None},
    ),
    "a member that names no job": (
        lambda world: world.client.zadd("q:jobs:mail:inactive", {"what": -1}),
        {"q:jobs:mail:inactive": {"01|1": 0.0}},
    ),
    "a job that is done": (
        lambda world: world.client.hset("q:job:1", "state", "complete"),
        {"q:jobs:mail:inactive": None, "q:jobs:inactive": None},
    ),
    "a job of another type": (
        lambda world: world.client.hset("q:job:1", "type", "other"),
        {"q:jobs:mail:inactive": None, "q:jobs:other:inactive": {"01|1": 0.0}, "q:other:jobs": ["1"]},
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_job_to_run_leaves_the_index_and_is_in_nobodys_way(world: World, name: str) -> None:
    spoil, expected = BAD[name]
    world.job(1)
    spoil(world)
    before = dump(world.client)
    assert [job.id for job in world.take(1)] == (["1"] if name == "a member that names no job" else [])
    if name == "a member that names no job":
        return
    after = {key: value for key, value in changes(before, dump(world.client)).items() if not key.startswith("ferryman:")}
    assert after == {**expected, "q:mail:jobs": None}


def test_a_job_whose_payload_nobody_can_read_fails_and_the_next_one_runs(world: World) -> None:
    world.job(1, data="undefined", max_attempts="5")
    world.job(2)
    assert [job.id for job in world.take(1)] == ["2"]
    keys = dump(world.client)
    assert keys["q:jobs:failed"] == keys["q:jobs:mail:failed"] == {"01|1": 0.0}
    assert (keys["q:job:1"]["state"], keys["q:job:1"]["attempts"]) == ("failed", "5")
    assert "q:mail:jobs" not in keys


@pytest.mark.parametrize("data", [None, "[" * 2000 + "]" * 2000, '"\\ud83d"', '"' + "x" * 200_000])
def test_what_only_looks_unreadable_is_given_out(world: World, data: str | None) -> None:
    """Also what is too long to be checked."""
    assert world.taken(1, data=data).payload == (b"{}" if data is None else data.encode())
