"""What a broker must do wherever it stands."""

from __future__ import annotations

from ferryman.transport import revoke
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
                connection.drain_events(timeout=60)
        producer.publish("rejected", routing_key="q")
        channel.basic_get("q").reject()
        producer.publish("requeued", routing_key="q")
        channel.basic_get("q").requeue()
        channel.queue_declare("work", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "grave"})
        channel.queue_declare("grave")
        producer.publish("dead", routing_key="work", headers={"x-unique-key": "one"})
        channel.basic_get("work").reject()
        assert channel.basic_get("grave", no_ack=True).headers["x-death"][0]["queue"] == "work"
        producer.publish("revoked", routing_key="work", headers={"id": "task"})
        assert revoke(connection, "task") == 1
        assert ("q", "ex", "a.*") in list(channel.list_bindings())
        assert channel.queue_purge("q") == 1
        channel.queue_unbind("q", "ex", "a.*")
        for name in ("q", "work", "grave"):
            channel.queue_delete(name)
        channel.queue_delete("news")
        channel.exchange_delete("ex")
    assert sorted(received) == ["broadcast", "later", "routed"]
