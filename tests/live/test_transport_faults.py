"""What goes wrong between a consumer or producer of ours and another system's keyspace: nothing is lost, nothing made twice."""

from __future__ import annotations

import time

import pytest
import redis
from ferryman.schema.connection.permission import Forbidden
from ferryman.transport import revoke
from ferryman.transport.errors import CONNECTION_ERRORS, LeaseLapsed
from kombu import Connection, Consumer, Exchange, Queue

from ..support.acl import KUE, kue_shop_rule, patterns, user
from ..support.brokers import finish, script
from ..support.foreign_brokers import QUEUE, ForeignBroker, publish
from ..support.live_systems import SYSTEMS, side_keys
from ..support.proxy import Cut, proxy

pytestmark = pytest.mark.in_turn

HOLDER = """
    import sys
    import ferryman.transport
    from kombu import Connection
    connection = Connection(sys.argv[1])
    message = connection.default_channel.basic_get("mail")
    print(message.headers["ferryman"]["id"], flush=True)
    sys.stdin.read()
    connection.close()
"""
"""A process that takes a job and does nothing with it."""
OWN_LOCKS = {"bee", "qless"}
"""The systems that know when a worker is gone; the lease of a consumer of ours is no longer, and no shorter, than their locks."""


@pytest.fixture(params=SYSTEMS, ids=str)
def broker(request, server) -> ForeignBroker:
    return ForeignBroker(request.param, server)


@pytest.fixture
def kue(server) -> ForeignBroker:
    (system,) = [system for system in SYSTEMS if system.family == "kue"]
    return ForeignBroker(system, server)


class Receiver:
    """A consumer that acks what it gets, and goes on through whatever befalls its connection."""

    def __init__(self, connection):
        self.connection, self.received = connection, []
        self.consumer = Consumer(connection.default_channel, [Queue(QUEUE)], on_message=self.receive)

    def receive(self, message):
        self.received.append(message)
        message.ack()

    def wait(self, count, seconds=60.0):
        """The first so many messages."""
        deadline = time.monotonic() + seconds
        while len(self.received) < count:
            assert time.monotonic() < deadline, f"{len(self.received)} of {count} in {seconds} s"
            try:
                self.connection.drain_events(timeout=0.5)
            except CONNECTION_ERRORS:  # TimeoutError is one of them
                continue
        return self.received


def receive(connection, count=1):
    """The next messages of the queue, acked."""
    receiver = Receiver(connection)
    with receiver.consumer:
        return receiver.wait(count)


def test_a_job_of_a_killed_consumer_is_delivered_again_when_its_lease_has_lapsed(broker):
    if broker.system.family in OWN_LOCKS:
        pytest.skip("the system's own lock has to lapse")
    job_id = broker.put({"n": 1})
    holder = script(HOLDER, broker.url(lease=1))
    assert holder.stdout.readline()
    holder.kill()
    holder.communicate()
    with broker.connection(lease=30) as connection:
        (message,) = receive(connection)
        if not broker.system.live.carries_messages:
            assert message.headers["ferryman"]["id"] == job_id
    assert (broker.size().waiting, broker.size().held) == (0, 0)
    assert side_keys(broker.server.client()) == set()


def test_a_consumer_that_was_frozen_beyond_its_lease_is_told_before_it_takes_again(broker):
    if broker.system.family in OWN_LOCKS:
        pytest.skip("the system's own lock has to lapse")
    broker.put({"n": 1})
    with broker.connection(lease=1) as connection:
        channel = connection.default_channel
        assert channel.basic_get(QUEUE)
        channel.renewer.remove(channel.leases)  # whose thread is frozen for longer
        with broker.connection(lease=30) as other:
            (inherited,) = receive(other)
            broker.put({"n": 2})
            with pytest.raises(LeaseLapsed):
                channel.basic_get(QUEUE)
            assert broker.size().waiting == 1
            (message,) = receive(other)
            assert [each.payload[0][0]["n"] for each in (inherited, message)] == [1, 2]


def test_a_job_is_kept_for_as_long_as_its_consumer_lives(broker):
    broker.put({"n": 1})
    holder = script(HOLDER, broker.url(lease=3))
    assert holder.stdout.readline()
    with broker.connection(lease=3) as connection:
        with Consumer(connection.default_channel, [Queue(QUEUE)], on_message=lambda m: m.ack()), pytest.raises(TimeoutError):
            connection.drain_events(timeout=5)
        assert broker.size().held == 1
        finish(holder)
        receive(connection)


@pytest.mark.parametrize("answered", [0, 3])
@pytest.mark.parametrize("number", range(4))
def test_a_publish_that_is_cut_and_repeated_makes_one_job(broker, number, answered):
    with proxy(broker.server) as between, broker.connection(between) as connection:
        with connection.channel() as channel:
            channel.queue_declare(QUEUE)
        between.cut(Cut(number, answered=answered))
        with connection.Producer() as producer:
            headers = {"task": QUEUE, "id": "one", "retries": 0}
            producer.publish(
                [[{"n": 1}], {}, {}],
                routing_key=QUEUE,
                headers=headers,
                serializer="json",
                retry=True,
                retry_policy={"max_retries": 5},
            )
        between.cut(None)
    assert broker.size().waiting == 1


