"""The pjq family: ties keys, reader, rules and writer to the contract of schema/family.py.

Sources: processor-job-queue in all its layouts, JavaScript and Python, September 2017 on. Keys have no prefix. Holds no logic
of its own. Registered as ``pjq`` in the group ``ferryman.families``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ...schema.choices import NO_CHOICES, Choices
from ...schema.fact import Entry, Fact, Subject
from ...schema.family import Command, KeyFamily, Target
from ...schema.job import Job
from ...schema.key_refs import KeyRef
from ...schema.keys import glob_escape
from ...schema.rule import Finding, Keyspace
from ...schema.sampling import UNSHARDED, Shard
from ...schema.totals import Totals
from . import faults, generate, passthrough, reader, repairs, workers, writer
from .keys import TELLING, versions
from .related_keys import related_keys
from .rules import RULES


class Pjq(KeyFamily):
    """Jobs of processor-job-queue."""

    name = "pjq"
    title = "pjq, processor-job-queue for MQTT workers (JavaScript and Python, 2017 on)"
    default_prefix = ""
    names_records = False
    rules = RULES
    keeps_extra = True
    repairable = repairs.REPAIRABLE
    running_down = (("found", "ttl"),)
    choosable = repairs.CHOOSABLE
    injectable = faults.INJECTABLE

    def prefixes(self, key: bytes, redis_type: str) -> Iterable[str]:
        return TELLING.prefixes(key, redis_type)

    def version(self, keyspace: Keyspace) -> str | None:
        return versions(keyspace.totals)

    def globs(self, prefix: str) -> tuple[str, ...]:
        return (glob_escape(prefix) + "*",)

    def facts(self, entry: Entry, prefix: str) -> Iterator[Fact]:
        return reader.facts(entry, prefix)

    def tally(self, fact: Fact, totals: Totals) -> None:
        reader.tally(fact, totals)

    def read(self, subject: Subject, keyspace: Keyspace) -> Job | None:
        return reader.read(subject, keyspace)

    def describe(self, subject: Subject, keyspace: Keyspace) -> Job | None:
        return reader.describe(subject, keyspace)

    def consumers(self, keyspace: Keyspace) -> Mapping[str, int] | None:
        return workers.alive(keyspace)

    def related_keys(self, subject: Subject, keyspace: Keyspace) -> Iterable[KeyRef]:
        return related_keys(subject, keyspace)

    def incompatibilities(self, job: Job) -> Iterator[Finding]:
        return writer.incompatibilities(job)

    def expressed(self, job: Job, now_ms: int) -> Job:
        return passthrough.expressed(job)

    def write(self, job: Job, target: Target) -> list[Command]:
        return writer.write(job, target)

    def finish(self, target: Target, written: Totals) -> list[Command]:
        return writer.finish(target, written)

    def tally_written(self, job: Job, totals: Totals) -> None:
        super().tally_written(job, totals)
        writer.tally_written(job, totals)

    def repair(
        self, finding: Finding, subject: Subject | None, keyspace: Keyspace, choices: Choices = NO_CHOICES
    ) -> list[Command]:
        return repairs.repair(finding, subject, keyspace, choices)

    def generate(self, jobs: int, seed: int, now_ms: int, shard: Shard = UNSHARDED) -> Iterator[Job]:
        return generate.generate(jobs, seed, now_ms, shard)

    def generate_records(self, jobs: int, seed: int, now_ms: int, shard: Shard = UNSHARDED) -> Iterator[Job]:
        return generate.generate_records(jobs, seed, now_ms, shard)

    def inject(self, rule: str, job: Job, target: Target) -> list[Command]:
        return faults.inject(rule, job, target)


FAMILY = Pjq()
