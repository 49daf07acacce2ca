"""Captured keyspaces as test material: their entries, what is known about them, and the way into a server."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import redis
from attrs import evolve, frozen
from ferryman.compat.samples import commands, read_capture
from ferryman.schema.fact import Entry, Fact, Subject, join
from ferryman.schema.family import KeyFamily
from ferryman.schema.job import Job
from ferryman.schema.rule import Finding, Keyspace
from ferryman.schema.totals import Totals

DATA = Path(__file__).parent.parent / "data"


@frozen(eq=False)
class Capture:
    """One captured keyspace."""

    system: str
    name: str
    expected: dict[str, Any]
    """What the original software says, as in ``<name>.expected.json``."""

    @property
    def prefix(self) -> str:
        prefix: str = self.expected["prefix"]
        return prefix

    @property
    def captured_at_ms(self) -> int:
        """The moment that rules must compare with."""
        moment: int = self.expected["captured_at_ms"]
        return moment

    @property
    def rdb(self) -> Path:
        """The same keyspace as a snapshot file."""
        return DATA / self.system / f"{self.name}.rdb"

    def entries(self) -> Iterator[Entry]:
        """Every key. Cases that are shipped with the family are not kept twice."""
        path = DATA / self.system / f"{self.name}.jsonl"
        if path.exists():
            return read_capture(path.read_text("utf-8").split("\n"))
        entries: Iterator[Entry] = import_module(f"ferryman.compat.{self.system}.samples").SAMPLES[self.name].entries()
        return entries

    def __str__(self) -> str:
        return f"{self.system}/{self.name}"


@cache
def captures(system: str) -> list[Capture]:
    """All captures of one system, by name."""
    files = sorted((DATA / system).glob("*.expected.json"))
    return [Capture(system, path.name.removesuffix(".expected.json"), json.loads(path.read_text("utf-8"))) for path in files]


def capture(system: str, name: str) -> Capture:
    """One capture. Raises StopIteration for an unknown one."""
    return next(each for each in captures(system) if each.name == name)


def load(entries: Iterable[Entry] | Capture, client: redis.Redis) -> None:
    """Writes entries into a server by plain commands. Times to live are left out, so that an expired lock stays to be seen."""
    pipeline = client.pipeline(transaction=False)
    for entry in entries.entries() if isinstance(entries, Capture) else entries:
        for words in commands(entry):
            pipeline.execute_command(*words)
    pipeline.execute()


def dump(client: redis.Redis) -> dict[bytes, Entry]:
    """Every key of a server's database by name, each whole in one entry."""
    keys = sorted(client.scan_iter(count=1000))
    pipeline = client.pipeline(transaction=False)
    for key in keys:
        pipeline.type(key).pttl(key)
    kinds = pipeline.execute()
    for key, kind in zip(keys, kinds[::2], strict=True):
        _ask(pipeline, key, kind.decode())
    return {
        key: Entry(key, kind.decode(), sorted(value) if kind == b"set" else value, ttl_ms if ttl_ms >= 0 else None)
        for key, kind, ttl_ms, value in zip(keys, kinds[::2], kinds[1::2], pipeline.execute(), strict=True)
    }


def _ask(pipeline: Any, key: bytes, kind: str) -> None:
    """Asks for the value of a key; None for a type that is not read."""
    match kind:
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


@frozen(eq=False)
class Survey:
    """A keyspace as an engine sees it, made in the plainest way: facts, totals and subjects."""

    keyspace: Keyspace
    subjects: dict[tuple[str, str], Subject]
    """By (scope, job id)."""

    def jobs(self) -> list[Job]:
        """Everything that the family reads as a job, after a check that it describes each as it reads it."""
        family, keyspace = self.keyspace.family, self.keyspace
        found = []
        for subject in self.subjects.values():
            job, described = family.read(subject, keyspace), family.describe(subject, keyspace)
            assert (described is None) == (job is None)
            if job is not None and described is not None:
                assert evolve(described, extra=job.extra, position=job.position, rank=job.rank) == job
                found.append(job)
        return found

    def findings(self) -> list[Finding]:
        """What all rules say about all jobs and the keyspace."""
        family = self.keyspace.family
        found = [finding for subject in self.subjects.values() for finding in family.findings(subject, self.keyspace)]
        return [*found, *family.keyspace_findings(self.keyspace)]


def survey(family: KeyFamily, entries: Iterable[Entry], prefix: str, now_ms: int) -> Survey:
    """Reads entries the way engines do, without a server."""
    totals = Totals()
    by_job: dict[tuple[str, str], list[Fact]] = {}
    for entry in entries:
        for fact in family.facts(entry, prefix):
            family.tally(fact, totals)
            if fact.job_id is not None:
                by_job.setdefault((fact.scope, fact.job_id), []).append(fact)
    for fact in [echo for facts in by_job.values() for echo in family.echoes(join(facts))]:
        by_job[fact.scope, fact.job_id or ""].append(fact)
    subjects = {identity: join(facts) for identity, facts in by_job.items()}
    return Survey(Keyspace(family, prefix, now_ms, totals), subjects)
