"""With a work folder in an object store Spark gives what it gives with a path, goes on where a run was killed, and leaves nothing
behind: on this machine, and on a cluster whose workers share nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from ferryman.compat.kue.generate import generate
from ferryman.migrations.engine.process_engine import ProcessEngine
from ferryman.migrations.plan import Plan
from ferryman.migrations.throttle import UNTHROTTLED
from ferryman.schema.connection.address import Address
from ferryman.schema.errors import UsageError
from ferryman.schema.family import get_family
from ferryman.spark import frames
from ferryman.spark.engine import SparkEngine
from ferryman.spark.stream import EventsStream, PollOptions
from ferryman.testing.keyspaces import store
from pyspark.sql import SparkSession

from ..migrations.test_same_results import keyspace
from ..support.command import PROGRAM, ferryman, ferryman_process
from ..support.gate import gate
from ..support.object_store import ObjectStore, object_store
from ..support.servers import Server
from ..support.standalone import Standalone

NOW = 1_795_262_676_000
WORK = "s3://bucket/work"


@pytest.fixture(scope="module")
def engine(engine_in_bucket: SparkEngine) -> SparkEngine:
    return engine_in_bucket


@pytest.fixture(autouse=True)
def _nothing_is_left(objects: ObjectStore) -> Iterator[None]:
    yield
    assert objects.names() == []


def test_what_is_written_is_what_processes_write(engine: SparkEngine, server: Server, client: redis.Redis) -> None:
    store(client, get_family("kue"), "q", generate(2000, 7, NOW), NOW)
    client.hset("q:job:7", "state", "nowhere")
    source = Address.parse(server.url(family="kue"))
    targets = [Address.parse(server.url(db)) for db in (1, 2)]
    for target, each in zip(targets, (engine, ProcessEngine(tasks=3)), strict=True):
        each.migrate(source, target, Plan.between(source, target, NOW), lambda _: None)
    assert keyspace(server, 1) == keyspace(server, 2)
    assert len(keyspace(server, 1)) > 1000


def test_a_killed_run_is_gone_on_with_from_what_it_has_read(
    engine: SparkEngine, objects: ObjectStore, server: Server, client: redis.Redis
) -> None:
    store(client, get_family("kue"), "q", generate(1800, 7, NOW), NOW)
    source, undisturbed = Address.parse(server.url(family="kue")), Address.parse(server.url(1))
    ProcessEngine(tasks=3).migrate(source, undisturbed, Plan.between(source, undisturbed, NOW), lambda _: None)
    options = ["--engine", "spark", "--partitions", "3", "--now", str(NOW), "--work", WORK]
    with gate(server) as door:
        target = Address.parse(door.url(2))
        hold = door.hold(lambda transaction, count: count == 4 and b":part:sound-" in transaction)
        command = [*PROGRAM, "migrate", source.url(), target.url(), *options]
        with subprocess.Popen(command, env={**os.environ, **objects.environment}) as driver:
            hold.wait()
            driver.send_signal(signal.SIGKILL)
        assert keyspace(server, 2) != keyspace(server, 1)
        assert any(name.endswith("/source/complete") for name in objects.names())
        # Nobody can read the source again.
        client.flushdb()
        summary = engine.migrate(source, target, Plan.between(source, target, NOW), lambda _: None, resume=True)
        hold.release()
    assert 0 < summary.written < 1800
    assert keyspace(server, 2) == keyspace(server, 1)


# What is refused


def test_a_bucket_that_is_not_there_is_named_before_spark_starts(
    objects: ObjectStore, server: Server, client: redis.Redis
) -> None:
    store(client, get_family("kue"), "q", generate(10, 7, NOW), NOW)
    options = ["--engine", "spark", "--work", "s3://nobody/work"]
    outcome = ferryman_process("audit", server.url(family="kue"), *options, **objects.environment)
    assert outcome.status == 2
    assert outcome.error.startswith(
        "ferryman: s3://nobody/work: no folder can be made there (there is no such bucket); let --work"
    )


def test_passwords_in_the_url_are_refused_and_not_shown(server: Server, client: redis.Redis) -> None:
    store(client, get_family("kue"), "q", generate(10, 7, NOW), NOW)
    outcome = ferryman("audit", server.url(family="kue"), "--engine", "spark", "--work", "s3://ann:sw0rd@bucket/work")
    assert outcome.status == 2
    assert "the URL of a work folder holds no password or key" in outcome.error
    assert "sw0rd" not in outcome.error


def test_tables_and_streams_take_a_path_alone(spark: SparkSession, server: Server) -> None:
    with pytest.raises(UsageError, match=f"{WORK}: tables are in files that Spark itself reads"):
        frames.read(spark, server.url(family="kue"), work=WORK)
    polling = PollOptions(Address.parse(server.url(family="kue")), 1000, 1.0, UNTHROTTLED)
    with pytest.raises(UsageError, match="option 'state' must be a path that driver and executors share, not s3://"):
        EventsStream(polling, WORK, silently=False)


# A cluster


def of_executors(environment: dict[str, str]) -> list[str]:
    """What executors have in their environment, as the options of a command."""
    return [word for name, value in environment.items() for word in ("--conf", f"spark.executorEnv.{name}={value}")]


@pytest.mark.slow
def test_workers_that_share_nothing_else_carry_a_keyspace(
    cluster: Standalone, objects: ObjectStore, server: Server, client: redis.Redis, tmp_path: Path
) -> None:
    store(client, get_family("kue"), "q", generate(300, 7, NOW), NOW)
    source, targets = Address.parse(server.url(family="kue")), [Address.parse(server.url(db)) for db in (1, 2)]
    ProcessEngine(tasks=3).migrate(source, targets[0], Plan.between(source, targets[0], NOW), lambda _: None)
    size = ["--conf", "spark.executor.memory=512m", "--conf", "spark.driver.memory=512m", *of_executors(objects.environment)]
    place = ["--engine", "spark", "--master", cluster.url, "--work", WORK, "--partitions", "4", "--now", str(NOW), *size]
    here = {**objects.environment, "SPARK_LOCAL_IP": "127.0.0.1", "TMPDIR": str(tmp_path)}
    migrated = ferryman_process("migrate", source.url(), targets[1].url(), *place, "--format", "json", **here)
    assert (migrated.status, migrated.stderr) == (0, "")
    assert keyspace(server, 1) == keyspace(server, 2)
    verified = ferryman_process("verify", source.url(), targets[1].url(), *place, "--format", "json", **here)
    assert (verified.status, verified.stderr) == (0, "")
    assert verified.lines()[-1]["matched"] == migrated.lines()[-1]["written"] > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_executors_that_find_another_store_are_refused(
    cluster: Standalone, objects: ObjectStore, server: Server, client: redis.Redis
) -> None:
    store(client, get_family("kue"), "q", generate(10, 7, NOW), NOW)
    size = ["--conf", "spark.executor.memory=512m", "--conf", "spark.driver.memory=512m"]
    with object_store() as another:
        place = ["--engine", "spark", "--master", cluster.url, "--work", WORK, *size, *of_executors(another.environment)]
        here = {**objects.environment, "SPARK_LOCAL_IP": "127.0.0.1"}
        outcome = ferryman_process("audit", server.url(family="kue"), *place, **here)
        assert another.names() == []
    assert outcome.status == 2
    assert f"executors can't write to the driver's folder {WORK}/ferryman-" in outcome.error
    assert "let --work name one that all of them share" in outcome.error
