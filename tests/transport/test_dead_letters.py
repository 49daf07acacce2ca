"""Dead letters through plain kombu: they go to the exchange that their queue names, each once, and none is lost on the way."""

from __future__ import annotations

import threading
import time

import ferryman.transport  # noqa: F401 - registers the URL schemes
import pytest
from ferryman.schema.native.scripts.queue_scripts import QueueScripts
from kombu import Connection, Consumer, Exchange, Producer, Queue

from ..support.brokers import NEEDS_BATCHES
from ..support.proxy import Cut, proxy

DEAD = "ferryman:{work}:dead"


@pytest.fixture
def connection(server):
    with Connection(server.url(lease=5)) as connected:
        yield connected


@pytest.fixture
def channel(connection):
    with connection.channel() as opened:
        yield opened


def publish(channel, body, queue="work", **options):
    Producer(channel).publish(body, routing_key=queue, **options)


def declare_forwarding(channel, exchange="graves", queue="work", **arguments):
    """Declares a queue whose dead letters go to an exchange."""
    channel.queue_declare(queue, arguments={"x-dead-letter-exchange": exchange, **arguments})


def drain(connection, queue, count, seconds=10.0):
    messages = []

    def receive(message):
        message.ack()
        messages.append(message)

    with connection.channel() as channel, Consumer(channel, [Queue(queue, no_declare=True)], on_message=receive):
        deadline = time.monotonic() + seconds
        while len(messages) < count and time.monotonic() < deadline:
            try:
                connection.drain_events(timeout=0.2)
            except TimeoutError:
                continue
    return messages


def bind_target(channel, routing_key, queue="grave"):
    Queue(queue, Exchange("graves", "direct"), routing_key=routing_key)(channel).declare()


def test_a_rejected_message_arrives_with_its_death_and_everything_it_had(channel, client):
    bind_target(channel, "work")
    declare_forwarding(channel)
    publish(channel, {"n": 1}, priority=7, headers={"own": "yes"}, expiration=3600, correlation_id="c")
    before = time.time()
    channel.basic_get("work").reject()
    message = channel.basic_get("grave")
    assert message.payload == {"n": 1}
    assert message.headers["own"] == "yes"
    (death,) = message.headers["x-death"]
    assert before - 2 <= death.pop("time") <= time.time() + 2
    assert death == {
        "count": 1,
        "reason": "rejected",
        "queue": "work",
        "exchange": "",
        "routing-keys": ["work"],
        "original-expiration": "3600000",
    }
    assert message.headers["x-first-death-queue"] == message.headers["x-last-death-queue"] == "work"
    assert message.properties["correlation_id"] == "c"
    assert "expiration" not in message.properties
    info = message.delivery_info
    assert (info["exchange"], info["routing_key"], info["priority"], info["redelivered"]) == ("graves", "work", 7, False)
    assert not client.exists(DEAD, "ferryman:{work}:outbox")


def test_messages_over_the_greatest_length_go_to_the_given_routing_key(channel):
    bind_target(channel, "full")
    declare_forwarding(channel, **{"x-max-length": 2, "x-dead-letter-routing-key": "full"})
    for n in range(5):
        publish(channel, {"n": n})
    found = [channel.basic_get("grave") for _ in range(3)]
    assert [message.payload["n"] for message in found] == [0, 1, 2]
    assert {message.headers["x-death"][0]["reason"] for message in found} == {"maxlen"}
    assert channel.basic_get("grave") is None


@NEEDS_BATCHES
def test_messages_that_make_room_for_a_batch_go_on_as_well(channel):
    bind_target(channel, "work")
    declare_forwarding(channel, **{"x-max-length": 2})
    producer = Producer(channel)
    with producer.batch():
        for n in range(5):
            producer.publish({"n": n}, routing_key="work")
    assert [channel.basic_get("grave").payload["n"] for _ in range(3)] == [0, 1, 2]


def test_messages_wait_for_their_time_in_a_queue_that_nobody_consumes(connection, channel):
    channel.queue_declare("work")
    declare_forwarding(channel, "", "later", **{"x-message-ttl": 300, "x-dead-letter-routing-key": "work"})
    published = time.monotonic()
    for n in range(3):
        publish(channel, {"n": n}, queue="later")
    messages = drain(connection, "work", 3)
    assert time.monotonic() - published >= 0.3
    assert [message.payload["n"] for message in messages] == [0, 1, 2]
    assert messages[0].headers["x-death"][0]["reason"] == "expired"


def test_a_consumer_finds_queues_that_another_process_has_declared(server, channel):
    channel.queue_declare("work")
    received = []

    def consume():
        with Connection(server.url()) as other:
            received.extend(drain(other, "work", 1, seconds=30))

    consumer = threading.Thread(target=consume)
    declare_forwarding(channel, "", "later", **{"x-message-ttl": 100, "x-dead-letter-routing-key": "work"})
    publish(channel, {"n": 1}, queue="later")
    consumer.start()
    consumer.join(30)
    assert [message.payload for message in received] == [{"n": 1}]


def test_a_message_delivered_too_often_goes_to_the_exchange(channel):
    bind_target(channel, "work")
    declare_forwarding(channel, **{"x-delivery-limit": 2})
    publish(channel, {"n": 1})
    for _ in range(2):
        channel.basic_get("work").requeue()
    assert channel.basic_get("work") is None
    assert channel.basic_get("grave").headers["x-death"][0]["reason"] == "delivery_limit"


