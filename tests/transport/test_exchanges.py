"""Exchanges through plain kombu: their types, what they route to, and what becomes of messages that no queue wants."""

from __future__ import annotations

import time

import ferryman.transport  # noqa: F401 - registers the URL schemes
import pytest
from ferryman.schema.errors import ExchangeTypeError, UsageError
from ferryman.schema.native.routing import matches, pattern
from ferryman.schema.native.scripts.exchange import Binding
from ferryman.transport.errors import NoRoute
from kombu import Connection, Exchange, Producer, Queue
from kombu.exceptions import ChannelError

from ..support.brokers import NEEDS_BATCHES


@pytest.fixture
def connection(server):
    with Connection(server.url()) as connected:
        yield connected


@pytest.fixture
def channel(connection):
    with connection.channel() as opened:
        yield opened


@pytest.fixture
def elsewhere(server):
    """A channel of another process, as it were."""
    with Connection(server.url()) as connected, connected.channel() as opened:
        yield opened


TASK = {"task": "proj.add", "id": "6a1c7f1e"}
"""By which a message is known to be for a Celery worker."""


def unroutable(channel):
    """How many messages were dropped, by exchange."""
    return channel.session.link.run(channel.session.exchanges.unroutable())


def got(channel, queue):
    """The payloads that wait in a queue."""
    found = []
    while (message := channel.basic_get(queue, no_ack=True)) is not None:
        found.append(message.payload)
    return found


def test_an_exchange_without_bindings_is_known_to_every_process(channel, elsewhere):
    with pytest.raises(ChannelError, match="no exchange 'ex'"):
        elsewhere.exchange_declare("ex", passive=True)
    channel.exchange_declare("ex", type="topic", durable=True)
    elsewhere.exchange_declare("ex", passive=True)
    channel.exchange_declare("", passive=True)
    channel.exchange_delete("ex")
    with pytest.raises(ChannelError):
        elsewhere.exchange_declare("ex", passive=True)


def test_an_exchange_can_not_be_declared_with_another_type(channel, elsewhere):
    channel.exchange_declare("ex", type="topic")
    channel.exchange_declare("ex", type="topic", durable=True)
    with pytest.raises(ExchangeTypeError, match="topic exchange"):
        elsewhere.exchange_declare("ex", type="fanout")
    with pytest.raises(UsageError, match="direct, fanout, headers, topic"):
        channel.exchange_declare("ex", type="x-random")


def test_a_binding_follows_the_type_that_another_process_declared(channel, elsewhere):
    channel.exchange_declare("ex", type="topic")
    elsewhere.queue_declare("q")
    elsewhere.queue_bind("q", "ex", "a.*")
    Producer(elsewhere).publish(1, exchange="ex", routing_key="a.b")
    assert got(channel, "q") == [1]


@pytest.mark.parametrize(
    ("key", "fits", "differs"),
    [
        ("a.*", ["a.b"], ["a", "a.b.c", "b.b", "a+b"]),
        ("a.#", ["a", "a.b", "a.b.c"], ["ab", "b.a"]),
        ("#.z", ["z", "a.z", "a.b.z"], ["z.a", "az"]),
        ("#", ["", "a", "a.b"], []),
        ("a.#.z", ["a.z", "a.b.z", "a.b.c.z"], ["a", "az"]),
        ("*.*", ["a.b"], ["a", "a.b.c"]),
        ("a(b.c", ["a(b.c"], ["a(bxc"]),
    ],
)
def test_topics_are_matched_word_by_word(key, fits, differs):
    binding = Binding("q", key, pattern("topic"))
    assert [each for each in fits + differs if matches(binding, each)] == fits


def test_a_headers_exchange_looks_at_headers(channel):
    exchange = Exchange("ex", "headers")
    wanted = {"all": {"kind": "pdf", "pages": 3}, "any": {"x-match": "any", "kind": "pdf", "pages": 3}, "has": {"kind": None}}
    for name, arguments in wanted.items():
        Queue(name, exchange, binding_arguments=arguments)(channel).declare()
    producer = Producer(channel, exchange)
    for n, headers in enumerate([{"kind": "pdf", "pages": 3}, {"kind": "doc", "pages": 3}, {"pages": 4}]):
        producer.publish(n, headers=headers)
    assert {name: got(channel, name) for name in wanted} == {"all": [0], "any": [0, 1], "has": [0, 1]}
    channel.queue_unbind("has", "ex", "", {"kind": None})
    producer.publish(3, headers={"kind": "pdf"})
    assert got(channel, "has") == []


def test_messages_that_no_queue_wants_go_to_the_alternate_exchange(channel, elsewhere):
    channel.exchange_declare("ex", type="direct", arguments={"alternate-exchange": "second"})
    channel.exchange_declare("second", type="direct", arguments={"alternate-exchange": "ex"})
    with pytest.raises(NoRoute):
        Producer(elsewhere).publish(0, exchange="ex", routing_key="nobody", mandatory=True)
    elsewhere.queue_declare("last")
    elsewhere.queue_bind("last", "second", "nobody")
    Producer(elsewhere).publish(1, exchange="ex", routing_key="nobody")
    assert got(channel, "last") == [1]


