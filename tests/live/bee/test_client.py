"""BeeClient: what bee's own clients and workers can do, in Python."""

from __future__ import annotations

import json

import pytest
import redis
from ferryman.compat.bee.client import BeeClient
from ferryman.compat.bee.job import BeeJob, job_of
from ferryman.schema.errors import KeyspaceRefused, UsageError

from ...support.bee import side_keys
from ...support.servers import Server

pytestmark = pytest.mark.in_turn

T = 1_800_000_000_000


def test_a_job_goes_all_the_way(server: Server, client: redis.Redis) -> None:
    with BeeClient(server.url()) as bee:
        job_id = bee.put("resize", ["cat.png", {"width": 200}], priority=2, tags=["customer=42"], now=T)
        (waiting,) = bee.peek("resize", now=T)
        assert waiting == bee.get(job_id)
        assert (waiting.status, waiting.arguments, waiting.submitted) == ("queued", ("cat.png", {"width": 200}), T)
        (job,) = bee.take("resize", now=T + 5)
        assert json.loads(job.payload) == ["cat.png", {"width": 200}]
        assert bee.heartbeat("resize", now=T + 10)
        assert bee.progress(job, 1, 4, now=T + 10)
        assert bee.complete(job, {"bytes": 1234}, now=T + 20) == "completed"
        done = bee.get(job_id)
        assert done is not None
        assert (done.status, done.result, done.failed_reason) == ("completed", {"bytes": 1234}, None)
        assert [event["event"] for event in done.history] == ["submitted", "queued", "popped", "completed"]
        assert bee.tagged("customer=42") == (job_id,)
    assert side_keys(client) == []


def test_jobs_that_fail_or_wait_say_so(client: redis.Redis) -> None:
    bee = BeeClient(client)
    first = bee.put("mail", ["ann"], attempts=2, backoff={"type": "linear", "delay": 100}, now=T)
    second = bee.put("mail", ["bob"], depends=[first], delay_ms=50, now=T)
    (job,) = bee.take("mail", now=T)
    assert bee.fail(job, ValueError("no such mailbox"), now=T) == "scheduled"
    retried = bee.get(first)
    assert retried is not None
    assert (retried.status, retried.retries, retried.due) == ("retried", 1, T + 100)
    (job,) = bee.take("mail", now=T + 100)
    assert bee.fail(job, "still none", now=T + 100) == "failed"
    failed, blocked = bee.get(first), bee.get(second)
    assert failed is not None
    assert blocked is not None
    assert failed.failed_reason == "No more retries available"
    assert (blocked.due, failed.dependants) == (T + 150, (second,))


def test_a_job_is_cancelled_with_its_children_whatever_it_does(client: redis.Redis) -> None:
    bee = BeeClient(client)
    parent = bee.put("mail", ["parent"], now=T)
    child = bee.put("mail", ["child"], parent=parent, now=T)
    (job,) = bee.take("mail", now=T)
    assert bee.cancel("mail", job.id, now=T) == "held"
    assert bee.cancel_any(job.id, now=T) == "held"
    assert bee.complete(job, now=T) == "lost"
    found = bee.get(child)
    assert found is not None
    assert found.status == "canceled"
    assert bee.cancel_any("unknown") is None
    assert bee.get("unknown") is None


def test_tags_are_replaced_in_their_sets_too(client: redis.Redis) -> None:
    bee = BeeClient(client)
    job_id = bee.put("mail", [], tags=["a", 1.5])
    assert bee.set_tags(job_id, ["b", 1.5])
    assert (bee.tagged("a"), bee.tagged("b", 1.5)) == ((), (job_id,))
    assert not bee.set_tags("unknown", ["b"])


def test_a_duplicate_names_its_original(client: redis.Redis) -> None:
    bee = BeeClient(client)
    first, second = (bee.put("mail", ["same"], now=T + number) for number in range(2))
    assert [job.id for job in bee.take("mail", 2, now=T + 5)] == [first]
    found = bee.get(second)
    assert found is not None
    assert (found.status, found.duplicate_of) == ("duplicate", first)
    unhashed = BeeClient(client, hashes=False)
    third = unhashed.put("mail", ["same"], now=T + 6)
    assert [job.id for job in unhashed.take("mail", 2, now=T + 7)] == [third]


def test_a_queue_can_be_counted_and_purged(client: redis.Redis) -> None:
    bee = BeeClient(client)
    for number in range(3):
        bee.put("mail", [number])
    assert bee.size("mail").waiting == 3
    assert bee.purge("mail") == 3
    assert bee.size("mail").waiting == 0


def test_another_systems_keyspace_is_not_touched(client: redis.Redis) -> None:
    client.lpush("bee:mail:wait", "1")
    with pytest.raises(KeyspaceRefused):
        BeeClient(client).put("mail", [])
    assert client.dbsize() == 1


@pytest.mark.parametrize(
    "options",
    [
        {"unknown": 1},
        {"attempts": 0},
        {"attempts": 1.5},
        {"retries": -1},
        {"ttl": 0},
        {"ttl": 1.5},
        {"backoff": "later"},
        {"backoff": {"delay": "x"}},
        {"retryDelay": -1},
        {"depends": "an id"},
        {"depends": [1]},
        {"tags": "text"},
        {"tags": [None]},
        {"tags": [["x"]]},
        {"preferredHostname": 5},
        {"dependenciesOnTags": True},
        {"job_id": "a:b"},
        {"job_id": ""},
        {"priority": float("inf")},
        {"delay_ms": "1"},
    ],
    ids=str,
)
def test_options_at_which_bee_would_break_are_refused(client: redis.Redis, options: dict[str, object]) -> None:
    bee = BeeClient(client)
    with pytest.raises((UsageError, TypeError)):
        bee.put("mail", [], **options)  # type: ignore[arg-type]
    assert client.dbsize() == 0


def test_a_job_of_any_form_is_shown_as_far_as_it_goes() -> None:
    job = job_of({"jid": "a", "queue": "q", "status": "odd", "data": "x", "options": [], "history": [1, {}], "tags": {}})
    assert isinstance(job, BeeJob)
    assert (job.arguments, job.options, job.history, job.tags, job.retries) == (("x",), {}, ({},), (), 0)
