"""A cluster as a source, with Spark: the same as the local engine."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from ferryman.migrations.local import LocalEngine
from ferryman.migrations.plan import Plan
from ferryman.migrations.scan import scan_range
from ferryman.schema.connection.address import Address
from ferryman.schema.errors import ServerError
from ferryman.schema.rule import Finding
from ferryman.spark import source as data_source
from ferryman.spark.engine import SparkEngine
from ferryman.spark.entries import ENTRIES
from ferryman.spark.source import Ferryman
from ferryman.testing.keyspaces import dump
from pyspark.sql import SparkSession

from ..conftest import SERVERS
from ..support.captures import captures, commands, load
from ..support.clusters import MASTERS, cluster
from ..support.servers import Server

LOCAL = LocalEngine()


def test_audits_listings_and_migrations_of_a_cluster(
    engine: SparkEngine, spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    case = next(case for case in captures("kue") if case.name == "healthy")
    with cluster(SERVERS[0], tmp_path) as nodes:
        for entry in case.entries():
            for words in commands(entry):
                nodes.say(nodes.owner(entry.key), *words)  # type: ignore[arg-type]
        source = Address.parse(nodes.url(family="kue"))
        reported: list[list[Finding]] = [[], []]
        counts = [
            each.audit(source, case.captured_at_ms, found.append) for each, found in zip((engine, LOCAL), reported, strict=True)
        ]
        assert counts[0] == counts[1]
        assert sorted(map(repr, reported[0])) == sorted(map(repr, reported[1]))
        assert list(engine.jobs(source, case.captured_at_ms)) == list(LOCAL.jobs(source, case.captured_at_ms))
        table = spark.read.format("ferryman").option("url", source.url())
        assert table.option("table", "keys").option("partitions", 3).load().count() == sum(1 for _ in case.entries())
        batches = table.option("table", "entries").load().toArrow().to_batches()
        rows = [entry for batch in batches for entry in ENTRIES.rows(batch)]
        settled = [evolve(row, value=sorted(row.value)) if row.redis_type == "set" else row for row in rows]
        load(case, server.client(1))
        assert {row.key: row for row in settled} == dump(server.client(1))
        rows = [entry for batch in table.option("partitions", 5).load().toArrow().to_batches() for entry in ENTRIES.rows(batch)]
        assert {row.key for row in rows} == dump(server.client(1)).keys()
        alone = spark.read.format("ferryman").option("url", server.url(1, family="kue")).option("table", "entries")
        projected = [each.option("fields", "state,type").load().collect() for each in (table, alone)]
        assert sorted(projected[0]) == sorted(projected[1]) != []
        target = Address.parse(server.url())
        plan = Plan.between(source, target, case.captured_at_ms)
        summary = engine.migrate(source, target, plan, lambda _: None)
        outcome = LOCAL.verify(source, target, plan, pytest.fail)
    assert summary.written == outcome.matched > 0
    assert evolve(outcome, seconds=0).differences == 0


def test_tasks_that_read_node_by_node_say_when_a_slot_has_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with cluster(SERVERS[0], tmp_path) as nodes:
        for number in range(100):
            key = b"q:job:%d" % number
            nodes.say(nodes.owner(key), "HSET", key, "type", "mail")
        reader = Ferryman({"url": nodes.url(family="kue"), "table": "entries", "partitions": "3"}).reader(None)
        partitions = reader.partitions()
        assert len(partitions) >= MASTERS
        for partition in partitions:
            list(reader.read(partition))
        key = b"q:job:7"

        def move() -> None:
            nodes.move(key, next(each for each in nodes.nodes[:MASTERS] if each is not nodes.owner(key)))

        def scan_and_move(*arguments: Any, **named: Any) -> Iterator[list[bytes]]:
            pages = list(scan_range(*arguments, **named))
            if key in chain.from_iterable(pages):
                move()
            yield from pages

        monkeypatch.setattr(data_source, "scan_range", scan_and_move)
        with pytest.raises(ServerError, match="1 slots have moved during the scan"):
            list(chain.from_iterable(map(reader.read, partitions)))
        with pytest.raises(ServerError, match="1 slots have moved during the scan"):
            list(reader.read(partitions[0]))
