"""A wrong prefix: commands that find no key of the keyspace fail, and name the keyspaces that are in the database."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
import redis
from ferryman.migrations.engine.memory_engine import MemoryEngine
from ferryman.migrations.engine.process_engine import ProcessEngine
from ferryman.migrations.plan import Plan
from ferryman.schema.connection.address import Address
from ferryman.schema.errors import KeyspaceNotFound
from ferryman.schema.family import get_family
from kombu import Connection, Exchange, Queue

from ..support.command import Outcome, ferryman
from ..support.servers import Server

pytestmark = [pytest.mark.in_turn, pytest.mark.usefixtures("client")]

PREFIX = "app1:"
FAMILIES = ("bee", "ferryman", "kickq", "kombu", "kue", "pjq")
"""qless has one prefix and no other."""
WITHOUT_PREFIX = ("kombu", "pjq")
READING = [("audit",), ("audit", "--repair"), ("jobs",), ("queues",), ("queues", "--scan")]


def publish(server: Server, prefix: str, exchange: str = "mail") -> None:
    """A queue under a prefix: three messages wait, and a consumer that ended has not acknowledged a fourth.

    As of a Celery app; with exchange "" as of a program that publishes by a queue's name and binds nothing.
    """
    url = f"redis://{server.host}:{server.port}/0"
    with Connection(url, transport_options={"global_keyprefix": prefix}) as connection, connection.channel() as channel:
        producer = connection.Producer(channel)
        for number in range(4):
            producer.publish(
                {"number": number},
                exchange=exchange,
                routing_key="mail",
                declare=[Queue("mail", Exchange(exchange), "mail")],
                retry=False,
            )
        assert channel.basic_get("mail", no_ack=False) is not None
        channel.qos._delivered.clear()  # a process that is killed puts nothing back when it closes the channel


def read(command: tuple[str, ...], family: str, url: str) -> Outcome:
    """Runs a command that reads a keyspace; a repair, of any rule of the family that has one."""
    rule = sorted(get_family(family).repairable)[:1] if "--repair" in command else []
    return ferryman(*command, *rule, url)


def must_name(outcome: Outcome, family: str, prefix: str) -> None:
    assert outcome.status == 2
    assert f"no {family} keys under prefix" in outcome.error
    assert f"prefix={quote(prefix, safe='')}" in outcome.error
    assert outcome.stdout == ""


@pytest.mark.parametrize("command", READING, ids=" ".join)
@pytest.mark.parametrize("exchange", ["mail", ""])
@pytest.mark.parametrize("prefix", ["", "app", "other"])
def test_a_kombu_keyspace_without_its_global_keyprefix_is_named(
    server: Server, client: redis.Redis, command: tuple[str, ...], prefix: str, exchange: str
) -> None:
    publish(server, PREFIX, exchange)
    assert client.hlen(f"{PREFIX}unacked") == 1
    must_name(read(command, "kombu", server.url(family="kombu", prefix=prefix)), "kombu", PREFIX)
    assert read(command, "kombu", server.url(family="kombu", prefix=PREFIX)).status == 0


def test_migrate_and_verify_without_the_global_keyprefix_leave_the_target_empty(server: Server) -> None:
    publish(server, PREFIX)
    source, target = server.url(family="kombu"), server.url(1)
    for command in (("migrate", "--strict"), ("migrate", "--dry-run"), ("verify",)):
        must_name(ferryman(*command, source, target), "kombu", PREFIX)
    with server.client(1) as other:
        assert other.keys() == []


@pytest.mark.parametrize("exchange", ["mail", ""])
def test_an_app_without_a_prefix_is_read_beside_one_with_a_prefix(server: Server, exchange: str) -> None:
    publish(server, PREFIX, exchange)
    publish(server, "", exchange)
    found = ferryman("jobs", server.url(family="kombu"), "--format", "json").lines()
    assert [each["queue"] for each in found] == ["mail"] * 4


def test_an_idle_app_without_a_prefix_is_no_error_beside_one_with_a_prefix(server: Server, client: redis.Redis) -> None:
    publish(server, PREFIX)
    publish(server, "")
    client.delete("mail", "unacked", "unacked_index")
    assert ferryman("audit", server.url(family="kombu")).status == 0


@pytest.mark.parametrize("command", READING, ids=" ".join)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_keyspace_under_another_prefix_is_named(server: Server, family: str, command: tuple[str, ...]) -> None:
    ferryman("generate", server.url(family=family, prefix=PREFIX), "--jobs", "20")
    must_name(read(command, family, server.url(family=family)), family, PREFIX)


@pytest.mark.parametrize("engine", [MemoryEngine(), ProcessEngine(tasks=2)], ids=["memory", "processes"])
@pytest.mark.parametrize("family", WITHOUT_PREFIX)
def test_every_engine_refuses_a_keyspace_of_another_prefix(
    server: Server, family: str, engine: MemoryEngine | ProcessEngine
) -> None:
    ferryman("generate", server.url(family=family, prefix=PREFIX), "--jobs", "20")
    publish(server, PREFIX)
    source, target = Address.parse(server.url(family=family)), Address.parse(server.url(1))
    plan = Plan.between(source, target, 1)
    with pytest.raises(KeyspaceNotFound, match="app1%3A"):
        engine.migrate(source, target, plan, lambda _: None)
    with pytest.raises(KeyspaceNotFound, match="app1%3A"):
        engine.verify(source, target, plan, lambda _: None)
    with pytest.raises(KeyspaceNotFound, match="app1%3A"):
        engine.audit(source, 1, lambda _: None)


def test_a_snapshot_file_names_the_prefix_too(server: Server, client: redis.Redis) -> None:
    publish(server, PREFIX)
    client.save()
    file = Path(client.config_get("dir")["dir"]) / "dump.rdb"
    must_name(ferryman("audit", f"ferryman+rdb://{file}?family=kombu"), "kombu", PREFIX)


def test_keyspaces_of_other_systems_are_named_where_there_are_none_of_the_family(server: Server) -> None:
    ferryman("generate", server.url(family="kue"), "--jobs", "5")
    outcome = ferryman("audit", server.url(family="bee"))
    assert outcome.status == 2
    assert f"Keyspaces found there: ferryman://{server.host}:{server.port}/0?family=kue" in outcome.error


@pytest.mark.parametrize("command", ["metrics", "backlog"])
def test_numbers_of_kue_under_a_wrong_prefix_are_an_error(server: Server, command: str) -> None:
    ferryman("generate", server.url(family="kue", prefix=PREFIX), "--jobs", "5")
    outcome = ferryman(command, server.url(family="kue"))
    assert outcome.status in (2, 3)
    assert "prefix=app1%3A" in outcome.stderr


def test_the_backlog_of_a_queue_that_is_not_there_names_other_keyspaces(server: Server) -> None:
    ferryman("generate", server.url(prefix=PREFIX), "--jobs", "5")
    outcome = ferryman("backlog", server.url(), "--queue", "mail")
    assert (outcome.status, outcome.stdout) == (0, "0\n")
    assert "prefix=app1%3A" in outcome.stderr
