"""Connections that go silent, servers that freeze, die and come back: consumers come back by themselves, publishers get an
answer or an error in bounded time, and no message is lost or handled twice.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable

import ferryman.transport  # noqa: F401 - registers the URL schemes
import pytest
import redis
from ferryman.schema.errors import FerrymanError
from kombu import Connection, Consumer, Exchange, Producer, Queue
from kombu.exceptions import OperationalError

from ..support.proxy import proxy
from ..support.servers import Server
from ..support.topologies import Daemon, durable, wait_until
from ..support.workers import Ledger, celery, send, worker

NOTE = "tests.support.tasks.note"
NAP = "tests.support.tasks.nap"
HOLD = "tests.support.tasks.hold"
PATIENCE = 1.0
"""Seconds of socket_timeout in these tests."""
RECOVERY = 60.0
"""Seconds in which a worker must be back: a blocking read (5 s), PATIENCE, Celery's own pauses, and a busy machine."""


@pytest.fixture
def ledger(server: Server) -> Ledger:
    """Stands on a server that nothing happens to."""
    return Ledger(server)


def publish(connection: Connection, body: object, **options: object) -> None:
    with connection.channel() as channel:
        Producer(channel).publish(body, routing_key="q", **options)


def outlast(act: Callable[[], object], errors: tuple[type[Exception], ...], seconds: float = RECOVERY) -> object:
    """Does it again and again until the server has answered."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return act()
        except errors:
            assert time.monotonic() < deadline, "the server is back, and still there are errors"
            time.sleep(0.05)


# Half-open connections


def test_a_consumer_on_a_half_open_connection_gets_an_error_and_the_message_with_the_next_one(server):
    received = []
    with proxy(server) as between, Connection(between.url(socket_timeout=PATIENCE)) as connection:

        def consume() -> None:
            with connection.channel() as channel, Consumer(channel, [Queue("q")], on_message=received.append):
                connection.drain_events(timeout=RECOVERY)

        with connection.channel() as channel, Consumer(channel, [Queue("q")], on_message=received.append):
            with pytest.raises(TimeoutError):
                connection.drain_events(timeout=0.2)
            between.stall()
            begun = time.monotonic()
            with pytest.raises(connection.connection_errors):
                connection.drain_events(timeout=60)
            assert time.monotonic() - begun < 15
            connection.collect()
        with Connection(server.url()) as direct:
            publish(direct, "after")
        consume()
    assert [message.payload for message in received] == ["after"]


def test_a_subscriber_on_a_half_open_connection_gets_what_was_broadcast_meanwhile(server):
    news = Queue("news", Exchange("broadcast", "fanout"))
    received = []
    with proxy(server) as between, Connection(between.url(socket_timeout=PATIENCE)) as connection:
        with connection.channel() as channel, Consumer(channel, [news], on_message=lambda m: received.append(m.payload)):
            with pytest.raises(TimeoutError):
                connection.drain_events(timeout=0.2)
            between.stall()
            with Connection(server.url()) as direct, direct.channel() as other:
                Producer(other).publish("in the gap", exchange=news.exchange, declare=[news.exchange])
            with pytest.raises(connection.connection_errors):
                connection.drain_events(timeout=60)
            connection.collect()
        with connection.channel() as channel, Consumer(channel, [news], on_message=lambda m: received.append(m.payload)):
            connection.drain_events(timeout=RECOVERY)
    assert received == ["in the gap"]


def test_publishing_on_a_half_open_connection_is_repeated_on_a_new_one(server):
    with proxy(server) as between, Connection(between.url(socket_timeout=PATIENCE)) as connection:
        producer = Producer(connection)
        producer.publish("first", routing_key="q")
        between.stall()
        producer.publish("second", routing_key="q", retry=True, retry_policy={"max_retries": 3, "interval_start": 0})
        with Connection(server.url()) as direct, direct.channel() as channel:
            assert channel.queue_declare("q", passive=True).message_count == 2


@pytest.mark.parametrize("pool", ["prefork", pytest.param("solo", marks=pytest.mark.slow)])
def test_a_worker_on_half_open_connections_comes_back_and_answers(server, ledger, tmp_path, pool):
    with (
        proxy(server) as between,
        worker(server, tmp_path, pool=pool, broker=between.url(socket_timeout=PATIENCE), lease=10) as running,
    ):
        send(server, [(NOTE, ["before"], {})])
        ledger.wait_for("run", 1)
        between.stall()
        send(server, [(NOTE, ["after"], {})])
        ledger.wait_for("run", 2, RECOVERY)
        ping = celery(server, "inspect", "ping", "-d", "w1@test", "--timeout", "60")
        assert "pong" in ping.stdout, ping.stdout + ping.stderr + running.log.read_text()
    assert ledger.names("run") == ["before", "after"]


# Idle connections that the server closes


def test_a_connection_that_the_server_has_closed_while_it_was_idle_is_opened_again_without_an_error(server, client):
    with Connection(server.url()) as connection, connection.channel() as channel:
        Producer(channel).publish("first", routing_key="q")
        time.sleep(1.1)  # only connections that were idle for a second are looked at
        client.client_kill_filter(_type="normal", skipme=True)
        Producer(channel).publish("second", routing_key="q")
        assert channel.queue_declare("q", passive=True).message_count == 2


def test_a_full_worker_whose_idle_connections_are_closed_neither_spins_nor_dies(server, ledger, client, tmp_path):
    client.config_set("timeout", 1)
    try:
        with worker(server, tmp_path, concurrency=1, prefetch=1, late=1) as running:
            send(server, [(NAP, [0, 8.0], {}), (NAP, [1, 0.1], {})])
            ledger.wait_for("start", 1)
            time.sleep(2.0)  # the server closes what is idle
            before, begun = cpu_seconds(running.process.pid), time.monotonic()
            time.sleep(4.0)
            used = (cpu_seconds(running.process.pid) - before) / (time.monotonic() - begun)
            assert used < 0.3, f"{used:.0%} of a processor while there is nothing to do"
            ledger.wait_for("end", 2, 60)
    finally:
        client.config_set("timeout", 0)
    assert sorted(ledger.names("start")) == [0, 1]


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


# Frozen servers


def test_publishing_to_a_frozen_server_is_an_error_in_bounded_time(kind, tmp_path):
    with durable(kind, tmp_path) as daemon:
        with Connection(daemon.server.url(socket_timeout=PATIENCE)) as connection:
            producer = Producer(connection)
            producer.publish("first", routing_key="q")
            with daemon.frozen():
                begun = time.monotonic()
                with pytest.raises(OperationalError):
                    producer.publish("second", routing_key="q", retry=True, retry_policy={"max_retries": 1, "interval_start": 0})
                assert time.monotonic() - begun < 15
        with Connection(daemon.server.url()) as direct, direct.channel() as channel:
            assert channel.queue_declare("q", passive=True).message_count in (1, 2), "at most the one that got no answer"


def test_a_new_connection_to_a_frozen_server_is_an_error_in_bounded_time(kind, tmp_path):
    with durable(kind, tmp_path) as daemon, daemon.frozen():
        begun = time.monotonic()
        with Connection(daemon.server.url(socket_timeout=PATIENCE)) as connection, pytest.raises(connection.connection_errors):
            connection.connect()
        assert time.monotonic() - begun < 15


def test_a_worker_outlasts_a_frozen_server_and_runs_everything_once(kind, server, ledger, tmp_path):
    with durable(kind, tmp_path / "data") as daemon:
        url = daemon.server.url(socket_timeout=PATIENCE)
        with worker(server, tmp_path, broker=url, late=1, lease=30):
            send(daemon.server, [(NAP, [n, 0.2], {}) for n in range(10)])
            ledger.wait_for("start", 2)
            with daemon.frozen():
                time.sleep(3 * PATIENCE)
            ledger.wait_for("end", 10, 2 * RECOVERY)
            _wait_for_acks(daemon.server, 10)
        assert sorted(ledger.names("start")) == list(range(10))


# Servers that die and come back


def restarting(daemon: Daemon, times: int, rng: random.Random) -> None:
    """Kills the server so often, each time for a moment, and leaves it alone in between."""
    for _ in range(times):
        time.sleep(rng.uniform(0.1, 1.0))
        daemon.kill()
        time.sleep(rng.uniform(0.0, 0.3))
        daemon.start()


def test_no_message_is_lost_or_doubled_while_the_server_is_killed_again_and_again(kind, tmp_path):
    """Plain kombu: a producer and a consumer in threads, and a server that keeps what it has answered."""
    handled: Counter[int] = Counter()
    total = 300
    with durable(kind, tmp_path) as daemon:
        url = daemon.server.url(socket_timeout=PATIENCE)

        def produce() -> None:
            with Connection(url) as connection:
                producer = Producer(connection)
                policy = {"max_retries": 1000, "interval_start": 0.05, "interval_step": 0}
                for n in range(total):
                    producer.publish(n, routing_key="q", retry=True, retry_policy=policy)
                    time.sleep(0.01)

        def handle(message) -> None:
            handled[message.payload] += 1
            message.ack()

        def consume() -> None:
            with Connection(url) as connection:

                def session() -> None:
                    connection.ensure_connection(max_retries=1000, interval_start=0.05, interval_step=0)
                    with connection.channel() as channel, Consumer(channel, [Queue("q")], on_message=handle, prefetch_count=5):
                        while len(handled) < total:
                            connection.drain_events(timeout=RECOVERY)

                while len(handled) < total:
                    try:
                        session()
                    except connection.connection_errors:
                        connection.collect()

        threads = [threading.Thread(target=act, daemon=True) for act in (produce, consume)]
        for thread in threads:
            thread.start()
        restarting(daemon, 4, random.Random(7))
        for thread in threads:
            thread.join(2 * RECOVERY)
            assert not thread.is_alive()
        with daemon.server.client() as client:
            wait_until(lambda: client.hget("ferryman:{q}:meta", "acked") == str(total).encode())
            assert client.zcard("ferryman:{q}:waiting") == 0
    assert sorted(handled) == list(range(total))
    assert {n for n, times in handled.items() if times > 1} == set()


@pytest.mark.parametrize("restarts", [3, pytest.param(50, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
def test_a_worker_survives_restarts_and_loses_nothing(kind, server, ledger, tmp_path, restarts):
    from celery import Celery

    tasks = restarts * 10
    rng = random.Random(restarts)
    with durable(kind, tmp_path / "data") as daemon:
        url = daemon.server.url(socket_timeout=PATIENCE)
        with worker(server, tmp_path, broker=url, late=1, lease=30) as running, Celery(broker=url) as app:
            stop = threading.Thread(target=restarting, args=(daemon, restarts, rng), daemon=True)
            stop.start()
            for n in range(tasks):
                policy = {"max_retries": 1000, "interval_start": 0.05, "interval_step": 0}
                app.send_task(NOTE, [n], retry=True, retry_policy=policy)
                time.sleep(0.05)
            stop.join()
            ledger.wait_for("run", tasks, 2 * RECOVERY)
            _wait_for_acks(daemon.server, tasks)
            ping = celery(daemon.server, "inspect", "ping", "-d", "w1@test", "--timeout", "60")
            assert "pong" in ping.stdout, ping.stdout + ping.stderr + running.log.read_text()
    runs = Counter(ledger.names("run"))
    assert sorted(runs) == list(range(tasks))
    # Celery forgets a task that it has given to a process which has not yet said that it begins, although it will.
    assert runs.total() - tasks <= restarts, running.log.read_text()


def test_a_task_that_ends_while_the_server_is_away_is_acked_when_it_is_back(kind, server, ledger, tmp_path):
    with durable(kind, tmp_path / "data") as daemon:
        url = daemon.server.url(socket_timeout=PATIENCE)
        with worker(server, tmp_path, broker=url, late=1, lease=60, concurrency=1):
            send(daemon.server, [(NAP, ["long", 2.0], {})])
            ledger.wait_for("start", 1)
            daemon.kill()
            ledger.wait_for("end", 1)
            time.sleep(0.5)  # the worker tries to ack now
            daemon.start()
            _wait_for_acks(daemon.server, 1)
            send(daemon.server, [(NOTE, ["next"], {})])
            ledger.wait_for("run", 1)
    assert ledger.names("start") == ["long"]


def test_publishing_to_a_server_that_is_gone_is_an_error_that_names_no_password(kind, tmp_path):
    with durable(kind, tmp_path) as daemon:
        port = daemon.server.port
    with Connection(f"ferryman://user:secret@127.0.0.1:{port}/0") as connection:
        with pytest.raises((redis.exceptions.ConnectionError, FerrymanError, OSError)) as caught:
            connection.connect()
        assert "secret" not in str(caught.value)


def test_a_connection_that_could_not_be_made_for_long_is_made_when_the_server_comes(kind, tmp_path):
    with durable(kind, tmp_path) as daemon, Connection(daemon.server.url()) as connection:
        daemon.kill()
        with pytest.raises(OperationalError):
            connection.ensure_connection(max_retries=150, interval_start=0, interval_step=0)
        daemon.start()
        publish(connection, "at last")


# Frozen workers


def test_a_worker_frozen_beyond_its_lease_loses_its_tasks_and_harms_nobody_when_it_thaws(server, ledger, tmp_path):
    lease = 2.0
    # Without its neighbours it takes as soon as it can.
    with worker(
        server, tmp_path, late=1, lease=lease, concurrency=1, prefetch=6, name="frozen", options=["--without-mingle"]
    ) as first:
        send(server, [(HOLD, [n], {}) for n in range(6)])
        ledger.wait_for("start", 1)
        with first.frozen(), worker(server, tmp_path, late=1, lease=lease, concurrency=6, name="heir"):
            ledger.wait_for("start", 1 + 6)
            time.sleep(lease)  # which the heir's lease must outlast
            ledger.let_go()
            ledger.wait_for("end", 6)
            send(server, [(NOTE, ["meanwhile"], {})])
            ledger.wait_for("run", 1)
        send(server, [(NOTE, ["thawed"], {})])
        ledger.wait_for("run", 2)
        _wait_for_acks(server, 8)
        assert first.process.poll() is None
    with server.client() as client:
        assert client.zcard("ferryman:{celery}:waiting") == 0
    starts = Counter(ledger.names("start"))
    assert sorted(starts) == list(range(6))
    assert starts[0] == 2, "the one that ran when the worker froze runs again"
    # The worker may hand one more to its free process before it learns that its lease is over; the rest it must drop.
    assert starts.total() <= 6 + 2, starts


def _wait_for_acks(server: Server, count: int) -> None:
    with server.client() as client:
        wait_until(lambda: int(client.hget("ferryman:{celery}:meta", "acked") or 0) >= count)
