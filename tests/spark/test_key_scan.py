"""Into how many tasks work is cut: by keys, and by memory where few keys hold many jobs. In what order names come."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import pytest
import redis
from ferryman.migrations.engine import key_scan
from ferryman.migrations.engine.key_scan import merge_streams, round_to_cores, task_count
from ferryman.migrations.probes import FEW_KEYS, memory
from ferryman.schema.columnar.binary_views import BinaryViews
from ferryman.schema.connection.address import Address
from ferryman.spark.engine import SparkEngine
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from ..support.servers import Server

MANY = [b"x" * 1_000_000] * 240
"""More than a task of a family with a prefilter has of memory, and less than three have."""


def tasks(server: Server, family: str, db: int = 0, times: int = 1) -> int:
    return task_count(Address.parse(server.url(db, family=family)), times)


def test_few_keys_may_hold_the_work_of_many_tasks(server: Server, client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tasks(server, "kombu") == 1
    client.rpush("celery", *MANY)
    assert tasks(server, "kombu") == 3
    assert tasks(server, "kombu", times=2) == 2
    monkeypatch.setattr(key_scan, "has_prefilter", lambda _: False)
    assert tasks(server, "bee", times=2) == tasks(server, "bee") > 3, "jobs that all become facts are more work"


def test_many_keys_have_no_more_than_their_share_of_the_memory(server: Server, client: redis.Redis) -> None:
    client.rpush("celery", *MANY)
    other = server.client(1)
    other.mset({f"q:job:{number}": "" for number in range(FEW_KEYS)})
    assert memory(other) >= sum(map(len, MANY)), "nobody knows what few keys hold"
    other.mset({f"q:jobs:{number}": "" for number in range(FEW_KEYS)})
    # What a server uses is other whenever it is asked, by some thousand bytes: so these are a few more.
    client.mset({f"result-{number}": "" for number in range(2 * FEW_KEYS + FEW_KEYS // 10)})
    assert memory(other) < memory(client) < sum(map(len, MANY)), "half of the keys are in each"
    assert tasks(server, "kue", 1) == 2


def test_a_server_that_may_not_be_asked_says_nothing(server: Server, client: redis.Redis) -> None:
    client.acl_setuser("reader", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-info"])
    try:
        asking = redis.Redis(port=server.port, username="reader", password="any")
        assert memory(asking) == 0
        asking.close()
    finally:
        client.acl_deluser("reader")


@pytest.mark.parametrize(("tasks", "cores", "made"), [(1, 2, 1), (2, 2, 2), (3, 2, 2), (25, 2, 24), (7, 4, 8), (1024, 3, 1023)])
def test_cores_have_the_same_number_of_tasks(tasks: int, cores: int, made: int) -> None:
    assert round_to_cores(tasks, cores) == made


def test_keys_are_read_by_as_many_tasks_as_the_user_says(spark: SparkSession, server: Server, client: redis.Redis) -> None:
    client.mset({f"bee:s:hash:mail:{number}": "id" for number in range(100)})
    steps: dict[str, int | None] = {}

    def note(phase: str, _done: int, total: int | None) -> None:
        steps[phase] = total

    SparkEngine(spark, tasks=4).audit(Address.parse(server.url(family="bee")), 1_800_000_000_000, lambda _: None, note)
    assert steps["reading bee keys"] == 4


@given(st.lists(st.lists(st.integers(0, 50) | st.integers(0, 10**17), max_size=30), max_size=4), st.integers(1, 9), st.booleans())
def test_names_of_several_streams_come_once_and_in_order_where_each_rises(
    streams: list[list[int]], size: int, rise: bool
) -> None:
    def pages(numbers: list[int]) -> Iterator[BinaryViews]:
        yield BinaryViews.of([])
        for at in range(0, len(numbers), size):
            yield BinaryViews.of(b"q:job:%d" % number for number in numbers[at : at + size])

    names = [name for page in merge_streams(pages(sorted(each) if rise else each) for each in streams) for name in page.to_list()]
    numbers = [int(name.removeprefix(b"q:job:")) for name in names]
    assert sorted(numbers) == sorted(chain.from_iterable(streams))
    if rise:
        assert numbers == sorted(numbers)
