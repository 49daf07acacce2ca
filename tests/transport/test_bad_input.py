"""Whatever stands in Redis: a worker goes on, and says what it could not do."""

from __future__ import annotations

import time

import ferryman.transport  # noqa: F401 - registers the URL schemes
import pytest
from ferryman.schema.errors import MalformedValue, SchemaVersionError
from ferryman.schema.native import codec
from ferryman.schema.native.scripts.publication import Publication
from ferryman.schema.native.scripts.queue_scripts import QueueScripts
from ferryman.transport.consume import poller
from kombu import Connection, Consumer, Producer, Queue

from ..support.topologies import wait_until
from ..support.workers import Ledger, send, worker

NOTE = "tests.support.tasks.note"


@pytest.fixture
def connection(server):
    with Connection(server.url(lease=5)) as connected:
        yield connected


@pytest.fixture
def channel(connection):
    with connection.channel() as opened:
        yield opened


def publish(channel, body, queue="q", **options):
    Producer(channel).publish(body, routing_key=queue, **options)


def receive(connection, channel, queues, count, seconds=20.0):
    """The payloads that come first from some queues."""
    payloads = []

    def take(message):
        payloads.append(message.payload)
        message.ack()

    with Consumer(channel, [Queue(name, no_declare=True) for name in queues], on_message=take):
        deadline = time.monotonic() + seconds
        while len(payloads) < count and time.monotonic() < deadline:
            try:
                connection.drain_events(timeout=0.1)
            except TimeoutError:
                continue
    return payloads


def headers(**given):
    return {"lang": "py", "task": NOTE, "id": "x", "root_id": "x", "retries": 0, **given}


def hostile():
    """Frames of messages that no task can be made of, or none that works."""
    head = {"content-type": "application/json", "content-encoding": "utf-8", "properties": {}, "headers": headers()}
    body = b'[["hostile"], {}, {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]'
    yield b""
    yield b"no frame at all"
    yield b"\xff\xfe\x00\n" + body
    for content in (b"", b"{", b"[]", b"null", b'"text"', b"[1, 2]", b'[["a"], 5, {}]', b"\xff", b"[" * 5_000):
        yield codec.encode(head, content)
    for wrong in (
        {"headers": {}},
        {"headers": ["task"]},
        {"headers": headers(task=7)},
        {"headers": headers(task=["a"])},
        {"headers": headers(task="no.such.task")},
        {"headers": headers(id={"a": 1})},
        {"headers": headers(eta="yesterday")},
        {"headers": headers(expires="never")},
        {"headers": headers(timelimit="long")},
        {"properties": {"delivery_info": "everywhere"}},
        {"properties": {"reply_to": 7, "correlation_id": []}},
        {"content-type": "application/x-python-serialize"},
        {"content-type": "application/x-unheard-of"},
        {"content-type": 7},
        {"content-encoding": "klingon"},
    ):
        yield codec.encode({**head, **wrong}, body)


@pytest.mark.parametrize("pool", ["solo", "gevent"])
def test_no_message_ends_a_worker(server, client, tmp_path, pool):
    scripts = QueueScripts()
    ledger = Ledger(server)
    with worker(server, tmp_path, pool=pool) as running:
        client.hset("ferryman:{celery}:job:odd", "no message", "here")
        client.zadd("ferryman:{celery}:waiting", {"odd": 5, "vanished": 6})
        client.rpush("ferryman:{celery}:job:list", "x")
        client.zadd("ferryman:{celery}:waiting", {"list": 7})
        for n, frame in enumerate(hostile()):
            call = scripts.publish("celery", "h", [Publication(f"h-{n}", frame)])
            client.execute_command(*call.eval())
        send(server, [(NOTE, ["after"], {})])
        ledger.wait(lambda lines: any(line["name"] == "after" for line in lines))
        assert running.process.poll() is None
        assert running.stop() == 0, running.log.read_text()
    assert client.zcard("ferryman:{celery}:dead") > 5


