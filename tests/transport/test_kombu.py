"""Plain kombu on ``ferryman://``: queues, exchanges, deliveries and what happens when a connection breaks."""

from __future__ import annotations

import pickle
import socket
import time

import ferryman.transport  # noqa: F401 - registers the URL schemes
import pytest
import redis
from ferryman.schema.errors import AddressError, QueueArgumentsError, UsageError
from kombu import Connection, Consumer, Exchange, Producer, Queue
from kombu.exceptions import ChannelError, InconsistencyError, OperationalError

from ..support.brokers import FERRYMAN, NEEDS_BATCHES, REDIS
from ..support.proxy import Cut, proxy
from ..support.servers import ServerKind


@pytest.fixture
def connection(server):
    with Connection(server.url(lease=5)) as connected:
        yield connected


def publish(connection, body, queue="q", **options):
    with connection.channel() as channel:
        Producer(channel).publish(body, routing_key=queue, **options)


def drain(connection, queues, count, *, seconds=5.0, ack=True, no_ack=False):
    """The messages that come first, at most ``count`` and as long as they come."""
    messages = []

    def receive(message):
        messages.append(message)
        if ack and not no_ack:
            message.ack()

    with connection.channel() as channel, Consumer(channel, queues, on_message=receive, no_ack=no_ack):
        while len(messages) < count:
            try:
                connection.drain_events(timeout=seconds)
            except TimeoutError:
                break
    return messages


@pytest.mark.parametrize("broker", [FERRYMAN, REDIS], ids=str)
def test_of_several_simple_queues_that_nobody_closed_the_newest_gets_the_messages(server, broker):
    with broker.connection(server) as connection:
        for n in range(10):
            connection.SimpleQueue("simple").put(n)
            message = connection.SimpleQueue("simple").get(timeout=5)
            assert message.payload == n
            message.ack()


def test_an_older_consumer_gets_messages_again_when_the_newer_one_is_cancelled(connection):
    with connection.channel() as channel:
        received = []
        with Consumer(channel, [Queue("q")], on_message=lambda _: received.append("older")):
            with Consumer(channel, [Queue("q")], on_message=lambda _: received.append("newer")):
                publish(connection, 1)
                connection.drain_events(timeout=5)
            publish(connection, 2)
            connection.drain_events(timeout=5)
    assert received == ["newer", "older"]


@pytest.mark.parametrize("broker", [FERRYMAN, REDIS], ids=str)
def test_a_database_that_the_server_lacks_is_an_operational_error(server, broker):
    url = broker.url(server).replace("/0", "/99")
    with Connection(url) as connection:
        policy = {"max_retries": 1, "interval_start": 0}
        with pytest.raises(OperationalError, match="DB index is out of range"):
            connection.Producer().publish("x", routing_key="q", retry=True, retry_policy=policy)
        with pytest.raises(OperationalError, match="DB index is out of range"):
            connection.ensure_connection(max_retries=1, interval_start=0)


def test_a_simple_queue_gives_back_what_was_put_in_order(connection):
    queue = connection.SimpleQueue("simple")
    for n in range(20):
        queue.put({"n": n})
    assert queue.qsize() == 20
    received = []
    for _ in range(20):
        message = queue.get(timeout=5)
        received.append(message.payload["n"])
        message.ack()
    assert received == list(range(20))
    with pytest.raises(queue.Empty):
        queue.get(timeout=0.1)
    queue.close()


def test_any_body_of_bytes_arrives_as_it_was(connection):
    for body in (b"", b"\x00\xff\n\r\n", "grüße ✓".encode(), b"x" * 300_000):
        publish(connection, body, content_type="application/data", content_encoding="binary")
        (message,) = drain(connection, [Queue("q")], 1)
        assert message.body == body


def test_priority_0_runs_first_and_equal_priorities_keep_their_order(connection):
    for n, priority in enumerate([0, 9, 1, 5, 9, 0, 255, None]):
        publish(connection, {"n": n}, priority=priority)
    assert [message.payload["n"] for message in drain(connection, [Queue("q")], 8)] == [0, 5, 7, 2, 3, 1, 4, 6]


