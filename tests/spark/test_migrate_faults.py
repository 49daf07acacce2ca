"""Migrations whose tasks, drivers and targets fail at chosen moments: every job is written once, and none comes back."""

from __future__ import annotations

import re
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import pytest
import redis
from ferryman.compat.kue.generate import generate
from ferryman.migrations import journal
from ferryman.migrations.engine import Summary, migrate, resume
from ferryman.migrations.engine.file_snapshot import take
from ferryman.migrations.engine.output import Results
from ferryman.migrations.engine.tables import FINDINGS
from ferryman.migrations.local import LocalEngine
from ferryman.migrations.plan import Plan
from ferryman.migrations.run import JOURNAL
from ferryman.migrations.store import open_store
from ferryman.schema.connection.address import Address
from ferryman.schema.errors import MigrationRefused, ServerError, StaleWriter
from ferryman.schema.fact import Entry
from ferryman.schema.family import get_family
from ferryman.schema.rule import Finding
from ferryman.spark.engine import SparkEngine
from ferryman.spark.runner import SparkRunner
from ferryman.testing.keyspaces import dump, store
from pyspark.sql import SparkSession

from ..support.command import PROGRAM
from ..support.gate import Gate, When, gate
from ..support.servers import Server, free_port
from ..support.topologies import wait_until

NOW = 1_795_262_676_000
JOBS = 1800
PARTS = 3
TIMEOUT_SECONDS = 500.0
DB = 2
"""The target's database; another has what an undisturbed migration writes."""


@pytest.fixture
def source(server: Server, client: redis.Redis) -> Address:
    """A kue keyspace whose parts take several batches to write."""
    store(client, get_family("kue"), "q", generate(JOBS, 7, NOW))
    return Address.parse(server.url(family="kue"))


@pytest.fixture
def expected(server: Server, source: Address) -> dict[bytes, Entry]:
    """The keyspace that the migration must leave."""
    target = Address.parse(server.url(1))
    LocalEngine().migrate(source, target, Plan.between(source, target, NOW), lambda _: None)
    return keyspace(server, 1)


@pytest.fixture
def door(server: Server) -> Iterator[Gate]:
    with gate(server) as running:
        yield running


@pytest.fixture
def target(door: Gate) -> Address:
    return Address.parse(door.url(DB))


@pytest.fixture
def executor() -> Iterator[Executor]:
    """Does what goes on while the test does something else."""
    with ThreadPoolExecutor(2) as pool:
        yield pool


def keyspace(server: Server, db: int = DB) -> dict[bytes, Entry]:
    """Every key of a target but the journal's."""
    return {key: entry for key, entry in dump(server.client(db)).items() if not key.startswith(JOURNAL.encode())}


def batch(number: int) -> When:
    """The so-manieth batch of jobs of some partition: before it the partition and its slot are opened."""
    return lambda transaction, count: count == number + 2 and b":part:sound-" in transaction


def doing(word: bytes) -> When:
    """A transaction in which this word stands."""
    return lambda transaction, _: word in transaction


def is_in_transaction(server: Server) -> bool:
    """Whether some client has begun a transaction and not ended it."""
    with server.client() as client:
        return any(each["multi"] != "-1" for each in client.client_list())


class Ledger:
    """How often each job of the target has been stored."""

    def __init__(self, server: Server) -> None:
        self._client = server.client(DB)
        self._client.config_set("notify-keyspace-events", "Eh")
        self._client.config_set("client-output-buffer-limit", "pubsub 0 0 0")
        self._events = self._client.pubsub()
        self._events.subscribe(f"__keyevent@{DB}__:hset")

    def stored(self) -> Counter[bytes]:
        """Since the beginning."""
        counts: Counter[bytes] = Counter()
        while message := self._events.get_message(timeout=1):
            if message["type"] == "message" and b":job:" in message["data"]:
                counts[message["data"]] += 1
        self._client.config_set("notify-keyspace-events", "")
        self._events.close()
        return counts


def attempt(engine: SparkEngine, source: Address, target: Address) -> Summary:
    return engine.migrate(source, target, Plan.between(source, target, NOW), lambda _: None, resume=True)


@pytest.mark.parametrize(
    "once_applied",
    [pytest.param(False, id="before a batch", marks=pytest.mark.slow), pytest.param(True, id="after a batch")],
)
def test_a_worker_process_that_dies_costs_one_attempt(
    once_applied: bool,
    engine: SparkEngine,
    server: Server,
    door: Gate,
    executor: Executor,
    source: Address,
    target: Address,
    expected: dict[bytes, Entry],
) -> None:
    ledger = Ledger(server)
    hold = door.hold(batch(3), once_applied=once_applied)
    migrating = executor.submit(attempt, engine, source, target)
    hold.wait()
    hold.kill()
    hold.release()
    summary = migrating.result(TIMEOUT_SECONDS)
    assert keyspace(server) == expected
    assert (summary.read, summary.written) == (JOBS, JOBS - sum(map(len, summary.refused.values())))
    assert set(ledger.stored().values()) == {1}


