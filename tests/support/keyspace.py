"""Keyspaces made by a family's own writer, for tests that need many jobs."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import redis
from ferryman.schema.family import KeyFamily, Target
from ferryman.schema.job import Job

BATCH = 1000


def inject_all(client: redis.Redis, family: KeyFamily, prefix: str, jobs: Sequence[Job], now_ms: int = 0) -> list[Job]:
    """Breaks every rule that can be broken, in three jobs of its own where so many fit: the jobs that are left as they were."""
    target = Target(prefix, now_ms)
    intact = Random(5).sample(jobs, len(jobs))
    for rule in sorted(family.injectable):
        for job in [job for job in intact if family.inject(rule, job, target)][:3]:
            intact.remove(job)
            for command in family.inject(rule, job, target):
                client.execute_command(*command)
    return intact
