"""QlessClient: what an application sees of qless without Celery."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import redis
from ferryman.compat.qless.client import QlessClient
from ferryman.schema.errors import KeyspaceRefused, UsageError
from ferryman.schema.live import Failure

from ...support.servers import Server

pytestmark = pytest.mark.in_turn

NOW = 1_795_000_000_125


@pytest.fixture
def ours(client: redis.Redis) -> Iterator[QlessClient]:
    with QlessClient(client, consumer="web-1") as made:
        yield made


def test_the_first_document_of_qless_told_in_one_go(ours: QlessClient) -> None:
    ours.set_config("heartbeat", 30)
    assert ours.config("heartbeat") == "30"
    made = ours.put("mail", {"to": 1}, name="shop.Send", priority=5, tags=["welcome"], attempts=3, now=NOW)
    assert [job.id for job in ours.peek("mail", now=NOW)] == [made]
    (job,) = ours.take("mail", now=NOW + 2_000)
    assert (job.id, job.name, job.priority, job.attempts, job.max_attempts) == (made, "shop.Send", 5, 0, 3)
    assert ours.heartbeat(job, data={"to": 2}, now=NOW + 10_000)
    found = ours.get(made)
    assert found is not None
    assert (found.state, found.worker, found.expires, json.loads(found.data)) == (
        "running",
        "web-1",
        1_795_000_040.125,
        {"to": 2},
    )
    assert ours.complete(job, next_queue="archive", delay_ms=5_000, now=NOW + 12_000) == "scheduled"
    (job,) = ours.take("archive", now=NOW + 17_000)
    assert ours.fail(job, "disk", "full\nof it", now=NOW + 18_000) == "failed"
    (failed,) = ours.failed("disk")
    assert failed.failure == {"group": "disk", "message": "full\nof it", "when": 1_795_000_018, "worker": "web-1"}
    stats = ours.stats("mail", NOW / 1000)
    assert (stats.wait.count, stats.wait.mean, stats.wait.histogram) == (1, 2.0, {"s2": 1})
    assert (stats.run.count, stats.run.histogram, stats.failures) == (1, {"s10": 1}, 0)
    assert ours.stats("archive", NOW / 1000).failed == 1
    assert ours.unfail("disk", "mail", now=NOW + 20_000) == 1
    assert [job.id for job in ours.jobs("mail", "waiting")] == [made]


def test_an_exception_names_its_group(ours: QlessClient) -> None:
    for failure in (ValueError("no"), "plain", Failure("text", group="own")):
        ours.put("mail", 1)
        (job,) = ours.take("mail")
        ours.fail(job, failure)
    assert ours.failed_groups() == {"mail-ValueError": 1, "mail-Exception": 1, "own": 1}


def test_dependencies_and_cancelling(ours: QlessClient) -> None:
    for job_id, depends in (("a", []), ("b", ["a"]), ("c", ["a", "b"])):
        ours.put("mail", job_id, job_id=job_id, depends=depends)
    assert not ours.depend("a", ["b"])
    assert ours.undepend("c", ["a"])
    found = ours.get("b")
    assert found is not None
    assert (found.state, found.dependencies, found.dependents) == ("depends", {"a"}, {"c"})
    with pytest.raises(UsageError, match="waits for job"):
        ours.cancel_all(["a"])
    with pytest.raises(UsageError, match="waits for job"):
        ours.cancel("mail", "a")
    assert ours.undepend("c")
    assert ours.cancel_all(["b", "a", "none"]) == ("blocked", "waiting", None)
    assert [job.id for job in ours.jobs("mail", "waiting")] == ["c"]


def test_tags_tracking_priority_and_log(ours: QlessClient, client: redis.Redis) -> None:
    ours.put("mail", 1, job_id="a", tags=["t1"])
    assert ours.tag("a", "t2", "t1") == ("t1", "t2")
    assert ours.untag("a", "t1") == ("t2",)
    assert ours.tag("none", "t") is None
    assert (ours.tagged("t2"), ours.top_tags(n=1)) == (("a",), ("t2",))
    assert ours.track("a")
    assert not ours.track("none")
    assert ours.tracked() == ("a",)
    with client.pubsub() as pubsub:
        pubsub.subscribe("ql:popped")
        pubsub.get_message(timeout=60)
        ours.take("mail")
        assert (pubsub.get_message(timeout=60) or {})["data"] == b"a"
    assert ours.untrack("a")
    assert ours.set_priority("a", 2.5)
    assert not ours.set_priority("none", 1)
    assert ours.log("a", "half way", {"at": 5})
    assert ours.timeout("a")
    assert not ours.timeout("a")
    found = ours.get("a")
    assert found is not None
    assert (found.state, found.priority, found.tracked) == ("stalled", 2.5, False)
    assert [event["what"] for event in found.history] == ["put", "popped", "half way", "timed-out"]


def test_recurring_jobs(ours: QlessClient) -> None:
    assert ours.recur("cron", {"n": 1}, 60, name="shop.Job", job_id="nightly", backlog=2, now=NOW) == "nightly"
    assert [job.id for job in ours.take("cron", 10, now=NOW + 600_000)] == ["nightly-1", "nightly-2"]
    assert ours.update_recurring("nightly", interval=3600, data=[1], queue="other")
    job = ours.recurring("nightly")
    assert job is not None
    assert (job.queue, job.interval, job.data, job.count, job.backlog) == ("other", 3600, b"[1]", 2, 2)
    assert ours.unrecur("nightly")
    assert ours.recurring("nightly") is None
    assert not ours.update_recurring("nightly", interval=1)
    with pytest.raises(UsageError, match="interval"):
        ours.recur("cron", 1, 0.5)
    with pytest.raises(UsageError, match="to change"):
        ours.update_recurring("nightly", count=1)


def test_queues_and_workers(ours: QlessClient) -> None:
    ours.put("mail", 1)
    ours.pause("mail", "other")
    assert ours.take("mail") == ()
    assert ours.counts("mail")[0].paused
    ours.unpause("mail", "other")
    assert len(ours.take("mail")) == 1
    ((name, running, stalled),) = [(row.name, row.jobs, row.stalled) for row in ours.workers()]
    assert (name, running, stalled) == ("web-1", 1, 0)
    ours.deregister("web-1")
    assert ours.workers() == ()
    ours.forget_queues("mail")
    assert ours.counts() == ()


def test_throttles_of_reqless(client: redis.Redis) -> None:
    with QlessClient(client, consumer="web-1", core="reqless") as ours:
        ours.set_throttle("gpu", 1, ttl=100)
        for job_id in ("a", "b"):
            ours.put("mail", 1, job_id=job_id, throttles=["gpu"])
        assert [job.id for job in ours.take("mail", 2)] == ["a"]
        throttle = ours.throttle("gpu")
        assert (throttle.maximum, throttle.holders, throttle.pending) == (1, ("a",), ("b",))
        assert 0 < (throttle.ttl or 0) <= 100
        assert ours.jobs("mail", "throttled")[0].throttles == ("gpu", "ql:q:mail")
        ours.set_throttle("gpu", None)
        assert ours.throttle("gpu").maximum == 0


def test_who_closes_gives_back_what_is_not_done(client: redis.Redis, server: Server) -> None:
    with QlessClient(server.url(), consumer="web-1") as ours:
        ours.put("mail", 1, job_id="a")
        ours.take("mail")
    assert client.zrange("ql:q:mail-work", 0, -1) == [b"a"]
    assert not client.exists("ql:workers", "ql:w:web-1:jobs")


def test_a_keyspace_that_is_not_served_is_refused_before_the_first_write(client: redis.Redis, ours: QlessClient) -> None:
    client.hset("ql:j:old", mapping={"id": "old", "state": "waiting"})
    with pytest.raises(KeyspaceRefused, match="2012"):
        ours.put("mail", 1)
    assert client.keys() == [b"ql:j:old"]
