"""Whole keyspaces in tests: written by a family's writer, dumped from a server, and read as engines read them.

Small keyspaces only: everything is held in memory. Called by the conformance suite and by tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import redis
from attrs import evolve, frozen

from ..migrations.partition_writer import send_last
from ..migrations.subjects import SubjectBuilder
from ..schema.fact import Entry, Subject
from ..schema.family import Command, KeyFamily, Keyspace, Target
from ..schema.job import Job
from ..schema.rule import Finding
from ..schema.totals import Totals

BATCH = 1000


@frozen(eq=False)
class KeyspaceReading:
    """A keyspace as an engine sees it: its totals and its subjects."""

    keyspace: Keyspace
    subjects: dict[tuple[str, str], Subject]
    """By (scope, job id)."""

    def jobs(self) -> list[Job]:
        """Everything that the family reads as a job, after a check that it describes and counts each as it reads it."""
        family, keyspace = self.keyspace.family, self.keyspace
        found = []
        for subject in self.subjects.values():
            job, described = family.read(subject, keyspace), family.describe(subject, keyspace)
            counted = family.counted(subject, keyspace)
            assert (described is None) == (counted is None) == (job is None)
            if job is not None and described is not None and counted is not None:
                assert (counted.queue, counted.state, counted.created_at) == (job.queue, job.state, job.created_at)
                assert evolve(described, extra=job.extra, position=job.position, rank=job.rank) == job
                found.append(job)
        return found

    def findings(self) -> list[Finding]:
        """What all rules say about all jobs and the keyspace."""
        family = self.keyspace.family
        found = [finding for subject in self.subjects.values() for finding in family.findings(subject, self.keyspace)]
        return [*found, *family.keyspace_findings(self.keyspace)]


def read_keyspace(family: KeyFamily, entries: Iterable[Entry], prefix: str, now_ms: int) -> KeyspaceReading:
    """Reads entries the way engines do, without a server. ``now_ms``: the moment that rules compare with, Unix ms."""
    totals, builder = Totals(), SubjectBuilder(family)
    for entry in entries:
        for fact in family.facts(entry, prefix):
            family.tally(fact, totals)
            builder.add(fact)
    subjects = {(subject.scope, subject.job_id): subject for subject in builder.subjects()}
    return KeyspaceReading(Keyspace(family, prefix, now_ms, totals), subjects)


def dump(client: redis.Redis) -> dict[bytes, Entry]:
    """Every key of a server's database by name, each whole in one entry; the members of a set in order."""
    keys = sorted(client.scan_iter(count=BATCH))
    pipeline = client.pipeline(transaction=False)
    for key in keys:
        pipeline.type(key)
        pipeline.pttl(key)
    types = pipeline.execute()
    for key, redis_type in zip(keys, types[::2], strict=True):
        _get(pipeline, key, redis_type.decode())
    return {
        key: Entry(key, kind.decode(), sorted(value) if kind == b"set" else value, ttl_ms if ttl_ms >= 0 else None)
        for key, kind, ttl_ms, value in zip(keys, types[::2], types[1::2], pipeline.execute(), strict=True)
    }


def _get(pipeline: Any, key: bytes, redis_type: str) -> None:
    """Asks for the value of a key; None for a type that is not read."""
    match redis_type:
        case "string":
            pipeline.get(key)
        case "list":
            pipeline.lrange(key, 0, -1)
        case "set":
            pipeline.smembers(key)
        case "zset":
            pipeline.zrange(key, 0, -1, withscores=True)
        case "hash":
            pipeline.hgetall(key)
        case _:
            pipeline.hget("", "")


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


def send(client: redis.Redis, commands: Iterable[Command]) -> None:
    """Plain commands, one after the other."""
    for command in commands:
        client.execute_command(*command)


def expire_sooner(client: redis.Redis, by_ms: int) -> None:
    """Takes so much of the time that keys have left to live, where they have more."""
    keys = list(client.scan_iter(count=BATCH)) if by_ms else []
    pipeline = client.pipeline(transaction=False)
    for key in keys:
        pipeline.pttl(key)
    left = pipeline.execute()
    for key, ttl_ms in zip(keys, left, strict=True):
        if ttl_ms > by_ms:
            pipeline.pexpire(key, ttl_ms - by_ms)
    pipeline.execute()