@pytest.mark.parametrize("exchange_type", ["direct", "topic", "headers"])
def test_a_message_that_no_queue_wants_is_dropped_and_counted(channel, elsewhere, exchange_type):
    channel.exchange_declare("ex", type=exchange_type)
    for n in range(3):
        Producer(elsewhere).publish(n, exchange="ex", routing_key="nobody")
    assert unroutable(channel) == {"ex": 3}
    channel.exchange_delete("ex")
    assert unroutable(channel) == {}


@NEEDS_BATCHES
def test_those_of_a_batch_are_counted_too(channel):
    channel.exchange_declare("ex", type="topic")
    producer = Producer(channel)
    with producer.batch():
        for n in range(4):
            producer.publish(n, exchange="ex", routing_key="nobody")
    assert unroutable(channel) == {"ex": 4}


def test_a_broadcast_that_nobody_listens_to_is_not_counted(channel):
    channel.exchange_declare("ex", type="fanout")
    Producer(channel).publish("anybody?", exchange="ex")
    Producer(channel).publish("run", exchange="ex", headers=TASK)
    assert unroutable(channel) == {}
    with pytest.raises(NoRoute):
        Producer(channel).publish("somebody!", exchange="ex", mandatory=True)


@pytest.mark.parametrize("exchange_type", ["direct", "topic", "headers"])
@pytest.mark.parametrize("protocol", [1, 2])
def test_a_celery_task_that_no_queue_would_get_is_an_error(channel, exchange_type, protocol):
    channel.exchange_declare("ex", type=exchange_type)
    body, headers = (TASK, {}) if protocol == 1 else ([[], {}, {}], TASK)
    with pytest.raises(NoRoute, match="no queue is bound to the exchange 'ex' with the routing key 'nobody'"):
        Producer(channel).publish(body, exchange="ex", routing_key="nobody", headers=headers)
    assert unroutable(channel) == {}


@NEEDS_BATCHES
def test_one_task_without_a_queue_does_not_keep_the_rest_of_its_batch(channel):
    channel.exchange_declare("ex", type="direct")
    returned = []
    producer = Producer(channel, on_return=lambda *given: returned.append(given[-1].payload))
    channel.queue_declare("q")

    def publish_all():
        with producer.batch():
            producer.publish("task", exchange="ex", routing_key="nobody", headers=TASK)
            producer.publish("dropped", exchange="ex", routing_key="nobody")
            producer.publish("returned", exchange="ex", routing_key="nobody", mandatory=True)
            producer.publish("stored", routing_key="q")

    with pytest.raises(NoRoute):
        publish_all()
    assert (got(channel, "q"), returned, unroutable(channel)) == (["stored"], ["returned"], {"ex": 1})


def test_an_exchange_that_was_never_declared_is_an_error_as_in_amqp(channel):
    with pytest.raises(NoRoute, match="there is no exchange 'misspelt'; declare it before publishing"):
        Producer(channel).publish("lost", exchange="misspelt", routing_key="key")
    assert unroutable(channel) == {}


def test_a_damaged_counter_keeps_no_message_from_being_dropped(channel, client):
    channel.exchange_declare("ex", type="direct")
    client.set("ferryman:unroutable", "no hash")
    Producer(channel).publish("dropped", exchange="ex", routing_key="nobody")


def test_a_full_server_still_drops_what_no_queue_wants(channel, client):
    channel.exchange_declare("ex", type="direct")
    client.config_set("maxmemory", 1)
    try:
        Producer(channel).publish("dropped", exchange="ex", routing_key="nobody")
    finally:
        client.config_set("maxmemory", 0)


def test_a_mandatory_message_that_no_queue_wants_comes_back_or_is_an_error(channel):
    channel.exchange_declare("ex", type="topic")
    returned = []
    with pytest.raises(NoRoute, match="'ex' with the routing key 'key'"):
        Producer(channel).publish("refused", exchange="ex", routing_key="key", mandatory=True)
    producer = Producer(channel, on_return=lambda *given: returned.append(given))
    producer.publish("back", exchange="ex", routing_key="key", mandatory=True)
    ((error, exchange, key, message),) = returned
    assert (type(error), exchange, key, message.payload) == (NoRoute, "ex", "key", "back")
    channel.queue_declare("q")
    producer.publish("taken", routing_key="q", mandatory=True)
    assert len(returned) == 1


