"""Streams as their users write them: queries with checkpoints, started and stopped, on servers that change meanwhile."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from attrs import define, field
from ferryman.compat.kue.keys import padded
from ferryman.migrations.throttle import UNTHROTTLED
from ferryman.schema.connection.address import Address
from ferryman.schema.connection.call import run
from ferryman.schema.errors import ServerError, UsageError
from ferryman.schema.family import get_family
from ferryman.schema.job import Job, State
from ferryman.schema.native.scripts.queue_scripts import QueueScripts
from ferryman.spark.poll import totals as queue_totals
from ferryman.spark.read_limits import HAS_READ_LIMITS
from ferryman.spark.source import Ferryman
from ferryman.spark.stream import PollOptions
from ferryman.testing.keyspaces import store
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StreamingQuery

from ..conftest import SERVERS
from ..support.native import LEASE, jobs
from ..support.servers import Server, free_port
from ..support.topologies import durable

NOW = 1_795_262_676_000
SECONDS = 120
"""Longest wait for what Spark does at once."""

SCRIPTS = QueueScripts("ferryman")


@define
class Watcher:
    """A query over a stream, and what its batches have brought."""

    spark: SparkSession
    folder: Path
    options: dict[str, Any]
    batches: list[tuple[int, list[Row]]] = field(factory=list)
    arrived: queue.Queue[list[Row]] = field(factory=queue.Queue)

    def start(self, **trigger: Any) -> StreamingQuery:
        frame = self.spark.readStream.format("ferryman").options(every="0", **self.options).load()
        writer = frame.writeStream.foreachBatch(self._take).option("checkpointLocation", str(self.folder / "checkpoint"))
        return writer.trigger(**trigger).start()

    def poll(self) -> list[Row]:
        """A query that makes one poll and ends; the next one goes on from the checkpoint."""
        query = self.start(availableNow=True)
        assert query.awaitTermination(SECONDS)
        return self.batches[-1][1]

    def batch(self) -> list[Row]:
        """The first micro-batch of a query that fails at its second one."""

        def take(frame: DataFrame, number: int) -> None:
            if self.batches:
                raise ConnectionAbortedError
            self._take(frame, number)

        frame = self.spark.readStream.format("ferryman").options(every="0", **self.options).load()
        writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(self.folder / "checkpoint"))
        with pytest.raises(StreamingQueryException, match="ConnectionAbortedError"):
            writer.trigger(availableNow=True).start().awaitTermination(SECONDS)
        return self.batches[-1][1]

    def _take(self, frame: DataFrame, number: int) -> None:
        rows = frame.collect()
        self.batches.append((number, rows))
        self.arrived.put(rows)


@pytest.fixture
def totals(spark: SparkSession, server: Server, tmp_path: Path) -> Watcher:
    return Watcher(spark, tmp_path, {"url": server.url(), "table": "totals"})


@pytest.fixture
def events(spark: SparkSession, server: Server, tmp_path: Path) -> Watcher:
    """Of a kue keyspace; its state is in the checkpoint's folder, as the documentation advises."""
    state = str(tmp_path / "checkpoint" / "ferryman")
    return Watcher(spark, tmp_path, {"url": server.url(family="kue"), "table": "events", "state": state})


def numbers(rows: list[Row]) -> dict[tuple[str, str], int]:
    """What is not 0, by queue and state."""
    return {(row.queue, row.state): row["count"] for row in rows if row["count"]}


def kue_job(number: int, state: State, **fields: Any) -> Job:
    return Job(str(number), "mail", "mail", state, 0, b"{}", created_at=NOW, updated_at=NOW, attempts=1, **fields)


def fail(client: redis.Redis, number: int) -> None:
    """A job of kue that has failed for good."""
    store(client, get_family("kue"), "q", [kue_job(number, State.FAILED, finished_at=NOW + number, error=f"boom {number}")], NOW)


