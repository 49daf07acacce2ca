"""Tasks on another system's keyspace, for a consumer that is no Celery worker: each system, each server."""

from __future__ import annotations

import asyncio
import datetime
import json
import math

import pytest
from ferryman.schema.connection.call import run
from ferryman.schema.errors import UsageError
from ferryman.transport import revoke
from ferryman.transport.flower import QueueLengths
from kombu import Consumer, Exchange, Producer, Queue

from ..support.foreign_brokers import QUEUE, ForeignBroker, publish
from ..support.live_systems import SYSTEMS, side_keys
from ..support.topologies import wait_until

pytestmark = pytest.mark.in_turn


SECONDS = 60.0
"""For what comes at once, on a machine however busy."""


@pytest.fixture(params=SYSTEMS, ids=str)
def broker(request, server) -> ForeignBroker:
    return ForeignBroker(request.param, server)


def get(channel, queue=QUEUE):
    message = channel.basic_get(queue)
    assert message is not None
    return message


def test_a_job_of_the_original_is_a_task_with_its_payload(broker):
    job_id = broker.put({"to": "a"})
    with broker.connection() as connection:
        message = get(connection.default_channel)
        (args, kwargs, _), headers = message.payload, message.headers
        message.ack()
        assert ({"to": "a"}.items() <= args[0].items(), len(args), kwargs) == (True, 1, {})
        assert headers["task"] == QUEUE
        mark = headers["ferryman"]
        assert set(mark) == {"family", "prefix", "queue", "id", "attempts", "max_attempts"}
        assert (mark["family"], mark["prefix"], mark["queue"]) == (broker.system.family, broker.system.prefix, QUEUE)
        assert mark["attempts"] == headers["retries"] == 0
        if not broker.system.live.carries_messages:
            assert (mark["id"], headers["id"]) == (job_id, broker.system.task_id(job_id))
        assert message.properties["ferryman_consumer"] == connection.default_channel.consumer_id
    assert (broker.size().waiting, broker.size().held) == (0, 0)


def test_a_task_comes_back_as_it_was_published(broker):
    with broker.connection() as connection:
        publish(
            connection, [1, "zwei"], "shop.other", kwargs={"x": [True, None]}, headers={"id": "uuid", "root_id": "root", "own": 7}
        )
        assert broker.size().waiting == 1
        message = get(connection.default_channel)
        args, kwargs, _ = message.payload
        assert (args, kwargs) == ([1, "zwei"], {"x": [True, None]})
        kept = {name: message.headers[name] for name in ("task", "id", "root_id", "own")}
        assert kept == {"task": "shop.other", "id": "uuid", "root_id": "root", "own": 7}
        message.ack()
    assert (broker.size().waiting, broker.size().held) == (0, 0)


def test_a_task_named_as_the_queue_gives_the_originals_workers_its_argument_alone(broker):
    if broker.system.live.carries_messages:
        pytest.skip("whole messages")
    with broker.connection() as connection:
        publish(connection, [{"to": "b"}])
    client = broker.system.client(broker.server)
    (job,) = client.take(QUEUE)
    payload = json.loads(job.payload)
    if broker.system.live.arguments == "list":
        (payload,) = payload
    assert {"to": "b"}.items() <= payload.items()
    assert "args" not in payload


def test_a_rejected_job_is_not_delivered_again_and_a_requeued_one_is(broker):
    broker.put({"n": 1})
    with broker.connection() as connection:
        channel = connection.default_channel
        get(channel).requeue()
        assert (broker.size().waiting, broker.size().held) == (1, 0)
        get(channel).reject()
        assert channel.basic_get(QUEUE) is None
    assert (broker.size().waiting, broker.size().held) == (0, 0)


def test_what_a_channel_holds_waits_again_when_it_closes(broker):
    for n in range(3):
        broker.put({"n": n})
    with broker.connection() as connection:
        for _ in range(3):
            get(connection.default_channel)
        assert broker.size().held == 3
    assert (broker.size().waiting, broker.size().held) == (3, 0)
    assert side_keys(broker.server.client()) == set()


def test_no_more_is_taken_than_may_be_unsettled(broker):
    for n in range(5):
        broker.put({"n": n})
    with broker.connection() as connection, connection.channel() as channel:
        channel.basic_qos(prefetch_count=2)
        received = []
        with Consumer(channel, [Queue(QUEUE)], on_message=received.append):
            for _ in range(2):
                connection.drain_events(timeout=SECONDS)
            with pytest.raises(TimeoutError):
                connection.drain_events(timeout=0.3)
            assert (broker.size().waiting, broker.size().held) == (3, 2)
            received[0].ack()
            connection.drain_events(timeout=SECONDS)
    assert broker.size().waiting == 4


def test_a_consumer_hears_of_a_job_when_it_is_put(broker):
    with broker.connection() as connection, connection.channel() as channel:
        received = []
        with Consumer(channel, [Queue(QUEUE)], on_message=lambda m: (received.append(m.payload[0][0]["n"]), m.ack())):
            with pytest.raises(TimeoutError):
                connection.drain_events(timeout=0.2)
            for n in range(5):
                for watch in connection.transport.poller._watches.values():
                    watch.next_poll = math.inf  # no look finds what was not heard
                broker.put({"n": n})
                connection.drain_events(timeout=SECONDS)
            assert received == list(range(5))


