"""Limits that a queue declares, honoured for every publisher and consumer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis
from ferryman.schema.connection.call import Call
from ferryman.schema.job import State
from ferryman.schema.native.scripts.publication import Publication
from ferryman.schema.native.scripts.queue_scripts import QueueScripts
from ferryman.schema.native.steering import NativeSteering
from ferryman.schema.steering import Action, JobFilter

from ...support.native import LEASE, Send, ids, jobs

scripts, steering = QueueScripts(), NativeSteering()
keys = scripts.keys("q")


def test_the_first_jobs_make_room_in_a_queue_of_limited_length(send: Send) -> None:
    send(scripts.declare("q", {"x-max-length": 3}))
    send(scripts.publish("q", "p", jobs(*range(10))))
    assert ids(send(scripts.take("q", "ann", 9, LEASE))) == ["p-7", "p-8", "p-9"]
    assert send(scripts.size("q")).dead == 7


def test_a_full_queue_refuses_more_if_it_was_declared_so(send: Send) -> None:
    send(scripts.declare("q", {"x-max-length": 3, "x-overflow": "reject-publish"}))
    assert send(scripts.publish("q", "p", jobs(1, 2, 3))).status == "stored"
    assert send(scripts.publish("q", "p", jobs(4))).status == "overflow"
    assert send(scripts.publish("q", "p", jobs(3))).fresh == (False,)
    assert send(scripts.size("q")).waiting == 3


Requeue = Callable[[list[str]], Call[Any]]


def _matching(job_ids: list[str]) -> Call[Any]:
    return steering.act_on_matching(Action.REQUEUE, "q", State.FAILED, JobFilter(), limit=len(job_ids))


def _revive(job_ids: list[str]) -> Call[Any]:
    return scripts.revive("q", job_ids)


def _kill(send: Send, number: int) -> list[str]:
    """Fills the queue ``q`` with jobs and makes dead letters of them."""
    send(scripts.publish("q", "p", jobs(*range(number))))
    killed = ids(send(scripts.take("q", "ann", number, LEASE)))
    for job_id in killed:
        send(scripts.reject("q", "ann", job_id, "rejected"))
    return killed


@pytest.mark.parametrize("requeue", [_revive, _matching])
def test_dead_jobs_are_not_requeued_beyond_the_length_that_a_queue_refuses_to_exceed(send: Send, requeue: Requeue) -> None:
    send(scripts.declare("q", {"x-max-length": 3, "x-overflow": "reject-publish"}))
    killed = _kill(send, 3)
    send(scripts.publish("q", "p", jobs(7)))
    send(requeue(killed))
    size = send(scripts.size("q"))
    assert (size.waiting, size.dead) == (3, 1)


@pytest.mark.parametrize("requeue", [_revive, _matching])
def test_the_first_jobs_make_room_for_requeued_ones(send: Send, client: redis.Redis, requeue: Requeue) -> None:
    send(scripts.declare("q", {"x-max-length": 3}))
    killed = _kill(send, 3)
    send(scripts.publish("q", "p", jobs(7, 8)))
    send(requeue(killed))
    assert client.zrange(keys.waiting, 0, -1) == [b"p-2", b"p-7", b"p-8"]
    assert client.zcard(keys.dead) == 2
    assert client.hget(keys.job("p-0"), "reason") == b"maxlen"


def test_one_dead_job_is_not_requeued_into_a_full_queue(send: Send) -> None:
    send(scripts.declare("q", {"x-max-length": 1, "x-overflow": "reject-publish"}))
    (killed,) = _kill(send, 1)
    send(scripts.publish("q", "p", jobs(7)))
    assert send(steering.act(Action.REQUEUE, "q", killed)) == "refused"
    assert send(scripts.size("q")).waiting == 1


def test_priorities_above_the_declared_greatest_count_as_it(send: Send) -> None:
    send(scripts.declare("q", {"x-max-priority": 5}))
    send(scripts.publish("q", "p", jobs(1, 2, priority=9)))
    send(scripts.publish("q", "p", jobs(3, priority=5)))
    assert ids(send(scripts.take("q", "ann", 9, LEASE))) == ["p-1", "p-2", "p-3"]


def test_a_job_that_waits_too_long_is_kept_as_expired(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", {"x-message-ttl": 100}))
    send(scripts.publish("q", "p", [*jobs(1), *jobs(2, ttl_ms=10), *jobs(3, due_ms=1_500)], now=1_000))
    assert ids(send(scripts.take("q", "ann", 9, LEASE, now=1_099))) == ["p-1"]
    assert client.hget(keys.job("p-2"), "reason") == b"expired"
    assert ids(send(scripts.take("q", "ann", 9, LEASE, now=1_599))) == ["p-3"]


def bodies(*lengths: int, start: int = 1) -> list[Publication]:
    """Jobs ``p-<n>`` with bodies of so many bytes; their heads don't count."""
    return [Publication(f"p-{start + n}", b'{"a":"b"}\n' + b"x" * length) for n, length in enumerate(lengths)]


