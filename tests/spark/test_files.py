"""Snapshot files with Spark: the same facts, findings and jobs as the local engine gets from them, in any number of pieces."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve
from ferryman.migrations import rdbfile
from ferryman.migrations.local import LocalEngine
from ferryman.schema.connection.address import Address
from ferryman.schema.errors import ServerError
from ferryman.schema.family import family_names
from ferryman.schema.rule import Finding
from ferryman.spark.engine import SparkEngine
from pyspark.sql import SparkSession

from ..support.captures import Capture, captures, load
from ..support.rdbtypes import fill_types
from ..support.servers import Server

LOCAL = LocalEngine()


@pytest.mark.parametrize("case", [case for name in family_names() for case in captures(name) if case.rdb.exists()], ids=str)
def test_both_engines_find_the_same_in_a_snapshot(case: Capture, engine: SparkEngine) -> None:
    address = evolve(Address.parse(f"ferryman+rdb://{case.rdb}?family={case.system}"), prefix=case.prefix)
    by_spark: list[Finding] = []
    by_local: list[Finding] = []
    census = engine.audit(address, case.captured_at_ms, by_spark.append)
    assert census == LOCAL.audit(address, case.captured_at_ms, by_local.append)
    assert sorted(map(repr, by_spark)) == sorted(map(repr, by_local))


@pytest.fixture
def snapshot(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two databases with a kue keyspace each, in one file of which small pieces are made."""
    case = next(case for case in captures("kue") if case.name == "healthy")
    for db in (0, 2):
        load(case, server.client(db))
        server.client(db).mset({f"stranger:{number}": str(number) * 20 for number in range(5000)})
    server.client().save()
    monkeypatch.setattr(rdbfile, "PIECE", 30_000)
    path = tmp_path / "dump.rdb"
    path.write_bytes((server.folder / "dump.rdb").read_bytes())
    return path


def test_a_file_in_many_pieces_gives_the_same_jobs(engine: SparkEngine, snapshot: Path) -> None:
    address = Address.parse(f"ferryman+rdb://{snapshot}?db=2&family=kue")
    jobs = list(engine.jobs(address, 0))
    assert jobs == list(LOCAL.jobs(address, 0))
    assert len(jobs) > 50


def test_tables_of_a_snapshot(spark: SparkSession, snapshot: Path) -> None:
    source = spark.read.format("ferryman").option("url", f"ferryman+rdb://{snapshot}?family=kue")
    keys = source.option("table", "keys").option("partitions", 4).load()
    assert keys.distinct().count() == keys.count() > 100
    assert source.option("table", "jobs").load().count() == len(
        list(LOCAL.jobs(Address.parse(f"ferryman+rdb://{snapshot}?family=kue"), 0))
    )


def test_a_file_that_is_cut_short_is_an_error_that_names_it(engine: SparkEngine, snapshot: Path) -> None:
    data = snapshot.read_bytes()
    snapshot.write_bytes(data[: len(data) // 2])
    with pytest.raises(ServerError, match=r"dump\.rdb: cut short or damaged"):
        list(engine.jobs(Address.parse(f"ferryman+rdb://{snapshot}?family=kue"), 0))


def test_a_changed_byte_in_one_of_many_pieces_is_an_error_unless_nobody_asks(engine: SparkEngine, snapshot: Path) -> None:
    data = bytearray(snapshot.read_bytes())
    data[data.rindex(b"stranger:4711")] = ord("S")
    snapshot.write_bytes(data)
    address = Address.parse(f"ferryman+rdb://{snapshot}?db=2&family=kue")
    with pytest.raises(ServerError, match=r"dump\.rdb: damaged somewhere in its \d+ bytes"):
        list(engine.jobs(address, 0))
    assert list(engine.jobs(address.unchecked(), 0)) == list(LOCAL.jobs(address.unchecked(), 0))


def test_tables_of_a_changed_file_are_an_error_before_any_row(spark: SparkSession) -> None:
    flipped = Path(__file__).parents[1] / "data" / "rdb" / "flipped-payload.rdb"
    for table in ("jobs", "entries", "keys", "facts"):
        source = spark.read.format("ferryman").options(url=f"ferryman+rdb://{flipped}?family=kue", table=table)
        with pytest.raises(Exception, match="damaged somewhere in its 771 bytes"):
            source.load().collect()
        assert source.option("checksum", "false").load().count() >= 3


def test_a_snapshot_with_every_type_has_the_entries_that_its_server_has(
    spark: SparkSession, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = server.client()
    fill_types(client)
    client.save()
    path = tmp_path / "dump.rdb"
    path.write_bytes((server.folder / "dump.rdb").read_bytes())
    monkeypatch.setattr(rdbfile, "PIECE", 30_000)
    table = spark.read.format("ferryman").option("table", "entries")
    of_file = table.load(f"ferryman+rdb://{path}?family=kombu").where("index = 0").select("key", "redis_type", "fields")
    of_server = table.load(server.url(family="kombu")).where("index = 0").select("key", "redis_type", "fields")
    expected = [row for row in map(tuple, of_server.collect()) if row[1] != "stream"]
    assert sorted(map(tuple, of_file.collect()), key=repr) == sorted(expected, key=repr)
