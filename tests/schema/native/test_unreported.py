"""Ends of tasks that no worker has reported: which dead jobs need a report, how they are claimed, and when they need none."""

from __future__ import annotations

import pytest
import redis
from ferryman.schema.native.scripts.publication import Publication
from ferryman.schema.native.scripts.queue_scripts import QueueScripts

from ...support.native import LEASE, Send, ids, jobs

scripts = QueueScripts()
keys = scripts.keys("q")

TASK = b'{"headers": {"task": "add", "id": "t"}}\n[[], {}, {}]'


def tasks(*numbers: int, message: bytes = TASK, **fields: object) -> list[Publication]:
    return [Publication(f"p-{number}", message, **fields) for number in numbers]


def expired(send: Send, publications: list[Publication], now: int = 1_000) -> None:
    """Publishes jobs that expire at once, and has them given up."""
    send(scripts.declare("q", {}))
    send(scripts.publish("q", "p", publications, now=now))
    send(scripts.take("q", "ann", 0, LEASE, now=now + 10))
    send(scripts.take("q", "ann", 1, LEASE, now=now + 10))


def test_only_tasks_need_a_report_and_takers_are_told_until_all_are_reported(send: Send, client: redis.Redis) -> None:
    expired(send, [*tasks(1, ttl_ms=5), *jobs(2, ttl_ms=5), *tasks(3, ttl_ms=5, message=b"x" * 20_000)])
    assert client.zrange(keys.unreported, 0, -1) == [b"p-1", b"p-3"]
    assert send(scripts.take("q", "ann", 1, LEASE, now=1_020)).has_unreported
    claimed = send(scripts.claim_unreported("q", 60_000, now=1_020))
    assert {job.id: job.fields[b"reason"] for job in claimed.tasks} == {"p-1": b"expired", "p-3": b"expired"}
    assert (claimed.again, claimed.next_claim_ms) == (frozenset(), 61_020)
    assert send(scripts.reported("q", ["p-1", "p-3"], now=1_021)) == 2
    assert not send(scripts.take("q", "ann", 1, LEASE, now=1_022)).has_unreported
    assert client.zcard(keys.dead) == 3


def test_a_claim_excludes_others_until_it_runs_out(send: Send) -> None:
    expired(send, tasks(1, 2, 3, ttl_ms=5))
    first = send(scripts.claim_unreported("q", 500, limit=2, now=2_000))
    second = send(scripts.claim_unreported("q", 500, limit=2, now=2_001))
    assert [len(first.tasks), len(second.tasks)] == [2, 1]
    assert send(scripts.claim_unreported("q", 500, now=2_002)).tasks == ()
    again = send(scripts.claim_unreported("q", 500, now=2_500))
    assert again.again == {job.id for job in again.tasks} == {job.id for job in first.tasks}


def test_dead_jobs_that_go_elsewhere_need_no_report(send: Send, client: redis.Redis) -> None:
    expired(send, tasks(1, 2, 3, ttl_ms=5))
    send(scripts.revive("q", ["p-1"]))
    send(scripts.remove("q", "p-2"))
    assert client.zrange(keys.unreported, 0, -1) == [b"p-3"]
    client.delete(keys.dead)
    claimed = send(scripts.claim_unreported("q", 500))
    assert (claimed.tasks, claimed.next_claim_ms) == ((), None)
    assert not client.hexists(keys.meta, "unreported")


def test_of_a_temporary_queue_expired_tasks_stay_to_be_reported_and_go_with_it(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", {"x-expires": 60_000}))
    send(scripts.publish("q", "p", [*tasks(1, ttl_ms=5), *jobs(2, ttl_ms=5)], now=1_000))
    assert ids(send(scripts.take("q", "ann", 5, LEASE, now=1_010))) == []
    assert client.zrange(keys.dead, 0, -1) == client.zrange(keys.unreported, 0, -1) == [b"p-1"]
    assert client.pttl(keys.unreported) > 0


@pytest.mark.parametrize("count", [1, 3])
def test_the_last_consumer_is_named_though_it_gave_the_job_back(send: Send, client: redis.Redis, count: int) -> None:
    send(scripts.declare("q", {"x-delivery-limit": count}))
    send(scripts.publish("q", "p", tasks(1)))
    for n in range(count):
        send(scripts.take("q", f"worker-{n}", 1, LEASE))
        send(scripts.requeue("q", f"worker-{n}", ["p-1"]))
    assert send(scripts.take("q", "ann", 1, LEASE)).jobs == ()
    assert client.hget(keys.job("p-1"), "error") == f"delivered {count} times, last to worker-{count - 1}".encode()
    assert send(scripts.ack("q", f"worker-{count - 1}", ["p-1"])) == ("lost",)