def lose(client: redis.Redis, number: int) -> None:
    """A waiting job of kue that is in no index."""
    store(client, get_family("kue"), "q", [kue_job(number, State.WAITING)], NOW)
    for index in ("q:jobs", "q:jobs:inactive", "q:jobs:mail:inactive"):
        assert client.zrem(index, padded(str(number)))


def reported(rows: list[Row]) -> set[tuple[str, str]]:
    return {(row.kind, row.job_id) for row in rows if row.job_id}


def test_totals_are_the_numbers_of_every_poll(totals: Watcher, server: Server, client: redis.Redis) -> None:
    for name in ("mail", "idle"):
        client.sadd("ferryman:queues", name)
        run(client, SCRIPTS.declare(name, {}))
    run(client, SCRIPTS.publish("mail", "p", jobs(1, 2, 3)))
    first = totals.poll()
    assert numbers(first) == {("mail", "waiting"): 3}
    assert {(row.queue, row.state) for row in first} == {(name, str(state)) for name in ("mail", "idle") for state in State}
    run(client, SCRIPTS.take("mail", "worker", 2, LEASE))
    second = totals.poll()
    assert numbers(second) == {("mail", "waiting"): 1, ("mail", "active"): 2}
    assert {(row.url, row.family) for row in second} == {(server.url(), "ferryman")}
    assert first[0].at_ms < second[0].at_ms
    assert {row.at_ms for row in second} == {second[0].at_ms}


def test_events_are_reported_once_whatever_restarts_lie_between(events: Watcher, client: redis.Redis) -> None:
    fail(client, 1)
    lose(client, 2)
    assert reported(events.poll()) == {("dead letter", "1")}
    fail(client, 3)
    second = events.poll()
    assert reported(second) == {("finding", "2"), ("dead letter", "3")}
    (dead,) = (row for row in second if row.kind == "dead letter")
    assert (dead.queue, dead.name, dead.detail, dead.died_at) == ("mail", "mail", "boom 3", NOW + 3)
    assert all(row.rule and row.severity and row.key and row.detail for row in second if row.kind == "finding")
    assert events.poll() == []


def test_a_batch_that_failed_comes_again_with_the_same_rows(events: Watcher, client: redis.Redis) -> None:
    fail(client, 1)
    given: list[tuple[int, list[Row]]] = []

    def drop(frame: DataFrame, number: int) -> None:
        given.append((number, frame.collect()))
        raise ConnectionAbortedError

    frame = events.spark.readStream.format("ferryman").options(every="0", **events.options).load()
    writer = frame.writeStream.foreachBatch(drop).option("checkpointLocation", str(events.folder / "checkpoint"))
    with pytest.raises(StreamingQueryException, match="ConnectionAbortedError"):
        writer.trigger(availableNow=True).start().awaitTermination(SECONDS)
    client.flushall()
    fail(client, 2)
    events.poll()
    events.poll()
    (first, *others) = events.batches
    assert first == given[0]
    assert reported(first[1]) == {("dead letter", "1")}
    # Whether the run that repeats a batch makes a poll of its own after it depends on the version of Spark.
    assert [row.job_id for _, rows in others for row in rows if row.kind == "dead letter"] == ["2"]


@pytest.mark.skipif(not HAS_READ_LIMITS, reason="Spark limits micro-batches since 4.2")
def test_micro_batches_are_no_larger_than_their_limit(events: Watcher, client: redis.Redis) -> None:
    events.options["maxRowsPerTrigger"] = "3"
    for number in range(1, 8):
        fail(client, number)
    events.poll()
    assert [len(rows) for _, rows in events.batches] == [3, 3, 1]
    assert {row.job_id for _, rows in events.batches for row in rows} == {str(number) for number in range(1, 8)}
    fail(client, 8)
    assert reported(events.poll()) == {("dead letter", "8")}


