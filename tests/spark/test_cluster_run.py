"""The command with a Spark cluster of a master and two workers, and what Spark tells others of a run: never a password."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from ferryman.compat.kue.generate import generate
from ferryman.migrations.local import LocalEngine
from ferryman.migrations.plan import Plan
from ferryman.schema.connection.address import Address
from ferryman.schema.family import get_family
from ferryman.testing.keyspaces import dump, store

from ..support.command import Outcome, ferryman, ferryman_process
from ..support.servers import Server, free_port
from ..support.standalone import Standalone, standalone

NOW = 1_795_262_676_000
PASSWORD = "swordfish-and-sesame"

SHOWN = f"""
import os
from ferryman.schema.connection.address import Address
from ferryman.schema.errors import FerrymanError
from ferryman.spark.engine import SparkEngine
from ferryman.spark.session import session
from ferryman.spark.source import Ferryman
from pyspark.errors import PySparkException

log = {{"spark.eventLog.enabled": "true", "spark.eventLog.dir": os.environ["EVENTS"], "spark.eventLog.compress": "false"}}
spark = session("local[1,1]", log)
spark.dataSource.register(Ferryman)
for name in ("URL", "WRONG", "GONE"):
    source = Address.parse(os.environ[name])
    frame = spark.read.format("ferryman").option("url", source.url()).load()
    frame.explain("extended")
    for count in (lambda: SparkEngine(spark).audit(source, {NOW}, lambda _: None).jobs, frame.count):
        try:
            print("counted", count())
        except (FerrymanError, PySparkException) as error:
            print(error)
"""


@pytest.fixture
def guarded(server: Server, client: redis.Redis) -> Iterator[Server]:
    """A kue keyspace behind a password."""
    store(client, get_family("kue"), "q", generate(300, 7, NOW))
    client.config_set("requirepass", PASSWORD)
    yield server
    client.config_set("requirepass", "")


def test_a_password_stands_in_no_plan_and_no_log_of_spark(guarded: Server, tmp_path: Path) -> None:
    """The plans, the event log with all properties, and every warning with its stack trace, of runs that succeed and fail."""
    url = f"ferryman://:{PASSWORD}@{guarded.host}:{guarded.port}/0?family=kue"
    addresses = {"URL": url, "WRONG": url.replace("-and-", "-but-"), "GONE": url.replace(str(guarded.port), str(free_port()))}
    done = subprocess.run(
        [sys.executable, "-c", SHOWN],
        capture_output=True,
        text=True,
        timeout=580,
        env={**os.environ, **addresses, "EVENTS": str(tmp_path), "FERRYMAN_DEBUG": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("counted 300\n") == 2
    for said in ("refuses the credentials", "can't be reached", "Parsed Logical Plan"):
        assert said in done.stdout
    events = "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    assert "SparkListenerEnvironmentUpdate" in events
    assert "SparkListenerSQLExecutionStart" in events
    for shown in (events, done.stdout, done.stderr):
        assert "swordfish" not in shown


# A cluster


def on(cluster: Standalone, work: Path, *arguments: str, cwd: Path | None = None) -> Outcome:
    """The command, with this cluster."""
    place = ["--engine", "spark", "--master", cluster.url, "--work", str(work), "--partitions", "4"]
    size = ["--conf", "spark.executor.memory=512m", "--conf", "spark.driver.memory=512m"]
    return ferryman_process(*arguments, *place, *size, "--format", "json", cwd=cwd, SPARK_LOCAL_IP="127.0.0.1")


@pytest.mark.slow
def test_audit_migrate_and_verify_give_what_the_local_engine_gives(
    cluster: Standalone, server: Server, client: redis.Redis, tmp_path: Path
) -> None:
    store(client, get_family("kue"), "q", generate(300, 7, NOW))
    client.hset("q:job:7", "state", "nowhere")
    source, targets = Address.parse(server.url(0, family="kue")), [Address.parse(server.url(db)) for db in (1, 2)]
    at = ("--now", str(NOW))
    audit = on(cluster, tmp_path, "audit", source.url(), *at)
    assert (audit.status, audit.stderr) == (1, "")
    assert sorted(audit.stdout.split("\n")) == sorted(ferryman("audit", source.url(), *at, "--format", "json").stdout.split("\n"))
    local = LocalEngine()
    local.migrate(source, targets[1], Plan.between(source, targets[1], NOW), lambda _: None)
    migrated = on(cluster, tmp_path, "migrate", source.url(), targets[0].url(), *at)
    assert (migrated.status, migrated.stderr) == (0, "")
    first, second = (
        {key: entry for key, entry in dump(server.client(db)).items() if not key.startswith(b"ferryman-migration:")}
        for db in (1, 2)
    )
    assert first == second
    verified = on(cluster, tmp_path, "verify", source.url(), targets[0].url(), *at)
    assert (verified.status, verified.stderr) == (0, "")
    assert verified.lines()[-1]["matched"] == migrated.lines()[-1]["written"] > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_folder_that_executors_do_not_share_is_refused(
    cluster: Standalone, server: Server, client: redis.Redis, tmp_path: Path
) -> None:
    """The driver's folder is found by the path of its working directory, so that executors look for it in their own."""
    store(client, get_family("kue"), "q", generate(10, 7, NOW))
    outcome = on(cluster, Path("/proc/self/cwd"), "audit", server.url(0, family="kue"), cwd=tmp_path)
    assert (outcome.status, outcome.stdout) == (2, "")
    assert "executors can't write to the driver's folder /proc/self/cwd/ferryman-" in outcome.error
    assert "let --work name one that all of them share" in outcome.error


# A cluster that is not there


def test_a_master_that_is_not_there_is_one_line_at_once(server: Server, client: redis.Redis) -> None:
    store(client, get_family("kue"), "q", generate(10, 7, NOW))
    master = f"spark://127.0.0.1:{free_port()}"
    outcome = ferryman_process("audit", server.url(0, family="kue"), "--engine", "spark", "--master", master)
    assert outcome.status == 3
    assert outcome.error.startswith(f"ferryman: {master}: no Spark master answers there")


@pytest.mark.slow
def test_a_cluster_without_workers_is_one_line(server: Server, client: redis.Redis, tmp_path: Path) -> None:
    store(client, get_family("kue"), "q", generate(10, 7, NOW))
    in_3_s = "from ferryman.spark import preflight; preflight.TIMEOUT_SECONDS = 3.0"  # instead of 5 minutes
    program = f"{in_3_s}; from ferryman.cli.main import main; main()"
    with standalone(tmp_path / "cluster", workers=0) as empty:
        done = subprocess.run(
            [sys.executable, "-c", program, "audit", server.url(0, family="kue"), "--engine", "spark", "--master", empty.url],
            capture_output=True,
            text=True,
            timeout=580,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
            check=False,
        )
    assert done.returncode == 3
    assert done.stderr.startswith(f"ferryman: {empty.url}: no executor has answered in 3 s")


def test_settings_are_written_as_names_and_values(server: Server) -> None:
    outcome = ferryman("audit", server.url(0, family="kue"), "--engine", "spark", "--conf", "executor.memory=4g")
    assert outcome.status == 2
    assert "--conf is written as spark.name=value" in outcome.error
