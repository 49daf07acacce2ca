"""The table ``entries``: everything that a keyspace holds, from servers and snapshots, and single fields of its records."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
import redis
from attrs import evolve
from ferryman.migrations.columnar.hashes import record_test
from ferryman.migrations.engine.tables import ROWS
from ferryman.migrations.long_keys import CHUNK
from ferryman.schema.columnar.binary_views import BinaryViews
from ferryman.schema.errors import UsageError
from ferryman.schema.fact import Entry
from ferryman.schema.family import get_family
from ferryman.spark.entries import ENTRIES
from ferryman.spark.projection import parse_fields
from ferryman.spark.source import Ferryman
from ferryman.testing.keyspaces import dump
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from ..support import snapshots
from ..support.captures import Capture, capture, captures, load
from ..support.servers import Server

SYSTEMS = ("bee", "kickq", "kombu", "kue", "pjq", "qless")
CASES = [case for system in SYSTEMS for case in captures(system)]
EVERY_CASE = pytest.mark.parametrize("case", CASES, ids=str)


def batches(url: str, **options: str) -> Iterator[pa.RecordBatch]:
    """What the tasks of the data source give to Spark."""
    source = Ferryman({"url": url, "table": "entries", **options})
    reader = source.reader(schema=source.schema())
    for partition in reader.partitions():
        yield from reader.read(partition)


def entries(url: str, **options: str) -> list[Entry]:
    """The rows as entries."""
    return [entry for batch in batches(url, **options) for entry in ENTRIES.rows(batch)]


def by_key(found: Iterable[Entry]) -> dict[bytes, Entry]:
    """The entries by name, each of which stands there once; the members of a set in a fixed order."""
    rows = list(found)
    keys = {row.key: evolve(row, value=sorted(row.value)) if row.redis_type == "set" else row for row in rows}
    assert len(keys) == len(rows)
    return keys


def field_values(url: str, fields: str, **options: str) -> dict[bytes, tuple[bytes | None, ...]]:
    """The cells of each row of a projection, by key."""
    rows = [row for batch in batches(url, fields=fields, **options) for row in batch.to_pylist()]
    found = {row["key"]: tuple(value for name, value in row.items() if name != "key") for row in rows}
    assert len(found) == len(rows)
    return found


def url_of(case: Capture, server: Server) -> str:
    return server.url(0, family=case.system, prefix=quote(case.prefix))


@EVERY_CASE
def test_every_key_of_a_server_is_a_row_with_all_that_it_holds(server: Server, case: Capture) -> None:
    client = server.client()
    load(case, client)
    assert by_key(entries(url_of(case, server))) == dump(client)


@EVERY_CASE
def test_a_snapshot_has_the_same_rows(server: Server, case: Capture, tmp_path: Path) -> None:
    client = server.client()
    load(case, client)
    path = snapshots.saved(client, server, tmp_path)
    url = f"ferryman+rdb://{path}?family={case.system}&prefix={quote(case.prefix)}"
    assert by_key(entries(url)) == dump(client)


@EVERY_CASE
def test_fields_are_those_of_the_records_of_jobs_and_null_where_one_lacks_them(
    server: Server, case: Capture, tmp_path: Path
) -> None:
    client = server.client()
    load(case, client)
    is_record = record_test(get_family(case.system), case.prefix)
    records = [
        entry for entry in dump(client).values() if entry.redis_type == "hash" and is_record(BinaryViews.of([entry.key]))[0]
    ]
    names = sorted({name for entry in records for name in entry.value})[:5] or [b"state"]
    text = ",".join(f"b64:{base64.b64encode(name).decode()}" for name in (*names, b"\xffnobody's"))
    expected = {entry.key: tuple(entry.value.get(name) for name in (*names, b"\xffnobody's")) for entry in records}
    assert field_values(url_of(case, server), text) == expected
    path = snapshots.saved(client, server, tmp_path)
    assert field_values(f"ferryman+rdb://{path}?family={case.system}&prefix={quote(case.prefix)}", text) == expected


@EVERY_CASE
def test_records_can_be_had_without_the_keys_beside_them(server: Server, case: Capture, tmp_path: Path) -> None:
    client = server.client()
    load(case, client)
    is_record = record_test(get_family(case.system), case.prefix)
    records = {
        key: entry for key, entry in dump(client).items() if entry.redis_type == "hash" and is_record(BinaryViews.of([key]))[0]
    }
    assert by_key(entries(url_of(case, server), fields="*")) == records
    path = snapshots.saved(client, server, tmp_path)
    assert by_key(entries(f"ferryman+rdb://{path}?family={case.system}&prefix={quote(case.prefix)}", fields="*")) == records


def test_ranges_and_pieces_together_have_every_key(server: Server, client: redis.Redis, tmp_path: Path) -> None:
    """More than one batch of hashes and of others, in several tasks; keys at the borders of ranges may be there twice."""
    number = 12 * ROWS
    client.eval(
        "for n = 1, ARGV[1] do redis.call('hset', 'q:job:' .. n, 'type', 'mail', 'n', n) "
        "if n % 3 == 0 then redis.call('rpush', 'q:job:' .. n .. ':log', n, 'done') end end",
        0,
        number,
    )
    standing = dump(client)
    found = entries(server.url(0, family="kue"), partitions="2")
    assert {entry.key: entry for entry in found} == standing
    assert len(found) < 1.1 * len(standing)
    url = f"ferryman+rdb://{snapshots.saved(client, server, tmp_path)}?family=kue"
    assert len(list(Ferryman({"url": url, "table": "entries", "partitions": "3"}).reader(None).partitions())) == 3
    assert by_key(entries(url, partitions="3")) == standing
    assert field_values(url, "n", partitions="3") == {b"q:job:%d" % n: (b"%d" % n,) for n in range(1, number + 1)}


def test_long_keys_come_in_parts_with_the_index_of_their_first_items(server: Server, client: redis.Redis) -> None:
    client.zadd("q:jobs", {f"{n:06}": n for n in range(2 * CHUNK)})
    client.hset("q:job:1", mapping={f"f{n}": n for n in range(3 * CHUNK)})
    client.rpush("q:job:1:log", *range(5_000))
    found = entries(server.url(0, family="kue"))
    items: dict[bytes, list[Any]] = {b"q:jobs": [], b"q:job:1": [], b"q:job:1:log": []}
    for entry in sorted(found, key=lambda entry: entry.offset):
        assert entry.offset == len(items[entry.key])
        items[entry.key] += entry.value.items() if entry.redis_type == "hash" else entry.value
    assert items[b"q:jobs"] == client.zrange("q:jobs", 0, -1, withscores=True)
    assert dict(items[b"q:job:1"]) == client.hgetall("q:job:1")
    assert items[b"q:job:1:log"] == client.lrange("q:job:1:log", 0, -1)
    assert all(sum(entry.key == key for entry in found) > 1 for key in items)
    assert field_values(server.url(0, family="kue"), "f7") == {b"q:job:1": (b"7",)}
    records = entries(server.url(0, family="kue"), fields="*")
    assert (
        sum(len(entry.value) for entry in records if entry.key == b"q:job:1") == 3 * CHUNK == sum(len(e.value) for e in records)
    )


def test_other_types_are_rows_without_values(server: Server, client: redis.Redis) -> None:
    client.xadd("q:stream", {"a": "b"})
    assert entries(server.url(0, family="kue")) == [Entry(b"q:stream", "stream", None)]


def test_times_to_live_are_told(server: Server, client: redis.Redis, tmp_path: Path) -> None:
    for name in ("q:job:1", "q:settings"):
        client.hset(name, "state", "active")
        client.pexpire(name, 3_600_000)
    path = snapshots.saved(client, server, tmp_path)
    for url in (server.url(0, family="kue"), f"ferryman+rdb://{path}?family=kue"):
        # A file tells the second in which it was written.
        assert all(0 < (entry.ttl_ms or 0) < 3_601_000 for entry in entries(url))
        assert len(entries(url)) == 2
    late = str(2 * int(time.time() * 1000))
    assert entries(f"ferryman+rdb://{path}?family=kue", now=late) == []


def test_keys_that_go_and_change_while_they_are_read_are_rows_of_what_they_were_or_became(
    server: Server, client: redis.Redis
) -> None:
    steady = {f"q:job:{number}" for number in range(1, 5_001)}
    for name in steady:
        client.hset(name, mapping={"state": "active", "name": name})
    done = threading.Event()

    def change() -> None:
        with server.client() as other:
            while not done.is_set():
                pipeline = other.pipeline(transaction=True)
                for number in range(90_000, 90_050):
                    pipeline.delete(f"q:job:{number}").hset(f"q:job:{number}", "state", "failed")
                pipeline.execute()
                for number in range(90_000, 90_050):
                    pipeline.delete(f"q:job:{number}")
                    if number % 2:
                        pipeline.set(f"q:job:{number}", "text")
                pipeline.execute()

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(5):
            found = {entry.key: entry.value for entry in entries(server.url(0, family="kue"))}
            rows = field_values(server.url(0, family="kue"), "state")
            records = entries(server.url(0, family="kue"), fields="*")
            assert {entry.redis_type for entry in records} == {"hash"}
            assert steady <= {entry.key.decode() for entry in records}
            assert {key for key in found if key < b"q:job:9"} == {key for key in rows if key < b"q:job:9"}
            for name in steady:
                assert found.pop(name.encode()) == {b"state": b"active", b"name": name.encode()}
                assert rows.pop(name.encode()) == (b"active",)
            assert all(value in ({b"state": b"failed"}, b"text") for value in found.values())
            assert set(rows.values()) <= {(b"failed",)}
    finally:
        done.set()
        thread.join()


def table(spark: SparkSession, url: str, **options: str) -> DataFrame:
    return spark.read.format("ferryman").options(url=url, table="entries", **options).load()


def test_spark_has_the_rows_of_servers_and_snapshots(spark: SparkSession, server: Server, tmp_path: Path) -> None:
    client = server.client()
    load(capture("kue", "crashed"), client)
    client.hset("q:job:77777", mapping={b"\xff\x00": b"\xfe", "b64:": "1"})
    standing = dump(client)
    path = snapshots.saved(client, server, tmp_path)
    live, file = server.url(0, family="kue"), f"ferryman+rdb://{path}?family=kue"
    for frame in (table(spark, live), table(spark, file)):
        assert by_key(entry for batch in frame.toArrow().to_batches() for entry in ENTRIES.rows(batch)) == standing
    fields = table(spark, live, fields="state, b64:/wA=,b64:YjY0Og==")
    assert fields.columns == ["key", "state", "b64:/wA=", "b64:YjY0Og=="]
    rows = {row.key: tuple(row)[1:] for row in fields.collect()}
    assert rows.pop(b"q:job:77777") == (None, b"\xfe", b"1")
    assert rows == {key: (standing[key].value.get(b"state"), None, None) for key in rows}


def test_the_tables_have_the_schemas_that_spark_expects(spark: SparkSession, server: Server) -> None:
    url = server.url(0, family="kue")
    assert to_arrow_schema(table(spark, url).schema) == ENTRIES.arrow
    fields = table(spark, url, fields="state,type")
    assert to_arrow_schema(fields.schema) == parse_fields("state,type").arrow
    assert fields.count() == 0


WRONG_FIELDS = {
    "": "one is empty",
    "state,": "one is empty",
    "state,type,state": "names 'state' twice",
    "state,b64:c3RhdGU=": "names 'b64:c3RhdGU=' twice",
    "state,State": "'State' beside another",
    "key": "'key' beside",
    "b64:?": "'b64:\\?' is no base64",
}


@pytest.mark.parametrize("fields", WRONG_FIELDS)
def test_wrong_fields_are_refused(fields: str) -> None:
    with pytest.raises(UsageError, match=WRONG_FIELDS[fields]):
        parse_fields(fields)


def test_fields_go_with_entries_alone(server: Server) -> None:
    for name in ("keys", "facts", "jobs"):
        with pytest.raises(UsageError, match="goes with the table entries alone"):
            Ferryman({"url": server.url(0), "table": name, "fields": "state"}).schema()


def test_a_field_that_is_called_like_the_column_of_keys_has_another_name(server: Server, client: redis.Redis) -> None:
    client.hset("q:job:1", mapping={"key": "value", "State": "1", "state": "2"})
    assert field_values(server.url(0, family="kue"), "b64:a2V5,State,b64:c3RhdGU=") == {b"q:job:1": (b"value", b"1", b"2")}