def test_a_consumer_that_asks_for_no_acks_ends_jobs_by_taking_them(broker):
    broker.put({"n": 1})
    with broker.connection() as connection:
        assert connection.default_channel.basic_get(QUEUE, no_ack=True) is not None
        assert (broker.size().waiting, broker.size().held) == (0, 0)


def test_a_delayed_task_comes_when_it_is_due_or_is_refused_before_anything_is_written(broker):
    live = broker.system.live
    if live.carries_messages:
        pytest.skip("an eta is the affair of Celery's workers")
    later = (now() + datetime.timedelta(hours=1)).isoformat()
    with broker.connection() as connection:
        if not live.can_delay:
            with pytest.raises(UsageError, match="can't hold a job until its time"):
                publish(connection, [{}], headers={"eta": later})
            assert broker.size().waiting == 0
            return
        publish(connection, [{}], headers={"id": "later", "eta": later})
        assert (broker.size().waiting, broker.size().scheduled) == (0, 1)
        assert connection.default_channel.basic_get(QUEUE) is None
        eta = now() + datetime.timedelta(seconds=0.6)
        publish(connection, [{}], headers={"id": "soon", "eta": eta.isoformat()})
        with Consumer(connection.default_channel, [Queue(QUEUE)], on_message=lambda m: m.ack()):
            connection.drain_events(timeout=SECONDS)
        assert now() >= eta - datetime.timedelta(milliseconds=50)
        assert (broker.size().waiting, broker.size().scheduled) == (0, 1)


def test_a_due_task_carries_no_eta_and_one_that_is_not_due_does(broker):
    live = broker.system.live
    if not live.carries_messages:
        pytest.skip("the eta is no part of the job")
    past, later = (now() + datetime.timedelta(hours=hours) for hours in (-1, 1))
    with broker.connection() as connection:
        for eta in (past, later):
            publish(connection, [{}], headers={"eta": eta.isoformat()})
        due, not_due = (get(connection.default_channel).headers for _ in range(2))
    assert (due["eta"], due["x-eta"]) == (None, past.isoformat())
    assert not_due["eta"] is not None
    assert "x-eta" not in not_due


def now():
    return datetime.datetime.now(datetime.UTC)


@pytest.mark.parametrize("order", ["ascending", "descending"])
def test_the_order_of_runs_is_celerys_on_every_system_that_has_one(broker, order):
    if not broker.system.live.priority_direction or broker.system.live.carries_messages:
        pytest.skip("no priorities of its own")
    if broker.system.family == "bee":
        pytest.skip("a priority of bee is worth something only beside jobs that have waited long enough")
    with broker.connection(priority_order=order) as connection:
        for priority in (5, 0, 9):
            publish(connection, [{"n": priority}], priority=priority)
        came = []
        for _ in range(3):
            message = get(connection.default_channel)
            came.append((message.payload[0][0]["n"], message.properties["priority"]))
            message.ack()
    expected = [0, 5, 9] if order == "ascending" else [9, 5, 0]
    assert came == [(n, n) for n in expected]


def test_what_is_no_task_stays_ferrymans_own(broker):
    if broker.system.live.carries_messages:
        pytest.skip("every message is kombu's")
    with broker.connection() as connection:
        Producer(connection.default_channel).publish({"plain": 1}, routing_key=QUEUE)
        assert broker.size().waiting == 0
        broker.put({"n": 1})
        with Consumer(connection.default_channel, [Queue(QUEUE)], on_message=lambda m: (came.append(m.headers), m.ack())):
            came = []
            for _ in range(2):
                connection.drain_events(timeout=SECONDS)
        assert sorted("ferryman" in headers for headers in came) == [False, True]


def test_temporary_queues_and_broadcasts_are_ferrymans_own(broker):
    news = Queue("news", Exchange("all", "fanout"), auto_delete=True)
    with broker.connection() as connection, connection.channel() as channel:
        came = []
        with Consumer(channel, [news, Queue("once", expires=60)], on_message=lambda m: (came.append(m.payload), m.ack())):
            Producer(channel).publish("hello", exchange=news.exchange)
            connection.drain_events(timeout=SECONDS)
            publish(connection, [1], queue="once")
            connection.drain_events(timeout=SECONDS)
        assert (came[0], came[1][0]) == ("hello", [1])
    assert broker.size("news").waiting == broker.size("once").waiting == 0


def test_an_exchange_leads_to_the_systems_queues(broker):
    exchange = Exchange("ex", "topic")
    with broker.connection() as connection, connection.channel() as channel:
        for name, key in (("mail", "a.*"), ("other", "a.b"), ("none", "c.*")):
            Queue(name, exchange, routing_key=key)(channel).declare()
        publish(connection, [{"n": 1}], exchange="ex", queue="a.b")
        assert [broker.size(name).waiting for name in ("mail", "other", "none")] == [1, 1, 0]
        channel.queue_unbind("other", "ex", "a.b")
        publish(connection, [{"n": 2}], exchange="ex", queue="a.b")
        assert [broker.size(name).waiting for name in ("mail", "other", "none")] == [2, 1, 0]


