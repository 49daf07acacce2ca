"""A queue that is declared again with other arguments takes them, and keeps every message where it stands, or refuses them."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from ferryman.schema.errors import QueueArgumentsError
from ferryman.schema.family import Target
from ferryman.schema.job import Job, State
from ferryman.schema.native import FAMILY
from ferryman.schema.native.scripts.queue_scripts import QueueScripts
from ferryman.schema.totals import Totals
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kombu import Connection, Producer, Queue

from ...support.brokers import drain
from ...support.effort import examples
from ...support.native import LEASE, Send, expiring, ids, jobs
from ...support.servers import Server

scripts = QueueScripts()
q = scripts.keys("q")
JOB_KEYS = (q.waiting, q.scheduled, q.held("ann"), q.dead, q.done, q.outbox)


def standing(client: redis.Redis) -> dict[bytes, Any]:
    """Every job's place and hash."""
    found: dict[bytes, Any] = {key: client.zrange(key, 0, -1, withscores=True) for key in JOB_KEYS}
    return found | {key: client.hgetall(key) for key in client.scan_iter(q.job_prefix + b"*")}


def fill(send: Send) -> None:
    """Jobs of several priorities in all places."""
    send(scripts.publish("q", "p", jobs(1, 2, 3, 4, priority=3), create=True))
    send(scripts.publish("q", "p", jobs(5, 6, priority=9)))
    send(scripts.publish("q", "p", jobs(7, delay_ms=3_600_000)))
    send(scripts.take("q", "ann", 3, LEASE))
    send(scripts.reject("q", "ann", "p-1", "rejected"))


arguments = st.fixed_dictionaries(
    {},
    optional={
        "x-expires": st.just(3_600_000),
        "x-message-ttl": st.integers(0, 9),
        "x-max-length": st.integers(0, 3),
        "x-max-length-bytes": st.integers(0, 30),
        "x-overflow": st.sampled_from(["drop-head", "reject-publish"]),
        "x-max-priority": st.integers(0, 9),
        "x-delivery-limit": st.integers(1, 3),
        "x-retention": st.integers(1, 9),
        "x-dead-letter-exchange": st.sampled_from(["", "graves"]),
    },
)


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(first=arguments, second=arguments)
def test_whatever_is_declared_next_moves_and_loses_no_message(
    send: Send, client: redis.Redis, first: dict[str, Any], second: dict[str, Any]
) -> None:
    client.flushall()
    send(scripts.declare("q", {}))
    fill(send)
    if "x-expires" in first:
        with pytest.raises(QueueArgumentsError):
            send(scripts.declare("q", first))
        first = {name: value for name, value in first.items() if name != "x-expires"}
    send(scripts.declare("q", first))
    before, meta = standing(client), client.hgetall(q.meta)
    try:
        send(scripts.declare("q", second))
    except QueueArgumentsError:
        assert "x-expires" in second
        assert client.hgetall(q.meta) == meta
    else:
        assert "x-expires" not in second
        settings = second or first
        fields = {"x-max-length": b"max_length", "x-max-priority": b"max_priority", "x-message-ttl": b"ttl"}
        stored = client.hgetall(q.meta)
        assert {name: stored.get(field) for name, field in fields.items()} == {
            name: str(settings[name]).encode() if name in settings else None for name in fields
        }
    assert standing(client) == before
    assert expiring(client) == {q.publisher("p")}


@pytest.mark.parametrize("role", ["waiting", "scheduled", "held", "dead", "done"])
def test_a_message_in_any_place_keeps_its_queue_from_becoming_temporary(send: Send, client: redis.Redis, role: str) -> None:
    send(scripts.declare("q", {"x-retention": 10**6}))
    send(scripts.publish("q", "p", jobs(1, delay_ms=10**6 if role == "scheduled" else None)))
    if role not in ("waiting", "scheduled"):
        send(scripts.take("q", "ann", 1, LEASE))
    if role == "dead":
        send(scripts.reject("q", "ann", "p-1", "rejected"))
    if role == "done":
        send(scripts.ack("q", "ann", ["p-1"]))
    with pytest.raises(QueueArgumentsError, match="has messages, which would vanish"):
        send(scripts.declare("q", {"x-expires": 1000}))
    assert expiring(client) == {q.publisher("p")}
    send(scripts.remove("q", "p-1"))
    send(scripts.requeue("q", "ann", ["p-1"]))
    send(scripts.remove("q", "p-1"))
    send(scripts.declare("q", {"x-expires": 10**6}))
    assert q.meta in expiring(client)


