"""Dead letters, mended in a DataFrame and published: once, whatever is repeated."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import Celery
from ferryman.migrations.engine.tables import JOBS
from ferryman.migrations.local import LocalEngine
from ferryman.schema.connection.address import Address
from ferryman.schema.connection.call import run
from ferryman.schema.errors import UsageError
from ferryman.schema.job import State
from ferryman.schema.native.scripts.publication import Publication
from ferryman.schema.native.scripts.queue_scripts import QueueScripts
from ferryman.schema.native.task_message import task_message
from ferryman.spark.publish import Publisher
from ferryman.spark.source import Ferryman
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit, regexp_replace, udf, when
from pyspark.sql.types import BinaryType

from ..support.native import LEASE, ids
from ..support.servers import Server

SECONDS = 120
DAY = 86_400_000
SCRIPTS = QueueScripts("ferryman")
KEYS = SCRIPTS.keys("mail")


def send(client: redis.Redis, number: int) -> None:
    """A task that was published and died."""
    head = b'{"content-type":"application/json","headers":{"task":"mail.send","id":"t-%d"},"properties":{}}' % number
    message = Publication(f"p-{number}", head + b'\n[["ann@exmaple.org"],{},{}]')
    run(client, SCRIPTS.publish("mail", "p", [message], create=True))
    run(client, SCRIPTS.take("mail", "ann", 1, LEASE))
    run(client, SCRIPTS.reject("mail", "ann", message.id, "rejected", "no such domain"))


@pytest.fixture
def dead(client: redis.Redis) -> list[str]:
    """The ids of some dead letters."""
    client.sadd("ferryman:queues", "mail")
    for number in range(1, 8):
        send(client, number)
    return [f"p-{number}" for number in range(1, 8)]


def mended(spark: SparkSession, server: Server) -> DataFrame:
    letters = spark.read.format("ferryman").options(url=server.url(), state="failed", queue="mail").load()
    body = regexp_replace(col("payload").cast("string"), "exmaple", "example").cast("binary")
    return letters.withColumn("payload", body)


def publish(frame: DataFrame, server: Server, batch: str = "mended", **options: Any) -> None:
    frame.write.format("ferryman").options(url=server.url(), batch=batch, **options).mode("append").save()


def run_all(client: redis.Redis) -> list[str]:
    taken = ids(run(client, SCRIPTS.take("mail", "bob", 100, LEASE)))
    run(client, SCRIPTS.ack("mail", "bob", taken))
    return sorted(taken)


def test_mended_dead_letters_run_once(spark: SparkSession, server: Server, client: redis.Redis, dead: list[str]) -> None:
    frame = mended(spark, server)
    rows = spark.createDataFrame(frame.collect(), frame.schema)  # what is read again would be what is left
    publish(rows, server)
    assert not client.exists(KEYS.dead)
    assert client.hget(KEYS.job("p-1"), "message").endswith(b'\n[["ann@example.org"],{},{}]')
    publish(rows, server)
    assert run_all(client) == dead
    publish(rows.repartition(5), server)
    assert run_all(client) == []
    publish(rows, server, batch="once more")
    assert run_all(client) == dead


def test_a_worker_runs_what_was_mended(spark: SparkSession, server: Server, dead: list[str]) -> None:
    publish(mended(spark, server), server)
    app = Celery(broker=server.url())
    with app.connection() as connection, connection.SimpleQueue("mail") as queue:
        bodies = {json.dumps(queue.get(timeout=SECONDS).payload) for _ in dead}
    assert bodies == {'[["ann@example.org"], {}, {}]'}


def test_a_task_that_is_tried_again_publishes_nothing_twice(
    spark: SparkSession, server: Server, client: redis.Redis, dead: list[str], tmp_path: Path
) -> None:
    """The first attempt of each task dies when half of it is published, and workers take that at once."""
    flags = str(tmp_path)

    @udf(BinaryType())
    def fail_once(payload: bytes, partition: int, number: int) -> bytes:
        flag = Path(flags, str(partition))
        if number >= 2 and not flag.exists():
            flag.touch()
            raise ConnectionAbortedError
        return payload

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 1)
    try:
        frame = mended(spark, server)
        rows = spark.createDataFrame(frame.collect(), frame.schema).coalesce(2)
        rows = rows.selectExpr("*", "spark_partition_id() part", "cast(substr(id, 3) as int) % 4 number")
        publish(rows.withColumn("payload", fail_once("payload", "part", "number")).drop("part", "number"), server)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert list(tmp_path.iterdir())
    assert run_all(client) == dead


def test_two_attempts_of_a_task_publish_each_job_once(server: Server, client: redis.Redis, dead: list[str]) -> None:
    address = Address.parse(server.url())
    batch = JOBS.batch([job for job in LocalEngine().jobs(address, 0) if job.state is State.FAILED])
    publisher = Publisher(address, DAY)
    publisher.publish("b", [batch.slice(0, 4)])
    first = run_all(client)
    publisher.publish("b", [batch.slice(3), batch.slice(0, 5)])
    done = publisher.publish("b", [batch])
    assert first + run_all(client) == dead
    publisher.complete([done, None])
    publisher.publish("b", [batch])  # one that was given up and lives on
    assert run_all(client) == []


def stream(spark: SparkSession, folder: Path) -> DataFrame:
    """Jobs that are put into a folder as files."""
    return spark.readStream.schema("id string, queue string, name string, state string, payload binary").parquet(str(folder))


def drop(spark: SparkSession, folder: Path, *numbers: int) -> None:
    rows = [(f"s-{number}", "mail", "mail.send", "waiting", b'"ann"') for number in numbers]
    frame = spark.createDataFrame(rows, "id string, queue string, name string, state string, payload binary")
    frame.coalesce(1).write.mode("append").parquet(str(folder))


def test_a_stream_publishes_each_micro_batch_once(
    spark: SparkSession, server: Server, client: redis.Redis, tmp_path: Path
) -> None:
    run(client, SCRIPTS.declare("mail", {}))
    jobs, checkpoint = tmp_path / "jobs", tmp_path / "checkpoint"

    def run_query(wanted: Callable[[DataFrame], DataFrame] = lambda frame: frame) -> None:
        writer = wanted(stream(spark, jobs)).writeStream.format("ferryman").option("checkpointLocation", str(checkpoint))
        assert writer.trigger(availableNow=True).start(server.url()).awaitTermination(SECONDS)

    drop(spark, jobs, 1, 2)
    run_query()
    assert run_all(client) == ["s-1", "s-2"]
    drop(spark, jobs, 3, 4)
    with pytest.raises(StreamingQueryException, match="job s-4 can't be published: it is completed"):
        run_query(lambda frame: frame.withColumn("state", when(col("id") == "s-4", "completed").otherwise("waiting")))
    assert run_all(client) in ([], ["s-3"])
    run_query()
    run_query()
    left = run_all(client)
    assert left in (["s-3", "s-4"], ["s-4"])
    # The last micro-batch once more, as after a driver that died before its commit.
    for commit in (checkpoint / "commits").glob("*1*"):
        commit.unlink()
    run_query()
    assert run_all(client) == []


def test_jobs_without_a_message_become_tasks(spark: SparkSession, server: Server, client: redis.Redis) -> None:
    run(client, SCRIPTS.declare("mail", {}))
    rows = [
        ("1", "mail", "mail.send", "waiting", 3.0, b'{"to": "ann"}', None),
        ("2", "mail", "n", "scheduled", None, b"1", 1 << 44),
    ]
    schema = "id string, queue string, name string, state string, priority double, payload binary, due_at bigint"
    publish(spark.createDataFrame(rows, schema), server)
    taken = run(client, SCRIPTS.take("mail", "bob", 10, LEASE))
    (job,) = taken.jobs
    headers, _, body = task_message("1", "mail", "mail.send", b'{"to": "ann"}')
    head, _, stored = job.fields[b"message"].partition(b"\n")
    assert (json.loads(head)["headers"], stored) == (headers, body)
    assert client.zscore(KEYS.scheduled, "2") == 1 << 44


def wrong_frames() -> Iterator[tuple[dict[str, Any], str]]:
    yield {"queue": "nowhere"}, "there is no queue nowhere; declare it"
    yield {"state": "completed"}, "job 1 can't be published: it is completed; only cancelled, failed, scheduled, waiting jobs are"
    yield {"payload": b"\xff"}, "job 1 can't be published: .*; leave it out, or mend it"
    yield {"id": ""}, "a job has an empty id or queue"
    yield {"colour": "red"}, "there is no column 'colour' in the table jobs"


def test_what_can_not_be_published_is_refused_by_name(spark: SparkSession, server: Server, client: redis.Redis) -> None:
    run(client, SCRIPTS.declare("mail", {}))
    schema = "id string, queue string, name string, state string, payload binary"
    good = spark.createDataFrame([("1", "mail", "mail", "waiting", b"1")], schema)
    for wrong, message in wrong_frames():
        frame = good
        for name, value in wrong.items():
            frame = frame.withColumn(name, lit(value))
        with pytest.raises(Exception, match=message):
            publish(frame, server)
    assert run_all(client) == []


def test_wrong_options_are_named(server: Server) -> None:
    schema = Ferryman({"url": server.url()}).schema()
    assert isinstance(schema, str)
    from pyspark.sql.types import _parse_datatype_string

    frame = _parse_datatype_string(schema)
    for options, message in [
        ({"url": server.url(family="kue"), "batch": "b"}, "jobs are published to ferryman's own queues on a server"),
        ({"url": server.url(), "batch": ""}, "batch '' must be text without control characters"),
        ({"url": server.url(), "batch": "b", "lossy": "true"}, "option 'lossy' does not go with option 'batch'"),
        ({"url": server.url(), "batch": "b", "remember": "0"}, "option 'remember' must be a number of days above 0"),
    ]:
        with pytest.raises(UsageError, match=message):
            Ferryman(options).writer(frame, overwrite=False)
    with pytest.raises(UsageError, match=r"use \.outputMode"):
        Ferryman({"url": server.url()}).streamWriter(frame, overwrite=True)


@pytest.mark.usefixtures("dead")
def test_a_job_that_stands_in_its_queue_is_told(server: Server, client: redis.Redis) -> None:
    address = Address.parse(server.url())
    job = next(iter(LocalEngine().jobs(address, 0)))
    run(client, SCRIPTS.revive("mail", [job.id]))
    done = Publisher(address, DAY).publish("b", [JOBS.batch([job])])
    assert done.standing == (job.id,)
    assert run_all(client) == [job.id]
