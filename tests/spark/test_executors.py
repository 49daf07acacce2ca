"""Faults that only executors meet: one line on the driver that names the range or part and the machine, and no half a result.

Tasks run in processes of their own, which have neither the driver's later environment nor its later folder: what a test sets in
the driver alone is missing where the work is done, as on a cluster's other machines.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from ferryman.compat.kue.generate import generate
from ferryman.migrations.engine import Progress, silent
from ferryman.migrations.throttle import Throttle
from ferryman.schema.connection.address import Address
from ferryman.schema.errors import FerrymanError, ServerError, UsageError
from ferryman.schema.family import get_family
from ferryman.schema.rule import Finding
from ferryman.spark.engine import SparkEngine
from ferryman.spark.failures import named_error
from ferryman.spark.runner import SparkRunner
from ferryman.testing.keyspaces import store
from pyspark.sql import SparkSession

from ..conftest import SERVERS
from ..support.proxy import proxy
from ..support.servers import Server
from ..support.topologies import Watched, watched

NOW = 1_795_262_676_000
JOBS = 1500
HERE = rf"on {socket.gethostname()}\]$"


@pytest.fixture
def guarded(server: Server, client: redis.Redis) -> Iterator[Server]:
    """A kue keyspace that the user ``auditor`` may read with the password ``sesame``."""
    store(client, get_family("kue"), "q", generate(100, 7, NOW))
    client.execute_command("ACL", "SETUSER", "auditor", "reset", "on", "~*", "+@all", ">sesame")
    yield server
    client.execute_command("ACL", "DELUSER", "auditor")


def address_of(server: Server, query: str) -> Address:
    return Address.parse(f"ferryman://auditor@{server.host}:{server.port}/0?family=kue&{query}")


def failure(engine: SparkEngine, source: Address, progress: Progress = silent) -> FerrymanError:
    """The error with which an audit ends. Nothing may have been reported by then."""
    reported: list[Finding] = []
    with pytest.raises(FerrymanError) as caught:
        engine.audit(source, NOW, reported.append, progress)
    assert reported == []
    assert "\n" not in str(caught.value)
    return caught.value


def says(error: FerrymanError, pattern: str) -> bool:
    return re.search(pattern, str(error)) is not None


# Credentials


def test_a_password_that_only_the_driver_has_is_named_with_the_range(
    engine: SparkEngine, guarded: Server, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("QUEUE_PASSWORD", "sesame")
    error = failure(engine, address_of(guarded, "password_env=QUEUE_PASSWORD"))
    assert isinstance(error, UsageError)
    assert says(
        error,
        r"the environment variable 'QUEUE_PASSWORD' \(password_env\) is not set on \S+ \[scanning range 1 of 1 of ferryman://",
    )
    assert says(error, HERE)
    assert capfd.readouterr() == ("", "")


def test_a_password_that_is_wrong_on_executors_is_refused_and_not_shown(
    engine: SparkEngine, spark: SparkSession, guarded: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUEUE_PASSWORD", "sesame")
    monkeypatch.setitem(spark.sparkContext.environment, "QUEUE_PASSWORD", "swordfish")
    error = failure(engine, address_of(guarded, "password_env=QUEUE_PASSWORD"))
    assert isinstance(error, ServerError)
    assert says(error, r"the server refuses the credentials .*\[scanning range 1 of 1 of ")
    assert "swordfish" not in str(error)


# Reaching the server


def test_a_server_that_only_the_driver_reaches_is_named_with_the_range(
    engine: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with SERVERS[0].start(tmp_path, "--unixsocket", str(tmp_path / "redis.sock")) as local:
        store(local.client(), get_family("kue"), "q", generate(10, 7, NOW))
        monkeypatch.chdir(tmp_path)
        source = Address.parse("ferryman+unix:///proc/self/cwd/redis.sock?family=kue")
        error = failure(engine, source)
    assert isinstance(error, ServerError)
    assert says(error, r"can't be reached .*\[scanning range 1 of 1 of ferryman\+unix:///proc/self/cwd/redis.sock")
    assert says(error, HERE)
    assert capfd.readouterr() == ("", "")


@pytest.fixture
def slow_engine(spark: SparkSession) -> SparkEngine:
    """An engine that reads for some seconds."""
    return SparkEngine(spark, tasks=3, throttle=Throttle(1000))


def is_being_read(server: Server) -> bool:
    """Whether tasks have begun to read the values of keys."""
    with server.client() as client:
        return "cmdstat_pttl" in client.info("commandstats")


def test_a_server_that_is_replaced_while_it_is_read_is_an_error_and_not_half_a_result(
    slow_engine: SparkEngine, tmp_path: Path
) -> None:
    """The new server is there at once, so that every task that is tried again succeeds, and finds nothing."""
    with contextlib.ExitStack() as stack:
        for name in ("old", "new"):
            (tmp_path / name).mkdir()
        old, new = (stack.enter_context(SERVERS[0].start(tmp_path / name)) for name in ("old", "new"))
        between = stack.enter_context(proxy(old))
        store(old.client(), get_family("kue"), "q", generate(JOBS, 7, NOW))
        old.client().config_resetstat()

        def replace(_phase: str, _done: int, _total: int | None) -> None:
            if between.server is old and is_being_read(old):
                between.server = new
                between.break_all()

        error = failure(slow_engine, Address.parse(between.url(family="kue")), replace)
        assert between.server is new
    assert isinstance(error, ServerError)
    assert says(error, "the server was restarted or failed over while it was read, so keys may be missing; try again")


@pytest.mark.slow
def test_a_failover_while_a_keyspace_is_read_is_an_error(slow_engine: SparkEngine, tmp_path: Path) -> None:
    with watched(SERVERS[0], tmp_path) as group:
        master = group.master()
        store(master.server.client(), get_family("kue"), "q", generate(JOBS, 7, NOW))
        group.wait_until_replicated()
        master.server.client().config_resetstat()

        def fail_over(_phase: str, _done: int, _total: int | None) -> None:
            if master.process is not None and is_being_read(master.server):
                kill(group)

        error = failure(slow_engine, Address.parse(group.url(family="kue")), fail_over)
        assert master.process is None
    assert isinstance(error, ServerError)
    assert says(error, r"restarted or failed over|can't be reached")


def kill(group: Watched) -> None:
    """Kills the master, and returns when another one has taken over."""
    master = group.master()
    master.kill()
    group.wait_for_another_master(master)


# Executors themselves


def test_tasks_whose_process_dies_every_time_are_one_line(spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
    def die(_part: int) -> str:
        os._exit(9)

    with pytest.raises(ServerError) as caught:
        SparkRunner(spark).run(die, 1, "dying")
    assert str(caught.value).startswith("Spark gave up: Job aborted due to stage failure: Task ")
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_a_module_that_executors_lack_is_named(spark: SparkSession) -> None:
    def import_it(_part: int) -> str:
        import no_such_module  # type: ignore[import-not-found]  # noqa: F401

        return ""

    with pytest.raises(UsageError, match=r"has no module 'no_such_module': install ferryman\[spark\] there"):
        SparkRunner(spark).run(import_it, 1, "importing")


def test_a_spark_that_stops_at_its_start_is_one_line() -> None:
    text = "An error occurred while calling None.SparkSession.\n: java.lang.IllegalStateException: It has been stopped.\n\tat …"
    assert str(named_error(text)) == "Spark gave up: java.lang.IllegalStateException: It has been stopped."


def test_another_python_is_named() -> None:
    text = "PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11"
    assert str(named_error(text)).endswith("Python in worker has different version: 3.12 than that in driver: 3.11")


def test_a_mistake_in_a_task_is_not_passed_off_as_a_fault_of_the_server() -> None:
    assert named_error("PythonException: Traceback (most recent call last):\n  …\nKeyError: 'x'") is None
