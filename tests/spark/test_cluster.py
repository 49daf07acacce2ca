"""A cluster as a source, with Spark: the same as the local engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve
from ferryman.migrations.local import LocalEngine
from ferryman.migrations.plan import Plan
from ferryman.schema.address import Address
from ferryman.schema.rule import Finding
from ferryman.spark.engine import SparkEngine
from ferryman.spark.entries import ENTRIES
from pyspark.sql import SparkSession

from ..conftest import SERVERS
from ..support.captures import captures, commands, dump, load
from ..support.clusters import cluster
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
        told: list[list[Finding]] = [[], []]
        counts = [
            each.audit(source, case.captured_at_ms, found.append) for each, found in zip((engine, LOCAL), told, strict=True)
        ]
        assert counts[0] == counts[1]
        assert sorted(map(repr, told[0])) == sorted(map(repr, told[1]))
        assert list(engine.jobs(source, case.captured_at_ms)) == list(LOCAL.jobs(source, case.captured_at_ms))
        table = spark.read.format("ferryman").option("url", source.url())
        assert table.option("table", "keys").option("partitions", 3).load().count() == sum(1 for _ in case.entries())
        batches = table.option("table", "entries").load().toArrow().to_batches()
        rows = [entry for batch in batches for entry in ENTRIES.rows(batch)]
        settled = [evolve(row, value=sorted(row.value)) if row.redis_type == "set" else row for row in rows]
        load(case, server.client(1))
        assert {row.key: row for row in settled} == dump(server.client(1))
        with pytest.raises(Exception, match="can't be had from a cluster"):
            table.option("fields", "state").load().count()
        target = Address.parse(server.url())
        plan = Plan.between(source, target, case.captured_at_ms)
        summary = engine.migrate(source, target, plan, lambda _: None)
        outcome = LOCAL.verify(source, target, plan, pytest.fail)
    assert summary.written == outcome.matched > 0
    assert evolve(outcome, seconds=0).differences == 0
