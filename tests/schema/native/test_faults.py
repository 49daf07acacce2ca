"""Damaged keyspaces, hostile names and newer schemas: typed errors that name the key, and nothing lost."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from ferryman.schema.connection.call import Call
from ferryman.schema.errors import MalformedValue, SchemaVersionError
from ferryman.schema.native.scripts.publication import Publication
from ferryman.schema.native.scripts.queue_scripts import QueueScripts

from ...support.native import LEASE, Send, ids, jobs

scripts = QueueScripts()
keys = scripts.keys("q")


def test_a_queue_of_a_newer_schema_is_refused_by_every_transition(send: Send, client: redis.Redis) -> None:
    client.hset(keys.meta, mapping={"schema": "2", "sequence": "7"})
    client.zadd(keys.waiting, {"p-1": 1})
    before = client.dump(keys.meta), client.dump(keys.waiting)
    for call in every_call("q"):
        with pytest.raises(SchemaVersionError, match=r"'q'.*schema 2"):
            send(call)
    assert (client.dump(keys.meta), client.dump(keys.waiting)) == before


@pytest.mark.parametrize("role", ["meta", "waiting", "scheduled", "consumers"])
def test_a_key_of_a_wrong_type_is_named(send: Send, client: redis.Redis, role: str) -> None:
    key = getattr(keys, role)
    if role != "meta":
        send(scripts.declare("q", {}))
    client.rpush(key, "mine")
    with pytest.raises(MalformedValue, match=f"{role}.*damaged"):
        send(scripts.take("q", "ann", 1, LEASE))
    assert client.lrange(key, 0, -1) == [b"mine"]


def test_a_wrong_type_where_a_consumer_holds_its_jobs_loses_none(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", {}))
    send(scripts.publish("q", "p", jobs(1, 2)))
    client.set(keys.held("ann"), "mine")
    with pytest.raises(MalformedValue, match="held:ann"):
        send(scripts.take("q", "ann", 2, LEASE))
    assert ids(send(scripts.take("q", "bob", 2, LEASE))) == ["p-1", "p-2"]


@pytest.mark.parametrize("queue", ["{", "}{", "%7B", "a:job:b", "meta", "é\n\x00", "*?[x]", "x" * 3_000])
def test_a_queue_may_have_any_name(send: Send, client: redis.Redis, queue: str) -> None:
    send(scripts.declare(queue, {}))
    send(scripts.publish(queue, "{p}", [Publication("{id}:%", b"m")]))
    taken = send(scripts.take(queue, "{ann}", 1, LEASE))
    assert send(scripts.ack(queue, "{ann}", ids(taken))) == ("acked",)
    assert send(scripts.delete(queue)).status == "deleted"
    assert client.dbsize() == 0


def every_call(queue: str) -> list[Call[Any]]:
    """Each transition once."""
    return [
        scripts.declare(queue, {}),
        scripts.publish(queue, "p", jobs(1)),
        scripts.bump_routes(queue),
        scripts.take(queue, "ann", 1, LEASE),
        scripts.ack(queue, "ann", ["p-1"]),
        scripts.reject(queue, "ann", "p-1", "rejected"),
        scripts.requeue(queue, "ann", ["p-1"]),
        scripts.release(queue, "ann", None),
        scripts.forget(queue, "ann"),
        scripts.renew(queue, "ann", LEASE),
        scripts.advance(queue),
        scripts.size(queue),
        scripts.purge(queue),
        scripts.delete(queue),
        scripts.remove(queue, "p-1"),
        scripts.revive(queue, ["p-1"]),
        scripts.find(queue, ["task"]),
        scripts.dead_letters(queue),
        scripts.outbox(queue),
        scripts.forwarded(queue, []),
    ]
