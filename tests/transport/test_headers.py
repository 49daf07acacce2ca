"""Headers and properties: those the broker acts on, those it carries, and those that make no sense."""

from __future__ import annotations

import datetime
import decimal
import json
import uuid

import ferryman.transport  # noqa: F401 - registers the URL schemes
import pytest
from ferryman.schema.errors import UsageError
from ferryman.schema.native import codec
from kombu import Connection, Producer


@pytest.fixture
def channel(server):
    with Connection(server.url(lease=5)) as connection, connection.channel() as opened:
        yield opened


def publish(channel, body="body", **options):
    Producer(channel).publish(body, routing_key="q", **options)


def test_a_second_message_with_a_key_is_dropped_until_the_first_is_acked(channel, client):
    for n in range(3):
        publish(channel, {"n": n}, headers={"x-unique-key": "report"})
    first = channel.basic_get("q")
    assert first.payload == {"n": 0}
    assert channel.basic_get("q") is None
    publish(channel, {"n": 3}, headers={"x-unique-key": "report"})
    first.ack()
    publish(channel, {"n": 4}, headers={"x-unique-key": "report"})
    assert channel.basic_get("q").payload == {"n": 4}
    assert client.hget("ferryman:{q}:meta", "deduplicated") == b"3"


def test_a_key_may_be_held_for_a_time(channel, client):
    for n in range(2):
        publish(channel, {"n": n}, headers={"x-unique-key": "report", "x-unique-ttl": 60_000})
        found = channel.basic_get("q", no_ack=True)
        assert (found is None) == bool(n)
    assert 0 < client.pttl("ferryman:{q}:unique:report") <= 60_000


def test_a_delay_is_counted_by_the_servers_clock(channel, client):
    before = client.time()[0]
    publish(channel, headers={"x-delay": 60_000})
    ((_, due),) = client.zrange("ferryman:{q}:scheduled", 0, -1, withscores=True)
    assert before + 60 <= due / 1000 <= client.time()[0] + 61


TYPED = {
    "moment": datetime.datetime(2026, 3, 1, 12, 30, tzinfo=datetime.UTC),
    "day": datetime.date(2026, 3, 1),
    "hour": datetime.time(12, 30),
    "price": decimal.Decimal("12.50"),
    "id": uuid.UUID(int=7),
    "raw": b"\xff\x00",
    "nested": {"list": [decimal.Decimal("1.5")]},
}


def test_values_that_redis_urls_carry_in_headers_arrive_as_they_were(channel):
    publish(channel, headers=TYPED, correlation_id=uuid.UUID(int=8))
    message = channel.basic_get("q")
    assert message.headers == TYPED
    assert message.properties["correlation_id"] == uuid.UUID(int=8)


def test_what_only_looks_like_such_a_value_stays_an_object(channel):
    typed = [("datetime", "never"), ("Popen", 1), ("uuid", {"hex": 7}), ([], 1)]
    typed_values = [{"__type__": name, "__value__": value} for name, value in typed]
    publish(channel, headers={"odd": typed_values})
    assert channel.basic_get("q").headers["odd"] == typed_values


def test_what_no_json_can_say_is_refused_before_it_is_stored(channel, client):
    with pytest.raises(UsageError, match="plain JSON"):
        publish(channel, headers={"odd": object()})
    assert client.dbsize() == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"headers": {"x-delay": "soon"}}, "x-delay .* must be a whole number"),
        ({"headers": {"x-unique-key": 7}}, "x-unique-key must be a text"),
        ({"headers": {"x-unique-key": "k", "x-unique-ttl": 0}}, "unique_ttl_ms 0 must be above 0"),
    ],
)
def test_a_property_that_can_not_be_is_refused_by_name(channel, client, options, text):
    with pytest.raises(UsageError, match=text):
        publish(channel, **options)
    assert client.dbsize() == 0


HEAD = {"content-type": "text/plain", "content-encoding": "utf-8", "headers": {}, "properties": {}}


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"no json\nbody",
        b"\xff\xfe",
        b"[]\nbody",
        b"[" * 100_000 + b"\n",
        *(
            codec.encode({**HEAD, **wrong}, b"body")
            for wrong in (
                {"headers": [1]},
                {"headers": "text"},
                {"properties": 7},
                {"properties": {"delivery_info": ["ex"]}},
                {"properties": {"delivery_info": "ex"}},
                {"content-type": {"a": 1}},
                {"content-encoding": 8},
            )
        ),
        json.dumps({"__type__": "uuid", "__value__": {"hex": "0" * 32}}).encode() + b"\nbody",
    ],
)
def test_a_malformed_message_becomes_a_dead_letter_and_the_next_one_arrives(channel, client, frame):
    publish(channel, "first")
    publish(channel, "second")
    (job, _) = client.zrange("ferryman:{q}:waiting", 0, -1)
    client.hset(b"ferryman:{q}:job:" + job, "message", frame)
    assert channel.basic_get("q").payload == "second"
    assert client.zrange("ferryman:{q}:dead", 0, -1) == [job]
    assert client.hget(b"ferryman:{q}:job:" + job, "reason") == b"malformed"
    assert client.hget(b"ferryman:{q}:job:" + job, "error")