def test_a_migrated_queue_can_not_become_temporary(send: Send, client: redis.Redis) -> None:
    target, totals, job = Target("ferryman", 0), Totals(), Job("j", "q", "email", State.WAITING, payload=b"{}")
    FAMILY.tally_written(job, totals)
    for command in (*FAMILY.write(job, target), *FAMILY.finish(target, totals)):
        client.execute_command(*command)
    with pytest.raises(QueueArgumentsError):
        send(scripts.declare("q", {"x-expires": 1000}))


def test_a_queue_that_a_publish_has_made_takes_what_its_first_declaration_says(send: Send, client: redis.Redis) -> None:
    fill(send)
    send(scripts.declare("q", {"x-expires": 10**6}))
    assert expiring(client) >= {q.meta, q.waiting, q.job("p-2")}
    send(scripts.declare("q", {"x-expires": 10**7}))
    send(scripts.declare("q", {"x-max-length": 9}))
    assert expiring(client) == {q.publisher("p")}


def test_jobs_of_a_queue_that_lasts_after_all_keep_their_dedup_keys(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", {"x-expires": 10**6}))
    send(scripts.publish("q", "p", [*jobs(1, unique="k"), *jobs(2, unique="timed", unique_ttl_ms=10**6)]))
    send(scripts.take("q", "ann", 1, LEASE))
    assert expiring(client) >= {q.unique("k"), q.unique("timed")}
    send(scripts.declare("q", {"x-max-length": 9}))
    assert expiring(client) == {q.unique("timed"), q.publisher("p")}


def test_a_lower_greatest_priority_counts_for_what_is_published_later(send: Send) -> None:
    send(scripts.declare("q", {"x-max-priority": 9}, "descending"))
    send(scripts.publish("q", "p", jobs(1, priority=9)))
    send(scripts.publish("q", "p", jobs(2, priority=4)))
    send(scripts.declare("q", {"x-max-priority": 5}, "descending"))
    send(scripts.publish("q", "p", jobs(3, priority=9)))
    assert ids(send(scripts.take("q", "ann", 9, LEASE))) == ["p-1", "p-3", "p-2"]


def test_what_a_shorter_queue_has_no_room_for_is_dead_with_the_reason(send: Send) -> None:
    send(scripts.declare("q", {"x-max-length": 9}))
    send(scripts.publish("q", "p", jobs(1, 2, 3, 4)))
    send(scripts.declare("q", {"x-max-length": 2}))
    assert send(scripts.size("q")).waiting == 4
    send(scripts.publish("q", "p", jobs(5)))
    assert ids(send(scripts.take("q", "ann", 9, LEASE))) == ["p-4", "p-5"]
    assert [dead_letter.job.fields[b"reason"] for dead_letter in send(scripts.dead_letters("q"))] == [b"maxlen"] * 3


def test_letters_wait_for_an_exchange_that_comes_back(send: Send) -> None:
    send(scripts.declare("q", {"x-dead-letter-exchange": "graves"}))
    fill(send)
    send(scripts.declare("q", {"x-max-length": 9}))
    assert send(scripts.outbox("q")) is None
    assert [dead_letter.job.id for dead_letter in send(scripts.dead_letters("q"))] == ["p-1"]
    send(scripts.declare("q", {"x-dead-letter-exchange": "tombs"}))
    box = send(scripts.outbox("q"))
    assert (box.exchange, [dead_letter.job.id for dead_letter in box.dead_letters]) == ("tombs", ["p-1"])


def test_two_versions_of_an_app_work_beside_each_other(server: Server) -> None:
    old = Queue("q", max_length=100, queue_arguments={"x-dead-letter-exchange": "graves"})
    new = Queue("q", max_length=1000, max_priority=9)
    with Connection(server.url()) as first, Connection(server.url()) as second:
        for number in range(20):
            connection, queue = ((first, old), (second, new))[number % 2]
            with connection.channel() as channel:
                queue(channel).declare()
                Producer(channel).publish(number, routing_key="q")
        assert drain(first, [old], 10) + drain(second, [new], 10) == list(range(20))


def test_a_worker_is_told_why_its_queue_is_refused(server: Server) -> None:
    with Connection(server.url()) as connection, connection.channel() as channel:
        Queue("q")(channel).declare()
        Producer(channel).publish("kept", routing_key="q")
        with pytest.raises(connection.channel_errors, match="'q' was declared to last and has messages"):
            Queue("q", expires=1.0)(channel).declare()
        assert drain(connection, [Queue("q")], 1) == ["kept"]
