"""A Redis Cluster: queues spread over its nodes, slots that move and masters that die under load."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from ferryman.schema.errors import UsageError
from ferryman.schema.native.keys import QueueKeys
from ferryman.transport.errors import NotDurable
from kombu import Connection, Consumer, Exchange, Producer, Queue

from ..support.acl import published_rules
from ..support.clusters import Cluster, cluster
from ..support.command import ferryman
from ..support.load import POLICY, Load
from ..support.messages import round_trip
from ..support.metrics import samples
from ..support.servers import Server, ServerKind
from ..support.topologies import wait_until, wait_until_replicated
from ..support.workers import Ledger, celery, worker

NOTE = "tests.support.tasks.note"
QUEUES = [f"queue-{n}" for n in range(20)]


@pytest.fixture(scope="module")
def nodes(kind: ServerKind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(kind, tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def ledger(server: Server) -> Ledger:
    return Ledger(server)


def wake_of(queue: str) -> bytes:
    return QueueKeys("ferryman", queue).wake


@contextlib.contextmanager
def consumer(connection: Connection, queue: Queue, received: list[object]) -> Iterator[Consumer]:
    """A consumer that acks, and writes down, what it gets."""

    def receive(message) -> None:
        received.append(message.payload)
        if not message.acknowledged:
            message.ack()

    with connection.channel() as channel, Consumer(channel, [queue], on_message=receive) as consuming:
        yield consuming


def test_everything_that_kombu_does_works_on_a_cluster(nodes):
    round_trip(nodes.url())


def test_dead_letters_and_tasks_of_a_cluster_are_put_back_counted_and_cancelled_from_the_command_line(nodes):
    with Connection(nodes.url()) as connection, connection.channel() as channel:
        for queue in QUEUES[:3]:
            channel.queue_declare(queue)
            Producer(channel).publish(queue, routing_key=queue, headers={"id": queue})
            channel.basic_get(queue).reject()
        assert ferryman("dead", nodes.url(), "requeue", "--all", "--format", "json").lines() == [
            {"queue": queue, "action": "requeue", "number": 1} for queue in sorted(QUEUES[:3])
        ]
        measured = samples(ferryman("metrics", nodes.url()).stdout)
        assert [measured["ferryman_queue_messages", queue, "waiting", "0"] for queue in QUEUES[:3]] == [1, 1, 1]
        assert ferryman("backlog", nodes.url()).stdout == "3\n"
        assert len(ferryman("cancel", nodes.url(), *QUEUES[:3], "--format", "json").lines()) == 3
        for queue in QUEUES[:3]:
            assert channel.queue_delete(queue) == 0


def test_a_publish_waits_for_the_replica_of_the_node_that_has_its_queue(nodes):
    with Connection(nodes.url(durability="replica:1")) as connection, connection.channel() as channel:
        for queue in QUEUES:
            Producer(channel).publish(queue, routing_key=queue)
            channel.queue_delete(queue)
    with Connection(nodes.url(durability="replica:2", socket_timeout=2)) as connection, connection.channel() as channel:
        with pytest.raises(NotDurable, match="1 of 2 have it"):
            Producer(channel).publish("x", routing_key="q")
        channel.queue_delete("q")


def test_a_worker_serves_twenty_queues_on_all_nodes(nodes, server, ledger, tmp_path):
    from celery import Celery

    assert len({nodes.owner(wake_of(queue)).server.port for queue in QUEUES}) == 3
    with worker(server, tmp_path, broker=nodes.url(), queues=",".join(QUEUES)) as running, Celery(broker=nodes.url()) as app:
        for queue in QUEUES:
            app.send_task(NOTE, [queue], queue=queue)
        ledger.wait_for("run", len(QUEUES))
        ping = celery(server, "inspect", "ping", "-d", "w1@test", "--timeout", "60", broker=nodes.url())
        assert "pong" in ping.stdout, ping.stdout + ping.stderr
        app.send_task(NOTE, ["later"], queue=QUEUES[3], countdown=1)
        ledger.wait_for("run", len(QUEUES) + 1)
        connections = [len(nodes.say(node, "CLIENT", "LIST", "TYPE", "normal").splitlines()) for node in nodes.nodes[:3]]
        assert max(connections) <= 8, "one listener and a few links for each node, however many queues there are"
        assert running.stop() == 0
        assert "Traceback" not in running.log.read_text()
    assert Counter(ledger.names("run")) == Counter([*QUEUES, "later"])


@pytest.mark.parametrize("queue", QUEUES[:3])
def test_an_idle_consumer_hears_of_a_message_at_once_on_every_node(nodes, queue):
    received = []
    with Connection(nodes.url()) as connection, consumer(connection, Queue(queue), received):
        with pytest.raises(TimeoutError):
            connection.drain_events(timeout=0.3)
        with Connection(nodes.url()) as other:
            producer = Producer(other)
            producer.publish("elsewhere", routing_key=f"{queue}-other")  # which opens what it needs
            begun = time.monotonic()
            producer.publish("now", routing_key=queue)
        connection.drain_events(timeout=10)
        assert time.monotonic() - begun < 3, "it was found by looking, which is done every 5 s"
    assert received == ["now"]


def test_a_subscriber_gets_more_broadcasts_than_one_read_brings(nodes):
    news = Queue("news", Exchange("broadcast", "fanout"), expires=60)
    received = []
    with Connection(nodes.url()) as connection, consumer(connection, news, received) as consuming:
        producer = Producer(consuming.channel, news.exchange)
        for n in range(250):
            producer.publish(n)
        while len(received) < 250:
            connection.drain_events(timeout=10)
        consuming.channel.queue_delete("news")
    assert received == list(range(250))


def load(url: str, queue: str, total: int, handled: Counter[int]) -> list[threading.Thread]:
    """A producer and a consumer at work, each in a thread that ends when all has been handled."""

    def produce() -> None:
        with Connection(url) as connection:
            producer = Producer(connection)
            for n in range(total):
                producer.publish(n, routing_key=queue, retry=True, retry_policy=POLICY)
                time.sleep(0.005)

    def handle(message) -> None:
        handled[message.payload] += 1
        message.ack()

    def consume() -> None:
        with Connection(url) as connection:
            while len(handled) < total:
                try:
                    connection.ensure_connection(**POLICY)
                    with connection.channel() as channel, Consumer(channel, [Queue(queue)], on_message=handle, prefetch_count=5):
                        while len(handled) < total:
                            connection.drain_events(timeout=30)
                except connection.connection_errors:
                    connection.collect()
                    time.sleep(0.05)

    threads = [threading.Thread(target=act, daemon=True) for act in (produce, consume)]
    for thread in threads:
        thread.start()
    return threads


def test_slots_that_move_under_load_lose_and_double_nothing(nodes):
    handled: Counter[int] = Counter()
    queue, total = "moving", 400
    key = wake_of(queue)
    threads = load(nodes.url(), queue, total, handled)
    wait_until(lambda: len(handled) > 20)
    home = nodes.owner(key)
    for target in (*(node for node in nodes.nodes[:3] if node is not home), home):
        nodes.move(key, target)
        seen = len(handled)
        wait_until(lambda seen=seen: len(handled) > min(seen + 20, total - 1))
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert handled == Counter(range(total))


def test_a_worker_goes_on_while_slots_move(nodes, server, ledger, tmp_path):
    queue = "worked"
    key = wake_of(queue)
    with worker(server, tmp_path, broker=nodes.url(), queues=queue, late=1) as running:
        load = Load(nodes.url(), queue)
        ledger.wait_for("run", 20)
        home = nodes.owner(key)
        for target in (*(node for node in nodes.nodes[:3] if node is not home), home):
            nodes.move(key, target)
            load.wait_for_more()
        load.stop()
        ledger.wait_for("run", len(load.published))
        assert running.process.poll() is None
    assert Counter(ledger.names("run")) == Counter(load.published), running.log.read_text()


def test_a_consumer_that_waits_follows_a_slot_that_moves(nodes):
    received = []
    key = wake_of("waiting")
    with Connection(nodes.url()) as connection, consumer(connection, Queue("waiting"), received):
        with pytest.raises(TimeoutError):
            connection.drain_events(timeout=0.3)
        home = nodes.owner(key)
        nodes.move(key, next(node for node in nodes.nodes[:3] if node is not home))
        with Connection(nodes.url()) as other:
            Producer(other).publish("there", routing_key="waiting")
        connection.drain_events(timeout=30)
    assert received == ["there"]


def test_the_published_rules_are_enough(nodes):
    one, more = published_rules()
    for node in nodes.nodes:
        nodes.say(node, "ACL", "SETUSER", "shop", "reset", *one, *more)
    url = nodes.url().replace("://", "://shop:secret@")
    round_trip(url)
    received = []
    with Connection(url) as connection, consumer(connection, Queue(QUEUES[0]), received):
        with pytest.raises(TimeoutError):
            connection.drain_events(timeout=0.2)
        Producer(connection).publish("heard", routing_key=QUEUES[0])
        connection.drain_events(timeout=10)
    assert received == ["heard"]


def test_a_server_that_is_no_cluster_and_a_node_taken_for_a_server_are_named(nodes, server):
    with pytest.raises(UsageError, match="no node of a cluster"):
        Connection(server.url().replace("ferryman://", "ferryman+cluster://")).connect()
    others = [queue for queue in QUEUES if nodes.owner(wake_of(queue)) is not nodes.nodes[0]]
    with Connection(nodes.nodes[0].server.url()) as connection, pytest.raises(UsageError, match=r"ferryman\+cluster://"):
        Producer(connection).publish("astray", routing_key=others[0])


def test_a_killed_master_under_load_is_replaced_and_nothing_replicated_is_lost(nodes, server, ledger, tmp_path):
    """The last test of this module: a node is missing afterwards."""
    from celery import Celery

    queue = "survivor"
    url = nodes.url(socket_timeout=1)
    master = nodes.owner(wake_of(queue))
    with worker(server, tmp_path, broker=url, queues=queue, late=1, lease=10) as running, Celery(broker=url) as app:
        for n in range(20):
            app.send_task(NOTE, [f"due {n}"], queue=queue, countdown=n / 5)
        load = Load(url, queue)
        ledger.wait_for("run", 20)
        first_in_doubt = len(load.published)
        wait_until_replicated(master, f"ferryman:{{{queue}}}:marker")
        master.kill()
        last_in_doubt = len(load.published)  # the master may have answered for it, and told no replica
        nodes.wait_until_healthy()
        load.wait_for_more()
        load.stop()
        replicated = load.published[:first_in_doubt] + load.published[last_in_doubt + 1 :]
        expected = {*replicated, *(f"due {n}" for n in range(20))}
        ledger.wait(lambda lines: expected <= {line["name"] for line in lines})
        assert running.process.poll() is None
