"""A master watched by Sentinels: found through any of them, followed when it moves, with nothing lost that was replicated."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import ferryman.transport  # noqa: F401 - registers the URL schemes
import pytest
from kombu import Connection, Consumer, Producer, Queue

from ..support.load import POLICY, Load
from ..support.servers import Server, ServerKind
from ..support.topologies import Watched, wait_until, watched
from ..support.workers import Ledger, celery, worker


@pytest.fixture
def sentinel_kind(kind: ServerKind) -> ServerKind:
    if "redis" not in kind.binary:
        pytest.skip("the embedded server is built without Sentinel")
    return kind


@pytest.fixture
def service(sentinel_kind: ServerKind, tmp_path) -> Iterator[Watched]:
    with watched(sentinel_kind, tmp_path / "service") as running:
        yield running


@pytest.fixture
def ledger(server: Server) -> Ledger:
    return Ledger(server)


def test_the_master_is_found_though_the_first_sentinel_is_down(service):
    service.sentinels[0].kill()
    with Connection(service.url()) as connection, connection.channel() as channel:
        Producer(channel).publish("found", routing_key="q")
        assert channel.basic_get("q").payload == "found"


def test_a_service_that_no_sentinel_knows_is_a_connection_error(service):
    connection = Connection(service.url().replace("/main/", "/other/"))
    with connection, pytest.raises(connection.connection_errors, match="other"):
        connection.connect()


def needs_a_replica(service: Watched) -> None:
    """What docs/broker.md advises: a master that has lost its replica, because that is the master now, takes no writes."""
    for daemon in service.servers:
        with daemon.server.client() as client:
            client.config_set("min-replicas-to-write", 1)


def test_a_worker_and_a_producer_follow_the_master_under_load_and_lose_nothing(service, server, ledger, tmp_path):
    url = service.url(socket_timeout=1)
    old = service.master()
    needs_a_replica(service)
    with worker(server, tmp_path, broker=url, late=1, lease=10) as running:
        load = Load(service.url(socket_timeout=1, durability="replica:1"))
        ledger.wait_for("run", 20)
        with service.sentinels[0].server.client() as client:
            client.execute_command("SENTINEL", "FAILOVER", service.service)
        new = service.wait_for_another_master(old)
        with old.server.client() as client:
            client.replicaof("127.0.0.1", new.server.port)  # as the Sentinels do, ten seconds later
        check_that_nothing_is_lost(load, ledger)
        ping = celery(server, "inspect", "ping", "-d", "w1@test", "--timeout", "60", broker=url)
        assert "pong" in ping.stdout, ping.stdout + ping.stderr + running.log.read_text()
        assert running.process.poll() is None


@pytest.mark.parametrize("how", ["frozen", "killed"])
def test_what_a_replica_has_confirmed_outlasts_a_master_that_falls_silent_under_load(
    sentinel_kind, server, ledger, tmp_path, how
):
    """A master that dies between its answer to the producer and what it tells its replicas takes a message along."""
    with watched(sentinel_kind, tmp_path / "service", replicas=2) as service:
        old = service.master()
        with worker(server, tmp_path, broker=service.url(socket_timeout=1), late=1, lease=10) as running:
            load = Load(service.url(socket_timeout=1, durability="replica:1"))
            ledger.wait_for("run", 20)
            if how == "frozen":
                with old.frozen():
                    service.wait_for_another_master(old)
                    load.wait_for_more()
            else:
                old.kill()
                service.wait_for_another_master(old)
            check_that_nothing_is_lost(load, ledger)
            assert running.process.poll() is None


def check_that_nothing_is_lost(load: Load, ledger: Ledger) -> None:
    load.wait_for_more()
    load.stop()
    ledger.wait(lambda lines: set(load.published) <= {line["name"] for line in lines})


def test_nothing_is_published_to_a_master_that_thaws_and_does_not_know_that_it_is_none(service):
    with Connection(service.url()) as connection:
        producer = Producer(connection)
        producer.publish("before", routing_key="q")
        service.wait_until_replicated()
        old = service.master()
        with old.frozen():
            service.wait_for_another_master(old)
        producer.publish("after", routing_key="q")
        with connection.channel() as channel:
            messages = [channel.basic_get("q", no_ack=True).payload for _ in range(2)]
    assert messages == ["before", "after"]
    with service.master().server.client() as client:
        assert int(client.hget("ferryman:{q}:meta", "published")) == 2


def test_a_master_without_enough_replicas_makes_clients_wait_and_loses_nothing(service):
    """``min-replicas-to-write`` on the servers closes the window in which a master takes writes that no replica has."""
    handled = []
    needs_a_replica(service)
    for daemon in service.servers:
        with daemon.server.client() as client:
            client.config_set("min-replicas-max-lag", 1)
    replica = next(daemon for daemon in service.servers if daemon is not service.master())
    with Connection(service.url(socket_timeout=1)) as connection:
        producer = Producer(connection)
        producer.publish("before", routing_key="q", retry=True, retry_policy=POLICY)
        publishing = threading.Thread(
            target=lambda: producer.publish("patient", routing_key="q", retry=True, retry_policy=POLICY), daemon=True
        )
        with replica.frozen():
            with service.master().server.client() as client:
                wait_until(lambda: client.info("replication")["min_slaves_good_slaves"] == 0)
            publishing.start()
            publishing.join(0.5)
            assert publishing.is_alive(), "it must not have been stored by a master alone"
        publishing.join(30)
        assert not publishing.is_alive()
        with connection.channel() as channel:
            consumer = Consumer(channel, [Queue("q")], on_message=lambda m: (handled.append(m.payload), m.ack()))
            with consumer:
                while len(handled) < 2:
                    connection.drain_events(timeout=10)
    assert handled == ["before", "patient"]
