"""What a broker must do wherever it stands."""

from __future__ import annotations

import ferryman.transport  # noqa: F401 - registers the URL schemes
from kombu import Connection, Consumer, Exchange, Producer, Queue


def round_trip(url: str, **options: object) -> None:
    """Publishes, consumes, broadcasts and deletes."""
    exchange = Exchange("ex", "topic")
    news = Queue("news", Exchange("broadcast", "fanout"), expires=60)
    received = []
    with Connection(url, **options) as connection, connection.channel() as channel:
        queue = Queue("q", exchange, routing_key="a.*")
        with Consumer(channel, [queue, news], on_message=lambda m: (received.append(m.payload), m.ack())):
            producer = Producer(channel)
            producer.publish("routed", exchange=exchange, routing_key="a.b")
            producer.publish("broadcast", exchange=news.exchange, declare=[news.exchange])
            producer.publish("later", routing_key="q", headers={"x-delay": 1})
            while len(received) < 3:
                connection.drain_events(timeout=10)
        producer.publish("rejected", routing_key="q")
        channel.basic_get("q").reject()
        producer.publish("requeued", routing_key="q")
        channel.basic_get("q").requeue()
        assert ("q", "ex", "a.*") in list(channel.list_bindings())
        assert channel.queue_purge("q") == 1
        channel.queue_unbind("q", "ex", "a.*")
        channel.queue_delete("q")
        channel.queue_delete("news")
        channel.exchange_delete("ex")
    assert sorted(received) == ["broadcast", "later", "routed"]
