"""Every operation with its connection cut at every command: before the server has it, in its middle, and after the server
has acted. Nothing is lost, and nothing is there twice.

Each test does its operation again and again on an empty server, with the cut one command further on each time, until the
operation is over before the cut comes. What the operation meets is what kombu's and Celery's users have: a retry.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import time
from collections.abc import Callable
from typing import Any

import ferryman.transport  # noqa: F401 - registers the URL schemes
import pytest
import redis
from attrs import evolve
from kombu import Connection, Consumer, Exchange, Producer, Queue

from ..support.brokers import NEEDS_BATCHES
from ..support.proxy import Cut, proxy
from ..support.servers import Server
from ..support.topologies import wait_until

UNSENT = Cut(sent=0)
HALF_SENT = Cut(sent=9)
UNANSWERED = Cut()
HALF_ANSWERED = Cut(answered=3)
CUTS = [UNSENT, HALF_SENT, UNANSWERED, HALF_ANSWERED]
NAMES = ["unsent", "half-sent", "unanswered", "half-answered"]

RETRY = {"max_retries": 5, "interval_start": 0, "interval_step": 0.05}

Act = Callable[[Connection], Any]
"""What is done over the connection that is cut."""


@pytest.fixture(params=CUTS, ids=NAMES)
def side(request: pytest.FixtureRequest) -> Cut:
    """Where in a command, or in its reply, the connection ends."""
    return request.param


def nothing(connection: Connection) -> None:
    """For operations on an empty server."""


def cut_everywhere(server: Server, side: Cut, act: Act, check: Callable[[Connection, Any], None], prepare: Act = nothing) -> None:
    """Prepares, acts and checks until the cut has been at every command of ``act``; ``check`` also gets what ``act`` gave."""
    for number in itertools.count():
        with server.client() as client, Connection(server.url()) as direct, proxy(server) as between:
            client.flushall()
            prepare(direct)
            between.cut(evolve(side, command=number))
            with Connection(between.url()) as connection:
                given = act(connection)
            has_cut = between.has_cut
            between.cut(None)
            wait_until_given_back(client)
            check(direct, given)
        if not has_cut:
            assert number > 1, "the operation has not sent anything"
            return


def wait_until_given_back(client: redis.Redis) -> None:
    """Returns when no consumer of a lost connection holds anything any more: long before its lease (30 s) lapses."""
    deadline = time.monotonic() + 25
    while client.keys("ferryman:*:held:*"):
        assert time.monotonic() < deadline, "what a lost connection held is not given back"
        time.sleep(0.01)


def retrying(operation: Callable[[Any], Any]) -> Act:
    """An operation on a channel that kombu repeats after a connection error, with a new connection and a new channel."""
    return lambda connection: connection.autoretry(lambda channel: operation(channel), **RETRY)()[0]


def persistent(consume: Act) -> Act:
    """Something that begins again with a new connection after each connection error, as a Celery worker does."""

    def act(connection: Connection) -> Any:
        for _ in range(5):
            try:
                connection.ensure_connection(**RETRY)
                return consume(connection)
            except connection.connection_errors:
                connection.collect()
        raise AssertionError("the connection broke more than once")

    return act


def publish(connection: Connection, bodies: list[Any], **options: Any) -> None:
    with connection.channel() as channel:
        for body in bodies:
            Producer(channel).publish(body, **{"routing_key": "q", **options})


def everything(connection: Connection, queue: str = "q") -> list[Any]:
    """What a queue holds, each message once taken and acked; what is left then is nothing."""
    bodies = []
    with connection.channel() as channel:
        while (message := channel.basic_get(queue)) is not None:
            bodies.append(message.payload)
            message.ack()
        session = channel.session
        size = session.link.run(session.scripts.size(queue))
        assert (size.waiting, size.scheduled, size.held) == (0, 0, 0)
    return bodies


def three_published(connection: Connection) -> None:
    publish(connection, [1, 2, 3])


# Publishing


def test_a_message_is_stored_once(server, side):
    def act(connection):
        producer = Producer(connection)
        producer.publish("one", routing_key="q", retry=True, retry_policy=RETRY)
        producer.publish("two", routing_key="q", retry=True, retry_policy=RETRY)

    def check(direct, _):
        assert everything(direct) == ["one", "two"]

    cut_everywhere(server, side, act, check)


def test_a_message_that_consumers_have_finished_before_it_is_repeated_is_not_stored_again(server):
    """The reply is lost, and before the publisher tries again, the job is taken, done and gone."""
    with Connection(server.url()) as direct, proxy(server) as between, Connection(between.url()) as connection:
        publish(connection, ["first"])
        finished = []
        between.cut(Cut())
        policy = {**RETRY, "errback": lambda *_: finished.append(everything(direct))}
        Producer(connection).publish("second", routing_key="q", retry=True, retry_policy=policy)
        assert between.has_cut
        assert finished == [["first", "second"]]
        assert everything(direct) == []


def test_a_message_is_stored_once_whatever_part_of_the_answer_arrives(server):
    for answered in itertools.count():
        with server.client() as client, Connection(server.url()) as direct, proxy(server) as between:
            client.flushall()
            publish(direct, ["first"])
            with Connection(between.url()) as connection:
                producer = Producer(connection)
                producer.publish("zeroth", routing_key="other")
                between.cut(Cut(answered=answered))
                producer.publish("second", routing_key="q", retry=True, retry_policy=RETRY)
                retried = between.commands > 1
            assert everything(direct) == ["first", "second"]
        if not retried:
            assert answered > 5
            return


def test_a_delayed_message_is_stored_once(server, side):
    def act(connection):
        options = {"headers": {"x-delay": 3_600_000}, "retry": True, "retry_policy": RETRY}
        Producer(connection).publish("later", routing_key="q", **options)

    def check(direct, _):
        session = direct.transport.session
        assert session.link.run(session.scripts.size("q")).scheduled == 1

    cut_everywhere(server, side, act, check)


def test_a_message_is_stored_once_in_every_queue_it_is_routed_to(server, side):
    exchange = Exchange("ex", "topic")

    def prepare(direct):
        with direct.channel() as channel:
            for name in ("one", "two"):
                Queue(name, exchange, routing_key="a.#")(channel).declare()

    def act(connection):
        Producer(connection).publish("both", exchange=exchange, routing_key="a.b", retry=True, retry_policy=RETRY)

    def check(direct, _):
        assert everything(direct, "one") == ["both"]
        assert everything(direct, "two") == ["both"]

    cut_everywhere(server, side, act, check, prepare)


@NEEDS_BATCHES
def test_a_batch_is_stored_once_and_in_order(server, side):
    bodies = list(range(25))

    def act(connection):
        connection.ensure_connection(**RETRY)
        producer = Producer(connection)
        with producer.batch(max_size=10):
            for body in bodies:
                producer.publish(body, routing_key="q")

    def check(direct, _):
        assert everything(direct) == bodies

    cut_everywhere(server, side, act, check)


def test_a_broadcast_reaches_each_queue_once(server, side):
    news = Queue("news", Exchange("broadcast", "fanout"))

    def prepare(direct):
        with direct.channel() as channel:
            news(channel).declare()

    def act(connection):
        options = {"exchange": news.exchange, "declare": [news.exchange], "retry": True, "retry_policy": RETRY}
        for body in ("one", "two"):
            Producer(connection).publish(body, **options)

    def check(direct, _):
        assert broadcasts(direct, news, 2) == ["one", "two"]

    cut_everywhere(server, side, act, check, prepare)


def broadcasts(connection: Connection, queue: Queue, number: int) -> list[Any]:
    """Everything that a fanout queue gets, which shall be so many messages: once they are there, more would come at once."""
    received: list[Any] = []
    with (
        connection.channel() as channel,
        Consumer(channel, [queue], on_message=lambda m: received.append(m.payload)),
        contextlib.suppress(TimeoutError),
    ):
        while True:
            connection.drain_events(timeout=10 if len(received) < number else 0.1)
    return received


# Consuming


def consuming(count: int, *, no_ack: bool = False, prefetch: int = 2) -> Act:
    """Gives what it was handed, after that many messages; each is acked when it has been handled."""
    handled: list[Any] = []

    def consume(connection: Connection) -> list[Any]:
        def handle(message: Any) -> None:
            handled.append(message.payload)
            if not no_ack:
                message.ack()

        with connection.channel() as channel:
            channel.basic_qos(prefetch_count=prefetch)
            with Consumer(channel, [Queue("q")], on_message=handle, no_ack=no_ack):
                while len(handled) < count:
                    connection.drain_events(timeout=10)
        return handled

    def act(connection: Connection) -> list[Any]:
        handled.clear()
        given: list[Any] = persistent(consume)(connection)
        return list(given)

    return act


def test_every_message_is_handled_once_while_the_consumer_declares_takes_acks_and_leaves(server, side):
    def check(direct, handled):
        assert sorted(handled) == [1, 2, 3]
        assert everything(direct) == []

    cut_everywhere(server, side, consuming(3), check, three_published)


def test_a_message_taken_without_ack_is_handled_at_most_once(server, side):
    """What ``no_ack`` promises: the server forgets a message as it hands it out."""

    def consume(connection):
        handled = []
        with connection.channel() as channel:
            while (message := channel.basic_get("q", no_ack=True)) is not None:
                handled.append(message.payload)
        return handled

    def check(direct, handled):
        assert len(handled) == len(set(handled))
        assert everything(direct) == []

    cut_everywhere(server, side, persistent(consume), check, three_published)


def test_an_acked_message_never_comes_again(server, side):
    def consume(connection):
        with connection.channel() as channel:
            message = channel.basic_get("q")
            message.ack()
            return message.payload

    def check(direct, payload):
        assert [payload, *everything(direct)] in ([1, 2, 3], [2, 1, 3])

    cut_everywhere(server, side, persistent(consume), check, three_published)


def test_a_rejected_message_is_a_dead_letter_once_or_still_there(server, side):
    def consume(connection):
        with connection.channel() as channel:
            channel.basic_get("q").reject()

    def check(direct, _):
        dead = direct.default_channel.session.link.command("ZCARD", direct.transport.session.scripts.keys("q").dead)
        assert dead + len(everything(direct)) == 3
        assert dead in (1, 2)

    cut_everywhere(server, side, persistent(consume), check, three_published)


@pytest.mark.parametrize("give_back", ["requeue", "recover", "close"])
def test_a_message_given_back_is_at_its_old_place(server, side, give_back):
    def consume(connection):
        with connection.channel() as channel:
            message = channel.basic_get("q")
            if give_back == "requeue":
                message.requeue()
            elif give_back == "recover":
                channel.basic_recover(requeue=True)

    def check(direct, _):
        assert everything(direct) == [1, 2, 3]

    cut_everywhere(server, side, persistent(consume), check, three_published)


# Declaring


def test_a_queue_is_declared_and_bound(server, side):
    def operation(channel):
        Queue("bound", Exchange("ex", "direct"), routing_key="key", max_length=7)(channel).declare()

    def check(direct, _):
        publish(direct, ["routed"], exchange=Exchange("ex", "direct"), routing_key="key")
        assert everything(direct, "bound") == ["routed"]
        session = direct.transport.session
        assert session.link.command("HGET", session.scripts.keys("bound").meta, "max_length") == b"7"
        assert session.link.command("SISMEMBER", "ferryman:queues", "bound") == 1

    cut_everywhere(server, side, retrying(operation), check)


def test_a_fanout_queue_that_is_bound_gets_each_broadcast_once(server, side):
    news = Queue("news", Exchange("broadcast", "fanout"))

    def operation(channel):
        news(channel).declare()

    def check(direct, _):
        publish(direct, ["hello"], exchange=news.exchange, routing_key="", declare=[news.exchange])
        assert broadcasts(direct, news, 1) == ["hello"]

    cut_everywhere(server, side, retrying(operation), check)


def test_an_unbound_queue_gets_nothing_more(server, side):
    exchange = Exchange("ex", "topic")

    def prepare(direct):
        with direct.channel() as channel:
            for name in ("leaving", "staying"):
                Queue(name, exchange, routing_key="a")(channel).declare()

    def operation(channel):
        channel.queue_unbind("leaving", "ex", "a")

    def check(direct, _):
        publish(direct, ["after"], exchange=exchange, routing_key="a")
        assert everything(direct, "leaving") == []
        assert everything(direct, "staying") == ["after"]

    cut_everywhere(server, side, retrying(operation), check, prepare)


def test_a_deleted_queue_leaves_nothing_behind(server, side):
    exchange = Exchange("ex", "topic")

    def prepare(direct):
        with direct.channel() as channel:
            Queue("leaving", exchange, routing_key="a")(channel).declare()
        publish(direct, [1, 2], routing_key="leaving")

    def operation(channel):
        channel.queue_delete("leaving")

    def check(direct, _):
        publish(direct, ["after"], exchange=exchange, routing_key="a")
        left = direct.transport.session.link.command("KEYS", "*leaving*")
        assert [key for key in left if b":publisher:" not in key] == []
        assert direct.transport.session.link.command("SISMEMBER", "ferryman:queues", "leaving") == 0
        with direct.channel() as channel:
            assert list(channel.list_bindings()) == []

    cut_everywhere(server, side, retrying(operation), check, prepare)


def test_a_deleted_exchange_routes_nothing_more(server, side):
    exchange = Exchange("ex", "topic")

    def prepare(direct):
        with direct.channel() as channel:
            Queue("one", exchange, routing_key="a")(channel).declare()

    def operation(channel):
        channel.exchange_delete("ex")

    def check(direct, _):
        publish(direct, ["after"], exchange=exchange, routing_key="a")
        assert everything(direct, "one") == []

    cut_everywhere(server, side, retrying(operation), check, prepare)


def test_a_purged_queue_is_empty(server, side):
    def check(direct, _):
        assert everything(direct) == []

    cut_everywhere(server, side, retrying(lambda channel: channel.queue_purge("q")), check, three_published)


# Leases


@pytest.mark.parametrize("side", [UNSENT, UNANSWERED], ids=["unsent", "unanswered"])
@pytest.mark.parametrize("number", range(4))
def test_a_lease_is_renewed_though_a_renewal_is_cut(server, client, side, number):
    with Connection(server.url()) as direct, proxy(server) as between, Connection(between.url(lease=4)) as connection:
        publish(direct, ["held"])
        with connection.channel() as channel:
            message = channel.basic_get("q")
            between.cut(evolve(side, command=number))
            wait_until(lambda: between.has_cut)
            consumers = channel.session.scripts.keys("q").consumers
            lapses_at = client.zscore(consumers, channel.consumer_id)
            wait_until(lambda: client.zscore(consumers, channel.consumer_id) > lapses_at)
            with direct.channel() as other:
                assert other.basic_get("q") is None
            message.ack()
        assert client.hget(channel.session.scripts.keys("q").meta, "acked") == b"1"


@pytest.mark.parametrize("side", [UNSENT, UNANSWERED], ids=["unsent", "unanswered"])
@pytest.mark.parametrize("number", range(4))
def test_what_a_lost_connection_held_is_given_back_though_that_is_cut_as_well(server, client, side, number):
    """But for what somebody still works on: that is acked when it is done."""
    with Connection(server.url()) as direct, proxy(server) as between, Connection(between.url()) as connection:
        publish(direct, ["dropped", "worked on"])
        channel = connection.channel()
        channel.basic_get("q")
        message = channel.basic_get("q")
        between.break_all()
        with pytest.raises(connection.connection_errors):
            channel.queue_declare("q")
        between.cut(evolve(side, command=number))
        connection.collect()
        wait_until(lambda: client.zcard(channel.session.scripts.keys("q").waiting) == 1)
        message.ack()
        assert everything(direct) == ["dropped"]
        assert client.hget(channel.session.scripts.keys("q").meta, "acked") == b"2"


def test_what_only_garbage_has_when_its_connection_is_lost_is_given_back(server, client):
    """Celery's request of a task with an ETA is such garbage: it and its entry in the timer refer to each other."""
    with Connection(server.url()) as direct, proxy(server) as between, Connection(between.url()) as connection:
        publish(direct, ["dropped"])
        channel = connection.channel()
        cycle = [channel.basic_get("q")]
        cycle.append(cycle)
        gc.disable()
        try:
            del cycle
            between.break_all()
            with pytest.raises(connection.connection_errors):
                channel.queue_declare("q")
            connection.collect()
            wait_until(lambda: client.zcard(channel.session.scripts.keys("q").waiting) == 1, 20)
        finally:
            gc.enable()
        assert everything(direct) == ["dropped"]


def test_what_is_acked_while_its_connection_is_lost_is_not_given_back_with_the_rest(server, client, monkeypatch):
    with Connection(server.url()) as direct, Connection(server.url()) as connection:
        publish(direct, ["dropped", "worked on"])
        channel = connection.channel()
        channel.renewer.remove(channel.leases)  # which does below what it would do at this moment
        channel.basic_get("q")
        message = channel.basic_get("q")
        monkeypatch.setattr(type(channel.dispatcher), "is_busy", True)
        message.ack()
        assert channel.acks
        channel.leases.release_unstarted(direct.default_channel.session.link)
        assert everything(direct) == ["dropped"]
        assert client.hget(channel.session.scripts.keys("q").meta, "acked") == b"2"