def test_a_rejected_message_that_is_requeued_keeps_its_place_and_says_so(connection):
    for n in range(3):
        publish(connection, {"n": n})
    with connection.channel() as channel:
        first = channel.basic_get("q")
        assert first.payload == {"n": 0}
        assert first.delivery_info["redelivered"] is False
        first.requeue()
    messages = drain(connection, [Queue("q")], 3)
    assert [message.payload["n"] for message in messages] == [0, 1, 2]
    assert [message.delivery_info["redelivered"] for message in messages] == [True, False, False]
    assert messages[0].headers["x-delivery-count"] == 1


def test_a_rejected_message_is_kept_as_a_dead_letter(connection, client):
    publish(connection, {"n": 1})
    with connection.channel() as channel:
        channel.basic_get("q").reject()
        assert channel.basic_get("q") is None
    assert client.zcard("ferryman:{q}:dead") == 1


def test_closing_a_channel_gives_back_what_it_holds_at_once(connection):
    publish(connection, {"n": 1})
    with connection.channel() as channel:
        assert channel.basic_get("q") is not None
    (message,) = drain(connection, [Queue("q")], 1)
    assert message.delivery_info["redelivered"] is False, "a delivery that was given back does not count"


def test_recover_gives_back_what_is_unsettled(connection):
    publish(connection, {"n": 1})
    with connection.channel() as channel:
        assert channel.basic_get("q") is not None
        assert channel.basic_get("q") is None
        channel.basic_recover(requeue=True)
        assert channel.basic_get("q") is not None


def test_no_more_messages_are_held_than_the_prefetch_count_allows(connection, client):
    for n in range(10):
        publish(connection, {"n": n})
    held = []
    with connection.channel() as channel:
        channel.basic_qos(prefetch_count=3)
        with Consumer(channel, [Queue("q")], on_message=held.append):
            for _ in range(3):
                connection.drain_events(timeout=5)
            with pytest.raises(socket.timeout):
                connection.drain_events(timeout=0.2)
            assert len(held) == 3
            assert client.zcard("ferryman:{q}:waiting") == 7
            held[0].ack()
            connection.drain_events(timeout=5)
            assert len(held) == 4


def test_a_message_that_comes_while_a_consumer_waits_arrives_at_once(server, connection):
    arrived = []
    with connection.channel() as channel, Consumer(channel, [Queue("q")], on_message=arrived.append):
        with pytest.raises(socket.timeout):
            connection.drain_events(timeout=0.2)
        with Connection(server.url()) as other:
            publish(other, {"n": 1})
        connection.drain_events(timeout=5)
    assert len(arrived) == 1


def test_a_queue_added_while_a_consumer_waits_is_served_at_once(server, connection):
    arrived = []
    with connection.channel() as channel, Consumer(channel, [Queue("q1")], on_message=arrived.append) as consumer:
        with pytest.raises(socket.timeout):
            connection.drain_events(timeout=0.2)
        consumer.add_queue(Queue("q2"))
        consumer.consume()
        with pytest.raises(socket.timeout):
            connection.drain_events(timeout=0.2)
        with Connection(server.url()) as other:
            publish(other, {"n": 1}, queue="q2")
        connection.drain_events(timeout=5)
    assert len(arrived) == 1


def test_a_cancelled_consumer_is_none_any_more_unless_it_still_holds_something(connection):
    publish(connection, "held")
    with connection.channel() as channel, connection.channel() as other:
        for is_acked in (False, True):
            messages = []
            consumer = Consumer(channel, [Queue("q")], on_message=messages.append)
            consumer.consume()
            if not is_acked:
                connection.drain_events(timeout=5)
                (held,) = messages
            with pytest.raises(socket.timeout):
                connection.drain_events(timeout=0.2)
            if is_acked:
                held.ack()
            consumer.cancel()
            assert other.queue_declare("q", passive=True).consumer_count == (0 if is_acked else 1)


def test_an_eta_is_waited_for_in_redis(connection, client):
    eta = time.time() + 1
    publish(connection, {"n": 1}, headers={"eta": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(eta + 1)) + "+00:00"})
    assert client.zcard("ferryman:{q}:scheduled") == 1
    (message,) = drain(connection, [Queue("q")], 1)
    assert message.payload == {"n": 1}
    assert time.time() >= eta