class Attempts:
    """Attempts of the tasks of one run, started by hand: what speculation does on a cluster, and never on one machine."""

    def __init__(self, spark: SparkSession, source: Address, target: Address, folder: Path) -> None:
        self._plan = Plan.between(source, target, NOW)
        self._folder = folder
        self._snapshot = take(SparkRunner(spark), source, NOW, f"{folder}/source", PARTS, for_transfer=True)
        self._target = target
        with open_store(target) as opened:
            self.run = journal.begin(opened, source, target, self._plan, f"spark:{PARTS}", None)

    def work(self, name: str) -> Results[Finding]:
        """One attempt, or more where one fails, of every part."""
        work = migrate.write_work(self._plan, self._target, self.run, str(self._folder))
        return self._snapshot.work(work, FINDINGS, f"{self._folder}/{name}", "writing jobs")

    def commit(self, results: Results[Finding]) -> None:
        """Ends the migration."""
        summary, written = migrate.outcome(results, lambda _: None)
        commands = self._plan.writer.finish(self._plan.target, written)
        with open_store(self._target) as opened:
            migrate.close_rest(opened, self.run, self._snapshot.partitions, results)
            journal.finish(opened, self.run, self._plan, commands, summary, self._snapshot.partitions)


@pytest.fixture
def attempts(spark: SparkSession, source: Address, target: Address, tmp_path: Path) -> Attempts:
    return Attempts(spark, source, target, tmp_path)


def test_an_attempt_that_was_given_up_writes_nothing_after_the_next_or_after_the_end(
    attempts: Attempts, server: Server, door: Gate, executor: Executor, expected: dict[bytes, Entry]
) -> None:
    hold = door.hold(batch(2))
    zombie = executor.submit(attempts.work, "first")
    hold.wait()
    attempts.commit(attempts.work("second"))
    assert keyspace(server) == expected
    with server.client(DB) as client:  # workers of the target have been quick
        client.delete(*keyspace(server))
    hold.release()
    assert isinstance(zombie.exception(TIMEOUT_SECONDS), StaleWriter)
    assert keyspace(server) == {}


def test_two_attempts_side_by_side_write_every_job_once(
    attempts: Attempts,
    engine: SparkEngine,
    server: Server,
    door: Gate,
    executor: Executor,
    source: Address,
    target: Address,
    expected: dict[bytes, Entry],
) -> None:
    ledger = Ledger(server)
    first = door.hold(batch(2))
    attempting = [executor.submit(attempts.work, "first")]
    first.wait()
    part = re.search(rb":part:[\w-]+", first.transaction)
    assert part is not None
    second = door.hold(lambda transaction, count: batch(2)(transaction, count) and part[0] in transaction)
    attempting.append(executor.submit(attempts.work, "second"))
    second.wait()
    first.release()
    second.release()
    # They take the part from each other until one has no attempt left.
    assert all(isinstance(each.exception(TIMEOUT_SECONDS), StaleWriter | None) for each in attempting)
    attempt(engine, source, target)
    assert keyspace(server) == expected
    assert set(ledger.stored().values()) == {1}


# Drivers

BEGIN = doing(b"choices")
OPENING = doing(b"HINCRBY")
MIDDLE = batch(2)
REGISTRY = doing(b"create_queue(least")
END = doing(b"finished_ms")


@pytest.mark.parametrize(
    ("moment", "begun"),
    [
        pytest.param(MIDDLE, True, id="half-way"),
        pytest.param(BEGIN, False, id="before it began", marks=pytest.mark.slow),
        pytest.param(OPENING, True, id="before the first job", marks=pytest.mark.slow),
        pytest.param(REGISTRY, True, id="after the last job", marks=pytest.mark.slow),
        pytest.param(END, True, id="before the end", marks=pytest.mark.slow),
    ],
)
def test_a_killed_driver_is_followed_by_a_run_that_ends_its_work(
    moment: When,
    begun: bool,
    engine: SparkEngine,
    server: Server,
    door: Gate,
    source: Address,
    target: Address,
    expected: dict[bytes, Entry],
) -> None:
    hold = door.hold(moment)
    options = ["--engine", "spark", "--partitions", str(PARTS), "--now", str(NOW)]
    with subprocess.Popen([*PROGRAM, "migrate", source.url(), target.url(), *options]) as driver:
        hold.wait()
        driver.send_signal(signal.SIGKILL)
    stood = len(keyspace(server))
    plan = Plan.between(source, target, NOW)
    if begun:
        with pytest.raises(MigrationRefused, match="--resume"):
            engine.migrate(source, target, plan, lambda _: None)
    summary = engine.migrate(source, target, plan, lambda _: None, resume=begun)
    assert keyspace(server) == expected
    assert (summary.written < JOBS) == (stood > 0)
    with server.client(DB) as client:
        client.delete(*keyspace(server))
    hold.release()
    wait_until(lambda: not is_in_transaction(server))
    assert keyspace(server) == {}


