"""kue 0.11.6 and ferryman on one Redis: each runs what the other makes, and sees of its work what it sees of its own."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from ferryman.compat.kue.client import KueClient
from ferryman.schema.job import State

from ...support.dumps import dump, findings
from ...support.servers import Server
from .driver import SECONDS, Kue
from .waits import awaited, take

NOW = 4_000_000_000_000
"""A moment after all that is delayed."""


@pytest.fixture
def kue(server: Server) -> Iterator[Kue]:
    with Kue.start(server) as process:
        yield process


@pytest.fixture
def ours(client: redis.Redis) -> Iterator[KueClient]:
    with KueClient(client) as consumer:
        yield consumer


def side_keys(client: redis.Redis) -> list[bytes]:
    return [key for key in client.scan_iter("ferryman:*") if b":publisher:" not in key]


def test_a_job_of_kue_runs_here_and_its_creator_hears_of_each_step(kue: Kue, ours: KueClient) -> None:
    number = kue.call("create", type="email", data={"to": "ü"}, options={"priority": "high", "attempts": 2}, listen=True)
    job = take(ours, "email")
    assert (job.id, job.payload, job.priority, job.attempts, job.max_attempts) == (str(number), b'{"to":"\xc3\xbc"}', -10, 0, 2)
    assert ours.progress(job, 1, 4, {"at": "ü"})
    assert ours.fail(job, "boom") == "waiting"
    job = take(ours, "email")
    assert ours.complete(job, {"sent": ["ü"]}) == "completed"
    assert kue.told(number, "progress") == [25, {"at": "ü"}]
    assert kue.told(number, "failed attempt") == ["boom", 1]
    assert kue.told(number, "complete") == [{"sent": ["ü"]}, None] or kue.told(number, "complete") == [{"sent": ["ü"]}]
    seen = kue.call("get", id=number)
    assert (seen["state"], seen["attempts"], seen["progress"]) == ("complete", {"made": 2, "remaining": 0, "max": 2}, "100")
    assert (seen["error"], seen["log"], seen["workerId"].split(":")[0]) == ("boom", ["boom"], "kue")


def test_a_job_that_is_put_here_runs_at_kue(kue: Kue, ours: KueClient) -> None:
    kue.call("process", type="email")
    job_id = ours.put("email", {"do": "ok", "result": {"n": 1}, "progress": [[1, 2, "half"]]}, attempts=3)
    kue.wait_for(lambda event: event["event"] == "end")
    job = awaited(lambda: (found := ours.get(job_id)) and found.attempts and found)
    assert (job.state, job.result, job.progress, job.attempts, job.max_attempts) == (State.COMPLETED, b'{"n":1}', 1.0, 1, 3)


def test_attempts_alternate_between_both_until_none_is_left(kue: Kue, ours: KueClient, client: redis.Redis) -> None:
    backoff = {"type": "exponential", "delay": 1000}
    number = kue.call("create", type="email", data={"do": "fail"}, options={"attempts": 3, "backoff": backoff}, listen=True)
    assert ours.fail(take(ours, "email"), ValueError("first\nat once")) == "scheduled"
    assert client.hget(f"q:job:{number}", "delay") == b"500"
    kue.call("process", type="email")
    kue.begun(number)
    awaited(lambda: client.hget(f"q:job:{number}", "attempts") == b"2" and client.hget(f"q:job:{number}", "state") == b"delayed")
    assert client.hget(f"q:job:{number}", "delay") == b"1500"
    kue.kill()
    assert ours.fail(take(ours, "email"), "last") == "failed"
    job = ours.get(str(number))
    assert job
    assert (job.attempts, job.error, job.logs) == (3, "last", (b"ValueError: first", b"Error: it failed", b"last"))
    assert findings(client, "kue", "q", NOW) == []


def test_kue_promotes_what_was_delayed_here(kue: Kue, ours: KueClient) -> None:
    kue.call("process", type="email")
    job_id = ours.put("email", {"do": "ok"}, delay_ms=100)
    kue.begun(int(job_id))


def test_what_kue_has_delayed_is_promoted_here_when_kue_has_gone(kue: Kue, ours: KueClient) -> None:
    number = kue.call("create", type="email", data={}, options={"delay": 60_000})
    kue.kill()
    ours.run_timers()
    assert ours.take("email") == ()
    ours.run_timers(now=NOW)
    assert take(ours, "email").id == str(number)


def test_ends_of_a_job_that_kue_has_removed_meanwhile_write_nothing(kue: Kue, ours: KueClient, client: redis.Redis) -> None:
    number = kue.call("create", type="email", data={})
    job = take(ours, "email")
    kue.call("remove", id=number)
    before = dump(client)
    assert (ours.progress(job, 1, 2), ours.complete(job, 1), ours.fail(job, "x"), ours.requeue(job)) == (
        False,
        "lost",
        "lost",
        False,
    )
    after = dump(client)
    assert (
        {key for key in after if key.startswith("q:")}
        == {key for key in before if key.startswith("q:")}
        == {"q:ids", "q:job:types"}
    )
    ours.close()
    assert side_keys(client) == []


def test_a_job_that_kue_has_put_back_and_runs_itself_is_lost_here(kue: Kue, ours: KueClient, client: redis.Redis) -> None:
    number = kue.call("create", type="email", data={"do": "wait", "result": "kue's"})
    job = take(ours, "email")
    kue.call("state", id=number, state="inactive")
    kue.call("process", type="email")
    kue.begun(number)
    assert ours.held("email") == ()
    assert ours.complete(job, "ours") == "lost"
    kue.call("finish", id=number)
    awaited(lambda: client.hget(f"q:job:{number}", "state") == b"complete" and client.hget(f"q:job:{number}", "attempts"))
    assert client.hget(f"q:job:{number}", "result") == b'"kue\'s"'
    assert findings(client, "kue", "q", NOW) == []


def test_a_job_of_a_consumer_that_has_died_goes_to_kue(kue: Kue, client: redis.Redis) -> None:
    number = kue.call("create", type="email", data={"do": "ok"})
    dead = KueClient(client, lease_ms=50)
    take(dead, "email")
    kue.call("process", type="email")
    living = KueClient(client)
    awaited(lambda: living.run_timers() or client.hget(f"q:job:{number}", "state") == b"complete")
    assert kue.begun(number)
    awaited(lambda: client.hget(f"q:job:{number}", "attempts"))
    assert client.hget(f"q:job:{number}", "attempts") == b"1"
    with living:
        living.take("other")
        awaited(lambda: living.run_timers() or not client.exists("ferryman:live:kue:{q}:held:email"))


@pytest.mark.parametrize("checker", ["kue", "ferryman"])
def test_a_run_past_its_ttl_fails_once_whoever_checks(kue: Kue, client: redis.Redis, checker: str) -> None:
    number = kue.call("create", type="email", data={}, options={"ttl": 150, "attempts": 2}, listen=True)
    with KueClient(client) as ours:
        job = take(ours, "email")
        assert job.time_limit_ms == 150
        if checker == "kue":
            kue.call("timers")
        else:
            awaited(lambda: ours.run_timers() or client.hget(f"q:job:{number}", "state") != b"active")
        awaited(lambda: client.hget(f"q:job:{number}", "state") == b"inactive")
        assert ours.complete(job, "late") == "lost"
        fields = client.hgetall(f"q:job:{number}")
        assert (fields[b"attempts"], fields[b"error"], fields.get(b"result")) == (b"1", b"TTL exceeded", None)
        assert client.lrange(f"q:job:{number}:log", 0, -1) == [b"TTL exceeded"]
        kue.kill()  # it would look again before this run ends, if that is not soon
        assert ours.complete(take(ours, "email")) == "completed"
    assert findings(client, "kue", "q", NOW) == []
    assert side_keys(client) == []


def test_kues_web_page_shows_jobs_of_either_alike(kue: Kue, ours: KueClient) -> None:
    address = f"http://127.0.0.1:{kue.call('listen')}"

    def page(path: str) -> Any:
        with urllib.request.urlopen(address + path, timeout=SECONDS) as answer:
            return json.load(answer)

    kue.call("process", type="theirs")
    theirs = kue.call("create", type="theirs", data={"do": "ok", "result": {"n": 1}})
    awaited(lambda: page("/stats")["completeCount"] == 1)
    mine = int(ours.put("mine", {"do": "ok", "result": {"n": 1}}))
    ours.complete(take(ours, "mine"), {"n": 1})
    failed = int(ours.put("mine", {}))
    ours.fail(take(ours, "mine"), "no")
    stats = page("/stats")
    assert {name: stats[name] for name in ("completeCount", "failedCount", "activeCount", "inactiveCount", "delayedCount")} == {
        "completeCount": 2, "failedCount": 1, "activeCount": 0, "inactiveCount": 0, "delayedCount": 0
    }  # fmt: skip
    one, other = page(f"/job/{mine}"), page(f"/job/{theirs}")
    assert one.keys() == other.keys()
    assert [type(value) for value in one.values()] == [type(other[name]) for name in one]
    assert [each["id"] for each in page("/jobs/mine/complete/0..9/asc")] == [mine]
    assert [each["id"] for each in page("/jobs/failed/0..9/asc")] == [failed]
    assert page(f"/job/{failed}")["error"] == "no"
