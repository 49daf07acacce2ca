"""The kue family: ties keys, reader, rules and writer to the contract of schema/family.py.

Sources: kue 0.3.4 to 0.11.6, prefix ``q`` by default. Holds no logic of its own. Registered as ``kue`` in the group
``ferryman.families``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from ...schema.choices import NO_CHOICES, Choices
from ...schema.fact import Entry, Fact, Subject
from ...schema.family import Asking, Command, KeyFamily, Target
from ...schema.index import Index
from ...schema.job import Job
from ...schema.key_refs import CountCheck, KeyRef
from ...schema.keys import glob_escape
from ...schema.prefilter import Prefilter
from ...schema.rule import Finding, Keyspace
from ...schema.sampling import UNSHARDED, Shard
from ...schema.totals import Totals
from . import counts, faults, generate, reader, repairs, writer
from .keys import LOCKS, TELLING, layout, versions
from .prefilter import KuePrefilter
from .related_keys import count_checks, related_keys
from .rules import RULES, record
from .view import view_of


class Kue(KeyFamily):
    """Jobs of kue, the priority queue for Node.js."""

    name = "kue"
    title = "kue, the priority job queue for Node.js (0.3 to 0.11)"
    default_prefix = "q"
    rules = RULES
    keeps_extra = True
    uncarried = frozenset({"work_time", "settings"})
    ids_by_queue = True
    repairable = repairs.REPAIRABLE
    choosable = repairs.CHOOSABLE
    injectable = faults.INJECTABLE

    def prefixes(self, key: bytes, redis_type: str) -> Iterable[str]:
        return TELLING.prefixes(key, redis_type)

    def version(self, keyspace: Keyspace) -> str | None:
        return versions(keyspace.totals)

    def globs(self, prefix: str) -> tuple[str, ...]:
        return (glob_escape(prefix) + ":*", *LOCKS)

    def facts(self, entry: Entry, prefix: str) -> Iterator[Fact]:
        return reader.facts(entry, prefix)

    def index(self, prefix: str) -> Index:
        names = layout(prefix)
        return Index(names.key("all"), names.key("record", id=""), ord("|"))

    def prefilter(self, prefix: str, now_ms: int, *, for_transfer: bool = False) -> Prefilter:
        return KuePrefilter(prefix, now_ms, for_transfer=for_transfer)

    def tally(self, fact: Fact, totals: Totals) -> None:
        reader.tally(fact, totals)

    def read(self, subject: Subject, keyspace: Keyspace) -> Job | None:
        return reader.read(subject)

    def describe(self, subject: Subject, keyspace: Keyspace) -> Job | None:
        return reader.describe(subject)

    def refusals(self, subject: Subject, keyspace: Keyspace, accepted: Collection[str] = ()) -> Sequence[Finding]:
        return () if record.are_silent(view_of(subject)) else super().refusals(subject, keyspace, accepted)

    def queues(self, keyspace: Keyspace) -> Iterable[str]:
        return keyspace.totals.names.get("types", ())

    def count(self, prefix: str, now_ms: int) -> Asking:
        return counts.count(prefix, now_ms)

    def related_keys(self, subject: Subject, keyspace: Keyspace) -> Iterable[KeyRef]:
        return related_keys(subject, keyspace)

    def count_checks(self, finding: Finding, keyspace: Keyspace) -> Iterable[CountCheck]:
        return count_checks(finding, keyspace)

    def incompatibilities(self, job: Job) -> Iterator[Finding]:
        return writer.incompatibilities(job)

    def expressed(self, job: Job, now_ms: int) -> Job:
        return writer.expressed(job)

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

    def inject(self, rule: str, job: Job, target: Target) -> list[Command]:
        return faults.inject(rule, job, target)

    def generate(self, jobs: int, seed: int, now_ms: int, shard: Shard = UNSHARDED) -> Iterator[Job]:
        return generate.generate(jobs, seed, now_ms, shard)


FAMILY = Kue()
