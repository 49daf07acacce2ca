"""The data source and the frames, as their users write them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
import redis
from attrs import evolve
from ferryman.migrations.engine.tables import FINDINGS, JOBS, Table
from ferryman.migrations.local import LocalEngine
from ferryman.migrations.plan import Plan
from ferryman.migrations.reading import BATCH
from ferryman.migrations.recheck import Recheck, open_recheck
from ferryman.schema.connection.address import Address
from ferryman.schema.job import State
from ferryman.schema.rule import Finding
from ferryman.spark import table_reader
from ferryman.spark.frames import read
from ferryman.spark.source import Ferryman
from ferryman.testing.keyspaces import dump
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit

from ..support.captures import Capture, capture, captures, load
from ..support.servers import Server

LOCAL = LocalEngine()


@pytest.fixture
def loaded(server: Server) -> Capture:
    """The capture with the most damage."""
    crashed = capture("kue", "crashed")
    load(crashed, server.client())
    return crashed


@pytest.fixture
def url(server: Server) -> str:
    return server.url(0, family="kue")


def table(spark: SparkSession, url: str, **options: Any) -> DataFrame:
    return spark.read.format("ferryman").options(url=url, **options).load()


def values(frame: DataFrame, row_table: Table[Any]) -> list[Any]:
    """The rows of a frame as the values that they were, in an order that depends on nothing else."""
    return sorted((value for batch in frame.toArrow().to_batches() for value in row_table.rows(batch)), key=repr)


def findings(url: str, now_ms: int) -> list[Finding]:
    """What the local engine finds."""
    found: list[Finding] = []
    LOCAL.audit(Address.parse(url), now_ms, found.append)
    return sorted(found, key=repr)


def test_the_table_jobs_is_what_the_local_engine_lists(spark: SparkSession, loaded: Capture, url: str) -> None:
    now = loaded.captured_at_ms
    assert values(table(spark, url, now=now), JOBS) == sorted(LOCAL.jobs(Address.parse(url), now), key=repr)


def test_jobs_that_tell_each_other_how_they_stand_are_read_so(spark: SparkSession, server: Server) -> None:
    crashed, url = capture("bee", "crashed"), server.url(0, family="bee")
    load(crashed, server.client())
    now = crashed.captured_at_ms
    assert values(table(spark, url, now=now), JOBS) == sorted(LOCAL.jobs(Address.parse(url), now), key=repr)
    assert values(table(spark, url, table="findings", now=now), FINDINGS) == findings(url, now)


def test_the_table_findings_is_what_the_local_engine_finds(spark: SparkSession, loaded: Capture, url: str) -> None:
    now = loaded.captured_at_ms
    assert values(table(spark, url, table="findings", now=now), FINDINGS) == findings(url, now)


def test_findings_about_jobs_are_looked_at_again(
    loaded: Capture, url: str, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Ferryman({"url": url, "table": "findings", "now": str(loaded.captured_at_ms)})

    def jobs_with_findings() -> set[str | None]:
        reader = source.reader(None)
        return {row["job_id"] for partition in reader.partitions() for rows in reader.read(partition) for row in rows.to_pylist()}

    def delete_and_recheck(*arguments: Any) -> AbstractContextManager[Recheck]:
        client.flushall()
        return open_recheck(*arguments)

    assert len(jobs_with_findings()) > 2
    monkeypatch.setattr(table_reader, "open_recheck", delete_and_recheck)
    assert jobs_with_findings() <= {None}


def test_frames_show_the_same_as_the_data_source(spark: SparkSession, loaded: Capture, url: str, server: Server) -> None:
    now = loaded.captured_at_ms
    keyspace = read(spark, url, now)
    facts, jobs = table(spark, url, table="facts").count(), sorted(LOCAL.jobs(Address.parse(url), now), key=repr)
    found = findings(url, now)
    server.client().flushall()  # frames don't ask the server again
    assert keyspace.facts().count() == facts
    assert values(keyspace.jobs(), JOBS) == jobs
    assert values(keyspace.findings(), FINDINGS) == found


READING = (b"HGETALL", b"HSCAN", b"HRANDFIELD")
"""Commands that read a whole hash."""


@pytest.mark.parametrize("options", [{"table": "entries", "fields": "*"}, {"table": "facts"}, {"table": "jobs"}], ids=repr)
def test_a_table_is_read_no_faster_than_its_throttle_allows(
    spark: SparkSession, server: Server, client: redis.Redis, options: dict[str, str]
) -> None:
    for number in range(4 * BATCH):
        client.hset(f"q:job:{number}", "type", "mail")
    before = client.config_get("slowlog-*")
    client.config_set("slowlog-log-slower-than", 0)
    client.config_set("slowlog-max-len", 100_000)
    client.slowlog_reset()
    try:
        assert table(spark, server.url(0, family="kue"), throttle=BATCH, **options).count()
        times = [each["start_time"] for each in client.slowlog_get(100_000) if each["command"].startswith(READING)]
    finally:
        client.config_set("slowlog-log-slower-than", before["slowlog-log-slower-than"])
        client.config_set("slowlog-max-len", before["slowlog-max-len"])
        client.slowlog_reset()
    # Four seconds less those after the last batch; times are whole seconds.
    assert len(times) == 4 * BATCH
    assert max(times) - min(times) >= 3


def test_keys_are_those_that_there_are(spark: SparkSession, url: str, client: redis.Redis) -> None:
    """Of the two locks that kue knows, which no pattern covers, one."""
    client.hset("q:job:1", "type", "mail")
    client.set("promotion:lock", "1")
    assert {bytes(row.key) for row in table(spark, url, table="keys").collect()} == {b"q:job:1", b"promotion:lock"}


@pytest.mark.usefixtures("loaded")
def test_keys_and_facts_name_every_key(spark: SparkSession, url: str, client: redis.Redis) -> None:
    keys = {bytes(row.key) for row in table(spark, url, table="keys", partitions=2).collect()}
    assert keys >= set(client.keys("q:*"))
    facts = {bytes(row.key) for row in table(spark, url, table="facts").select("key").distinct().collect()}
    assert facts == set(client.keys("*"))


@pytest.mark.parametrize("family", ["kue", "kombu"])
def test_the_table_totals_has_the_numbers_of_every_queue(spark: SparkSession, server: Server, family: str) -> None:
    """Counted by kue's indexes, and from the messages of kombu, whose lists don't tell."""
    healthy = capture(family, "healthy")
    load(healthy, server.client())
    url = server.url(0, family=family, prefix=healthy.prefix)
    now = healthy.captured_at_ms
    statuses = LOCAL.queues(Address.parse(url), now)
    assert sorted((row.queue, row.state, row["count"]) for row in table(spark, url, table="totals", now=now).collect()) == sorted(
        (status.queue, str(state), status.states[state]) for status in statuses for state in State
    )


def test_an_empty_keyspace_is_an_empty_table(spark: SparkSession, url: str) -> None:
    assert table(spark, url).count() == 0


def test_written_jobs_are_the_jobs_of_a_migration(spark: SparkSession, server: Server, url: str) -> None:
    healthy = next(each for each in captures("kue") if each.name == "healthy")
    load(healthy, server.client())
    source, target = Address.parse(url), Address.parse(server.url(1))
    LOCAL.migrate(source, target, Plan.between(source, target, healthy.captured_at_ms), lambda _: None)
    frame = table(spark, url, now=healthy.captured_at_ms)
    frame.write.format("ferryman").options(url=server.url(2)).mode("append").save()
    written = {job.id: job for job in LOCAL.jobs(Address.parse(server.url(2)), 0)}
    carried = {job.id: job for job in LOCAL.jobs(target, 0)}
    assert written.keys() == carried.keys()
    for job_id, job in carried.items():
        assert written[job_id].position == job.position
        assert evolve(written[job_id], extra={}) == evolve(job, extra={})


def test_nothing_of_a_write_is_left_but_the_jobs(spark: SparkSession, server: Server) -> None:
    frame = spark.createDataFrame([("1", "mail", "mail", "waiting")], "id string, queue string, name string, state string")
    for _ in range(2):
        frame.write.format("ferryman").options(url=server.url(1)).mode("append").save()
    assert not server.client(1).keys("ferryman-migration*")
    (job,) = LOCAL.jobs(Address.parse(server.url(1)), 0)
    assert (job.id, job.queue) == ("1", "mail")


def good(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([("1", "mail", "mail", "waiting")], "id string, queue string, name string, state string")


WRONG_FRAMES = {
    "column 'state' is missing": lambda frame: frame.drop("state"),
    "there is no column 'colour'": lambda frame: frame.withColumn("colour", lit("red")),
    "column 'created_at' must be bigint": lambda frame: frame.withColumn("created_at", lit("today")),
    "column 'queue' has a null": lambda frame: frame.withColumn("queue", lit(None).cast("string")),
    "'asleep' is not a valid State": lambda frame: frame.withColumn("state", lit("asleep")),
}


@pytest.mark.parametrize("message", WRONG_FRAMES)
def test_a_frame_that_is_no_table_of_jobs_is_refused_by_name(spark: SparkSession, server: Server, message: str) -> None:
    frame = WRONG_FRAMES[message](good(spark))
    with pytest.raises(Exception, match=message):
        frame.write.format("ferryman").options(url=server.url(1)).mode("append").save()
    assert dump(server.client(1)) == {}


def test_a_job_that_the_family_cannot_keep_fails_the_write_by_name(spark: SparkSession, server: Server) -> None:
    frame = good(spark).withColumn("payload", lit(b"\xff no JSON").cast("binary"))
    with pytest.raises(Exception, match="job 1 can't be stored: the payload is not JSON"):
        frame.write.format("ferryman").options(url=server.url(1, family="kue")).mode("append").save()


def test_jobs_are_never_overwritten_as_a_whole(spark: SparkSession, server: Server) -> None:
    with pytest.raises(Exception, match="jobs can only be added"):
        good(spark).write.format("ferryman").options(url=server.url(1)).mode("overwrite").save()


def wrong_options(server: Server) -> Iterator[tuple[dict[str, str], str]]:
    url = server.url(0)
    yield {}, "option 'url' is missing"
    yield {"url": url, "throttle": "slow"}, "option 'throttle' must be 'polite' or a whole number of keys a second, not 'slow'"
    yield (
        {"url": url, "tabel": "jobs"},
        "unknown option 'tabel'; known are: by, checksum, columns, fields, id, limit, name, now, ",
    )
    known = "jobs, findings, facts, keys, entries, totals, events"
    yield {"url": url, "table": "workers"}, f"there is no table 'workers'; there are: {known}"
    yield {"url": url, "checksum": "false"}, "option 'checksum' is for snapshot files; .* is a server"
    yield {"url": url, "checksum": "no"}, "option 'checksum' must be true or false, not 'no'"
    yield {"url": url, "path": f"{url}?family=kue"}, "the option 'url' names another keyspace than the path of load or save"
    yield {"url": url, "now": "today"}, "option 'now' must be a whole number"
    yield {"url": f"{url}?colour=red"}, "unknown parameter 'colour'"
    yield {"url": "ferryman://:sesame@127.0.0.1:1/0"}, "can't be reached"


def test_wrong_options_are_named_and_passwords_are_not(spark: SparkSession, server: Server) -> None:
    for options, message in wrong_options(server):
        with pytest.raises(Exception, match=message) as caught:
            spark.read.format("ferryman").options(**options).load().collect()
        assert "sesame" not in str(caught.value)


@pytest.mark.usefixtures("loaded")
def test_load_and_save_take_the_address(spark: SparkSession, server: Server, url: str) -> None:
    expected = values(table(spark, url, now=0), JOBS)
    assert values(spark.read.format("ferryman").option("now", 0).load(url), JOBS) == expected
    assert values(spark.read.format("ferryman").option("now", 0).option("url", url).load(url), JOBS) == expected
    spark.readStream.format("ferryman").option("table", "totals").load(url)
    good(spark).write.format("ferryman").mode("append").save(server.url(1))
    assert spark.read.format("ferryman").load(server.url(1)).count() == good(spark).count()
    with pytest.raises(Exception, match="load takes one URL"):
        spark.read.format("ferryman").load([url, server.url(1)]).count()


@pytest.mark.usefixtures("loaded")
def test_a_schema_chooses_columns_in_its_order(spark: SparkSession, url: str) -> None:
    whole = table(spark, url, now=0)
    some = spark.read.format("ferryman").option("now", 0).schema("state string, logs array<binary>, id string").load(url)
    assert some.columns == ["state", "logs", "id"]
    assert sorted(some.collect()) == sorted(whole.select("state", "logs", "id").collect())
    assert some.count() == whole.count()
    every = spark.read.format("ferryman").option("now", 0).schema(whole.schema).load(url)
    assert values(every, JOBS) == values(whole, JOBS)
    entries = {"table": "entries", "url": url}
    fields = spark.read.format("ferryman").schema("fields map<binary,binary>, key binary").options(**entries).load()
    assert fields.columns == ["fields", "key"]
    # Python gets no map with binary keys from Spark 4.0, which makes bytearrays of them.
    keys = [frame.select("key").toPandas()["key"] for frame in (fields, table(spark, **entries))]
    assert sorted(map(bytes, keys[0])) == sorted(map(bytes, keys[1]))
    picked = spark.read.format("ferryman").schema("type binary").options(**entries, fields="state,type").load()
    assert picked.columns == ["type"]
    assert picked.count() == table(spark, **entries, fields="*").count()


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("id string, colour string", "the table jobs has no column 'colour'; it has: id, queue, name, state"),
        ("id int", r"column 'id' of the table jobs is string, not int: \.schema\(…\) chooses columns and converts none"),
        ("error string not null", "column 'error' of the table jobs may be null; leave 'not null' out of the schema"),
    ],
)
def test_a_schema_that_the_table_has_not_is_refused_by_column(spark: SparkSession, url: str, schema: str, message: str) -> None:
    with pytest.raises(Exception, match=message):
        spark.read.format("ferryman").schema(schema).load(url).collect()


def test_a_plan_shows_no_password(spark: SparkSession, server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    table(spark, server.url(0).replace("//", "//:sesame@")).where(col("state") == "waiting").explain(True)
    assert "sesame" not in capsys.readouterr().out
