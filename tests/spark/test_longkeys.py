"""Keys of hundreds of thousands of items with Spark: read in parts, by several tasks, and the same as in one piece."""

from __future__ import annotations

from pathlib import Path

import redis
from ferryman.migrations.engine.file_snapshot import take
from ferryman.migrations.key_splits import LONG
from ferryman.schema.connection.address import Address
from ferryman.spark.runner import SparkRunner
from pyspark.sql import SparkSession

from ..support.servers import Server

NOW = 1_800_000_000_000
SIZE = LONG + 1_234


def test_members_of_long_keys_are_told_once_with_their_indexes(
    spark: SparkSession, server: Server, client: redis.Redis, tmp_path: Path
) -> None:
    client.eval("for n = 1, ARGV[1] do redis.call('zadd', 'bee:ss:queue:mail', math.floor(n / 7), 'z' .. n) end", 0, SIZE)
    client.eval("for n = 1, ARGV[1] do redis.call('rpush', 'bee:l:hashes:mail', 'l' .. n) end", 0, SIZE)
    client.sadd("bee:s:tags:mail", "one")
    ranked = [member.decode() for member in client.zrange("bee:ss:queue:mail", 0, -1)]
    phases: set[str] = set()
    address = Address.parse(server.url(family="bee"))
    snapshot = take(SparkRunner(spark), address, NOW, f"{tmp_path}/facts", 2, lambda phase, *_: phases.add(phase))
    assert "reading long keys" in phases
    by_role: dict[str, list[tuple[int, str]]] = {"queue": [], "hashes": [], "tag": []}
    for fact in (fact for bucket in range(2) for fact in snapshot.facts.all(bucket)):
        by_role[fact.role].append((fact.index, fact.job_id))
    assert sorted(by_role["queue"]) == list(enumerate(ranked))
    assert sorted(by_role["hashes"]) == [(index, f"l{index + 1}") for index in range(SIZE)]
    assert by_role["tag"] == [(None, "one")]
