"""The option durability: a publish waits for replicas or the disk, or says that they did not come."""

from __future__ import annotations

import os
import signal

import ferryman.transport  # noqa: F401 - registers the URL schemes
import pytest
from ferryman.schema.errors import UsageError
from ferryman.transport.errors import NotDurable
from kombu import Connection, Exchange, Producer, Queue
from kombu.exceptions import OperationalError

from ..support.servers import ServerKind
from ..support.topologies import wait_until


def publish(url, n=1, **options):
    with Connection(url) as connection, connection.channel() as channel:
        Producer(channel).publish({"n": n}, **{"routing_key": "q", **options})


@pytest.fixture
def kind(any_server):
    return ServerKind(any_server.kind, any_server.binary)


def waits_for_disk(client):
    major, minor, _ = client.info("server")["redis_version"].split(".", 2)
    return (int(major), int(minor)) >= (7, 2)


@pytest.fixture
def master(kind, tmp_path):
    with kind.start(tmp_path) as running:
        yield running


@pytest.fixture
def replica(kind, tmp_path, master):
    folder = tmp_path / "replica"
    folder.mkdir()
    with kind.start(folder, "--replicaof", master.host, str(master.port)) as running:
        wait_until_replicated(master)
        yield running


def wait_until_replicated(master):
    """Returns when a replica has said that it has everything (WAIT adds to that, and says less)."""

    def is_level():
        replication = client.info("replication")
        return replication["slave0"]["offset"] == replication["master_repl_offset"]

    with master.client() as client:
        wait_until(lambda: client.execute_command("WAIT", 1, 5000) == 1)
        wait_until(is_level)


def test_a_publish_returns_when_a_replica_has_it(master, replica):
    publish(master.url(durability="replica:1"))
    with replica.client() as copy:
        assert copy.zcard("ferryman:{q}:waiting") == 1


def test_a_publish_whose_script_the_server_has_forgotten_waits_as_well(master, replica):
    """The question was answered before the script ran."""
    with Connection(master.url(durability="replica:1", socket_timeout=2)) as connection, connection.channel() as channel:
        Producer(channel).publish({"n": 1}, routing_key="q")
        with master.client() as client:
            client.script_flush()
        wait_until_replicated(master)
        os.kill(replica.pid, signal.SIGSTOP)
        try:
            with pytest.raises(NotDurable, match="0 of 1 have it"):
                Producer(channel).publish({"n": 2}, routing_key="q")
        finally:
            os.kill(replica.pid, signal.SIGCONT)


def test_a_publish_that_no_replica_confirms_is_an_error_and_repeating_it_stores_it_once(server, client):
    url = server.url(durability="replica:2", socket_timeout=2)
    with pytest.raises(NotDurable, match="0 of 2 have it"):
        publish(url)
    assert client.zcard("ferryman:{q}:waiting") == 1
    policy = {"max_retries": 2, "interval_start": 0, "interval_step": 0}
    with pytest.raises(OperationalError, match="not confirmed in time"):
        publish(url, retry=True, retry_policy=policy)
    assert client.zcard("ferryman:{q}:waiting") == 2


def test_routed_messages_wait_as_well(server, client):
    exchange = Exchange("ex", "direct")
    url = server.url(durability="replica:1", socket_timeout=2)
    with Connection(url) as connection, connection.channel() as channel:
        Queue("bound", exchange, routing_key="key")(channel).declare()
        with pytest.raises(NotDurable):
            Producer(channel).publish({"n": 1}, exchange=exchange, routing_key="key")
    assert client.zcard("ferryman:{bound}:waiting") == 1


def test_a_publish_returns_when_it_is_on_disk_or_says_what_the_server_lacks(kind, tmp_path):
    with kind.start(tmp_path, "--appendonly", "yes") as server, server.client() as client:
        if waits_for_disk(client):
            publish(server.url(durability="fsync"))
        else:
            with pytest.raises(UsageError, match=r"needs Redis 7\.2"):
                publish(server.url(durability="fsync"))


def test_a_server_without_a_log_can_not_promise_the_disk(server):
    with pytest.raises(UsageError, match="durability=fsync"):
        publish(server.url(durability="fsync"))


@pytest.mark.parametrize("option", ["disk", "replica", "replica:0", "replica:x", "fsync:2", "local:1"])
def test_an_unknown_durability_is_refused(option):
    with pytest.raises(UsageError, match=r"durability.*local, replica:N or fsync"):
        Connection("ferryman://localhost/0", transport_options={"durability": option}).transport  # noqa: B018
