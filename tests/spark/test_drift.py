"""A source that changes while Spark carries it is named, with the same numbers as the local engine's."""

from __future__ import annotations

import redis
from ferryman.migrations.plan import Plan
from ferryman.schema.connection.address import Address
from ferryman.schema.family import get_family
from ferryman.spark.engine import SparkEngine
from ferryman.testing.keyspaces import store

from ..support.servers import Server

NOW = 1_795_262_676_000


def test_a_source_that_changes_is_named_and_a_quiet_one_is_not(engine: SparkEngine, server: Server, client: redis.Redis) -> None:
    family = get_family("kue")
    jobs = list(family.generate(303, 7, NOW))
    store(client, family, "q", jobs[:300], NOW)
    source, target = Address.parse(server.url(family="kue")), Address.parse(server.url(1))
    plan = Plan.between(source, target, NOW)
    dry = engine.migrate(source, target, plan, lambda _: None, dry_run=True)
    assert dry.drift is not None
    assert not dry.drift.is_changed
    assert dry.drift.jobs_after == 300

    def disturb(phase: str, _done: int, _total: int | None) -> None:
        if phase.startswith("writing jobs") and len(jobs) == 303:
            store(client, family, "q", jobs[300:], NOW)
            jobs.clear()

    summary = engine.migrate(source, target, plan, lambda _: None, disturb)
    assert summary.written + summary.skipped == 300
    assert summary.drift is not None
    assert (summary.drift.jobs_before, summary.drift.jobs_after) == (300, 303)
    assert summary.drift.added >= 3
