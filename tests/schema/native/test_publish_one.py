"""The short script of a publish: it does what the long one does, or nothing."""

from __future__ import annotations

import re
from typing import Any

import pytest
import redis
from ferryman.schema.connection.call import run
from ferryman.schema.errors import MalformedValue, PublishRefused
from ferryman.schema.native.scripts.publication import Publication
from ferryman.schema.native.scripts.queue_scripts import QueueScripts
from ferryman.schema.native.scripts.results import Published
from ferryman.testing.keyspaces import dump
from hypothesis import given, settings
from hypothesis import strategies as st

from ...support.effort import examples
from ...support.native import LEASE, Send, ids, jobs

NOW = 1_700_000_000_000
scripts = QueueScripts()
keys = scripts.keys("q")

LIMITS: list[dict[str, Any]] = [
    {"x-expires": 60_000},
    {"x-message-ttl": 9},
    {"x-max-length": 2},
    {"x-max-length-bytes": 99},
    {"x-max-priority": 5},
    {"x-dead-letter-exchange": "dead"},
]
histories = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 6), st.integers(-256, 255)),
        st.tuples(st.just("take"), st.integers(1, 3), st.booleans()),
        st.tuples(st.just("declare"), st.sampled_from([{}, {"x-delivery-limit": 3}, *LIMITS]), st.none()),
        st.tuples(st.just("forget"), st.none(), st.none()),
    ),
    max_size=12,
)


@settings(max_examples=examples(150))
@given(order=st.sampled_from(["ascending", "descending"]), history=histories)
def test_whatever_was_before_it_leaves_the_same_keyspace_as_the_long_script(
    any_server: Any, order: Any, history: list[tuple[Any, ...]]
) -> None:
    with any_server.client(0) as one, any_server.client(1) as other:
        one.flushall()
        for client in (one, other):
            run(client, scripts.declare("q", {}, order, now=NOW))
        for step, (action, what, how) in enumerate(history):
            results = []
            for client in (one, other):
                match action:
                    case "publish":
                        (message,) = jobs(what, priority=how)
                        by = publish if client is one else publish_by_the_long_one
                        results.append(by(client, message, NOW + step))
                    case "take":
                        taken = run(client, scripts.take("q", "ann", what, LEASE, no_ack=how, now=NOW + step))
                        run(client, scripts.ack("q", "ann", ids(taken)[:1], now=NOW + step))
                    case "declare":
                        run(client, scripts.declare("q", what, now=NOW + step)) if what.get("x-expires") is None else None
                    case "forget":
                        client.delete(keys.publisher("p"))
            assert len(set(results)) <= 1
        assert timeless(dump(one)) == timeless(dump(other))


def publish(client: redis.Redis, message: Publication, now: int | None) -> Published:
    """By the short script, and by the long one what it leaves."""
    call = scripts.publish_one("q", "p", message, now=now)
    assert call is not None
    result = run(client, call)
    return publish_by_the_long_one(client, message, now) if result.status == "other" else result


def publish_by_the_long_one(client: redis.Redis, message: Publication, now: int | None) -> Published:
    return run(client, scripts.publish("q", "p", [message], now=now))


def timeless(keyspace: dict[bytes, Any]) -> dict[bytes, Any]:
    """What stands in a keyspace, and which keys expire."""
    return {key: (entry.redis_type, entry.value, entry.ttl_ms is None) for key, entry in keyspace.items()}


@pytest.mark.parametrize("limit", LIMITS, ids=[next(iter(limit)) for limit in LIMITS])
def test_limits_are_left_to_the_long_script(send: Send, client: redis.Redis, limit: dict[str, Any]) -> None:
    send(scripts.declare("q", limit))
    before = timeless(dump(client))
    assert send(scripts.publish_one("q", "p", *jobs(1))).status == "other"
    assert timeless(dump(client)) == before


def test_so_are_messages_that_are_not_plain_queues_that_do_not_exist_and_repeats(send: Send, client: redis.Redis) -> None:
    for fields in ({"due_ms": 1}, {"delay_ms": 0}, {"ttl_ms": 1}, {"unique": "key"}):
        assert scripts.publish_one("q", "p", *jobs(1, **fields)) is None
    assert scripts.publish_one("q", "p", Publication("without-a-number-", b"")) is None
    assert send(scripts.publish_one("q", "p", *jobs(1))).status == "other"
    assert client.dbsize() == 0
    send(scripts.declare("q", {}))
    assert send(scripts.publish_one("q", "p", *jobs(2))).fresh == (True,)
    assert send(scripts.publish_one("q", "p", *jobs(1))).status == "other"
    client.delete(keys.publisher("p"))
    assert send(scripts.publish_one("q", "p", *jobs(2))).status == "other"
    assert send(scripts.size("q")).waiting == 1


def test_routes_that_changed_refuse_it(send: Send, client: redis.Redis) -> None:
    routes = send(scripts.declare("q", {})).routes
    bumped = send(scripts.bump_routes("q"))
    stale = send(scripts.publish_one("q", "p", *jobs(1), routes=routes))
    assert (stale.status, stale.routes, client.exists(keys.job("p-1"))) == ("stale", bumped, 0)
    assert send(scripts.publish_one("q", "p", *jobs(1), routes=bumped)).fresh == (True,)


def test_a_full_server_refuses_it(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", {}))
    client.config_set("maxmemory-policy", "noeviction")
    client.config_set("maxmemory", 1)
    try:
        with pytest.raises(PublishRefused, match=r"'q'.*maxmemory"):
            send(scripts.publish_one("q", "p", *jobs(1)))
    finally:
        client.config_set("maxmemory", 0)
    assert send(scripts.size("q")).waiting == 0


@pytest.mark.parametrize("name", ["meta", "waiting", "publisher", "job"])
def test_a_key_of_a_wrong_type_is_named_and_nothing_seems_to_be_stored(send: Send, client: redis.Redis, name: str) -> None:
    send(scripts.declare("q", {}))
    key = {"publisher": keys.publisher("p"), "job": keys.job("p-1")}.get(name) or getattr(keys, name)
    client.delete(key)
    client.geoadd(key, (1, 1, "x")) if name != "waiting" else client.set(key, "x")
    with pytest.raises(MalformedValue, match=re.escape(key.decode())):
        publish(client, *jobs(1), now=None)
    assert name == "publisher" or not client.exists(keys.publisher("p"))
