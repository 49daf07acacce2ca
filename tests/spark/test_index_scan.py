"""The table ``entries`` by an index: the same records as by a scan, as long as the index has all of them."""

from __future__ import annotations

import threading
from collections import Counter
from random import Random

import pytest
import redis
from ferryman.schema.errors import ServerError, UsageError
from ferryman.spark.source import Ferryman
from pyspark.sql import SparkSession

from ..support.captures import Capture, captures, load
from ..support.servers import Server
from .test_entries import entries, field_values, url_of

JOBS = 60_000
"""So many members make several parts."""


def fill(client: redis.Redis, jobs: int = JOBS) -> None:
    """Records of jobs with five priorities, and the index of all of them."""
    client.eval(
        "for n = 1, ARGV[1] do local id = string.format('%d', n) redis.call('hset', 'q:job:' .. id, 'n', id, 'type', 'mail') "
        "redis.call('zadd', 'q:jobs', n * 7 % 5, string.format('%02d|%s', #id, id)) end",
        0,
        jobs,
    )


def named(url: str, partitions: int) -> Counter[bytes]:
    """How often each record is a row."""
    source = Ferryman({"url": url, "table": "entries", "fields": "n", "by": "index", "partitions": str(partitions)})
    reader = source.reader(schema=source.schema())
    found: Counter[bytes] = Counter()
    for partition in reader.partitions():
        for batch in reader.read(partition):
            assert batch.column("key").to_pylist() == [b"q:job:%b" % number for number in batch.column("n").to_pylist()]
            found.update(batch.column("key").to_pylist())
    return found


@pytest.mark.parametrize("case", captures("kue"), ids=str)
def test_sound_or_old_an_index_names_the_records_that_a_scan_finds(server: Server, case: Capture) -> None:
    client = server.client()
    load(case, client)
    url = url_of(case, server)
    index = f"{case.prefix}:jobs"
    standing = {member.rpartition(b"|")[2].lstrip(b"0") for member in client.zrange(index, 0, -1)}
    expected = {key: row for key, row in field_values(url, "type,state").items() if key.rpartition(b":")[2] in standing}
    assert expected
    assert field_values(url, "type,state", by="index") == expected
    whole = {entry.key: entry for entry in entries(url, fields="*", by="index")}
    assert whole == {entry.key: entry for entry in entries(url, fields="*") if entry.key in expected}


@pytest.mark.parametrize("partitions", [1, 4])
def test_each_record_is_a_row_once_in_however_many_parts(server: Server, client: redis.Redis, partitions: int) -> None:
    fill(client)
    assert named(server.url(0, family="kue"), partitions) == Counter(b"q:job:%d" % n for n in range(1, JOBS + 1))


def test_a_record_that_the_index_lacks_is_left_out_and_a_member_without_a_record_is_no_row(
    server: Server, client: redis.Redis
) -> None:
    fill(client, 10)
    client.zrem("q:jobs", "01|3")
    client.delete("q:job:5")
    client.zadd("q:jobs", {b"\xff no id": 1, b"": 2, b"02|": 3})
    client.hset("q:job:", "n", "of nobody")
    client.set("q:job:11", "no hash")
    client.zadd("q:jobs", {"02|11": 0, "12": 4})
    client.hset("q:job:12", "n", "in an old member's form")
    found = field_values(server.url(0, family="kue"), "n", by="index")
    assert found.keys() == {b"q:job:%d" % n for n in (1, 2, 4, 6, 7, 8, 9, 10, 12)}


def test_jobs_that_stay_are_rows_once_while_others_come_and_go(server: Server, client: redis.Redis) -> None:
    fill(client)
    done = threading.Event()

    def churn() -> None:
        rng, number = Random(1), JOBS
        with server.client() as other:
            while not done.is_set():
                number += 1
                # Ids from the middle too, so that members shift in every part.
                name = f"{rng.randrange(JOBS)}.{number}"
                other.zadd("q:jobs", {f"{len(name):02d}|{name}": rng.randrange(5)})
                if rng.random() < 0.5:
                    other.zremrangebyrank("q:jobs", 0, 0) if rng.random() < 0.01 else other.zrem("q:jobs", name)

    gone = threading.Thread(target=churn)
    gone.start()
    try:
        found = named(server.url(0, family="kue"), 5)
    finally:
        done.set()
        gone.join()
    still = {b"q:job:" + member[3:] for member in client.zrange("q:jobs", 0, -1) if b"." not in member}
    assert len(still) > JOBS - 1000
    assert still <= found.keys()
    assert max(found.values()) == 1


def test_spark_reads_the_rows_by_several_tasks(spark: SparkSession, server: Server, client: redis.Redis) -> None:
    fill(client)
    read = spark.read.format("ferryman").options(url=server.url(0, family="kue"), table="entries", by="index")
    rows = read.options(fields="n,type", partitions=4, throttle=1_000_000).load()
    assert rows.rdd.getNumPartitions() == 4
    assert rows.selectExpr("count(distinct key)", "count(*)", "count(n)").first() == (JOBS, JOBS, JOBS)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"by": "guess", "fields": "n"}, "option 'by' must be scan or index, not 'guess'"),
        ({"by": "index"}, "option 'by' goes with the table jobs, and with option 'fields'"),
        ({"by": "index", "table": "keys"}, "option 'by' goes with the table jobs, and with option 'fields'"),
        ({"by": "index", "fields": "n", "url": "ferryman+rdb:///nowhere.rdb?family=kue"}, "for one server alone"),
        ({"by": "index", "fields": "n", "url": "ferryman+cluster://127.0.0.1:1?family=kue"}, "for one server alone"),
        ({"by": "index", "fields": "n", "url": "ferryman://127.0.0.1:1/0?family=bee"}, "bee keeps no index of all jobs"),
    ],
)
def test_what_can_t_be_is_said_before_anything_is_read(options: dict[str, str], words: str) -> None:
    source = Ferryman({"url": "ferryman://127.0.0.1:1/0?family=kue", "table": "entries", **options})
    with pytest.raises(UsageError, match=words):
        source.reader(schema=None)


def test_without_the_index_nothing_is_called_read(server: Server, client: redis.Redis) -> None:
    source = Ferryman({"url": server.url(0, family="kue"), "table": "entries", "fields": "n", "by": "index"})
    with pytest.raises(ServerError, match="no sorted set 'q:jobs'"):
        source.reader(schema=None).partitions()
    client.set("q:jobs", "a string")
    with pytest.raises(ServerError, match="no sorted set 'q:jobs'"):
        source.reader(schema=None).partitions()
