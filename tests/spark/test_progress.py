"""What Spark's engine says of its progress: each step from nothing to all of its tasks, which are known when it begins."""

from __future__ import annotations

from collections import defaultdict

import redis
from ferryman.schema.connection.address import Address
from ferryman.schema.family import get_family
from ferryman.spark.engine import SparkEngine
from ferryman.testing.keyspaces import store

from ..support.servers import Server

NOW = 1_795_262_676_000
TASKS = 3


def test_every_step_ends_with_all_the_tasks_that_it_began_with(engine: SparkEngine, server: Server, client: redis.Redis) -> None:
    family = get_family("kue")
    store(client, family, "q", family.generate(600, 3, NOW), NOW)
    phases: defaultdict[str, list[tuple[int, int | None]]] = defaultdict(list)

    def progress(phase: str, done: int, total: int | None) -> None:
        phases[phase].append((done, total))

    engine.audit(Address.parse(server.url(family="kue")), NOW, lambda _: None, progress)
    assert list(phases)[:3] == ["starting Spark", "scanning kue keys", "reading kue keys"]
    assert phases["reading kue keys"][-1] == (TASKS, TASKS)
    assert "checking jobs" in phases
    for phase, reports in phases.items():
        if phase == "starting Spark":
            continue
        done = [number for number, _ in reports]
        assert done == sorted(done)
        assert done[-1] == reports[-1][1]
        # From the first finished task on, the time left can be told.
        assert len({total for number, total in reports if number}) == 1