def test_declarations_are_seen_by_every_process(server, connection):
    with Connection(server.url()) as other, other.channel() as elsewhere, connection.channel() as channel:
        with pytest.raises(ChannelError, match="no queue 'mine'"):
            elsewhere.queue_declare("mine", passive=True)
        channel.queue_declare("mine")
        publish(connection, {"n": 1}, queue="mine")
        assert elsewhere.queue_declare("mine", passive=True).message_count == 1
        assert elsewhere.queue_delete("mine") == 1
        with pytest.raises(ChannelError):
            channel.queue_declare("mine", passive=True)


def test_an_unbound_queue_gets_nothing_more_from_producers_that_had_cached_its_binding(server, connection):
    exchange = Exchange("ex", "direct")
    queue = Queue("bound", exchange, routing_key="key")
    with connection.channel() as channel, Connection(server.url()) as other, other.channel() as elsewhere:
        queue(channel).declare()
        producer = Producer(channel, exchange)
        producer.publish({"n": 1}, routing_key="key")
        queue(elsewhere).unbind_from(exchange, "key")
        with pytest.raises(InconsistencyError, match="no queue is bound to the exchange 'ex'"):
            producer.publish({"n": 2}, routing_key="key", mandatory=True)
        assert channel.queue_declare("bound", passive=True).message_count == 1


def test_a_binding_made_elsewhere_is_used_with_the_next_publish(server, connection):
    exchange = Exchange("ex", "direct")
    with connection.channel() as channel, Connection(server.url()) as other, other.channel() as elsewhere:
        Queue("one", exchange, routing_key="key")(channel).declare()
        producer = Producer(channel, exchange)
        producer.publish({"n": 1}, routing_key="key")
        Queue("two", exchange, routing_key="key")(elsewhere).declare()
        producer.publish({"n": 2}, routing_key="key")
        assert channel.queue_declare("one", passive=True).message_count == 2
        assert channel.queue_declare("two", passive=True).message_count == 1


def test_a_topic_exchange_matches_words(connection):
    exchange = Exchange("logs", "topic")
    with connection.channel() as channel:
        for name, key in (("one", "a.*.c"), ("many", "a.#"), ("dots", "a+b.c")):
            Queue(name, exchange, routing_key=key)(channel).declare()
        producer = Producer(channel, exchange)
        for key in ("a.b.c", "a.b.b.c", "a+b.c", "aab.c"):
            producer.publish({"key": key}, routing_key=key)
    received = {}
    for name in ("one", "many", "dots"):
        received[name] = [message.payload["key"] for message in drain(connection, [Queue(name)], 9, seconds=0.1)]
    assert received == {"one": ["a.b.c"], "many": ["a.b.c", "a.b.b.c"], "dots": ["a+b.c"]}


def test_two_fanout_queues_of_one_channel_get_a_copy_each(connection):
    exchange = Exchange("news", "fanout")
    received = []
    with connection.channel() as channel:
        queues = [Queue("reader-a", exchange), Queue("reader-b", exchange)]
        consumer = Consumer(channel, queues, on_message=lambda m: received.append((m.delivery_info["queue"], m.payload)))
        with consumer:
            Producer(channel).publish({"n": 1}, exchange=exchange, declare=[exchange])
            connection.drain_events(timeout=5)
            connection.drain_events(timeout=5)
    assert sorted(received) == [("reader-a", {"n": 1}), ("reader-b", {"n": 1})]


def test_a_broadcast_reaches_a_queue_that_was_bound_before_and_is_consumed_later(server, connection):
    exchange = Exchange("news", "fanout")
    queue = Queue("reader", exchange)
    with connection.channel() as channel, Connection(server.url()) as other:
        queue(channel).declare()
        with other.channel() as elsewhere:
            Producer(elsewhere).publish({"n": 1}, exchange=exchange, declare=[exchange])
        (message,) = drain(connection, [queue], 1)
        assert message.payload == {"n": 1}


def test_a_publish_whose_reply_is_lost_is_repeated_by_kombu_and_stored_once(server, connection):
    publish(connection, "first")
    with proxy(server) as between, Connection(between.url()) as cut, connection.channel() as elsewhere:
        with cut.channel() as channel:
            producer = Producer(channel)
            producer.publish("second", routing_key="q")
            between.cut(Cut())
            producer.publish("third", routing_key="q", retry=True, retry_policy={"max_retries": 3})
        assert between.has_cut
        assert elsewhere.queue_declare("q", passive=True).message_count == 3