def test_a_queue_that_was_gone_for_a_while_costs_no_more_than_before(server, client):
    # A history would cost some more with the first publish of each minute.
    with Connection(server.url(history="false")) as connection, connection.channel() as channel:
        queue, producer = Queue("q", Exchange("ex"), routing_key="key")(channel), Producer(channel)
        queue.declare()

        def commands():
            before = client.info("commandstats")
            producer.publish("x", exchange="ex", routing_key="key")
            after = client.info("commandstats")
            return {name: stats["calls"] - before.get(name, {"calls": 0})["calls"] for name, stats in after.items()}

        commands()
        usual = commands()
        client.delete("ferryman:{q}:meta")
        commands()
        queue.declare()
        commands()
        assert {name: number for name, number in commands().items() if number} == {name: n for name, n in usual.items() if n}
        assert len(got(channel, "q")) == 4


def test_an_exchange_in_use_is_not_deleted_if_it_must_be_unused(channel, elsewhere):
    Queue("q", Exchange("ex", "direct"), routing_key="key")(channel).declare()
    elsewhere.exchange_delete("ex", if_unused=True)
    Producer(channel).publish(1, exchange="ex", routing_key="key")
    channel.queue_unbind("q", "ex", "key")
    elsewhere.exchange_delete("ex", if_unused=True)
    with pytest.raises(ChannelError):
        channel.exchange_declare("ex", passive=True)


def test_queues_are_deleted_only_if_unused_and_empty_where_that_is_asked(channel, elsewhere, client):
    Producer(channel).publish(1, routing_key="q")
    assert elsewhere.queue_delete("q", if_empty=True) == 0
    held = channel.basic_get("q")
    assert elsewhere.queue_delete("q", if_empty=True) == 0, "a message that is being worked on is one"
    held.ack()
    assert elsewhere.queue_delete("q", if_unused=True) == 0, "it has a consumer"
    channel.close()
    elsewhere.queue_delete("q", if_unused=True, if_empty=True)
    assert not client.exists("ferryman:{q}:meta")


def test_an_exclusive_queue_goes_with_its_connection(server, elsewhere, client):
    with Connection(server.url(lease=1)) as connection:
        own = connection.channel()
        own.queue_declare("mine", exclusive=True)
        own.queue_declare("consumed", exclusive=True)
        Producer(elsewhere).publish(1, routing_key="mine")
        assert 0 < client.pttl("ferryman:{mine}:meta") <= 3_000
        renewed = client.hget("ferryman:{mine}:meta", "horizon")
        while client.hget("ferryman:{mine}:meta", "horizon") == renewed:
            time.sleep(0.05)
        assert got(own, "mine") == [1]
        own.close()
        elsewhere.queue_declare("mine", passive=True)
    for queue in ("mine", "consumed"):
        with pytest.raises(ChannelError):
            elsewhere.queue_declare(queue, passive=True)


def test_bindings_are_listed_whoever_made_them(connection, channel, elsewhere):
    Queue("q", Exchange("ex", "topic"), routing_key="a.#")(channel).declare()
    assert ("q", "ex", "a.#") in list(elsewhere.list_bindings())
    assert {"destination": "q", "source": "ex", "routing_key": "a.#"} in list(connection.get_manager().get_bindings())


MANY = 2_500


def test_an_exchange_with_very_many_bindings_routes_by_all_of_them_and_goes(channel, elsewhere, client, monkeypatch):
    queue = Queue("q", Exchange("many", "direct", channel=channel), "key", channel=channel)
    queue.declare()
    client.hset("ferryman:exchange:many", mapping={f'["q","key-{n}",""]': "" for n in range(MANY)})
    for n in (0, MANY - 1):
        Producer(elsewhere, Exchange("many", "direct", channel=elsewhere)).publish(n, routing_key=f"key-{n}")
    assert got(channel, "q") == [0, MANY - 1]
    run, seen = channel.session.link.run, []

    def changing(call):
        """Another binding comes between two parts."""
        found = run(call)
        if getattr(found, "rest", b"") and not seen:
            seen.append(found)
            elsewhere.session.link.run(elsewhere.session.exchanges.bind("many", "q", "late"))
        return found

    monkeypatch.setattr(channel.session.link, "run", changing)
    assert Binding("q", "late") in channel.session.routes.bindings("many").bindings
    monkeypatch.undo()
    assert sum(exchange == "many" for _, exchange, _ in channel.list_bindings()) == MANY + 2
    channel.exchange_delete("many")
    assert not client.exists("ferryman:exchange:many")


def test_a_queue_with_very_many_bindings_is_unbound_from_all(channel, client):
    queue = Queue("q", Exchange("many", "direct", channel=channel), "key", channel=channel)
    queue.declare()
    client.hset("ferryman:exchange:many", mapping={f'["q","key-{n}",""]': "" for n in range(12_000)})
    channel.queue_delete("q")
    assert client.hkeys("ferryman:exchange:many") != []
    assert not any(name.startswith(b"[") for name in client.hkeys("ferryman:exchange:many"))
