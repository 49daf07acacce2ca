"""Producers that live long publish again after an outage that lasted longer than the retries of one publish.

Beat has such a producer, in a process of its own or in a worker's (``worker -B``). It never opens a new one.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import kombu
import pytest
from amqp.exceptions import ConnectionError as AmqpConnectionError
from ferryman.transport.errors import NoRoute
from ferryman.transport.transport import Transport
from kombu import Connection, Exchange, Producer, Queue
from kombu.exceptions import InconsistencyError, OperationalError
from kombu.transport import redis as kombu_redis

from ..support.around import app_of, own_url, said
from ..support.brokers import FERRYMAN, REDIS, Broker
from ..support.proxy import Proxy, proxy
from ..support.servers import Server
from ..support.topologies import Daemon, durable, wait_until, watched
from ..support.workers import Ledger, beat, worker

GAVE_UP = b"Message Error"
"""Beat logs this when a publish and all its retries failed."""

QUEUE = Queue("q", Exchange("e"), "k")
POLICY = {"max_retries": 1, "interval_start": 0, "interval_step": 0}
RETRY = {"retry": True, "retry_policy": POLICY}
TO_QUEUE = {"exchange": QUEUE.exchange, "routing_key": "k", "declare": [QUEUE]}

Publish = Callable[[], object]


def _declaring(connection: Connection) -> Publish:
    """Declares with every publish, as Celery does."""
    producer = Producer(connection, auto_declare=False)
    return lambda: producer.publish("x", **TO_QUEUE, **RETRY)


def _with_exchange(connection: Connection) -> Publish:
    """Declares its own exchange."""
    producer = Producer(connection, QUEUE.exchange, "k")
    return lambda: producer.publish("x", declare=[QUEUE], **RETRY)


def _without_declaring(connection: Connection) -> Publish:
    QUEUE(connection.default_channel).declare()
    producer = Producer(connection)
    return lambda: producer.publish("x", exchange="e", routing_key="k", **RETRY)


def _without_retry(connection: Connection) -> Publish:
    producer = Producer(connection)
    return lambda: producer.publish("x", **TO_QUEUE)


def _simple_queue(connection: Connection) -> Publish:
    queue = connection.SimpleQueue(QUEUE)
    return lambda: queue.put("x", **RETRY)


def _pool(connection: Connection) -> Publish:
    pool = connection.Pool(1)

    def publish() -> None:
        with pool.acquire() as pooled:
            _declaring(pooled)()

    return publish


PRODUCERS = [_declaring, _with_exchange, _without_declaring, _without_retry, _simple_queue, _pool]
ON_BOTH = [(broker, make) for broker in (FERRYMAN, REDIS) for make in PRODUCERS]
ON_BOTH.remove((REDIS, _without_declaring))  # where it fails for ever: kombu's own channel is closed


@pytest.mark.parametrize(("broker", "make"), ON_BOTH)
def test_a_producer_publishes_again_after_an_outage_longer_than_its_retries(
    kind, tmp_path, broker: Broker, make: Callable[[Connection], Publish]
):
    with durable(kind, tmp_path / "server") as daemon, broker.connection(daemon.server) as connection:
        publish = make(connection)
        publish()
        for _ in range(2):
            daemon.kill()
            with pytest.raises((OperationalError, *connection.connection_errors)):
                publish()
            daemon.start()
            if kombu.VERSION < (5, 7):
                with contextlib.suppress(OperationalError):  # it declares once more on the channel that it has closed
                    publish()
            publish()
        with broker.connection(daemon.server) as other:
            assert other.SimpleQueue(QUEUE).qsize() in ((3,) if kombu.VERSION >= (5, 7) else range(3, 6))


def test_the_errors_for_which_kombu_reconnects_on_redis_are_connection_errors_here_too():
    ours, theirs = Transport.recoverable_connection_errors, kombu_redis.Transport(Connection("redis://"))
    left_out = {
        InconsistencyError: "no queue wants the message: NoRoute, which no new connection helps",
        AmqpConnectionError: "InconsistencyError derives from it; what kombu raises itself is its RecoverableConnectionError",
        KeyError: "kombu catches a fault of its redis transport with it",
    }
    assert {error for error in theirs.connection_errors if not issubclass(error, ours)} <= left_out.keys()
    assert not issubclass(NoRoute, ours)
    known = (*ours, *Transport.channel_errors)
    assert not [error for error in theirs.channel_errors if not issubclass(error, known)]


@contextlib.contextmanager
def refused(between: Proxy, _: Daemon) -> Iterator[None]:
    between.refuses = True
    between.break_all()
    yield
    between.refuses = False


@contextlib.contextmanager
def read_only(_: Proxy, daemon: Daemon) -> Iterator[None]:
    with daemon.server.client() as client:
        client.replicaof("127.0.0.1", "1")
        yield
        client.replicaof("no", "one")


@contextlib.contextmanager
def paused(_: Proxy, daemon: Daemon) -> Iterator[None]:
    with daemon.server.client() as client:
        client.execute_command("CLIENT", "PAUSE", 60_000, "WRITE")
        yield
        client.execute_command("CLIENT", "UNPAUSE")


@contextlib.contextmanager
def frozen(_: Proxy, daemon: Daemon) -> Iterator[None]:
    with daemon.frozen():
        yield


@contextlib.contextmanager
def killed(_: Proxy, daemon: Daemon) -> Iterator[None]:
    daemon.kill()
    yield
    daemon.start()


Outage = Callable[[Proxy, Daemon], contextlib.AbstractContextManager[None]]


@pytest.mark.parametrize("outage", [refused, read_only, paused, killed, pytest.param(frozen, marks=pytest.mark.slow)])
def test_beat_publishes_again_after_an_outage_in_which_it_gave_up(kind, server, tmp_path, outage: Outage):
    with (
        durable(kind, tmp_path / "broker") as daemon,
        proxy(daemon.server) as between,
        beat(server, tmp_path, broker=between.url(socket_timeout=0.2)) as running,
    ):
        wait_until(lambda: waiting(daemon.server) >= 1)
        for times in (1, 2):
            with outage(between, daemon):
                running.wait_until_logged(GAVE_UP, times)
            before = waiting(daemon.server)
            wait_until(lambda before=before: waiting(daemon.server) > before + 1)
        assert running.process.poll() is None


@pytest.mark.parametrize("seconds", [0.2, pytest.param(2.0, marks=pytest.mark.slow), pytest.param(10.0, marks=pytest.mark.slow)])
def test_beat_in_a_worker_publishes_again_after_an_outage(kind, server, tmp_path, seconds):
    ledger = Ledger(server)
    with (
        durable(kind, tmp_path / "broker") as daemon,
        proxy(daemon.server) as between,
        worker(server, tmp_path, broker=between.url(), options=["-B", "-s", str(tmp_path / "schedule")]),
    ):
        ledger.wait_for("run", 1)
        with refused(between, daemon):
            time.sleep(seconds)
        ledger.wait_for("run", len(ledger.names("run")) + 3)


def test_beat_in_a_worker_publishes_again_after_an_outage_in_which_it_gave_up(kind, server, tmp_path):
    ledger = Ledger(server)
    with (
        durable(kind, tmp_path / "broker") as daemon,
        proxy(daemon.server) as between,
        worker(server, tmp_path, broker=between.url(), options=["-B", "-s", str(tmp_path / "schedule")]) as running,
    ):
        ledger.wait_for("run", 1)
        with refused(between, daemon):
            running.wait_until_logged(GAVE_UP)
        ledger.wait_for("run", len(ledger.names("run")) + 3)


def test_beat_follows_the_master_after_a_failover_in_which_it_gave_up(kind, server, tmp_path):
    if "redis" not in kind.binary:
        pytest.skip("the embedded server is built without Sentinel")
    with (
        watched(kind, tmp_path / "service") as service,
        beat(server, tmp_path, broker=service.url(socket_timeout=0.2)) as running,
    ):
        old = service.master()
        wait_until(lambda: waiting(old.server) >= 1)
        service.wait_until_replicated()
        old.kill()
        running.wait_until_logged(GAVE_UP)
        new = service.wait_for_another_master(old)
        before = waiting(new.server)
        wait_until(lambda: waiting(new.server) > before + 1)


def test_redbeat_publishes_again_after_an_outage_in_which_it_gave_up(kind, server, tmp_path):
    pytest.importorskip("redbeat")
    imports = "from redbeat import RedBeatSchedulerEntry\nfrom celery.schedules import schedule\n"
    said(server, "schedules", f"{imports}RedBeatSchedulerEntry('often', {NOTE!r}, schedule(0.5), args=['x'], app=app).save()")
    check_scheduler(kind, server, tmp_path, "redbeat.RedBeatScheduler")


def test_django_celery_beat_publishes_again_after_an_outage_in_which_it_gave_up(kind, server, tmp_path):
    pytest.importorskip("django_celery_beat")
    database = str(tmp_path / "beat.sqlite")
    program = f"""
