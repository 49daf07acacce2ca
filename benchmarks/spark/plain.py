"""Plain: what one would write without ferryman's engines, one loop around one library, for the same work."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import redis
from ferryman.migrations.plan import Plan, decide
from ferryman.schema.fact import Entry, join
from ferryman.schema.family import get_family
from ferryman.schema.totals import Totals
from rdb import RdbDecoder

BATCH = 500


def migrate(source: redis.Redis, target: redis.Redis, plan: Plan) -> int:
    """kue jobs to ferryman with redis-py's pipelines, through the same readers and writers; the number of jobs."""
    family = get_family(plan.source_family)
    keyspace = plan.keyspace(Totals())
    names = (name for name in source.scan_iter("q:job:[0-9]*", count=1000) if not name.endswith(b":log"))
    written = 0
    for batch in _batches(names):
        reading = source.pipeline(transaction=False)
        for name in batch:
            reading.hgetall(name)
        writing = target.pipeline(transaction=False)
        for name, fields in zip(batch, reading.execute(), strict=True):
            facts = list(family.facts(Entry(name, "hash", fields), plan.source_prefix))
            decision = decide(join(facts), keyspace, plan)
            if decision.job is not None:
                written += 1
                for command in plan.commands(decision.job, fresh=True):
                    writing.execute_command(*command)
        writing.execute()
    return written


def parse(path: str) -> int:
    """A loop over a snapshot file with rdb-py that does nothing; the number of keys."""
    return sum("key" in item for item in RdbDecoder(path))


def _batches(names: Iterator[Any]) -> Iterator[list[Any]]:
    while batch := list(islice(names, BATCH)):
        yield batch