@pytest.mark.skipif(not HAS_READ_LIMITS, reason="Spark limits micro-batches since 4.2")
def test_a_query_that_stops_within_a_poll_goes_on_there_with_another_limit(events: Watcher, client: redis.Redis) -> None:
    events.options["maxRowsPerTrigger"] = "2"
    for number in range(1, 8):
        fail(client, number)
    assert len(reported(events.batch())) == 2
    client.flushall()  # what the poll has seen is what it gives out
    del events.options["maxRowsPerTrigger"]
    events.poll()
    found = [row.job_id for _, rows in events.batches for row in rows if row.kind == "dead letter"]
    assert sorted(found) == [str(number) for number in range(1, 8)]


def test_a_query_goes_on_when_the_server_has_been_restarted(spark: SparkSession, tmp_path: Path) -> None:
    with durable(SERVERS[0], tmp_path / "server") as daemon:
        with daemon.server.client() as client:
            client.sadd("ferryman:queues", "mail")
            run(client, SCRIPTS.declare("mail", {}))
            run(client, SCRIPTS.publish("mail", "p", jobs(1)))
        watcher = Watcher(spark, tmp_path, {"url": daemon.server.url(), "table": "totals"})
        query = watcher.start(processingTime="100 milliseconds")
        try:
            assert numbers(watcher.arrived.get(timeout=SECONDS)) == {("mail", "waiting"): 1}
            daemon.kill()
            daemon.start()
            with daemon.server.client() as client:
                run(client, SCRIPTS.publish("mail", "p", jobs(2)))
            seen = iter(lambda: numbers(watcher.arrived.get(timeout=SECONDS)), {("mail", "waiting"): 2})
            assert all(each == {("mail", "waiting"): 1} for each in seen)
            assert query.isActive
        finally:
            query.stop()


def test_a_server_that_stays_away_ends_the_query_with_its_name_and_without_its_password(
    spark: SparkSession, tmp_path: Path
) -> None:
    url = f"ferryman://:sesame@127.0.0.1:{free_port()}/0"
    watcher = Watcher(spark, tmp_path, {"url": url, "table": "totals", "patience": "0"})
    with pytest.raises(StreamingQueryException, match=r"ferryman://:\*\*\*@127.0.0.1:\d+/0.*can't be reached") as caught:
        watcher.poll()
    assert "sesame" not in str(caught.value)


def test_wrong_credentials_are_not_waited_for(tmp_path: Path) -> None:
    with SERVERS[0].start(tmp_path) as guarded:
        guarded.client().config_set("requirepass", "sesame")
        address = Address.parse(guarded.url().replace("//", "//:swordfish@"))
        endless = PollOptions(address, every_ms=0, patience_s=1e9, throttle=UNTHROTTLED)
        with pytest.raises(ServerError, match="refuses the credentials"):
            endless.retry(lambda: list(queue_totals(address)))


def wrong_options(url: str) -> Iterator[tuple[dict[str, str], str]]:
    yield {"url": url}, "the table jobs is no stream; there are: totals, events"
    yield {"url": url, "table": "events"}, "option 'state' is missing"
    yield {"url": url, "table": "totals", "every": "soon"}, "option 'every' must be a number of seconds"
    yield {"url": url, "table": "totals", "now": "1"}, "unknown option 'now'"
    yield {"url": url, "table": "events", "state": "x", "startingOffsets": "newest"}, "must be earliest or latest"
    yield (
        {"url": url, "table": "totals", "maxRowsPerTrigger": "3"},
        "'maxRowsPerTrigger' goes with the stream of the table events",
    )
    yield {"url": url, "table": "events", "state": "x", "maxRowsPerTrigger": "0"}, "'maxRowsPerTrigger' must be above 0"
    yield {"url": "ferryman+rdb:///dump.rdb", "table": "totals"}, "is a snapshot, which never changes"


def test_wrong_options_are_named() -> None:
    url = "ferryman://localhost/0"
    for options, message in wrong_options(url):
        with pytest.raises(UsageError, match=message):
            Ferryman(options).streamReader(None)
    with pytest.raises(UsageError, match="the table events is a stream"):
        Ferryman({"url": url, "table": "events"}).reader(None)
