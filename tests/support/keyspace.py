"""Keyspaces made by a family's own writer, for tests that need many jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

import redis
from ferryman.migrations.partition_writer import send_last
from ferryman.schema.family import Command, KeyFamily, Target
from ferryman.schema.job import Job
from ferryman.schema.totals import Totals

BATCH = 1000


def store(client: redis.Redis, family: KeyFamily, prefix: str, jobs: Iterable[Job], now_ms: int = 0) -> None:
    """Writes jobs as a migration would, registries, counters and tokens included."""
    target, written = Target(prefix, now_ms), Totals()
    pipeline = client.pipeline(transaction=False)
    for job in jobs:
        family.tally_written(job, written)
        for command in family.write(job, target):
            pipeline.execute_command(*command)
        if len(pipeline) > BATCH:
            pipeline.execute()
    pipeline.execute()
    finish(client, family.finish(target, written))


def finish(client: redis.Redis, commands: Sequence[Command]) -> None:
    """Sends the last commands of a family, and its scripts again while they have more to do."""
    send_last(commands, lambda those: [client.execute_command(*command) for command in those])


def inject_all(client: redis.Redis, family: KeyFamily, prefix: str, jobs: Sequence[Job], now_ms: int = 0) -> list[Job]:
    """Breaks every rule that can be broken, in three jobs of its own where so many fit: the jobs that are left as they were."""
    target = Target(prefix, now_ms)
    sound = Random(5).sample(jobs, len(jobs))
    for rule in sorted(family.injectable):
        for job in [job for job in sound if family.inject(rule, job, target)][:3]:
            sound.remove(job)
            for command in family.inject(rule, job, target):
                client.execute_command(*command)
    return sound
