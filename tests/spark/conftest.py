"""Fixtures of the Spark tests: one session for all of them, and one kind of server, as the other is no different to Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ferryman.migrations.engine import storage
from ferryman.spark.engine import SparkEngine
from ferryman.spark.session import session
from ferryman.spark.source import Ferryman
from pyspark.sql import SparkSession

from ..conftest import SERVERS
from ..support.object_store import ObjectStore, object_store
from ..support.servers import Server
from ..support.standalone import Standalone, standalone


@pytest.fixture(scope="session")
def any_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The embedded server."""
    with SERVERS[0].start(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    """The session. It lives until the process ends."""
    running = session("local[2,3]")
    # An installed ferryman is found by Spark itself (test_start.py); one that is installed for editing is not.
    running.dataSource.register(Ferryman)
    return running


@pytest.fixture(scope="session")
def engine(spark: SparkSession) -> SparkEngine:
    """An engine that cuts even the smallest keyspace into parts."""
    return SparkEngine(spark, tasks=3)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A Spark cluster of two workers, which have a password in their environment."""
    with standalone(tmp_path_factory.mktemp("spark") / "cluster", QUEUE_PASSWORD="sesame") as running:
        yield running


@pytest.fixture(scope="module")
def objects() -> Iterator[ObjectStore]:
    """An object store."""
    with object_store() as running:
        yield running


@pytest.fixture(scope="module")
def engine_in_bucket(spark: SparkSession, objects: ObjectStore) -> Iterator[SparkEngine]:
    """An engine whose steps hand on their results through the object store."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in objects.environment.items():
            patch.setenv(name, value)
            patch.setitem(spark.sparkContext.environment, name, value)
        storage._opened.cache_clear()
        yield SparkEngine(spark, work="s3://bucket/work", tasks=3)
