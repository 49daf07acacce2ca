"""A plain consumer that catches a connection error and calls ``drain_events`` again goes on where it was, as on ``redis://``."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest
from attrs import define, field
from ferryman.transport.errors import LeaseLapsed
from kombu import Connection, Consumer, Exchange, Queue
from kombu.message import Message

from ..support.brokers import FERRYMAN, REDIS, Broker, publish
from ..support.proxy import Cut, Proxy, proxy
from ..support.topologies import wait_until


@define
class Reader:
    """A consumer of one queue, and the loop around it of a program that catches connection errors."""

    connection: Connection
    acks: bool = True
    messages: list[Message] = field(factory=list)
    errors: list[Exception] = field(factory=list)

    def receive(self, message: Message) -> None:
        self.messages.append(message)
        if self.acks:
            message.ack()

    @property
    def payloads(self) -> list[Any]:
        return [message.payload for message in self.messages]

    def read(self, count: int, seconds: float = 30.0) -> None:
        """Goes on until it has got so many messages in all."""
        deadline = time.monotonic() + seconds
        while len(self.messages) < count and time.monotonic() < deadline:
            try:
                self.connection.drain_events(timeout=0.5)
            except TimeoutError:
                continue
            except self.connection.connection_errors as error:
                self.errors.append(error)

    def wait_in_vain(self) -> None:
        with pytest.raises(TimeoutError):
            self.connection.drain_events(timeout=0.1)


@contextlib.contextmanager
def reader(connection: Connection, queue: Queue | None = None, prefetch: int = 0, **options: Any) -> Iterator[Reader]:
    """A reader that consumes ``q``, or another queue."""
    reading = Reader(connection, **options)
    with connection, connection.channel() as channel:
        channel.basic_qos(0, prefetch, False)
        with Consumer(channel, [queue or Queue("q")], on_message=reading.receive):
            yield reading


@pytest.fixture
def between(server) -> Iterator[Proxy]:
    """In front of the server, for cutting the reader's connections."""
    with proxy(server) as running:
        yield running


@pytest.fixture
def other(server) -> Iterator[Connection]:
    """A connection of somebody else, which nothing cuts."""
    with FERRYMAN.connection(server) as connection:
        yield connection


@pytest.mark.parametrize("broker", [FERRYMAN, REDIS], ids=str)
def test_a_consumer_goes_on_after_its_connections_were_cut(broker: Broker, server, between):
    with reader(broker.connection(between)) as reading, broker.connection(server) as other:
        publish(other, ["before"])
        reading.read(1)
        for n in range(3):
            between.break_all()
            publish(other, [n])
            reading.read(n + 2)
    assert reading.payloads == ["before", 0, 1, 2]


def test_one_call_fails_for_one_lost_connection(between, other):
    with reader(FERRYMAN.connection(between)) as reading:
        reading.wait_in_vain()
        between.break_all()
        publish(other, ["x"])
        reading.read(1)
    assert reading.payloads == ["x"]
    assert len(reading.errors) <= 1


def test_while_the_server_is_away_each_call_takes_its_time_and_then_says_so(between, other):
    with reader(FERRYMAN.connection(between)) as reading:
        reading.wait_in_vain()
        between.refuses = True
        between.break_all()
        with pytest.raises(reading.connection.connection_errors):
            reading.connection.drain_events(timeout=0.5)
        began = time.monotonic()
        for _ in range(3):
            with pytest.raises(reading.connection.connection_errors):
                reading.connection.drain_events(timeout=0.5)
        assert time.monotonic() - began >= 1.5
        between.refuses = False
        publish(other, ["back"])
        reading.read(1)
    assert reading.payloads == ["back"]


def test_what_was_taken_by_a_call_without_an_answer_is_delivered_all_the_same(between, other, client):
    with reader(FERRYMAN.connection(between, lease=300)) as reading:
        publish(other, ["first"])
        reading.read(1)
        publish(other, ["second"])
        between.cut(Cut())
        reading.read(2)
        assert between.has_cut
    assert reading.errors
    assert reading.payloads == ["first", "second"]
    assert not client.keys("ferryman:{q}:job:*")


