"""Some rows and columns of the data source's tables, by options and by filters that Spark pushes down where a setting lets it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis
from ferryman.migrations.engine.tables import JOBS
from ferryman.migrations.local import LocalEngine
from ferryman.schema.connection.address import Address
from ferryman.schema.family import get_family
from ferryman.schema.job import Job, State
from ferryman.spark.row_filter import Condition, RowFilter
from ferryman.spark.table_reader import takes_filters
from ferryman.testing.keyspaces import store
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import datasource as spark_api
from pyspark.sql.functions import col

from ..support.captures import capture, load
from ..support.servers import Server

NOW = 1_795_262_676_000
SETTING = "spark.sql.python.filterPushdown.enabled"
PUSHES = hasattr(spark_api, "EqualTo")
"""Whether this Spark has filters to push down."""


@pytest.fixture
def jobs(server: Server, client: redis.Redis) -> list[Job]:
    """A keyspace of kue, and all of its jobs."""
    family = get_family("kue")
    store(client, family, "q", list(family.generate(300, 5, NOW)), NOW)
    return list(LocalEngine().jobs(Address.parse(server.url(family="kue")), NOW))


def table(spark: SparkSession, server: Server, **options: Any) -> DataFrame:
    return spark.read.format("ferryman").options(url=server.url(family="kue"), now=NOW, **options).load()


def values(frame: DataFrame) -> list[Job]:
    return sorted((job for batch in frame.toArrow().to_batches() for job in JOBS.rows(batch)), key=repr)


@contextmanager
def pushdown(spark: SparkSession, *, enabled: bool) -> Iterator[None]:
    """The setting of Spark."""
    before = spark.conf.get(SETTING, "false")
    spark.conf.set(SETTING, str(enabled).lower())
    try:
        yield
    finally:
        spark.conf.set(SETTING, before)


def commands(client: redis.Redis) -> int:
    return sum(stats["calls"] for name, stats in client.info("commandstats").items() if not name.startswith("cmdstat_config"))


WHERE: dict[str, Callable[[Job], tuple[Column, Callable[[Job], bool]]]] = {
    "an id": lambda job: (col("id") == job.id, lambda each: each.id == job.id),
    "some ids in a state": lambda job: (
        col("id").isin(job.id, "1", "2", "none") & (col("state") == job.state),
        lambda each: each.id in (job.id, "1", "2") and each.state is job.state,
    ),
    "a queue and two states": lambda job: (
        (col("queue") == job.queue) & col("state").isin("failed", "waiting"),
        lambda each: each.queue == job.queue and each.state in (State.FAILED, State.WAITING),
    ),
    "times and a name": lambda job: (
        (col("created_at") >= job.created_at) & col("finished_at").isNotNull() & ~(col("name") == "nothing"),
        lambda each: each.created_at >= job.created_at and each.finished_at is not None and each.name != "nothing",
    ),
    "what can't be pushed": lambda job: (
        (col("id") == job.id) | col("queue").like("%a%"),
        lambda each: each.id == job.id or "a" in each.queue,
    ),
}


@pytest.mark.parametrize("enabled", [False, True])
def test_where_gives_the_same_jobs_with_and_without_the_setting(
    spark: SparkSession, server: Server, jobs: list[Job], enabled: bool
) -> None:
    with pushdown(spark, enabled=enabled):
        finished = next(job for job in jobs if job.finished_at is not None)
        for make in WHERE.values():
            where, is_wanted = make(finished)
            expected = sorted(filter(is_wanted, jobs), key=repr)
            assert expected
            assert values(table(spark, server).where(where)) == expected
        assert table(spark, server, table="findings").where("severity = 'error'").count() == 0


@pytest.mark.skipif(not PUSHES, reason="Spark pushes filters since 4.1")
def test_a_pushed_id_is_all_that_is_read(spark: SparkSession, server: Server, client: redis.Redis, jobs: list[Job]) -> None:
    with pushdown(spark, enabled=True):
        frame = table(spark, server).where(col("id") == jobs[0].id)
        client.config_resetstat()
        assert values(frame) == [jobs[0]]
        assert commands(client) < 200


def test_an_option_names_jobs_where_nothing_is_pushed(
    spark: SparkSession, server: Server, client: redis.Redis, jobs: list[Job]
) -> None:
    client.config_resetstat()
    assert values(table(spark, server, id=jobs[0].id)) == [jobs[0]]
    assert commands(client) < 200
    both = f'["{jobs[0].id}", "{jobs[-1].id}"]'
    assert values(table(spark, server, id=both)) == sorted([jobs[0], jobs[-1]], key=repr)
    assert values(table(spark, server, id=both, name=jobs[0].name, state=jobs[0].state, queue=jobs[0].queue)) == [
        job for job in [jobs[0], jobs[-1]] if (job.name, job.state, job.queue) == (jobs[0].name, jobs[0].state, jobs[0].queue)
    ]


def test_jobs_of_a_queue_come_from_indexes_where_that_is_asked_for(spark: SparkSession, server: Server, jobs: list[Job]) -> None:
    queue = jobs[0].queue
    expected = [job for job in jobs if job.queue == queue and job.state in (State.WAITING, State.FAILED)]
    options = {"queue": queue, "state": '["waiting", "failed"]'}
    assert values(table(spark, server, **options)) == sorted(expected, key=repr)
    assert values(table(spark, server, by="index", **options)) == sorted(expected, key=repr)
    assert values(table(spark, server, by="index")) == sorted(jobs, key=repr)
    with pytest.raises(Exception, match="option 'by' can't be index: not all of these jobs stand in one"):
        spark.read.format("ferryman").options(url=server.url(family="pjq"), by="index").load().collect()


def test_a_limit_reads_no_more_than_it_needs(spark: SparkSession, server: Server, client: redis.Redis, jobs: list[Job]) -> None:
    client.config_resetstat()
    some = values(table(spark, server, limit=2))
    assert len(some) == 2
    assert set(map(repr, some)) <= set(map(repr, jobs))
    assert client.info("commandstats").get("cmdstat_scan", {}).get("calls", 0) == 0
    assert len(values(table(spark, server, limit=10_000))) == len(jobs)
    assert table(spark, server, limit=0).count() == 0
    failed = [job for job in jobs if job.state is State.FAILED]
    assert len(values(table(spark, server, limit=len(failed) + 1, state="failed"))) == len(failed)


@pytest.mark.usefixtures("jobs")
def test_a_limit_comes_before_a_filter_whether_or_not_that_is_pushed(spark: SparkSession, server: Server) -> None:
    for enabled in (False, True):
        with pushdown(spark, enabled=enabled):
            limited = table(spark, server, limit=3)
            ids = [row.id for row in limited.collect()]
            assert limited.where(f"id = '{ids[-1]}'").count() == 1
            assert limited.where(~col("id").isin(ids)).count() == 0


def test_columns_are_chosen_by_an_option_too(spark: SparkSession, server: Server, jobs: list[Job]) -> None:
    some = table(spark, server, columns="state, id,logs")
    assert some.columns == ["state", "id", "logs"]
    assert sorted((row.id, row.state) for row in some.collect()) == sorted((job.id, job.state) for job in jobs)
    options = f"url '{server.url(family='kue')}', columns 'queue', state 'failed'"
    spark.sql(f"CREATE OR REPLACE TEMP VIEW few USING ferryman OPTIONS ({options})")
    assert spark.sql("SELECT * FROM few").count() == sum(job.state is State.FAILED for job in jobs)
    assert table(spark, server, table="entries", columns="key").columns == ["key"]


def test_ids_that_are_no_utf8_are_found(spark: SparkSession, server: Server, client: redis.Redis) -> None:
    client.hset(b"q:job:\xff", mapping={b"type": b"mail", b"state": b"failed"})
    everything = spark.read.format("ferryman").options(url=server.url(family="kue"), now=NOW).load()
    for row in everything.collect():
        found = table(spark, server, id=row.id).collect()
        assert [each.id for each in found] == [row.id]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"id": '["1"'}, "option 'id' must be one text, or several as a JSON list"),
        ({"state": "asleep"}, "option 'state' names no state: 'asleep'; there are: "),
        ({"table": "keys", "queue": "mail"}, "option 'queue' goes with the table jobs alone"),
        ({"table": "facts", "limit": 3}, "option 'limit' goes with the tables jobs, findings and totals"),
        ({"limit": "few"}, "option 'limit' must be a whole number"),
        ({"columns": "id,colour"}, "option 'columns': the table jobs has no column 'colour'; it has: id, queue"),
        ({"columns": "id,id"}, "option 'columns' names 'id' twice"),
    ],
)
def test_what_can_not_be_is_refused_by_name(spark: SparkSession, server: Server, options: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message):
        table(spark, server, **options).collect()


def test_an_id_of_a_damaged_keyspace_is_read_as_all_are(spark: SparkSession, server: Server, client: redis.Redis) -> None:
    crashed = capture("kue", "crashed")
    load(crashed, client)
    everything = {job.id: job for job in values(table(spark, server))}
    some = sorted(everything)[::7]
    ids = "[" + ", ".join(f'"{each}"' for each in some) + "]"
    assert values(table(spark, server, id=ids)) == sorted((everything[each] for each in some), key=repr)


# The filter itself


@pytest.mark.skipif(not PUSHES, reason="Spark has filters since 4.1")
def test_filters_say_of_a_null_what_spark_says() -> None:
    api: Any = spark_api
    path = ("error",)
    job = Job("1", "mail", "mail", State.FAILED)
    filters = [
        api.EqualTo(path, "x"),
        api.Not(api.EqualTo(path, "x")),
        api.In(path, ["x", "y"]),
        api.Not(api.In(path, ["x"])),
        api.StringStartsWith(path, ""),
        api.GreaterThan(path, ""),
        api.IsNotNull(path),
        api.Not(api.IsNull(path)),
    ]
    for each in filters:
        wanted, others = RowFilter().push([each], JOBS)
        assert not others
        assert not wanted.test_of(JOBS)(job)
    for each in (api.IsNull(path), api.EqualNullSafe(path, None), api.Not(api.IsNotNull(path))):
        wanted, others = RowFilter().push([each], JOBS)
        assert not others
        assert wanted.test_of(JOBS)(job)


@pytest.mark.skipif(not PUSHES, reason="Spark has filters since 4.1")
def test_what_is_no_condition_is_left_to_spark() -> None:
    api: Any = spark_api
    left = [
        api.EqualTo(("priority",), 1.0),
        api.EqualTo(("logs",), []),
        api.EqualTo(("a", "b"), "x"),
        api.In(("id",), ["x", None]),
        api.EqualTo(("created_at",), "today"),
        api.Not(api.EqualNullSafe(("error",), "x")),
    ]
    wanted, others = RowFilter().push([api.EqualTo(("id",), "7"), *left], JOBS)
    assert others == left
    assert wanted.conditions == (Condition("id", "EqualTo", "7"),)
    limited, others = RowFilter(limit=3).push(left, JOBS)
    assert (limited, others) == (RowFilter(limit=3), left)


def test_only_the_program_that_asks_for_filters_gets_a_reader_of_them() -> None:
    assert not takes_filters()
