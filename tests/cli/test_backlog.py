"""``ferryman backlog``: the number that autoscalers go by, right whatever stands there, and cheap."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import pytest
import redis
from ferryman.schema.connection.call import run
from ferryman.schema.native.scripts.publication import Publication
from ferryman.schema.native.scripts.queue_scripts import QueueScripts

from ..support.captures import captures, load
from ..support.command import ferryman
from ..support.endpoint import exporter
from ..support.servers import Server, free_port
from ..support.workers import celery

pytestmark = pytest.mark.in_turn

scripts = QueueScripts()
MESSAGE = b'{"headers":{}}\n[]'
HOUR_MS = 3_600_000


def fill(
    client: redis.Redis, queue: str, *, waiting: int = 0, due: int = 0, held: int = 0, later: int = 0, ago_ms: int = 0
) -> None:
    """A queue with so many messages: those that are due were to wait for a second that passed ``ago_ms`` ago, unwatched."""
    client.sadd("ferryman:queues", queue)
    run(client, scripts.declare(queue, {}))
    seconds, micros = client.time()
    then = seconds * 1000 + micros // 1000 - 1000 - ago_ms
    first = 0
    for number, now, delay_ms in ((held, None, None), (waiting, None, None), (due, then, 1000), (later, None, HOUR_MS)):
        jobs = [Publication(f"p-{first + n}", MESSAGE, priority=n % 3, delay_ms=delay_ms) for n in range(number)]
        first += number
        run(client, scripts.publish(queue, "p", jobs, now=now))
        if jobs and first == held:
            assert len(run(client, scripts.take(queue, "ann", held, 60_000)).jobs) == held


def backlog_of(server: Server, *arguments: str) -> dict[str, Any]:
    (report,) = ferryman("backlog", server.url(), *arguments, "--format", "json").lines()
    return report


def test_it_is_one_number_of_what_waits_is_due_and_is_held(server: Server, client: redis.Redis) -> None:
    fill(client, "mail", waiting=4, due=2, held=1, later=5)
    fill(client, "video", due=3)
    assert ferryman("backlog", server.url()).stdout == "10\n"
    assert ferryman("backlog", server.url(), "--queue", "mail").stdout == "7\n"
    assert ferryman("backlog", server.url(), "--queue", "mail", "--queue", "video").stdout == "10\n"


def test_a_due_task_counts_though_no_worker_looks_and_a_later_one_does_not(server: Server, client: redis.Redis) -> None:
    fill(client, "mail", later=2)
    assert ferryman("backlog", server.url()).stdout == "0\n", "zero workers may stay zero"
    fill(client, "video", due=1, ago_ms=60_000)
    report = backlog_of(server)
    assert (report["backlog"], report["waiting"], report["scheduled"]) == (1, 1, 2)
    assert 60_000 <= report["latency_ms"] < 120_000, "it has waited since it was due"
    assert client.zcard("ferryman:{video}:waiting") == 0


def test_a_held_task_counts_so_that_nobody_stops_its_worker(server: Server, client: redis.Redis) -> None:
    fill(client, "mail", held=1)
    assert ferryman("backlog", server.url()).stdout == "1\n"
    assert backlog_of(server)["latency_ms"] == 0


def test_json_has_the_parts_of_the_sum_and_of_each_queue(server: Server, client: redis.Redis) -> None:
    fill(client, "mail", waiting=4, due=2, held=1, later=5)
    fill(client, "video", later=1)
    report = backlog_of(server)
    queues = report.pop("queues")
    assert report.pop("latency_ms") == queues["mail"].pop("latency_ms") > 0
    assert queues["video"].pop("latency_ms") == 0
    assert queues["mail"] == {"backlog": 7, "waiting": 6, "active": 1, "scheduled": 5}
    assert queues["video"] == {"backlog": 0, "waiting": 0, "active": 0, "scheduled": 1}
    assert report == {"backlog": 7, "waiting": 6, "active": 1, "scheduled": 6}


def test_a_queue_that_is_not_there_yet_counts_nothing_and_is_noted(server: Server, client: redis.Redis) -> None:
    outcome = ferryman("backlog", server.url(), "--queue", "mail")
    assert (outcome.status, outcome.stdout) == (0, "0\n")
    assert "no queue 'mail' (yet)" in outcome.error
    assert backlog_of(server, "--queue", "mail")["queues"]["mail"]["backlog"] == 0
    assert "no queue (yet)" in ferryman("backlog", server.url()).error
    fill(client, "mail", waiting=1)
    assert ferryman("backlog", server.url()).stderr == ""
    assert client.exists("ferryman:{mail}:meta") == 1


def test_temporary_queues_count_only_if_they_are_named(server: Server, client: redis.Redis) -> None:
    fill(client, "mail", waiting=1)
    run(client, scripts.declare("reply", {"x-expires": 60_000}))
    run(client, scripts.publish("reply", "p", [Publication("p-1", MESSAGE)]))
    assert ferryman("backlog", server.url()).stdout == "1\n"
    assert ferryman("backlog", server.url(), "--queue", "reply").stdout == "1\n"


def test_two_commands_a_queue_are_enough_for_any_number_of_messages(server: Server, client: redis.Redis) -> None:
    for queue in range(20):
        fill(client, f"q{queue}", waiting=100, due=100, held=10)
    ferryman("backlog", server.url())
    client.config_resetstat()
    assert ferryman("backlog", server.url()).stdout == "4200\n"
    calls = {name.removeprefix("cmdstat_"): stats["calls"] for name, stats in client.info("commandstats").items()}
    assert (calls["evalsha"], calls["smembers"], calls["hmget"]) == (20, 1, 20 + 20 + 20 * 3)
    assert {"scan", "keys", "hgetall"}.isdisjoint(calls)


def test_a_queue_that_can_not_be_read_is_an_error_and_no_smaller_number(server: Server, client: redis.Redis) -> None:
    fill(client, "mail", waiting=1)
    fill(client, "torn")
    client.set("ferryman:{torn}:waiting", "no zset")
    outcome = ferryman("backlog", server.url())
    assert (outcome.status, outcome.stdout) == (3, "")
    assert "ferryman:{torn}:waiting" in outcome.error
    assert ferryman("backlog", server.url(), "--queue", "mail").stdout == "1\n"


def test_a_server_that_is_down_is_an_error_and_no_number() -> None:
    outcome = ferryman("backlog", f"ferryman://127.0.0.1:{free_port()}/0")
    assert (outcome.status, outcome.stdout) == (3, "")
    assert "can't be reached" in outcome.error


def test_kue_is_asked_by_its_indexes_and_its_due_jobs_wait(server: Server, client: redis.Redis) -> None:
    load(next(each for each in captures("kue") if each.name == "healthy"), client)
    url = server.url(family="kue")
    (before,) = ferryman("backlog", url, "--format", "json").lines()
    member = client.zrange("q:jobs:delayed", -1, -1)[0]
    client.zadd("q:jobs:delayed", {member: 200_000_000_000})
    client.hset(b"q:job:" + member.rpartition(b"|")[2], "promote_at", 200_000_000_000)
    (report,) = ferryman("backlog", url, "--format", "json").lines()
    assert (report["backlog"], report["scheduled"]) == (before["backlog"] + 1, before["scheduled"] - 1)
    lines = ferryman("queues", url, "--format", "json").lines()
    assert report["backlog"] == sum(line["waiting"] + line["active"] for line in lines)


@pytest.mark.parametrize("family", ["qless", "kombu"])
def test_a_family_whose_jobs_must_be_read_is_refused(server: Server, family: str) -> None:
    outcome = ferryman("backlog", server.url(family=family))
    assert (outcome.status, outcome.stdout) == (2, "")
    assert "reading every job" in outcome.error
    assert "ferryman queues" in outcome.error


def test_the_broker_of_an_app_has_a_backlog_too(server: Server, client: redis.Redis) -> None:
    fill(client, "mail", waiting=3)
    done = celery(server, "ferryman", "backlog", "--queue", "mail")
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr


def get_json(address: str, path: str) -> tuple[int, dict[str, Any]]:
    """The status and the JSON that the endpoint replies with."""
    try:
        with urllib.request.urlopen(address.removesuffix("/metrics") + path, timeout=30) as reply:
            assert reply.headers["Content-Type"] == "application/json"
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


def test_the_metrics_endpoint_has_it_as_json(server: Server, client: redis.Redis) -> None:
    fill(client, "mail", waiting=4, due=2, held=1, later=5)
    fill(client, "a b.c", due=3)
    with exporter(server.url(), "--listen", "0") as (_, address):
        status, report = get_json(address, "/backlog")
        assert (status, report["backlog"], report["queues"]["mail"]["waiting"]) == (200, 10, 6)
        assert get_json(address, "/backlog?queue=a%20b.c")[1]["backlog"] == 3
        assert get_json(address, "/backlog?queue=nobody&queue=mail")[1]["backlog"] == 7


def test_the_endpoint_says_503_and_why_where_the_number_is_not_known(server: Server, client: redis.Redis) -> None:
    fill(client, "mail", waiting=1)
    fill(client, "torn")
    client.set("ferryman:{torn}:waiting", "no zset")
    with exporter(server.url(), "--listen", "0") as (_, address):
        status, report = get_json(address, "/backlog")
        assert (status, "ferryman:{torn}:waiting" in report["error"]) == (503, True)
        status, report = get_json(address, "/backlog?queue=mail")
        assert (status, report["backlog"]) == (200, 1)
    with exporter(f"ferryman://127.0.0.1:{free_port()}/0", "--listen", "0") as (_, address):
        status, report = get_json(address, "/backlog")
        assert (status, "can't be reached" in report["error"]) == (503, True)