# What was read


def test_a_run_with_a_work_folder_goes_on_with_what_the_one_before_has_read(
    spark: SparkSession,
    server: Server,
    client: redis.Redis,
    door: Gate,
    executor: Executor,
    source: Address,
    target: Address,
    expected: dict[bytes, Entry],
    tmp_path: Path,
) -> None:
    engine = SparkEngine(spark, work=str(tmp_path), tasks=PARTS)
    with server.client(DB) as there:
        hold = door.hold(batch(2))
        migrating = executor.submit(attempt, engine, source, target)
        hold.wait()
        mend = full(there)
        hold.release()
        with pytest.raises(ServerError, match="maxmemory"):
            migrating.result(TIMEOUT_SECONDS)
        mend()
    assert len(list(tmp_path.iterdir())) == 1
    # The source has gone its way meanwhile, so nobody who reads it now could go on.
    client.flushdb()
    attempt(engine, source, target)
    assert keyspace(server) == expected
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", [None, "ferryman-gone", "ferryman-half", "../ferryman-whole", "whole"])
def test_only_a_whole_snapshot_in_the_work_folder_is_gone_on_with(name: str | None, tmp_path: Path) -> None:
    work = tmp_path / "work"
    for folder in (work / "ferryman-whole", work / "whole", tmp_path / "ferryman-whole"):
        (folder / resume.SNAPSHOT).mkdir(parents=True)
        (folder / resume.SNAPSHOT / resume.COMPLETE).touch()
    (work / "ferryman-half" / resume.SNAPSHOT).mkdir(parents=True)
    assert resume.find_snapshot(str(work), "ferryman-whole") == str(work / "ferryman-whole")
    assert resume.find_snapshot(None, "ferryman-whole") is None
    assert resume.find_snapshot(str(work), name) is None


# Targets that refuse


def full(client: redis.Redis) -> Callable[[], object]:
    client.config_set("maxmemory", 1)
    return lambda: client.config_set("maxmemory", 0)


def replica(client: redis.Redis) -> Callable[[], object]:
    client.execute_command("REPLICAOF", "127.0.0.1", free_port())
    return lambda: client.execute_command("REPLICAOF", "NO", "ONE")


def forbidden(client: redis.Redis) -> Callable[[], object]:
    client.execute_command("ACL", "SETUSER", "captain", "-zadd")
    return lambda: client.execute_command("ACL", "SETUSER", "captain", "+zadd")


@pytest.mark.parametrize(
    ("refuse", "said"),
    [
        pytest.param(forbidden, "ZADD .*no permissions", id="NOPERM"),
        pytest.param(replica, "read only replica", id="READONLY", marks=pytest.mark.slow),
        pytest.param(full, "maxmemory", id="OOM", marks=pytest.mark.slow),
    ],
)
def test_a_target_that_refuses_half_way_is_one_error_and_the_rest_is_written_later(
    refuse: Callable[[redis.Redis], Callable[[], object]],
    said: str,
    engine: SparkEngine,
    server: Server,
    door: Gate,
    executor: Executor,
    source: Address,
    expected: dict[bytes, Entry],
) -> None:
    with server.client(DB) as client:
        client.acl_setuser("captain", enabled=True, passwords=["+s3kret"], keys=["*"], commands=["+@all"])
        target = Address.parse(door.url(DB, user="captain:s3kret"))
        hold = door.hold(batch(2))
        migrating = executor.submit(attempt, engine, source, target)
        hold.wait()
        mend = refuse(client)
        try:
            hold.release()
            failure = migrating.exception(TIMEOUT_SECONDS)
        finally:
            mend()
        assert isinstance(failure, ServerError)
        assert re.search(f"{said}.*--resume", str(failure))
        assert "s3kret" not in str(failure)
        with open_store(target) as opened:
            record = journal.find(opened, Plan.between(source, target, NOW))
        assert record is not None
        assert not record.finished
        assert 0 < len(keyspace(server)) < len(expected)
        attempt(engine, source, target)
        assert keyspace(server) == expected
        client.acl_deluser("captain")


def test_a_migration_of_an_earlier_version_is_refused_with_what_to_do(server: Server, source: Address) -> None:
    target = Address.parse(server.url(1))
    plan = Plan.between(source, target, NOW)
    with open_store(target) as opened:
        journal.begin(opened, source, target, plan, "spark/3", None)
    with pytest.raises(MigrationRefused, match=r"by an earlier version of ferryman \(spark/3\), .* then migrate again"):
        SparkEngine().migrate(source, target, plan, lambda _: None, resume=True)