@pytest.mark.parametrize("number", range(8))
def test_a_consumer_whose_connection_is_cut_loses_no_job_and_runs_none_twice(kue, number):
    for n in range(5):
        kue.put({"n": n})
    with proxy(kue.server) as between, kue.connection(between, lease=4) as connection:
        receiver = Receiver(connection)
        with receiver.consumer:
            between.cut(Cut(number))
            received = receiver.wait(5)
            between.cut(None)
        came = [message.payload[0][0]["n"] for message in received]
    assert sorted(set(came)) == list(range(5))
    assert len(came) == 5
    assert (kue.size().waiting, kue.size().held) == (0, 0)


def test_a_batch_that_is_cut_and_repeated_makes_each_job_once(broker):
    with proxy(broker.server) as between, broker.connection(between) as connection:
        connection.ensure_connection()
        with connection.channel() as channel, connection.Producer(channel) as producer:
            if not hasattr(producer, "batch"):
                pytest.skip("kombu collects batches since 5.7")
            publish(connection, [0], headers={"id": "first"})
            between.cut(Cut(3))
            with producer.batch():
                for n in range(10):
                    headers = {"task": QUEUE, "id": f"id-{n}", "retries": 0}
                    producer.publish([[{"n": n}], {}, {}], routing_key=QUEUE, headers=headers, serializer="json")
            assert between.has_cut
            between.cut(None)
    assert broker.size().waiting == 11


def test_a_consumer_hears_of_jobs_again_after_the_server_was_out_of_reach(kue):
    with proxy(kue.server) as between, kue.connection(between) as connection:
        receiver = Receiver(connection)
        with receiver.consumer:
            between.break_all()
            for n in range(1, 4):
                kue.put({"n": n})
                receiver.wait(n)


def test_the_published_rule_is_enough_for_all_that_a_broker_does(broker):
    family = broker.system.family
    words = [word for word in kue_shop_rule() if word not in (*KUE, "&q:*")]
    rule, url = [*words, *patterns(family), *channels(family)], broker.url().replace("ferryman://", "ferryman://shop:secret@")
    with broker.server.client() as client, user(client, "shop", rule), Connection(url) as connection:
        channel = connection.default_channel
        for n in range(3):
            publish(connection, [{"n": n}], headers={"id": f"id-{n}"})
        channel.basic_get(QUEUE).requeue()
        channel.basic_get(QUEUE).reject()
        assert len(receive(connection)) == 1
        publish(connection, [{}], headers={"id": "revoked"})
        assert revoke(connection, "revoked") == 1
        channel.queue_purge(QUEUE)
        for call in broker.system.live.timers(delivery_limit=3):
            channel.session.link.run(call)
    assert (broker.size().waiting, broker.size().held) == (0, 0)


def channels(family):
    """The patterns of a family's keys as those of its channels."""
    return ["&" + pattern.lstrip("~") for pattern in patterns(family)]


def test_a_user_without_rights_to_the_systems_keys_gets_one_sentence_that_says_which(kue):
    kue.put({"n": 1})
    with kue.server.client() as client, user(client, "shop", ["on", ">secret", "~ferryman:*", "+@all"]):
        url = kue.url().replace("ferryman://", "ferryman://shop:secret@")
        with Connection(url) as connection, pytest.raises(Forbidden) as error:
            connection.default_channel.basic_get(QUEUE)
    assert "the user may not" in str(error.value)
    assert "secret" not in str(error.value)


def test_a_server_that_does_not_say_when_keys_change_is_looked_at_more_often(kue, caplog):
    rule = ["on", ">secret", "~*", "&*", "+@all", "-client|tracking"]
    with kue.server.client() as client:
        try:
            client.execute_command("ACL", "SETUSER", "probe", *rule)
            client.execute_command("ACL", "DELUSER", "probe")
        except redis.exceptions.ResponseError:
            pytest.skip("this server's rules know no subcommands")
        with user(client, "shop", rule):
            url = kue.url().replace("ferryman://", "ferryman://shop:secret@")
            with Connection(url) as connection:
                receiver = Receiver(connection)
                with receiver.consumer:
                    with pytest.raises(TimeoutError):
                        connection.drain_events(timeout=0.2)
                    kue.put({"n": 1})
                    receiver.wait(1)
        assert "each queue is looked at every 0.1 s" in caplog.text


def test_what_a_closed_connection_leaves_behind_is_bounded(broker):
    before = len(broker.server.client().keys("*"))
    broker.put({"n": 1})
    for _ in range(5):
        with broker.connection() as connection:
            connection.default_channel.basic_get(QUEUE).requeue()
    with broker.connection() as connection:
        connection.default_channel.basic_get(QUEUE).ack()
    own = [key for key in broker.server.client().keys("ferryman:*") if b":publisher:" not in key]
    assert len(own) <= 1, own
    assert before == 0


def test_a_publish_through_an_exchange_takes_two_round_trips(broker):
    """One asks whether the bindings still stand, ferryman's and the other system's own; the other one stores the job."""
    shop = Exchange("shop", "direct")
    with proxy(broker.server) as between, broker.connection(between) as connection:
        Queue(QUEUE, shop, routing_key=QUEUE)(connection.default_channel).declare()
        for n in range(3):
            between.cut(None)
            publish(connection, [{"n": n}], exchange=shop, headers={"id": f"id-{n}"})
            trips = between.round_trips
    assert trips == 2
    assert broker.size().waiting == 3
