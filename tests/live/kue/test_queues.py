"""Removing, purging, finding and counting jobs, and the look before all else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis
from ferryman.compat.kue.keys import Era
from ferryman.compat.kue.live import KueLive
from ferryman.schema.errors import KeyspaceRefused, PublishRefused
from ferryman.schema.live import Failure, NewJob
from ferryman.schema.native.scripts.results import Purged

from ...support.captures import capture, load
from ...support.dumps import dump
from ...support.servers import Server
from .keyspace import NOW, World

pytestmark = pytest.mark.in_turn


@pytest.mark.parametrize(
    ("state", "only", "role"),
    [
        ("inactive", None, "waiting"), ("delayed", None, "scheduled"), ("complete", None, "done"), ("failed", None, "dead"),
        ("active", None, "held"), ("inactive", "waiting", "waiting"), ("delayed", "waiting", None),
    ],
)  # fmt: skip
def test_a_job_is_removed_as_kue_removes_it_unless_it_runs(world: World, state: str, only: Any, role: str | None) -> None:
    world.job(1, state)
    world.client.rpush("q:job:1:log", "x")
    world.client.zadd("q:search:object:1", {"WRT": 1})
    world.client.zadd("q:search:word:WRT", {"1": 1})
    before = dump(world.client)
    assert world.send(world.live.remove("mail", "1", only)) == role
    gone = before.keys() - dump(world.client).keys()
    keys = {
        "q:job:1",
        "q:job:1:log",
        "q:jobs",
        f"q:jobs:{state}",
        f"q:jobs:mail:{state}",
        "q:search:object:1",
        "q:search:word:WRT",
    }
    assert gone == (keys if role and role != "held" else set())
    assert world.send(world.live.remove("mail", "99")) is None
    assert world.send(world.live.remove("other", "1")) is None


def test_purging_removes_what_waits_a_call_at_a_time(world: World) -> None:
    for number in range(1, 6):
        world.job(number)
    world.job(6, "delayed")
    world.job(7, queue="other")
    assert world.send(world.live.purge("mail", limit=3)) == Purged(3, True)
    assert world.send(world.live.purge("mail", limit=3)) == Purged(2, False)
    keys = dump(world.client)
    assert keys["q:jobs"].keys() == {"01|6", "01|7"}
    assert "q:mail:jobs" not in keys


def test_tasks_are_found_by_the_id_of_their_message_or_of_the_job(world: World) -> None:
    world.job(1)
    world.job(2, ferryman='{"id":"uuid-2","task":"t"}')
    world.job(3, "delayed", ferryman='{"id":"uuid-3","task":"t"}')
    found = world.send(world.live.find("mail", ["q:1", "uuid-2", "uuid-3", "q:2"]))
    assert [(task.id, task.task) for task in found.jobs] == [("1", "q:1"), ("2", "uuid-2")]
    assert [task.id for task in world.send(world.live.find("mail", ["uuid-3"], "scheduled")).jobs] == ["3"]
    assert world.send(world.live.find("mail", ["q:1"], limit=1)).more
    assert [task.id for task in world.send(world.live.find("mail", ["q:1"], seen=1, limit=1)).jobs] == ["1"]


def test_the_size_counts_each_state_and_what_is_due(world: World) -> None:
    for number, (state, promote_at) in enumerate(
        [("inactive", 0), ("delayed", NOW - 5), ("delayed", NOW + 9), ("complete", 0), ("failed", 0), ("failed", 0)], 1
    ):
        world.job(number, state, promote_at=str(promote_at))
    world.job(7, "delayed", queue="other", promote_at=str(NOW - 50))
    world.job(8, "active")
    size = world.send(world.live.size("mail", now=NOW))
    assert (size.waiting, size.due, size.scheduled, size.held, size.done, size.dead) == (2, 1, 1, 1, 1, 2)
    assert (size.next_due_ms, size.consumers) == (NOW - 5, 0)
    world.take(0)
    assert world.send(world.live.size("mail", now=NOW)).consumers == 1


@pytest.mark.parametrize(
    "name", ["healthy", "custom-prefix", "hash-tag", "older-0.9.6", "older-0.8.12", "older-version", "crashed"]
)
def test_a_look_at_a_keyspace_of_kue_finds_nothing_against_it_and_writes_nothing(client: redis.Redis, name: str) -> None:
    case = capture("kue", name)
    load(case, client)
    before = dump(client)
    world = World(client)
    world.send(KueLive(case.prefix).look())
    assert dump(client) == before


def test_an_empty_database_is_fine(world: World) -> None:
    world.send(world.live.look())
    assert dump(world.client) == {}


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda client: load(capture("kue", "upgraded"), client), "upgraded across 0.10.3"),
        (lambda client: client.set("q:jobs", 1), "not kue's"),
        (lambda client: client.set("q:ids", "x"), "not kue's"),
        (lambda client: client.hset("q:mail:id", "x", "1"), "not kue's"),
        (lambda client: client.rpush("q:job:types", "mail"), "not kue's"),
    ],
)
def test_what_can_not_be_served_is_refused_with_the_reason(world: World, spoil: Callable[[redis.Redis], Any], why: str) -> None:
    spoil(world.client)
    before = dump(world.client)
    with pytest.raises(KeyspaceRefused, match=why):
        world.send(world.live.look())
    assert dump(world.client) == before


@pytest.mark.parametrize(
    "fill",
    [
        lambda client: client.psetex("q:scheduler:8b1f", 120_000, ""),
        lambda client: client.mset({f"q:scheduler:data:{number}": '{"type":"report"}' for number in range(500)}),
        lambda client: client.hset("q:unique:jobs", "daily", "7"),
    ],
    ids=["kue-scheduler", "many schedules", "kue-unique"],
)
def test_a_keyspace_in_which_only_add_ons_of_kue_have_keys_is_served(world: World, fill: Callable[[redis.Redis], Any]) -> None:
    fill(world.client)
    assert world.send(world.live.look()) is None
    world.client.set("q:other", "x")
    with pytest.raises(KeyspaceRefused, match=r"q:other.*is none of it"):
        world.send(world.live.look())


@pytest.mark.parametrize(
    ("rights", "missing"),
    [
        ("~q:* ~promotion:lock ~activeJobsTTL:lock &q:events", None),
        ("~q:* ~activeJobsTTL:lock &q:events", "PTTL promotion:lock"),
        ("~q:* ~promotion:lock ~activeJobsTTL:lock &other", "PUBLISH q:events"),
    ],
)
def test_a_user_who_may_not_do_what_a_worker_of_kue_does_is_refused(
    server: Server, client: redis.Redis, rights: str, missing: str | None
) -> None:
    client.execute_command("ACL", "SETUSER", "few", "reset", "on", ">secret", "~ferryman:*", "+@all", *rights.split())
    with redis.Redis(port=server.port, username="few", password="secret") as few:
        if missing is None:
            World(few).send(KueLive("q").look())
        else:
            with pytest.raises(KeyspaceRefused, match=missing):
                World(few).send(KueLive("q").look())
    client.acl_deluser("few")


def test_a_server_without_memory_lets_jobs_be_ended_and_refuses_new_ones(world: World) -> None:
    world.taken(1, max_attempts="2")
    world.job(2)
    used = world.client.config_get("maxmemory")["maxmemory"]
    world.client.config_set("maxmemory", 1)
    try:
        with pytest.raises(PublishRefused):
            world.send(world.live.put(NewJob("mail", b"1")))
        assert world.send(world.live.fail("mail", "ann", "1", Failure("no"))) == "waiting"
        assert len(world.take()) == 2
        assert world.send(world.live.complete("mail", "ann", [("1", b"1")])) == ("completed",)
    finally:
        world.client.config_set("maxmemory", used)


@pytest.mark.parametrize("era", list(Era))
def test_the_next_delayed_jobs_of_a_type_come_in_order_in_every_layout(world: World, era: Era) -> None:
    live = KueLive("q", era=era)
    for name, queue, delay in (("b", "mail", 2000), ("other", "video", 500), ("a", "mail", 1000), ("now", "mail", 0)):
        world.send(live.put(NewJob(queue, f'"{name}"'.encode(), delay_ms=delay, priority=-delay), now=NOW))
    found = world.send(live.upcoming("mail", 10))
    assert [(each.due_ms, each.job.payload) for each in found] == [(NOW + 1000, b'"a"'), (NOW + 2000, b'"b"')]
    assert [each.job.payload for each in world.send(live.upcoming("mail", 1))] == [b'"a"']


def test_what_is_no_delayed_job_is_not_among_the_next_ones(world: World) -> None:
    world.job(1, "delayed", promote_at=str(NOW + 1))
    world.job(2, "delayed", promote_at=str(NOW + 2))
    world.client.hset("q:job:2", "state", "active")
    for number, key in ((3, None), (4, "q:job:4")):
        world.client.zadd("q:jobs:delayed", {f"01|{number}": NOW})
        world.client.zadd("q:jobs:mail:delayed", {f"01|{number}": 0})
        if key:
            world.client.set(key, "no hash")
    before = dump(world.client)
    assert [each.job.id for each in world.send(world.live.upcoming("mail", 10))] == ["1"]
    assert dump(world.client) == before
