"""Exchanges on one keyspace: what kombu's redis:// has bound leads our messages, and what we bind leads kombu's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from ferryman.transport.errors import NoRoute
from kombu import Connection, Exchange, Queue

from ...support.dumps import dump
from ...support.servers import Server

NEWS = Exchange("news", "topic")
PLAIN = Exchange("plain", "direct")
BOUND = [
    Queue("all", NEWS, "news.#"),
    Queue("sports", NEWS, "news.sports.*"),
    Queue("one", PLAIN, "key"),
    Queue("two", PLAIN, "key"),
]
ROUTES = {("news", "news.sports.tennis"): {"all", "sports"}, ("news", "news.weather"): {"all"}, ("plain", "key"): {"one", "two"}}


@pytest.fixture
def original(server: Server) -> Iterator[Connection]:
    with Connection(f"redis://{server.host}:{server.port}/0") as connection:
        yield connection


@pytest.fixture
def ours(server: Server) -> Iterator[Connection]:
    with Connection(server.url(family="kombu", prefix="")) as connection:
        yield connection


def declare(connection: Connection) -> None:
    with connection.channel() as channel:
        for queue in BOUND:
            queue(channel).declare()


def publish(connection: Connection, exchange: str, routing_key: str) -> None:
    with connection.Producer() as producer:
        producer.publish({"to": routing_key}, exchange=exchange, routing_key=routing_key, serializer="json")


def drained(connection: Connection) -> dict[str, Any]:
    """What one message waits in each queue, taken and acked."""
    found = {}
    with connection.channel() as channel:
        for queue in BOUND:
            message = queue(channel).get()
            if message is not None:
                found[queue.name] = message.payload
                message.ack()
                assert queue(channel).get() is None, "a copy too many"
    return found


def tables(client: redis.Redis) -> dict[str, Any]:
    return {key: value for key, value in dump(client).items() if key.startswith("_kombu.binding")}


def test_bindings_of_both_are_the_same_in_kombus_tables(client: redis.Redis, original: Connection, ours: Connection) -> None:
    declare(original)
    wanted = tables(client)
    client.flushdb()
    declare(ours)
    assert tables(client) == wanted
    with ours.channel() as channel:
        for queue in BOUND:
            queue(channel).unbind_from(queue.exchange, queue.routing_key)
    assert tables(client) == {}


@pytest.mark.parametrize("binder", ["original", "ours", "both"])
def test_messages_of_either_go_where_either_has_bound(
    client: redis.Redis, original: Connection, ours: Connection, binder: str
) -> None:
    for name, connection in (("original", original), ("ours", ours)):
        if binder in (name, "both"):
            declare(connection)
    with original.channel() as channel:
        NEWS(channel).declare()  # kombu takes for direct what its process has not declared
    for sender in (original, ours):
        for (exchange, key), queues in ROUTES.items():
            publish(sender, exchange, key)
            assert drained(ours) == {queue: {"to": key} for queue in queues}
    assert not client.exists("unacked", "unacked_index")


def test_kombu_takes_what_we_have_routed_and_each_copy_has_a_tag_of_its_own(
    client: redis.Redis, original: Connection, ours: Connection
) -> None:
    declare(original)
    publish(ours, "plain", "key")
    texts = [json.loads(client.lindex(queue, 0) or "") for queue in ("one", "two")]
    assert texts[0]["properties"]["delivery_tag"] != texts[1]["properties"]["delivery_tag"]
    assert drained(original) == {"one": {"to": "key"}, "two": {"to": "key"}}


def test_a_task_that_no_table_leads_anywhere_is_refused(original: Connection, ours: Connection) -> None:
    declare(original)
    with ours.Producer() as producer, pytest.raises(NoRoute):
        producer.publish([[], {}, {}], exchange="plain", routing_key="other", serializer="json", headers={"task": "t", "id": "1"})
