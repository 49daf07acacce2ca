"""Spark writes to a Redis Cluster what it would write to one server, in one go or in two."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis
from ferryman.compat.kue.generate import generate
from ferryman.migrations.local import LocalEngine
from ferryman.migrations.plan import Plan
from ferryman.migrations.run import JOURNAL
from ferryman.schema.connection.address import Address
from ferryman.schema.fact import Entry
from ferryman.schema.family import get_family
from ferryman.spark.engine import SparkEngine
from ferryman.testing.keyspaces import dump, store

from ..conftest import SERVERS
from ..support.clusters import MASTERS, Cluster, cluster
from ..support.servers import Server

NOW = 1_795_262_676_000
JOBS = 600


def keyspace(*clients: redis.Redis) -> dict[bytes, Entry]:
    """All keys but the journal's."""
    found = {key: entry for client in clients for key, entry in dump(client).items()}
    return {key: entry for key, entry in found.items() if not key.startswith(JOURNAL.encode())}


def of_cluster(nodes: Cluster) -> dict[bytes, Entry]:
    return keyspace(*(node.server.client() for node in nodes.nodes[:MASTERS]))


def test_a_cluster_gets_what_a_server_would_get(engine: SparkEngine, server: Server, client: redis.Redis, tmp_path: Path) -> None:
    store(client, get_family("kue"), "q", generate(JOBS, 7, NOW))
    source = Address.parse(server.url(family="kue"))
    there = Address.parse(server.url(1))
    LocalEngine().migrate(source, there, Plan.between(source, there, NOW), lambda _: None)
    with cluster(SERVERS[0], tmp_path) as nodes:
        target = Address.parse(nodes.url())
        plan = Plan.between(source, target, NOW)

        class Stop(Exception):
            """The user has had enough."""

        def stop_while_writing(phase: str, _done: int, _total: int | None) -> None:
            if phase == "writing jobs" and of_cluster(nodes):
                raise Stop

        with pytest.raises(Stop):
            engine.migrate(source, target, plan, lambda _: None, stop_while_writing)
        summary = engine.migrate(source, target, plan, lambda _: None, resume=True)
        assert of_cluster(nodes) == keyspace(server.client(1))
    assert summary.read == JOBS