from django.core.management import call_command
call_command("migrate", verbosity=0)
from django_celery_beat.models import IntervalSchedule, PeriodicTask
every, _ = IntervalSchedule.objects.get_or_create(every=1, period="seconds")
PeriodicTask.objects.create(name="often", task={NOTE!r}, interval=every, args='["x"]')
"""
    said(server, "schedules", program, database=database)
    check_scheduler(kind, server, tmp_path, "django_celery_beat.schedulers:DatabaseScheduler", database=database)


NOTE = "tests.around.apps.schedules.note"


def check_scheduler(kind: Any, server: Server, folder: Any, scheduler: str, **settings: object) -> None:
    """One outage, with a scheduler that keeps its schedule elsewhere."""
    app = app_of("schedules")
    with (
        durable(kind, folder / "broker") as daemon,
        proxy(daemon.server) as between,
        beat(server, folder, "-S", scheduler, app=app, broker=between.url(), own=own_url(server), **settings) as running,
    ):
        wait_until(lambda: waiting(daemon.server) >= 1)
        with refused(between, daemon):
            running.wait_until_logged(GAVE_UP)
        before = waiting(daemon.server)
        wait_until(lambda: waiting(daemon.server) > before + 1)


def waiting(server: Server) -> int:
    """How many tasks no worker has taken."""
    with server.client() as client:
        return int(client.zcard("ferryman:{celery}:waiting"))
