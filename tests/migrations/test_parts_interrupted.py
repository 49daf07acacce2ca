"""Migrations by processes, of which one is killed, or all: every job is written once, and none comes back."""

from __future__ import annotations

import signal
import subprocess

import pytest
import redis
from ferryman.compat.kue.generate import generate
from ferryman.migrations import journal, local
from ferryman.migrations.engine.memory_engine import MemoryEngine
from ferryman.migrations.local import LocalEngine
from ferryman.migrations.plan import Plan
from ferryman.migrations.run import JOURNAL
from ferryman.migrations.store import open_store
from ferryman.schema.connection.address import Address
from ferryman.schema.errors import MigrationRefused, UsageError
from ferryman.schema.fact import Entry
from ferryman.schema.family import get_family
from ferryman.testing.keyspaces import dump, store

from ..support.command import PROGRAM
from ..support.gate import When, gate
from ..support.servers import Server
from ..support.topologies import wait_until

pytestmark = pytest.mark.in_turn

NOW = 1_795_262_676_000
JOBS = 1800
PARTS = 3
DB = 2
"""The target's database; another has what an undisturbed migration in memory writes."""
OPTIONS = ["--partitions", str(PARTS), "--now", str(NOW)]


@pytest.fixture
def source(server: Server, client: redis.Redis) -> Address:
    """A kue keyspace whose parts take several batches to write."""
    store(client, get_family("kue"), "q", generate(JOBS, 7, NOW))
    return Address.parse(server.url(family="kue"))


@pytest.fixture
def expected(server: Server, source: Address) -> dict[bytes, Entry]:
    """The keyspace that the migration must leave."""
    target = Address.parse(server.url(1))
    MemoryEngine().migrate(source, target, Plan.between(source, target, NOW), lambda _: None)
    return keyspace(server, 1)


def keyspace(server: Server, db: int = DB) -> dict[bytes, Entry]:
    """Every key of a target but the journal's."""
    return {key: entry for key, entry in dump(server.client(db)).items() if not key.startswith(JOURNAL.encode())}


def batch(number: int) -> When:
    """The so-manieth batch of jobs of some partition: before it the partition and its slot are opened."""
    return lambda transaction, count: count == number + 2 and b":part:sound-" in transaction


def test_a_process_that_is_killed_after_a_batch_costs_one_attempt(
    server: Server, source: Address, expected: dict[bytes, Entry]
) -> None:
    with gate(server) as door:
        target = Address.parse(door.url(DB))
        hold = door.hold(batch(2), once_applied=True)
        with subprocess.Popen([*PROGRAM, "migrate", source.url(), target.url(), *OPTIONS], stdout=subprocess.PIPE) as command:
            hold.wait()
            assert hold.pid != command.pid
            hold.kill()
            hold.release()
            output, _ = command.communicate()
    assert command.returncode == 0
    assert f"{JOBS} jobs read, {len([key for key in expected if b':job:' in key])} written".encode() in output
    assert keyspace(server) == expected


def test_a_killed_command_is_followed_by_one_that_ends_its_work(
    server: Server, source: Address, expected: dict[bytes, Entry]
) -> None:
    with gate(server) as door:
        target = Address.parse(door.url(DB))
        hold = door.hold(batch(2))
        with subprocess.Popen([*PROGRAM, "migrate", source.url(), target.url(), *OPTIONS]) as command:
            hold.wait()
            command.send_signal(signal.SIGKILL)
        stood = len(keyspace(server))
        plan = Plan.between(source, target, NOW)
        with pytest.raises(MigrationRefused, match="--resume"):
            LocalEngine().migrate(source, target, plan, lambda _: None)
        summary = LocalEngine().migrate(source, target, plan, lambda _: None, resume=True)
        assert keyspace(server) == expected
        assert 0 < summary.written < JOBS
        assert stood
        with server.client(DB) as client:  # workers of the target have been quick
            client.delete(*keyspace(server))
            hold.release()
            wait_until(lambda: all(each["multi"] == "-1" for each in client.client_list()))
        assert keyspace(server) == {}


@pytest.mark.parametrize(
    ("layout", "is_columnar", "message"),
    [("local:3", False, r"pip install 'ferryman\[columnar\]'"), ("spark:3", True, "begun with engine spark:3, not local")],
)
def test_a_migration_that_this_engine_can_not_go_on_with_is_refused(
    server: Server, source: Address, monkeypatch: pytest.MonkeyPatch, layout: str, is_columnar: bool, message: str
) -> None:
    monkeypatch.setattr(local, "has_columnar", lambda: is_columnar)
    target = Address.parse(server.url(DB))
    plan = Plan.between(source, target, NOW)
    with open_store(target) as opened:
        journal.begin(opened, source, target, plan, layout, None)
    with pytest.raises(UsageError, match=message):
        LocalEngine().migrate(source, target, plan, lambda _: None, resume=True)