def test_a_consumer_whose_server_lost_everything_goes_on_with_its_queue_and_bindings(connection, client):
    exchange = Exchange("ex", "direct")
    queue = Queue("bound", exchange, routing_key="key")
    received = []
    with connection.channel() as channel, Consumer(channel, [queue], on_message=received.append):
        with pytest.raises(socket.timeout):
            connection.drain_events(timeout=0.2)
        client.flushall()
        client.rpush("ferryman:{bound}:wake", "1")
        with pytest.raises(socket.timeout):
            connection.drain_events(timeout=0.5)
        Producer(channel).publish({"n": 1}, exchange="ex", routing_key="key")
        connection.drain_events(timeout=5)
    assert [message.payload for message in received] == [{"n": 1}]


@NEEDS_BATCHES
def test_a_batch_goes_to_every_queue_in_order_and_in_few_commands(connection, client):
    exchange = Exchange("ex", "direct")
    with connection.channel() as channel:
        for name in ("one", "two"):
            Queue(name, exchange, routing_key="key")(channel).declare()
        producer = Producer(channel)
        producer.publish({"n": -1}, exchange=exchange, routing_key="key")
        before = client.info("commandstats")["cmdstat_evalsha"]["calls"]
        with producer.batch(max_size=100):
            for n in range(250):
                producer.publish({"n": n}, exchange="ex", routing_key="key")
        assert client.info("commandstats")["cmdstat_evalsha"]["calls"] - before == 6
    for name in ("one", "two"):
        messages = drain(connection, [Queue(name, no_declare=True)], 251)
        assert [message.payload["n"] for message in messages] == list(range(-1, 250))


@NEEDS_BATCHES
def test_a_batch_whose_reply_is_lost_is_stored_once(server, connection):
    publish(connection, "first")
    with proxy(server) as between, Connection(between.url()) as cut, connection.channel() as elsewhere:
        with cut.channel() as channel:
            producer = Producer(channel)
            producer.publish("second", routing_key="q")
            with producer.batch():
                for n in range(10):
                    producer.publish(str(n), routing_key="q")
                between.cut(Cut())
        assert between.has_cut
        assert elsewhere.queue_declare("q", passive=True).message_count == 12


