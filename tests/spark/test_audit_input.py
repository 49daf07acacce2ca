"""What an audit looks at job by job: all facts of a job are read by one task, in a row."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from ferryman.compat.kue import FAMILY
from ferryman.compat.kue.generate import generate
from ferryman.schema.connection.address import Address
from ferryman.spark import audit_input
from ferryman.spark.audit_input import AuditInput, input_of
from ferryman.spark.snapshot import JOB_KEY, Snapshot, take
from ferryman.spark.step import SUMMARY, Batches, run_step, with_summary
from ferryman.spark.tables import FACTS
from ferryman.testing.keyspaces import store
from pyarrow import parquet
from pyspark.sql import SparkSession

from ..support.keyspace import inject_all
from ..support.servers import Server

NOW = 1_800_000_000_000
JOBS = list(generate(500, 3, NOW))


@pytest.fixture
def source(server: Server) -> Address:
    client = server.client()
    store(client, FAMILY, "q", JOBS, NOW)
    inject_all(client, FAMILY, "q", JOBS, NOW)
    return Address.parse(server.url(0, family="kue"))


@pytest.fixture
def snapshot(spark: SparkSession, source: Address, tmp_path: Path) -> Snapshot:
    return take(spark, source, NOW, str(tmp_path / "facts"), 3)


def rows_of(audited: AuditInput, path: Path) -> list[pa.Table]:
    """The facts that each task finds, in their order, those of one task in a table."""
    facts, columns = audited.facts, FACTS.arrow.names

    def task(rows: Batches) -> Batches:
        yield from with_summary((batch.select(columns) for batch in facts(rows)), FACTS, str)

    results = run_step(audited.frame, task, FACTS, str(path), "reading")
    tables = (parquet.read_table(file) for file in results.files())
    return [table.filter(table.column(SUMMARY).is_null()).select(columns) for table in tables]


def counted(tables: list[pa.Table]) -> Counter[str]:
    return Counter(repr(row) for table in tables for row in table.to_pylist())


def test_each_job_is_read_by_one_task_and_its_facts_in_a_row(
    snapshot: Snapshot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = rows_of(input_of(snapshot), tmp_path / "cut")
    monkeypatch.setattr(audit_input, "MOST_FACTS", 0)
    joined = rows_of(input_of(snapshot), tmp_path / "joined")
    assert counted(cut) == counted(joined)
    assert sum(map(len, cut)) == snapshot.subjects().count() > 100
    for tables in (cut, joined):
        runs = Counter[tuple[bytes, bytes]]()
        for table in tables:
            names = list(zip(*(table.column(name).to_pylist() for name in JOB_KEY), strict=True))
            runs.update(name for before, name in zip([None, *names], names, strict=False) if name != before)
        assert set(runs.values()) == {1}


def test_a_sound_keyspace_leaves_nothing_to_share(spark: SparkSession, server: Server, tmp_path: Path) -> None:
    store(server.client(), FAMILY, "q", [job for job in JOBS if not job.ttl and job.state.value == "completed"], NOW)
    snapshot = take(spark, Address.parse(server.url(0, family="kue")), NOW, str(tmp_path / "facts"), 3)
    assert sum(map(len, rows_of(input_of(snapshot), tmp_path / "cut"))) == 0
