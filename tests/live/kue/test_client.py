"""KueClient: kue's queues from Python, without Celery."""

from __future__ import annotations

import json

import pytest
import redis
from ferryman.compat.kue.client import KueClient
from ferryman.schema.errors import KeyspaceRefused, UsageError
from ferryman.schema.job import State

from ...support.captures import capture, load
from ...support.dumps import dump
from ...support.servers import Server
from .keyspace import NOW, World

pytestmark = pytest.mark.in_turn


def test_a_job_goes_its_way_from_put_to_its_result(server: Server) -> None:
    with KueClient(server.url()) as ours:
        job_id = ours.put("mail", {"to": "ü"}, priority="critical", attempts=2, now=NOW)
        assert [job.id for job in ours.peek("mail")] == [job_id]
        (job,) = ours.take("mail", now=NOW + 1)
        assert json.loads(job.payload) == {"to": "ü"}
        assert ours.held("mail") == (job_id,)
        assert ours.heartbeat("mail", now=NOW + 2)
        assert ours.progress(job, 1, 2, {"at": "half"}, now=NOW + 2)
        assert ours.complete(job, ["ü"], now=NOW + 5) == "completed"
        done = ours.get(job_id)
        assert done is not None
        assert (done.state, done.result, done.priority, done.finished_at) == (State.COMPLETED, '["ü"]'.encode(), -15, NOW + 5)
        stats = ours.stats()
        assert (stats.completed, stats.waiting, stats.work_time_ms, stats.queues) == (1, 0, 4, ("mail",))
        assert ours.get("99") is None


def test_failures_are_exceptions_or_texts(client: redis.Redis) -> None:
    with KueClient(client) as ours:
        for failure, error, line in (
            (KeyError("a"), "KeyError: 'a'", b"KeyError: 'a'"),
            (ValueError(), "ValueError", b"ValueError"),
            ("first\nsecond", "first\nsecond", b"first"),
        ):
            job_id = ours.put("mail")
            (job,) = ours.take("mail")
            assert ours.fail(job, failure) == "failed"
            failed = ours.get(job_id)
            assert failed is not None
            assert (failed.error, failed.logs) == (error, (line,))


def test_a_retried_job_comes_again_and_a_cancelled_one_does_not(client: redis.Redis) -> None:
    with KueClient(client) as ours:
        ours.put("mail", attempts=2, now=NOW)
        (job,) = ours.take("mail", now=NOW)
        assert ours.retry(job, 500, "not yet", now=NOW) == "scheduled"
        assert ours.size("mail", now=NOW).scheduled == 1
        ours.run_timers(now=NOW + 500)
        (job,) = ours.take("mail", now=NOW + 500)
        assert (job.attempts, ours.requeue(job)) == (1, True)
        assert ours.cancel("mail", job.id, "scheduled") is None
        assert ours.cancel("mail", job.id) == "waiting"
        assert ours.take("mail") == ()


def test_closing_gives_back_what_it_holds_and_leaves_no_side_key(client: redis.Redis) -> None:
    world = World(client)
    for number in range(1, 4):
        world.job(number)
    before = dump(client)
    with KueClient(client) as ours:
        assert len(ours.take("mail", 5, now=NOW)) == 3
    after = dump(client)
    assert after.keys() == before.keys()
    assert after["q:mail:jobs"] == ["1", "1", "1"]


def test_a_purge_of_thousands_is_done_in_pieces(client: redis.Redis) -> None:
    with KueClient(client) as ours:
        for _ in range(1200):
            ours.put("mail", 1)
        assert ours.purge("mail") == 1200
    assert dump(client).keys() == {"q:ids", "q:job:types"}


def test_jobs_of_each_state_are_listed_as_kue_lists_them(client: redis.Redis) -> None:
    case = capture("kue", "healthy")
    load(case, client)
    ours = KueClient(client)
    assert [job.id for job in ours.peek("report", 100)] == case.expected["pop_order"]["report"]
    assert [job.id for job in ours.peek("report", 2, first=1)] == case.expected["pop_order"]["report"][1:3]
    counts = case.expected["by_state"]
    stats = ours.stats()
    assert (stats.waiting, stats.active, stats.completed) == (counts["inactive"], counts["active"], counts["complete"])
    assert stats.work_time_ms == case.expected["work_time_ms"]
    assert list(stats.queues) == sorted(case.expected["types"])


def test_what_can_not_be_is_said_before_anything_is_written(client: redis.Redis) -> None:
    ours = KueClient(client)
    with pytest.raises(ValueError, match="names are: low, normal, medium, high, critical"):
        ours.put("mail", priority="urgent")
    with pytest.raises(UsageError, match="no option 'retries'"):
        ours.put("mail", retries=3)
    with pytest.raises(ValueError, match="must be a version of kue"):
        KueClient(client, version="2")
    client.set("x:ids", "no number")
    with pytest.raises(KeyspaceRefused):
        KueClient(client, "x").put("mail")
    assert dump(client) == {"x:ids": "no number"}


def test_an_old_kue_is_served_in_its_own_form(client: redis.Redis) -> None:
    KueClient(client, version="0.8.12").put("mail", 1)
    assert dump(client)["q:jobs:mail:inactive"] == {"1": 0.0}