def test_counts_and_a_purge_are_of_the_systems_queue(broker):
    with broker.connection() as connection, connection.channel() as channel:
        for n in range(3):
            broker.put({"n": n})
        assert channel.queue_declare(QUEUE, passive=True).message_count == 3
        assert channel.queue_declare(QUEUE).message_count == 3
        held = get(channel)
        assert channel.queue_purge(QUEUE) == 2
        assert (broker.size().waiting, broker.size().held) == (0, 1)
        held.ack()


def test_a_task_that_waits_or_is_delayed_can_be_revoked(broker):
    eta = (datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=60)).isoformat()
    with broker.connection() as connection:
        publish(connection, [{}], headers={"id": "one"})
        publish(connection, [{}], headers={"id": "two"})
        if broker.system.live.can_delay:
            publish(connection, [{}], headers={"id": "later", "eta": eta})
        assert revoke(connection, "one") == 1
        assert revoke(connection, "none") == 0
        assert revoke(connection, "later") == (1 if broker.system.live.can_delay else 0)
        assert (broker.size().waiting, broker.size().scheduled) == (1, 0)
        original = broker.put({"n": 1})
        if not broker.system.live.carries_messages:
            assert revoke(connection, broker.system.task_id(original)) == 1
            assert broker.size().waiting == 1


def test_what_can_be_no_job_is_refused_before_anything_is_written(broker):
    with broker.connection() as connection:
        with pytest.raises(UsageError, match="x-unique-key means nothing"):
            publish(connection, [{}], headers={"x-unique-key": "k"})
        if not broker.system.live.carries_messages:
            with pytest.raises(UsageError, match=r"task_serializer"):
                publish(connection, [{}], serializer="pickle")
        assert broker.size().waiting == 0


def test_a_batch_is_stored_whole_and_in_its_order(broker):
    with broker.connection() as connection, connection.channel() as channel:
        producer = Producer(channel)
        if not hasattr(producer, "batch"):
            pytest.skip("kombu collects batches since 5.7")
        with producer.batch():
            for n in range(20):
                headers = {"task": QUEUE, "id": f"id-{n}", "retries": 0}
                producer.publish([[{"n": n}], {}, {}], routing_key=QUEUE, headers=headers, serializer="json")
        assert broker.size().waiting == 20
        came = []
        for _ in range(20):
            message = get(channel)
            came.append(message.payload[0][0]["n"])
            message.ack()
        assert came == list(range(20))


def test_a_damaged_payload_neither_kills_nor_blocks(broker):
    if broker.system.live.carries_messages:
        with broker.server.client() as client:
            client.lpush(QUEUE, b"no json")
    broker.put({"n": 1})
    with broker.connection() as connection:
        message = get(connection.default_channel)
        assert message.payload[0][0]["n"] == 1
        message.ack()


def test_a_take_for_some_tasks_leaves_all_others_and_names_them_where_jobs_have_names(broker):
    live = broker.system.live
    with broker.connection() as connection:
        publish(connection, [1, 2], "known")
        publish(connection, [1, 2], "not.known")
    client = broker.server.client()
    taken = run(client, live.take(QUEUE, "someone", 10, 30_000, tasks={"known"}))
    assert len(taken.jobs) == 1
    assert (broker.size().waiting, broker.size().held) == (1, 1)
    if live.has_names:
        taken = run(client, live.take(QUEUE, "someone", 10, 30_000, tasks={"known"}))
        assert (taken.jobs, taken.unknown) == ((), ("not.known",))


def test_whoever_consumes_runs_the_systems_timers_for_all_its_queues(broker):
    if broker.system.family not in ("kue", "kickq"):
        pytest.skip("delayed jobs are promoted by who takes from their queue")
    with (
        broker.connection() as connection,
        connection.channel() as channel,
        Consumer(channel, [Queue("another")], on_message=lambda m: m.ack()),
    ):
        broker.put({"n": 1}, delay_ms=3_600_000)
        assert (broker.size().waiting, broker.size().scheduled) == (0, 1)
        broker.put({"n": 2}, delay_ms=300)
        wait_until(lambda: indexed(broker) == ["scheduled", "waiting"])


def indexed(broker):
    """Where the jobs are, by the keys themselves."""
    return sorted(str(job.state) for job in broker.system.jobs(broker.server).values())


def test_monitors_see_how_full_a_systems_queue_is(broker):
    for n in range(3):
        broker.put({"n": n})
    with broker.connection() as connection:
        connection.default_channel.basic_get(QUEUE)
        (lengths,) = asyncio.run(QueueLengths(broker.url(), {}, None).queues([QUEUE]))
        assert (lengths["messages"], lengths["messages_ready"], lengths["messages_unacknowledged"]) == (3, 2, 1)
