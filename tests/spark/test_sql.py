"""Spark SQL: a keyspace as a view, with nothing but SQL text."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis
from ferryman.migrations.local import LocalEngine
from ferryman.schema.connection.address import Address
from ferryman.schema.job import State
from pyspark.sql import Row, SparkSession

from ..support.captures import Capture, capture, load
from ..support.servers import Server

View = Callable[[str, str], None]
"""Makes a temporary view of a table of the keyspace: its name, and the table's."""


@pytest.fixture
def crashed(client: redis.Redis) -> Capture:
    loaded = capture("kue", "crashed")
    load(loaded, client)
    return loaded


@pytest.fixture
def url(server: Server) -> str:
    return server.url(family="kue")


@pytest.fixture
def view(spark: SparkSession, crashed: Capture, url: str) -> Iterator[View]:
    made = []

    def make(name: str, table: str) -> None:
        options = f"url '{url}', table '{table}', now '{crashed.captured_at_ms}'"
        spark.sql(f"CREATE TEMP VIEW {name} USING ferryman OPTIONS ({options})")
        made.append(name)

    yield make
    for name in made:
        spark.sql(f"DROP VIEW {name}")


def select(spark: SparkSession, text: str) -> list[Row]:
    return spark.sql(text).collect()


def test_the_jobs_of_a_keyspace_are_a_view(spark: SparkSession, view: View, crashed: Capture, url: str) -> None:
    view("jobs", "jobs")
    waits = f"state = 'waiting' OR state = 'scheduled' AND due_at <= {crashed.captured_at_ms}"
    found = select(spark, f"SELECT queue, count(*) AS jobs FROM jobs WHERE {waits} GROUP BY queue ORDER BY queue")
    statuses = LocalEngine().queues(Address.parse(url), crashed.captured_at_ms)
    waiting = [(status.queue, status.states[State.WAITING]) for status in statuses]
    assert [(row.queue, row.jobs) for row in found] == [(queue, number) for queue, number in waiting if number]


def test_findings_and_jobs_can_be_joined(spark: SparkSession, view: View) -> None:
    view("jobs", "jobs")
    view("findings", "findings")
    found = select(spark, "SELECT rule, id FROM findings JOIN jobs ON id = job_id WHERE severity = 'error'")
    damaged = select(spark, "SELECT rule, job_id FROM findings WHERE severity = 'error' AND job_id IN (SELECT id FROM jobs)")
    assert found
    assert {(row.rule, row.id) for row in found} == {(row.rule, row.job_id) for row in damaged}


def test_a_plan_of_a_view_shows_no_password(spark: SparkSession, url: str) -> None:
    secret = url.replace("//", "//:sesame@")
    (row,) = select(spark, f"EXPLAIN EXTENDED CREATE TEMP VIEW hidden USING ferryman OPTIONS (url '{secret}')")
    assert "sesame" not in row.plan