def test_what_no_queue_takes_stays_dead_and_can_be_requeued(channel, client):
    declare_forwarding(channel, "nowhere")
    publish(channel, {"n": 1})
    channel.basic_get("work").reject()
    assert client.zcard(DEAD) == 1
    assert not client.exists("ferryman:{work}:outbox")


def test_deaths_of_one_queue_and_reason_are_counted_and_the_last_comes_first(channel):
    declare_forwarding(channel, "", "work", **{"x-dead-letter-routing-key": "again"})
    declare_forwarding(channel, "", "again", **{"x-dead-letter-routing-key": "work"})
    publish(channel, {"n": 1})
    for queue in ("work", "again", "work"):
        channel.basic_get(queue).reject()
    message = channel.basic_get("again")
    assert [(death["queue"], death["count"]) for death in message.headers["x-death"]] == [("work", 2), ("again", 1)]
    assert message.headers["x-first-death-queue"] == "work"


def test_a_message_that_only_expires_from_queue_to_queue_does_not_go_round_for_ever(connection, channel, client):
    declare_forwarding(channel, "", "work", **{"x-message-ttl": 50, "x-dead-letter-routing-key": "again"})
    declare_forwarding(channel, "", "again", **{"x-message-ttl": 50, "x-dead-letter-routing-key": "work"})
    channel.queue_declare("other")
    publish(channel, {"n": 1})
    with connection.channel() as elsewhere, Consumer(elsewhere, [Queue("other", no_declare=True)], on_message=print):
        deadline = time.monotonic() + 20
        while not client.zcard("ferryman:{again}:dead") and time.monotonic() < deadline:
            with pytest.raises(TimeoutError):
                connection.drain_events(timeout=0.1)
    assert client.zcard("ferryman:{again}:dead") == 1
    assert not client.exists(DEAD, "ferryman:{again}:outbox")


def test_dead_letters_wait_in_order_while_their_target_is_full(connection, channel, client):
    channel.queue_declare("grave", arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    declare_forwarding(channel, "", **{"x-dead-letter-routing-key": "grave"})
    for n in range(5):
        publish(channel, {"n": n})
    for _ in range(5):
        channel.basic_get("work").reject()
    assert client.zcard("ferryman:{grave}:waiting") == 2
    assert client.zcard(DEAD) == 3
    assert [message.payload["n"] for message in drain(connection, "grave", 5, seconds=30)] == [0, 1, 2, 3, 4]


def test_a_broadcast_exchange_gets_dead_letters_too(connection, channel):
    queue = Queue("reader", Exchange("news", "fanout"))
    queue(channel).declare()
    declare_forwarding(channel, "news")
    publish(channel, {"n": 1})
    channel.basic_get("work").reject()
    assert [message.payload for message in drain(connection, "reader", 1)] == [{"n": 1}]


def test_what_is_no_message_stays_dead(channel, client):
    bind_target(channel, "work")
    declare_forwarding(channel)
    publish(channel, {"n": 1})
    (job,) = client.zrange("ferryman:{work}:waiting", 0, -1)
    client.hset(b"ferryman:{work}:job:" + job, "message", b"\xff\xfe no frame")
    assert channel.basic_get("work") is None
    assert channel.basic_get("grave") is None
    assert client.zrange(DEAD, 0, -1) == [job]


@pytest.mark.parametrize("at", range(1, 7))
def test_a_dead_letter_arrives_once_wherever_the_connection_is_cut(server, connection, channel, client, at):
    bind_target(channel, "work")
    declare_forwarding(channel)
    with proxy(server) as between, Connection(between.url(lease=1)) as cut:
        for n in range(3):
            publish(channel, {"n": n})
        inner = cut.channel()
        messages = [inner.basic_get("work") for _ in range(3)]
        between.cut(Cut(at))
        for message in messages:
            try:
                message.reject()
            except cut.connection_errors:
                break
    # What was not rejected comes back; whoever gets it rejects it again.
    graves = []
    deadline = time.monotonic() + 30
    while len(graves) < 3 and time.monotonic() < deadline:
        message = channel.basic_get("work")
        if message is not None:
            message.reject()
        graves += drain(connection, "grave", 1, seconds=0.5)
    assert sorted(message.payload["n"] for message in graves) == [0, 1, 2]
    assert drain(connection, "grave", 1, seconds=0.5) == []
    assert not client.exists(DEAD, "ferryman:{work}:outbox", "ferryman:{work}:waiting")


def test_two_who_forward_the_same_dead_letters_store_each_once(server, channel, client):
    bind_target(channel, "work")
    declare_forwarding(channel)
    for n in range(300):
        publish(channel, {"n": n})
    live = QueueScripts()
    taken = channel.session.link.run(live.take("work", "ann", 300, 30_000))
    for job in taken.jobs:
        channel.session.link.run(live.reject("work", "ann", job.id, "rejected"))

    def forward():
        with Connection(server.url()) as other, other.channel() as opened:
            dead_letters = opened.dead_letters
            dead_letters.mark("work")
            while client.exists("ferryman:{work}:outbox"):
                dead_letters.mark("work")
                dead_letters.forward()

    forwarders = [threading.Thread(target=forward) for _ in range(3)]
    for forwarder in forwarders:
        forwarder.start()
    for forwarder in forwarders:
        forwarder.join(60)
    assert client.zcard("ferryman:{grave}:waiting") == 300
    assert not client.exists(DEAD)
