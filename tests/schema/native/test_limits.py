"""Limits that a queue declares, honoured for every publisher and consumer."""

from __future__ import annotations

import redis
from ferryman.schema.native.live import Live

from ...support.native import LEASE, Send, ids, jobs

live = Live()
keys = live.keys("q")


def test_the_first_jobs_make_room_in_a_queue_of_limited_length(send: Send) -> None:
    send(live.declare("q", {"x-max-length": 3}))
    send(live.publish("q", "p", jobs(*range(10))))
    assert ids(send(live.take("q", "ann", 9, LEASE))) == ["p-7", "p-8", "p-9"]
    assert send(live.size("q")).dead == 7


def test_a_full_queue_refuses_more_if_it_was_declared_so(send: Send) -> None:
    send(live.declare("q", {"x-max-length": 3, "x-overflow": "reject-publish"}))
    assert send(live.publish("q", "p", jobs(1, 2, 3))).status == "stored"
    assert send(live.publish("q", "p", jobs(4))).status == "overflow"
    assert send(live.publish("q", "p", jobs(3))).fresh == (False,)
    assert send(live.size("q")).waiting == 3


def test_priorities_above_the_declared_greatest_count_as_it(send: Send) -> None:
    send(live.declare("q", {"x-max-priority": 5}))
    send(live.publish("q", "p", jobs(1, 2, priority=9)))
    send(live.publish("q", "p", jobs(3, priority=5)))
    assert ids(send(live.take("q", "ann", 9, LEASE))) == ["p-1", "p-2", "p-3"]


def test_a_job_that_waits_too_long_is_kept_as_expired(send: Send, client: redis.Redis) -> None:
    send(live.declare("q", {"x-message-ttl": 100}))
    send(live.publish("q", "p", [*jobs(1), *jobs(2, ttl_ms=10), *jobs(3, due_ms=1_500)], now=1_000))
    assert ids(send(live.take("q", "ann", 9, LEASE, now=1_099))) == ["p-1"]
    assert client.hget(keys.job("p-2"), "reason") == b"expired"
    assert ids(send(live.take("q", "ann", 9, LEASE, now=1_599))) == ["p-3"]
