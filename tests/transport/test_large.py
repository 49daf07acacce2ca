"""Large messages: they arrive whole, by whatever way they are taken, and make nobody wait for long."""

from __future__ import annotations

from typing import Any

import ferryman.transport  # noqa: F401 - registers the URL schemes
import pytest
from ferryman.schema.errors import UsageError
from kombu import Connection, Consumer, Producer, Queue

from ..support.servers import Server

SIZE = 300_000


@pytest.fixture
def url(server: Server) -> str:
    return server.url(fetch_bytes=100_000)


def publish(connection: Connection, queue: Queue, *letters: str) -> None:
    producer = Producer(connection)
    for letter in letters:
        producer.publish(letter * SIZE, routing_key=queue.name, declare=[queue], serializer="json")


@pytest.mark.parametrize("no_ack", [False, True])
def test_messages_longer_than_fetch_bytes_are_consumed_in_order(url: str, no_ack: bool) -> None:
    queue, got = Queue("large"), []
    with Connection(url) as connection:
        publish(connection, queue, "a", "b", "c")

        def receive(body: Any, message: Any) -> None:
            got.append(body)
            if not no_ack:
                message.ack()

        with Consumer(connection, [queue], callbacks=[receive], no_ack=no_ack, accept=["json"], prefetch_count=10):
            while len(got) < 3:
                connection.drain_events(timeout=10)
        size = connection.default_channel.queue_declare("large", passive=True)
    assert got == [letter * SIZE for letter in "abc"]
    assert size.message_count == 0


def test_a_message_longer_than_fetch_bytes_can_be_got_and_given_back(url: str) -> None:
    queue = Queue("large")
    with Connection(url) as connection:
        publish(connection, queue, "a")
        channel = connection.default_channel
        channel.basic_get("large").requeue()
        again = channel.basic_get("large")
        assert again.delivery_info["redelivered"]
        assert again.payload == "a" * SIZE
        again.ack()
        assert channel.basic_get("large") is None


def test_a_consumer_that_closes_gives_back_more_than_one_call_may(server: Server) -> None:
    queue, number = Queue("many"), 1_200
    with Connection(server.url()) as connection:
        producer = Producer(connection)
        queue.declare(channel=connection.default_channel)
        for each in range(number):
            producer.publish(each, routing_key="many")
        with connection.channel() as channel:
            got: list[Any] = []
            consumer = Consumer(channel, [queue], on_message=got.append, prefetch_count=0)
            consumer.qos(prefetch_count=number)
            with consumer:
                while len(got) < number:
                    connection.drain_events(timeout=10)
        assert connection.default_channel.queue_declare("many", passive=True).message_count == number


@pytest.mark.parametrize("wrong", ["0", "many"])
def test_fetch_bytes_must_be_a_number_above_zero(server: Server, wrong: str) -> None:
    with Connection(server.url(fetch_bytes=wrong)) as connection, pytest.raises(UsageError, match="fetch_bytes"):
        connection.connect()
