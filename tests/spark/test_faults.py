"""What goes wrong on the way: connections, servers, passwords, second runs. The target is right, or the error is one line."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import redis
from ferryman.compat.kue.generate import generate
from ferryman.migrations.engine import Summary
from ferryman.migrations.local import LocalEngine
from ferryman.migrations.plan import Plan
from ferryman.migrations.run import JOURNAL
from ferryman.schema.connection.address import Address
from ferryman.schema.errors import KeyspaceNotFound, MigrationRefused, ServerError
from ferryman.schema.fact import Entry
from ferryman.schema.family import get_family
from ferryman.schema.rule import Finding
from ferryman.spark.engine import SparkEngine
from ferryman.spark.runner import SparkRunner
from ferryman.testing.keyspaces import dump, store
from pyspark.sql import SparkSession

from ..conftest import SERVERS
from ..support.servers import Server, free_port

NOW = 1_795_262_676_000
JOBS = 1500


@pytest.fixture
def source(server: Server, client: redis.Redis) -> Address:
    """A kue keyspace whose parts take several batches to write."""
    store(client, get_family("kue"), "q", generate(JOBS, 7, NOW))
    return Address.parse(server.url(0, family="kue"))


@pytest.fixture
def target(server: Server) -> Address:
    return Address.parse(server.url(2))


def migrate(engine: SparkEngine | LocalEngine, source: Address, target: Address, *, resume: bool = False) -> Summary:
    findings: list[Finding] = []
    return engine.migrate(source, target, Plan.between(source, target, NOW), findings.append, resume=resume)


def keyspace(server: Server, db: int) -> dict[bytes, Entry]:
    """Every key of a target but the journal's."""
    return {key: entry for key, entry in dump(server.client(db)).items() if not key.startswith(JOURNAL.encode())}


class Cutter(threading.Thread):
    """Ends every connection to a server at the moment in which a migration has written its third batch."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._client = server.client(2)
        self._client.config_set("notify-keyspace-events", "KEA")
        self._events = self._client.pubsub()
        self._events.psubscribe(f"__keyspace@2__:{JOURNAL}:*:part:*")
        self.cut = 0

    def run(self) -> None:
        seen = 0
        for message in self._events.listen():
            seen += message["type"] == "pmessage"
            if seen == 8:  # three parts are opened, and more is written
                self.cut = int(self._client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"))
                break
        self._events.close()


def test_tasks_whose_connections_are_cut_go_on_and_write_no_job_twice(
    engine: SparkEngine, server: Server, source: Address, target: Address
) -> None:
    migrate(LocalEngine(), source, Address.parse(server.url(1)))
    cutter = Cutter(server)
    cutter.start()
    summary = migrate(engine, source, target)
    cutter.join(60)
    assert cutter.cut
    assert keyspace(server, 2) == keyspace(server, 1)
    assert summary.written == summary.read - sum(map(len, summary.refused.values()))


def test_a_second_run_does_nothing(engine: SparkEngine, server: Server, source: Address, target: Address) -> None:
    first = migrate(engine, source, target)
    client = server.client(2)
    done = next(iter(client.scan_iter("ferryman:*:job:*")))
    client.delete(done)
    before = dump(client)
    second = migrate(engine, source, target)
    assert second.repeated
    assert (second.written, second.skipped) == (0, first.written + first.skipped)
    assert dump(client) == before


def test_a_dry_run_counts_the_same_and_writes_nothing(
    engine: SparkEngine, server: Server, source: Address, target: Address
) -> None:
    plan = Plan.between(source, target, NOW)
    findings: list[Finding] = []
    counted = engine.migrate(source, target, plan, findings.append, dry_run=True)
    assert dump(server.client(2)) == {}
    written = migrate(engine, source, target)
    assert (counted.read, counted.written, counted.by_queue) == (written.read, written.written, written.by_queue)


def test_an_interrupted_migration_goes_on_only_when_told_so(
    engine: SparkEngine, server: Server, source: Address, target: Address
) -> None:
    migrate(LocalEngine(), source, Address.parse(server.url(1)))

    class Stop(Exception):
        """The user has had enough."""

    def stop_while_writing(phase: str, _done: int, _total: int | None) -> None:
        if phase == "writing jobs" and server.client(2).keys(f"{JOURNAL}:*:part:*"):
            raise Stop

    plan = Plan.between(source, target, NOW)
    with pytest.raises(Stop):
        engine.migrate(source, target, plan, lambda _: None, stop_while_writing)
    with pytest.raises(MigrationRefused, match="--resume"):
        migrate(engine, source, target)
    migrate(engine, source, target, resume=True)
    assert keyspace(server, 2) == keyspace(server, 1)


def test_a_keyspace_that_is_not_there_is_named(engine: SparkEngine, server: Server) -> None:
    server.client().set("other", 1)
    with pytest.raises(KeyspaceNotFound, match="no kue keys under prefix 'q' in database 0"):
        engine.audit(Address.parse(server.url(0, family="kue")), NOW, lambda _: None)


def test_a_server_that_is_down_is_one_error(engine: SparkEngine, capfd: pytest.CaptureFixture[str]) -> None:
    address = Address.parse(f"ferryman://:sesame@127.0.0.1:{free_port()}/0?family=kue")
    with pytest.raises(ServerError, match="can't be reached") as caught:
        engine.audit(address, NOW, lambda _: None)
    assert "sesame" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_an_error_in_a_task_is_that_error_and_nothing_is_printed(spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
    def fail(_part: int) -> str:
        raise ServerError("ferryman://:***@far:6379/0: can't be reached")

    with pytest.raises(ServerError) as caught:
        SparkRunner(spark).run(fail, 10, "failing")
    assert str(caught.value).startswith("ferryman://:***@far:6379/0: can't be reached [failing, part ")
    assert capfd.readouterr() == ("", "")


def test_a_wrong_password_is_one_error(engine: SparkEngine, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with SERVERS[0].start(tmp_path) as guarded:
        guarded.client().config_set("requirepass", "sesame")
        address = Address.parse(f"ferryman://:swordfish@127.0.0.1:{guarded.port}/0?family=kue")
        with pytest.raises(ServerError, match="refuses the credentials") as caught:
            engine.audit(address, NOW, lambda _: None)
    assert "swordfish" not in str(caught.value)
    assert capfd.readouterr() == ("", "")
