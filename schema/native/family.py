"""The native family: names the functions that are its part of the contract in schema/family.py.

Holds no logic of its own. Registered as ``ferryman`` in the group ``ferryman.families``. What runs its queues is ``scripts/``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from ..choices import NO_CHOICES, Choices
from ..fact import Subject
from ..family import Command, KeyFamily, Keyspace, Target
from ..job import Job
from ..keys import glob_escape
from ..prefilter import Prefilter
from ..rule import Finding
from ..totals import Totals
from . import counts, faults, reader, repairs, writer
from .generate import generate
from .keys import DEFAULT_PREFIX
from .layout import PREFIX_FINDER
from .prefilter import NativePrefilter
from .record import NAME
from .related_keys import count_checks, related_keys
from .rules import RULES
from .state_indexes import state_indexes

if TYPE_CHECKING:
    from ..columnar.batch_prefilter import BatchPrefilter
    from ..columnar.jobtable import CommandTable, JobTable
    from .steering import NativeSteering


class Native(KeyFamily):
    """Jobs of ferryman's own queues."""

    name = NAME
    title = "ferryman's own queues, schema 1"
    default_prefix = DEFAULT_PREFIX
    rules = RULES
    keeps_extra = True
    ids_by_queue = True
    scopes_by_queue = True
    left_behind_roles = frozenset({"times", "history", "slots", "exchange", "fanout", "cursors"})
    repairable = repairs.REPAIRABLE
    injectable = faults.INJECTABLE

    prefixes = staticmethod(PREFIX_FINDER.prefixes)
    facts = staticmethod(reader.facts)
    tally = staticmethod(reader.tally)
    read = staticmethod(reader.read)
    has_twin = staticmethod(reader.has_twin)
    count = staticmethod(counts.count)
    related_keys = staticmethod(related_keys)
    state_indexes = staticmethod(state_indexes)
    count_checks = staticmethod(count_checks)
    incompatibilities = staticmethod(writer.incompatibilities)
    write = staticmethod(writer.write)
    finish = staticmethod(writer.finish)
    tally_written = staticmethod(writer.tally_written)
    inject = staticmethod(faults.inject)
    generate = staticmethod(generate)

    def version(self, keyspace: Keyspace) -> str | None:
        names = keyspace.totals.names
        if not names.get("queues"):
            return None
        return "a newer schema than 1" if names.get("other schema") else "schema 1"

    def globs(self, prefix: str) -> tuple[str, ...]:
        return (glob_escape(prefix) + ":*",)

    def prefilter(self, prefix: str, now_ms: int, *, for_transfer: bool = False) -> Prefilter:
        return NativePrefilter(prefix, now_ms, for_transfer=for_transfer)

    def batch_prefilter(self, prefix: str, now_ms: int, *, for_transfer: bool = False) -> BatchPrefilter:
        from .columnar.batch_prefilter import NativeBatchPrefilter  # needs the extra columnar

        return NativeBatchPrefilter(NativePrefilter(prefix, now_ms, for_transfer=for_transfer))

    def queues(self, keyspace: Keyspace) -> Iterable[str]:
        names = keyspace.totals.names
        return names.get("registered", set()) | names.get("queues", set())

    def consumers(self, keyspace: Keyspace) -> Mapping[str, int]:
        return reader.consumers(keyspace.totals, keyspace.now_ms)

    def paused(self, keyspace: Keyspace) -> Collection[str]:
        return keyspace.totals.names.get("paused", ())

    def steering(self, prefix: str) -> NativeSteering:
        from .steering import NativeSteering  # loaded where somebody steers

        return NativeSteering(prefix)

    def has_hash_tags(self, prefix: str) -> bool:
        return True

    def expressed(self, job: Job, now_ms: int) -> Job:
        return writer.expressed(job)

    writes_tables = True

    def can_write_table(self, jobs: JobTable) -> bool:
        from .columnar.table import can_write_table  # needs the extra columnar

        return can_write_table(jobs)

    def write_table(self, jobs: JobTable, target: Target, written: Totals) -> CommandTable | None:
        from .columnar.table import write_table

        return write_table(jobs, target, written)

    def repair(
        self, finding: Finding, subject: Subject | None, keyspace: Keyspace, choices: Choices = NO_CHOICES
    ) -> list[Command]:
        return repairs.repair(finding, subject, keyspace)


FAMILY = Native()
