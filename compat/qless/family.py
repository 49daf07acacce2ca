"""The qless family: ties keys, reader, rules and writer to the contract of schema/family.py.

Sources: qless of all generations from March 2012 on, and reqless. Holds no logic of its own. Registered as ``qless`` in the
group ``ferryman.families``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...schema.choices import NO_CHOICES, Choices
from ...schema.fact import Entry, Fact, Subject
from ...schema.family import Command, KeyFamily, Target
from ...schema.job import Job
from ...schema.key_refs import KeyRef
from ...schema.keys import glob_escape
from ...schema.rule import Finding, Keyspace
from ...schema.sampling import UNSHARDED, Shard
from ...schema.totals import Totals
from . import reader, writer
from .faults import INJECTABLE, inject
from .generate import generate, generate_records
from .keys import TELLING, UNPREFIXED, versions
from .related_keys import related_keys
from .repairs import CHOOSABLE, REPAIRABLE, repair
from .rules import RULES


class Qless(KeyFamily):
    """Jobs of qless and reqless."""

    name = "qless"
    title = "qless and reqless, the job queue in Lua for many languages (2012 to 2024)"
    default_prefix = "ql"
    rules = RULES
    uncarried = reader.UNCARRIED
    keeps_extra = True
    asking = frozenset({"waits"})
    repairable = REPAIRABLE
    choosable = CHOOSABLE
    injectable = INJECTABLE

    def prefixes(self, key: bytes, redis_type: str) -> Iterable[str]:
        return TELLING.prefixes(key, redis_type)

    def version(self, keyspace: Keyspace) -> str | None:
        return versions(keyspace.totals)

    def globs(self, prefix: str) -> tuple[str, ...]:
        return (glob_escape(prefix) + ":*", *UNPREFIXED)

    def facts(self, entry: Entry, prefix: str) -> Iterator[Fact]:
        return reader.facts(entry, prefix)

    def echoes(self, subject: Subject) -> Iterator[Fact]:
        return reader.echoes(subject)

    def tally(self, fact: Fact, totals: Totals) -> None:
        reader.tally(fact, totals)

    def read(self, subject: Subject, keyspace: Keyspace) -> Job | None:
        return reader.read(subject, keyspace)

    def describe(self, subject: Subject, keyspace: Keyspace) -> Job | None:
        return reader.describe(subject, keyspace)

    def related_keys(self, subject: Subject, keyspace: Keyspace) -> Iterable[KeyRef]:
        return related_keys(subject, keyspace)

    def incompatibilities(self, job: Job) -> Iterator[Finding]:
        return writer.incompatibilities(job)

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
        return repair(finding, subject, keyspace, choices)

    def generate(self, jobs: int, seed: int, now_ms: int, shard: Shard = UNSHARDED) -> Iterator[Job]:
        return generate(jobs, seed, now_ms, shard)

    def generate_records(self, jobs: int, seed: int, now_ms: int, shard: Shard = UNSHARDED) -> Iterator[Job]:
        return generate_records(jobs, seed, now_ms, shard)

    def inject(self, rule: str, job: Job, target: Target) -> list[Command]:
        return inject(rule, job, target)


FAMILY = Qless()
