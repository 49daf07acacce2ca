"""A channel as AMQP describes it: acking several at once, stopping the flow, changing the prefetch limit, recovering."""

from __future__ import annotations

import ferryman.transport  # noqa: F401 - registers the URL schemes
import pytest
from ferryman.schema.connection.call import run
from ferryman.schema.native.scripts.publication import Publication
from ferryman.schema.native.scripts.queue_scripts import MAX_PER_CALL, QueueScripts
from kombu import Connection, Consumer, Exchange, Producer, Queue

from ..support.workers import celery


@pytest.fixture
def connection(server):
    with Connection(server.url(lease=5)) as connected:
        yield connected


@pytest.fixture
def channel(connection):
    with connection.channel() as opened:
        yield opened


def publish(channel, *bodies, queue="q"):
    for body in bodies:
        Producer(channel).publish(body, routing_key=queue)


def none_comes(connection):
    with pytest.raises(TimeoutError):
        connection.drain_events(timeout=0.2)
    return True


def test_one_ack_may_be_for_all_messages_up_to_its_own(channel, client):
    publish(channel, *range(4))
    messages = [channel.basic_get("q") for _ in range(4)]
    messages[2].ack(multiple=True)
    assert client.zcard(f"ferryman:{{q}}:held:{channel.consumer_id}") == 1
    messages[3].reject(requeue=True)
    assert channel.basic_get("q").payload == 3


def test_a_consumer_whose_flow_is_stopped_gets_nothing_until_it_goes_on(connection, channel):
    arrived = []
    with Consumer(channel, [Queue("q")], on_message=arrived.append) as consumer:
        consumer.flow(False)
        publish(channel, 1)
        assert none_comes(connection)
        consumer.flow(True)
        connection.drain_events(timeout=10)
    assert [message.payload for message in arrived] == [1]


def test_the_prefetch_limit_may_change_while_messages_are_held(connection, channel):
    publish(channel, *range(4))
    arrived = []
    with Consumer(channel, [Queue("q")], on_message=arrived.append) as consumer:
        consumer.qos(prefetch_count=1)
        connection.drain_events(timeout=10)
        assert none_comes(connection)
        consumer.qos(prefetch_count=3)
        connection.drain_events(timeout=10)
        connection.drain_events(timeout=10)
        assert none_comes(connection)
        consumer.recover(requeue=True)
        connection.drain_events(timeout=10)
    assert [message.payload for message in arrived] == [0, 1, 2, 0]


def test_exchanges_are_not_bound_to_one_another(channel):
    with pytest.raises(NotImplementedError, match="alternate-exchange"):
        Exchange("one", channel=channel).bind_to(Exchange("other", channel=channel))


def test_the_commands_of_celery_amqp_work(server, channel):
    assert celery(server, "amqp", "queue.declare", "shell").returncode == 0
    assert celery(server, "amqp", "basic.publish", "hello", "", "shell").returncode == 0
    assert channel.basic_get("shell").payload == "hello"
    publish(channel, 1, queue="shell")
    purged = celery(server, "amqp", "queue.purge", "shell")
    assert (purged.returncode, channel.queue_declare("shell", passive=True).message_count) == (0, 0)


def test_very_many_quiet_queues_are_looked_at_in_several_calls(channel, client):
    names = [f"q{number}" for number in range(MAX_PER_CALL + 1)]
    channel.poll(names[:1])  # has the server know the script
    client.config_resetstat()
    assert channel.poll(names) == [None] * len(names)
    assert client.info("commandstats")["cmdstat_evalsha"]["calls"] == 2


def test_a_publisher_keeps_all_messages_of_a_large_temporary_queue(channel, client):
    queue = Queue("t", expires=600)
    queue(channel).declare()
    scripts, many = QueueScripts(), 12_000
    for first in range(0, many, 3_000):
        run(client, scripts.publish("t", "p", [Publication(f"p-{n}", b"{}\n") for n in range(first, first + 3_000)]))
    pipeline = client.pipeline(transaction=False)
    for number in range(many):
        pipeline.persist(scripts.keys("t").job(f"p-{number}"))  # to see which ones get a TTL anew
    pipeline.hset(scripts.keys("t").meta, "horizon", 0)
    pipeline.execute()
    publish(channel, 1, queue="t")
    assert client.hget(scripts.keys("t").meta, "renewing") is None
    lasting = client.pipeline(transaction=False)
    for number in range(many):
        lasting.pttl(scripts.keys("t").job(f"p-{number}"))
    assert min(lasting.execute()) > 0
