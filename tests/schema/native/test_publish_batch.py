"""Batches: each job once, in whatever order and however often a batch is published, and in place of the dead one it mends."""

from __future__ import annotations

import pytest
import redis
from ferryman.schema.errors import UsageError
from ferryman.schema.native.scripts.publication import Publication
from ferryman.schema.native.scripts.queue_scripts import QueueScripts

from ...support.native import LEASE, Send, ids, jobs

scripts = QueueScripts()
keys = scripts.keys("q")
DAY = 86_400_000


def publish(send: Send, *numbers: int, batch: str = "b", **fields: object) -> tuple[bool, ...]:
    return send(scripts.publish_batch("q", batch, jobs(*numbers, **fields), DAY)).fresh


def run_all(send: Send) -> list[str]:
    """Takes and acks what waits."""
    taken = ids(send(scripts.take("q", "ann", 100, LEASE)))
    send(scripts.ack("q", "ann", taken))
    return taken


@pytest.fixture
def queue(send: Send) -> None:
    send(scripts.declare("q", {}))


@pytest.mark.usefixtures("queue")
def test_a_batch_stores_a_job_once_even_when_it_is_done(send: Send) -> None:
    assert publish(send, 1, 2) == (True, True)
    assert run_all(send) == ["p-1", "p-2"]
    assert publish(send, 3, 2, 1) == (True, False, False)
    assert publish(send, 3, 3) == (False, False)
    assert run_all(send) == ["p-3"]
    assert publish(send, 1, batch="another") == (True,)


@pytest.mark.usefixtures("queue")
def test_a_complete_batch_stores_nothing_more(send: Send, client: redis.Redis) -> None:
    publish(send, 1)
    assert send(scripts.complete_batch("q", "b", DAY))
    assert publish(send, 1, 2) == (False, False)
    assert run_all(send) == ["p-1"]
    assert 0 < client.pttl(keys.batch("b")) <= DAY
    assert client.type(keys.batch("b")) == b"string"


@pytest.mark.usefixtures("queue")
def test_a_job_takes_the_place_of_the_dead_one_with_its_id(send: Send, client: redis.Redis) -> None:
    send(scripts.publish("q", "p", jobs(1, unique="k")))
    send(scripts.take("q", "ann", 1, LEASE))
    send(scripts.reject("q", "ann", "p-1", "rejected", "boom"))
    mended = [Publication("p-1", b"{}\nmended", unique="k")]
    assert send(scripts.publish_batch("q", "b", mended, DAY)).fresh == (True,)
    assert client.hgetall(keys.job("p-1")).keys() == {b"message", b"published_at", b"unique"}
    assert client.hget(keys.job("p-1"), "message") == b"{}\nmended"
    assert not client.exists(keys.dead)
    assert client.get(keys.unique("k")) == b"p-1"
    assert send(scripts.publish_batch("q", "b", mended, DAY)).fresh == (False,)
    send(scripts.take("q", "ann", 1, LEASE))
    send(scripts.reject("q", "ann", "p-1", "rejected", "boom again"))
    assert send(scripts.publish_batch("q", "b", mended, DAY)).fresh == (False,), "a batch is not published twice"
    assert client.zcard(keys.dead) == 1
    assert send(scripts.publish_batch("q", "next", mended, DAY)).fresh == (True,)


@pytest.mark.usefixtures("queue")
def test_what_somebody_else_has_stored_and_has_not_died_is_told(send: Send) -> None:
    send(scripts.publish("q", "p", jobs(1)))
    publish(send, 2)
    published = send(scripts.publish_batch("q", "b", jobs(1, 2, 3), DAY))
    assert published.fresh == (False, False, True)
    assert published.standing == (True, False, False)


@pytest.mark.usefixtures("queue")
def test_a_dead_job_stays_when_another_one_holds_its_key(send: Send, client: redis.Redis) -> None:
    send(scripts.publish("q", "p", jobs(1, unique="k")))
    send(scripts.take("q", "ann", 1, LEASE))
    send(scripts.reject("q", "ann", "p-1", "rejected"))
    send(scripts.publish("q", "p", jobs(2, unique="k")))
    assert publish(send, 1, unique="k") == (False,)
    assert client.zscore(keys.dead, "p-1") is not None
    run_all(send)
    assert publish(send, 1, unique="k") == (True,)


def test_nothing_is_stored_in_a_queue_that_is_not_there_or_full(send: Send, client: redis.Redis) -> None:
    assert send(scripts.publish_batch("q", "b", jobs(1), DAY)).status == "missing"
    assert client.keys() == []
    send(scripts.declare("q", {"x-max-length": 1, "x-overflow": "reject-publish"}))
    publish(send, 1)
    assert send(scripts.publish_batch("q", "b", jobs(2), DAY)).status == "overflow"
    run_all(send)
    assert publish(send, 2) == (True,)


def test_a_batch_has_a_name_that_can_be_read() -> None:
    for name in ("", "a\nb"):
        with pytest.raises(UsageError, match="batch"):
            scripts.publish_batch("q", name, jobs(1), DAY)
