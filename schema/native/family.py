"""The native family: ties keys, reader, rules and writer to the contract of schema/family.py.

Holds no logic of its own. Registered as ``ferryman`` in the group ``ferryman.families``. What runs its queues is ``scripts/``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from ..choices import NO_CHOICES, Choices
from ..fact import Entry, Fact, Subject
from ..family import Asking, Command, KeyFamily, Target
from ..job import Job
from ..key_refs import CountCheck, KeyRef
from ..keys import glob_escape
from ..prefilter import Prefilter
from ..rule import Finding, Keyspace
from ..sampling import UNSHARDED, Shard
from ..totals import Totals
from . import counts, faults, generate, reader, repairs, writer
from .keys import DEFAULT_PREFIX
from .layout import TELLING
from .prefilter import NativePrefilter
from .record import NAME
from .related_keys import count_checks, related_keys
from .rules import RULES

if TYPE_CHECKING:
    from ..columnar.jobtable import CommandTable, JobTable


class Native(KeyFamily):
    """Jobs of ferryman's own queues."""

    name = NAME
    title = "ferryman's own queues, schema 1"
    default_prefix = DEFAULT_PREFIX
    rules = RULES
    keeps_extra = True
    ids_by_queue = True
    uncarried = frozenset({"stats", "exchange", "fanout", "cursors"})
    repairable = repairs.REPAIRABLE
    injectable = faults.INJECTABLE

    def prefixes(self, key: bytes, redis_type: str) -> Iterable[str]:
        return TELLING.prefixes(key, redis_type)

    def version(self, keyspace: Keyspace) -> str | None:
        names = keyspace.totals.names
        if not names.get("queues"):
            return None
        return "a newer schema than 1" if names.get("other schema") else "schema 1"

    def globs(self, prefix: str) -> tuple[str, ...]:
        return (glob_escape(prefix) + ":*",)

    def facts(self, entry: Entry, prefix: str) -> Iterator[Fact]:
        return reader.facts(entry, prefix)

    def prefilter(self, prefix: str, now_ms: int, *, for_transfer: bool = False) -> Prefilter:
        return NativePrefilter(prefix, now_ms, for_transfer=for_transfer)

    def tally(self, fact: Fact, totals: Totals) -> None:
        reader.tally(fact, totals)

    def read(self, subject: Subject, keyspace: Keyspace) -> Job | None:
        return reader.read(subject, keyspace)

    def queues(self, keyspace: Keyspace) -> Iterable[str]:
        names = keyspace.totals.names
        return names.get("registered", set()) | names.get("queues", set())

    def consumers(self, keyspace: Keyspace) -> Mapping[str, int]:
        return reader.consumers(keyspace.totals, keyspace.now_ms)

    def has_twin(self, subject: Subject, keyspace: Keyspace) -> bool:
        return reader.has_twin(subject, keyspace)

    def count(self, prefix: str, now_ms: int) -> Asking:
        return counts.count(prefix, now_ms)

    def related_keys(self, subject: Subject, keyspace: Keyspace) -> Iterable[KeyRef]:
        return related_keys(subject, keyspace)

    def count_checks(self, finding: Finding, keyspace: Keyspace) -> Iterable[CountCheck]:
        return count_checks(finding, keyspace)

    def incompatibilities(self, job: Job) -> Iterator[Finding]:
        return writer.incompatibilities(job)

    def has_tags(self, prefix: str) -> bool:
        return True

    def expressed(self, job: Job, now_ms: int) -> Job:
        return writer.expressed(job)

    def write(self, job: Job, target: Target) -> list[Command]:
        return writer.write(job, target)

    def can_write_table(self, jobs: JobTable) -> bool:
        from .columnar.table import can_write_table  # needs what only the extra spark has

        return can_write_table(jobs)

    def write_table(self, jobs: JobTable, target: Target, written: Totals) -> CommandTable | None:
        from .columnar.table import write_table

        return write_table(jobs, target, written)

    def finish(self, target: Target, written: Totals) -> list[Command]:
        return writer.finish(target, written)

    def tally_written(self, job: Job, totals: Totals) -> None:
        super().tally_written(job, totals)
        writer.tally_written(job, totals)

    def repair(
        self, finding: Finding, subject: Subject | None, keyspace: Keyspace, choices: Choices = NO_CHOICES
    ) -> list[Command]:
        return repairs.repair(finding, subject, keyspace)

    def inject(self, rule: str, job: Job, target: Target) -> list[Command]:
        return faults.inject(rule, job, target)

    def generate(self, jobs: int, seed: int, now_ms: int, shard: Shard = UNSHARDED) -> Iterator[Job]:
        return generate.generate(jobs, seed, now_ms, shard)


FAMILY = Native()