def bytes_of(client: redis.Redis) -> int:
    return int(client.hget(keys.meta, "bytes") or 0)


def test_the_first_jobs_make_room_in_a_queue_of_limited_bytes(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", {"x-max-length-bytes": 300}))
    send(scripts.publish("q", "p", bodies(*[100] * 10)))
    assert client.zrange(keys.waiting, 0, -1) == [b"p-8", b"p-9", b"p-10"]
    send(scripts.publish("q", "p", bodies(150, start=11)))
    assert client.zrange(keys.waiting, 0, -1) == [b"p-10", b"p-11"]
    send(scripts.publish("q", "p", bodies(301, start=12)))
    assert send(scripts.size("q")).waiting == 0
    assert send(scripts.size("q")).dead == 12


def test_of_two_limits_the_first_that_is_reached_counts(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", {"x-max-length-bytes": 300, "x-max-length": 3}))
    send(scripts.publish("q", "p", bodies(200, 90, 1, 1)))
    assert client.zrange(keys.waiting, 0, -1) == [b"p-2", b"p-3", b"p-4"]
    send(scripts.publish("q", "p", bodies(290, start=5)))
    assert client.zrange(keys.waiting, 0, -1) == [b"p-3", b"p-4", b"p-5"]


def test_a_queue_of_limited_bytes_refuses_more_if_it_was_declared_so(send: Send) -> None:
    send(scripts.declare("q", {"x-max-length-bytes": 300, "x-max-length": 4, "x-overflow": "reject-publish"}))
    assert send(scripts.publish("q", "p", bodies(100, 100))).status == "stored"
    assert send(scripts.publish("q", "p", bodies(101, start=3))).status == "overflow"
    assert send(scripts.publish("q", "p", bodies(98, 1, start=4))).status == "stored"
    assert send(scripts.publish("q", "p", bodies(1, start=6))).status == "overflow"


def test_empty_bodies_and_an_empty_queue_are_taken_like_others(send: Send) -> None:
    send(scripts.declare("q", {"x-max-length-bytes": 300}))
    assert send(scripts.take("q", "ann", 9, LEASE)).jobs == ()
    send(scripts.publish("q", "p", bodies(0, 0)))
    taken = send(scripts.take("q", "ann", 9, LEASE))
    assert send(scripts.ack("q", "ann", ids(taken))) == ("acked", "acked")


def test_the_bytes_of_a_queue_are_those_that_wait_whatever_happens(send: Send, client: redis.Redis) -> None:
    send(scripts.publish("q", "p", bodies(10, 20), create=True))
    send(scripts.declare("q", {"x-max-length-bytes": 1_000}))
    assert bytes_of(client) == 30
    send(
        scripts.publish(
            "q", "p", [*bodies(40, 80, start=3), *(job._replace(due_ms=2_000) for job in bodies(160, start=5))], now=1_000
        )
    )
    assert bytes_of(client) == 150
    send(scripts.take("q", "ann", 3, 500, now=1_000))
    assert bytes_of(client) == 80
    send(scripts.requeue("q", "ann", ["p-1"], now=1_000))
    assert bytes_of(client) == 90
    send(scripts.advance("q", now=2_000))
    assert bytes_of(client) == 90 + 160 + 60
    assert send(scripts.ack("q", "ann", ["p-2"], now=2_000)) == ("cancelled",)
    assert send(scripts.remove("q", "p-3", now=2_000)) == "waiting"
    assert bytes_of(client) == 250
    send(scripts.take("q", "bob", 1, 500, now=2_000))
    send(scripts.reject("q", "bob", "p-1", "rejected", now=2_000))
    send(scripts.revive("q", ["p-1"], now=2_000))
    assert bytes_of(client) == 250
    send(scripts.purge("q", limit=1, now=2_000))
    assert bytes_of(client) == 240
    send(scripts.take("q", "bob", 9, 500, no_ack=True, now=2_000))
    assert bytes_of(client) == 0