def test_what_is_held_while_the_connection_breaks_stays_held_and_can_be_acked(between, other, client):
    with reader(FERRYMAN.connection(between), acks=False) as reading:
        publish(other, ["one"])
        reading.read(1)
        between.break_all()
        publish(other, ["two"])
        reading.read(2)
        for message in reading.messages:
            message.ack()
    assert reading.payloads == ["one", "two"]
    assert not any(message.delivery_info["redelivered"] for message in reading.messages)
    assert not client.keys("ferryman:{q}:job:*")


def test_broadcasts_go_on_too(between, other):
    news = Exchange("news", "fanout")
    with reader(FERRYMAN.connection(between), Queue("mine", news)) as reading:
        for n in range(3):
            publish(other, [n], exchange=news, declare=[news])
            reading.read(n + 1)
            between.break_all()
    assert reading.payloads == [0, 1, 2]


def test_what_a_lapsed_lease_has_given_away_comes_again_and_the_consumer_goes_on(server, other, client):
    with reader(FERRYMAN.connection(server, lease=300), prefetch=2) as reading:
        publish(other, ["a", "b"])
        reading.read(1)
        transport = reading.connection.transport
        (channel,) = transport.channels
        channel.acks.flush()
        other.transport.session.link.run(transport.session.scripts.forget("q", channel.consumer_id))
        channel.leases.on_lapse("q")
        reading.read(2)
    assert reading.payloads == ["a", "b"]
    assert not client.keys("ferryman:{q}:job:*")


def test_who_was_frozen_beyond_its_lease_asks_whether_it_stands_before_it_takes_again(server, other, client):
    with reader(FERRYMAN.connection(server, lease=1), prefetch=3, acks=False) as reading:
        publish(other, ["a", "b"])
        reading.read(2)
        (channel,) = reading.connection.transport.channels
        channel.renewer.remove(channel.leases)  # whose thread is frozen for longer
        with other.channel() as heir:
            inherited = []

            def inherit() -> bool:
                inherited.extend(filter(None, [heir.basic_get("q")]))
                return len(inherited) == 2

            wait_until(inherit)
            publish(other, ["c"])
            with pytest.raises(LeaseLapsed):
                reading.connection.drain_events(timeout=5)
            assert not client.exists(f"ferryman:{{q}}:held:{channel.consumer_id}")
            reading.read(3)
            for message in inherited:
                message.ack()
        reading.messages[2].ack()
    assert reading.payloads == ["a", "b", "c"]
    assert not client.keys("ferryman:{q}:job:*")


def test_what_somebody_has_in_hand_when_its_lease_lapses_can_still_be_acked(server, other):
    with reader(FERRYMAN.connection(server, lease=300), prefetch=1, acks=False) as reading:
        publish(other, ["a"])
        reading.read(1)
        transport = reading.connection.transport
        (channel,) = transport.channels
        other.transport.session.link.run(transport.session.scripts.forget("q", channel.consumer_id))
        channel.leases.on_lapse("q")
        reading.wait_in_vain()
        assert channel.qos.get(reading.messages[0].delivery_tag)


class Request:
    """What Celery's table of requests holds."""

    def __init__(self, message: Message) -> None:
        self.message = message


def test_what_celery_forgot_to_strike_off_after_a_lost_connection_is_delivered_again(between, other, client, monkeypatch):
    from celery.worker import state

    publish(other, ["forgotten", "running"])
    connection = FERRYMAN.connection(between, lease=300)
    channel = connection.channel()
    forgotten, running = (Request(channel.basic_get("q")) for _ in range(2))
    monkeypatch.setattr(state, "requests", {"1": forgotten, "2": running})
    state.active_requests.add(running)
    del forgotten
    between.break_all()
    with pytest.raises(connection.connection_errors):
        channel.session.link.command("PING")
    connection.collect()
    with other.channel() as elsewhere:
        wait_until(lambda: client.zcard("ferryman:{q}:waiting"))
        assert elsewhere.basic_get("q").payload == "forgotten"
        assert elsewhere.basic_get("q") is None
    running.message.ack()
    wait_until(lambda: channel.leases not in channel.renewer._orphans)


def test_a_connection_that_is_ensured_has_its_old_consumers_too(between, other):
    with reader(FERRYMAN.connection(between)) as reading:
        reading.wait_in_vain()
        between.break_all()
        with pytest.raises(reading.connection.connection_errors):
            reading.connection.drain_events(timeout=5)
        reading.connection.ensure_connection(max_retries=3, interval_start=0)
        publish(other, ["x"])
        reading.connection.drain_events(timeout=10)
    assert reading.payloads == ["x"]
