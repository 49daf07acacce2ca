"""A work folder that is full, read-only or lost: one sentence with its path and what to do, and never a traceback."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import redis
from ferryman.migrations.plan import Plan
from ferryman.schema.connection.address import Address
from ferryman.schema.errors import ServerError, UsageError
from ferryman.schema.family import get_family
from ferryman.spark.engine import SparkEngine
from ferryman.testing.keyspaces import store
from pyspark.sql import SparkSession

from ..support.mounts import mounted
from ..support.servers import Server

NOW = 1_795_262_676_000


@pytest.fixture
def source(server: Server, client: redis.Redis) -> Address:
    family = get_family("kue")
    store(client, family, "q", family.generate(1500, 7, NOW), NOW)
    # Values that no compression makes small.
    for number in range(1, 200):
        client.hset(f"q:job:{number}", "data", '"' + os.urandom(2000).hex() + '"')
    return Address.parse(server.url(family="kue"))


@pytest.mark.parametrize("size", ["16k", "200k"])
def test_a_full_folder_is_one_sentence(spark: SparkSession, source: Address, tmp_path: Path, size: str) -> None:
    with mounted(tmp_path / "small", size) as small:
        with pytest.raises(ServerError) as caught:
            SparkEngine(spark, work=str(small), tasks=3).audit(source, NOW, lambda _: None)
        assert not list(small.iterdir())
    message = str(caught.value)
    assert message.startswith(f"{small}/ferryman-")
    assert "there is no room left for what is read; make room, or let --work name a folder with more" in message
    assert "\n" not in message


def test_a_migration_whose_folder_was_full_is_done_in_a_larger_one(
    spark: SparkSession, source: Address, server: Server, tmp_path: Path
) -> None:
    target = Address.parse(server.url(1))
    plan = Plan.between(source, target, NOW)
    with mounted(tmp_path / "small", "200k") as small, pytest.raises(ServerError, match="no room left"):
        SparkEngine(spark, work=str(small), tasks=3).migrate(source, target, plan, lambda _: None)
    summary = SparkEngine(spark, work=str(tmp_path), tasks=3).migrate(source, target, plan, lambda _: None)
    assert summary.written + summary.skipped == 1500


def test_a_read_only_folder_is_wrong_usage(spark: SparkSession, source: Address, tmp_path: Path) -> None:
    with mounted(tmp_path / "fixed", "1m") as fixed:
        subprocess.run(["mount", "-o", "remount,ro", fixed], check=True)
        with pytest.raises(UsageError, match=r"no folder can be made there \(Read-only file system\); let --work name one"):
            SparkEngine(spark, work=str(fixed), tasks=3).audit(source, NOW, lambda _: None)


@pytest.mark.parametrize("phase", ["scanning", "reading", "comparing", "checking"])
def test_a_folder_that_goes_away_is_one_sentence(spark: SparkSession, source: Address, tmp_path: Path, phase: str) -> None:
    gone = []

    def remove(now: str, _done: int, _total: int | None) -> None:
        if now.startswith(phase) and not gone:
            for folder in tmp_path.glob("ferryman-*"):
                gone.append(folder)
                shutil.rmtree(folder, ignore_errors=True)

    message = ""
    try:
        SparkEngine(spark, work=str(tmp_path), tasks=3).audit(source, NOW, lambda _: None, remove)
    except ServerError as error:
        message = str(error)
    if not gone:
        pytest.skip(f"an audit has no step {phase}")
    assert message.startswith(f"{gone[0]}/")
    assert "it is gone, or not the same folder on every machine; let --work name one that lasts" in message
    assert "\n" not in message