def test_a_full_queue_rejects_what_comes_more_where_it_was_declared_so(connection):
    with connection.channel() as channel:
        channel.queue_declare("q", arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
        for n in range(2):
            publish(connection, {"n": n})
        with pytest.raises(OperationalError, match="x-max-length"):
            publish(connection, {"n": 2})
        assert channel.queue_declare("q", passive=True).message_count == 2


def test_a_received_message_published_again_with_all_its_properties_is_another_message(connection):
    publish(connection, {"n": 1})
    with connection.channel() as channel:
        received = channel.basic_get("q")
        again = channel.prepare_message(
            received.body,
            content_type=received.content_type,
            content_encoding=received.content_encoding,
            properties=dict(received.properties),
        )
        channel.basic_publish(again, "", "q")
        received.ack()
        assert channel.basic_get("q").payload == {"n": 1}


def test_what_is_no_message_becomes_a_dead_letter_and_the_next_one_arrives(connection, client):
    for n in range(3):
        publish(connection, {"n": n})
    first, second, _ = client.zrange("ferryman:{q}:waiting", 0, -1)
    client.hset(b"ferryman:{q}:job:" + first, "message", b"\xff\xfe no frame")
    client.delete(b"ferryman:{q}:job:" + second)
    assert [message.payload for message in drain(connection, [Queue("q")], 1)] == [{"n": 2}]
    assert set(client.zrange("ferryman:{q}:dead", 0, -1)) == {first, second}
    assert client.hget(b"ferryman:{q}:job:" + first, "reason") == b"malformed"


@pytest.mark.parametrize("name", ["a b", "ü✓", "x:y", "{tag}", "}{", "100%", "new\nline", "q" * 300])
def test_queues_may_have_any_name(connection, name):
    publish(connection, {"n": 1}, queue=name)
    (message,) = drain(connection, [Queue(name, no_declare=True)], 1)
    assert message.payload == {"n": 1}


def test_a_full_server_refuses_new_messages_and_hands_out_the_old_ones(tmp_path, any_server):
    kind = ServerKind(any_server.kind, any_server.binary)
    with kind.start(tmp_path) as full, full.client() as client, Connection(full.url()) as connection:
        for n in range(50):
            publish(connection, {"n": n})
        client.config_set("maxmemory", "100kb")
        with pytest.raises(OperationalError, match="maxmemory"):
            publish(connection, {"n": "too much"})
        messages = drain(connection, [Queue("q", no_declare=True)], 50)
        assert [message.payload["n"] for message in messages] == list(range(50))
        assert client.zcard("ferryman:{q}:waiting") == 0


def test_a_frozen_server_is_an_error_within_the_timeout(server):
    import os
    import signal

    with Connection(server.url(socket_timeout=0.5)) as connection, connection.channel() as channel:
        channel.queue_declare("q")
        os.kill(server.pid, signal.SIGSTOP)
        try:
            with pytest.raises(connection.connection_errors):
                Producer(channel).publish({"n": 1}, routing_key="q")
        finally:
            os.kill(server.pid, signal.SIGCONT)


def test_failover_goes_on_to_the_next_url(server):
    with Connection(f"ferryman://127.0.0.1:1/0;{server.url()}") as connection:
        connection.ensure_connection(max_retries=3, interval_start=0, interval_step=0)
        publish(connection, {"n": 1})
        (message,) = drain(connection, [Queue("q")], 1)
        assert message.payload == {"n": 1}


def test_a_connection_can_be_pickled_and_cloned(connection):
    for copy in (pickle.loads(pickle.dumps(connection)), connection.clone()):  # noqa: S301 - our own bytes
        with copy:
            publish(copy, {"n": 1})
    assert len(drain(connection, [Queue("q")], 2)) == 2


def test_all_keys_stand_under_the_prefix(server, client):
    with Connection(server.url(), transport_options={"prefix": "tenant-7"}) as connection:
        publish(connection, {"n": 1})
        drain(connection, [Queue("q")], 1)
    assert {key.split(b":")[0] for key in client.scan_iter()} == {b"tenant-7"}


def test_two_orders_of_priority_on_one_queue_are_refused(server, connection):
    with connection.channel() as channel:
        channel.queue_declare("q")
    with (
        Connection(server.url(priority_order="descending")) as other,
        other.channel() as channel,
        pytest.raises(QueueArgumentsError, match="priority_order 'ascending'"),
    ):
        channel.queue_declare("q")


@pytest.mark.parametrize(
    ("url", "options", "error", "text"),
    [
        ("ferryman://localhost/0?leese=3", {}, AddressError, "unknown parameter 'leese'"),
        ("ferryman://localhost/0", {"leese": 3}, UsageError, "unknown transport option 'leese'"),
        ("ferryman://localhost/0", {"checksum": False}, UsageError, "unknown transport option 'checksum'"),
        ("ferryman://localhost/0?lease=-1", {}, AddressError, "'lease' must be a number of seconds above 0"),
        ("ferryman://:secret@localhost:no/0", {}, AddressError, "port"),
    ],
)
def test_a_wrong_url_or_option_is_named_and_no_password_is(url, options, error, text):
    with pytest.raises(error, match=text) as caught:
        Connection(url, transport_options=options).connect()
    assert "secret" not in str(caught.value)


def test_options_of_redis_urls_are_accepted_and_said_to_do_nothing(server, caplog, monkeypatch):
    monkeypatch.setattr("ferryman.transport.settings._warned", set())
    with Connection(server.url(), transport_options={"visibility_timeout": 3600}) as connection:
        connection.connect()
    assert "visibility_timeout" in caplog.text


def test_a_wrong_password_is_an_authentication_error(server):
    with pytest.raises(redis.exceptions.AuthenticationError):
        Connection(f"ferryman://:wrong@{server.host}:{server.port}/0").connect()


def test_the_address_is_shown_without_its_password():
    connection = Connection("ferryman://user:secret@localhost:6379/3")
    assert connection.as_uri() == "ferryman://user:**@localhost:6379/3"
    assert "secret" not in repr(connection)
    assert "secret" in connection.as_uri(include_password=True)


def test_a_channel_that_is_asked_for_while_the_first_broker_is_away_works_on_the_next_one(server):
    with Connection(["ferryman://127.0.0.1:1/0", server.url()]) as connection, connection.channel() as channel:
        Producer(channel).publish("stored", routing_key="q", retry=True)
        assert channel.basic_get("q", no_ack=True).payload == "stored"