def test_a_damaged_queue_keeps_no_other_from_being_served_and_is_served_when_it_is_sound(
    connection, channel, client, caplog, monkeypatch
):
    monkeypatch.setattr(poller, "RETRY_INTERVAL", 0.2)
    for queue in ("damaged", "sound"):
        channel.queue_declare(queue)
        publish(channel, queue, queue)
    client.rename("ferryman:{damaged}:waiting", "kept")
    client.set("ferryman:{damaged}:waiting", "mine")
    assert receive(connection, channel, ["damaged", "sound"], 1) == ["sound"]
    assert "'damaged' can't be consumed" in caplog.text
    assert "ferryman:{damaged}:waiting" in caplog.text
    assert client.get("ferryman:{damaged}:waiting") == b"mine"
    client.rename("kept", "ferryman:{damaged}:waiting")
    assert receive(connection, channel, ["damaged", "sound"], 1) == ["damaged"]


def test_acks_of_a_queue_that_gets_damaged_arrive_though_no_take_from_it_does(connection, channel, client, monkeypatch):
    monkeypatch.setattr(poller, "RETRY_INTERVAL", 0.2)
    for body in ("first", "second"):
        publish(channel, body)
    channel.basic_qos(prefetch_count=1)
    received = []

    def handle(message):
        received.append(message.payload)
        client.set("ferryman:{q}:scheduled", "mine")
        message.ack()

    with Consumer(channel, [Queue("q")], on_message=handle):
        connection.drain_events(timeout=5)
        with pytest.raises(TimeoutError):
            connection.drain_events(timeout=0.5)
        wait_until(lambda: not channel.acks)
        assert client.hget("ferryman:{q}:meta", "acked") == b"1"
        client.delete("ferryman:{q}:scheduled")
        connection.drain_events(timeout=5)
    assert received == ["first", "second"]


def test_a_queue_that_a_newer_version_has_written_is_left_alone_and_named(connection, channel, client, caplog):
    for queue in ("newer", "sound"):
        channel.queue_declare(queue)
        publish(channel, queue, queue)
    client.hset("ferryman:{newer}:meta", "schema", "2")
    assert receive(connection, channel, ["newer", "sound"], 1) == ["sound"]
    assert "update this one" in caplog.text
    for call in (lambda: channel.queue_declare("newer"), lambda: publish(channel, 1, "newer")):
        with pytest.raises(SchemaVersionError, match="'newer' was written by a newer ferryman"):
            call()
    assert client.zcard("ferryman:{newer}:waiting") == 1


def test_acks_to_a_damaged_queue_are_said_to_be_lost_and_others_are_kept(connection, channel, client, caplog):
    for queue in ("damaged", "sound"):
        channel.queue_declare(queue)
        publish(channel, queue, queue)
    held = []
    with Consumer(channel, [Queue(name, no_declare=True) for name in ("damaged", "sound")], on_message=held.append):
        channel.basic_qos(0, 10)
        while len(held) < 2:
            connection.drain_events(timeout=10)
        client.delete(f"ferryman:{{damaged}}:held:{channel.consumer_id}")
        client.set(f"ferryman:{{damaged}}:held:{channel.consumer_id}", "mine")
        for message in held:
            message.ack()
    assert "acks to queue 'damaged' came to nothing" in caplog.text
    assert not client.exists(f"ferryman:{{sound}}:held:{channel.consumer_id}")


def test_a_client_whose_clock_is_years_ahead_delays_and_expires_nothing_wrongly(connection, channel, client, monkeypatch):
    monkeypatch.setattr(time, "time", lambda: client.time()[0] + 1e9)
    publish(channel, "delayed", headers={"x-delay": 300})
    publish(channel, "expiring", expiration=60)
    assert client.zcard("ferryman:{q}:scheduled") == 1
    assert receive(connection, channel, ["q"], 2) == ["expiring", "delayed"]


def test_an_exchange_of_a_wrong_type_is_named(channel, client):
    client.set("ferryman:exchange:ex", "mine")
    with pytest.raises(MalformedValue, match="ferryman:exchange:ex"):
        channel.exchange_declare("ex")
