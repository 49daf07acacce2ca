"""The kue family: names the functions that are its part of the contract in schema/family.py.

Sources: kue 0.3.4 to 0.11.6, prefix ``q`` by default. Holds no logic of its own. Registered as ``kue`` in the group
``ferryman.families``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ...schema.fact import Subject
from ...schema.family import Command, KeyFamily, Keyspace
from ...schema.job import Job
from ...schema.job_index import JobIndex
from ...schema.keys import glob_escape
from ...schema.native.keys import DEFAULT_PREFIX
from ...schema.prefilter import Prefilter
from ...schema.rule import Finding
from . import counts, faults, reader, repairs, writer
from .generate import generate
from .keys import LOCKS, PREFIX_FINDER, Era, era_of, layout, parse_version, state_indexes, version
from .prefilter import KuePrefilter
from .related_keys import count_checks, related_keys
from .rules import RULES, record
from .view import view_of

if TYPE_CHECKING:
    from ...schema.columnar.batch_prefilter import BatchPrefilter
    from .live import KueLive
    from .steering import KueSteering


class Kue(KeyFamily):
    """Jobs of kue, the priority queue for Node.js."""

    name = "kue"
    title = "kue, the priority job queue for Node.js (0.3 to 0.11)"
    default_prefix = "q"
    parameters: ClassVar = {"version": parse_version}
    rules = RULES
    keeps_extra = True
    left_behind_roles = frozenset({"work_time", "settings"})
    ids_by_queue = True
    repairable = repairs.REPAIRABLE
    choosable = repairs.CHOOSABLE
    injectable = faults.INJECTABLE

    def __init__(self, era: Era | None = None) -> None:
        self._era = era
        """That of the URL: whose form new jobs get in a keyspace where no other job tells."""

    prefixes = staticmethod(PREFIX_FINDER.prefixes)
    version = staticmethod(version)
    facts = staticmethod(reader.facts)
    tally = staticmethod(reader.tally)
    count = staticmethod(counts.count)
    waits = staticmethod(counts.waits)
    related_keys = staticmethod(related_keys)
    state_indexes = staticmethod(state_indexes)
    count_checks = staticmethod(count_checks)
    incompatibilities = staticmethod(writer.incompatibilities)
    write = staticmethod(writer.write)
    finish = staticmethod(writer.finish)
    tally_written = staticmethod(writer.tally_written)
    repair = staticmethod(repairs.repair)
    inject = staticmethod(faults.inject)
    generate = staticmethod(generate)

    def globs(self, prefix: str) -> tuple[str, ...]:
        return (glob_escape(prefix) + ":*", *LOCKS)

    def job_index(self, prefix: str) -> JobIndex:
        names = layout(prefix)
        return JobIndex(names.key("all"), names.key("record", id=""), ord("|"))

    def prefilter(self, prefix: str, now_ms: int, *, for_transfer: bool = False) -> Prefilter:
        return KuePrefilter(prefix, now_ms, for_transfer=for_transfer)

    def batch_prefilter(self, prefix: str, now_ms: int, *, for_transfer: bool = False) -> BatchPrefilter:
        from .columnar.batch_prefilter import KueBatchPrefilter  # needs the extra columnar

        return KueBatchPrefilter(KuePrefilter(prefix, now_ms, for_transfer=for_transfer))

    def read(self, subject: Subject, keyspace: Keyspace) -> Job | None:
        return reader.read(subject)

    def describe(self, subject: Subject, keyspace: Keyspace) -> Job | None:
        return reader.describe(subject)

    def refusals(self, subject: Subject, keyspace: Keyspace, accepted: Collection[str] = ()) -> Sequence[Finding]:
        return () if record.are_silent(view_of(subject)) else super().refusals(subject, keyspace, accepted)

    def queues(self, keyspace: Keyspace) -> Iterable[str]:
        return keyspace.totals.names.get("types", ())

    def queue_list(self, prefix: str) -> Command:
        return ("SMEMBERS", layout(prefix).key("types"))

    def configured(self, settings: Mapping[str, Any]) -> Kue:
        return Kue(era_of(settings["version"]) if "version" in settings else None)

    def live(self, prefix: str, side_prefix: str) -> KueLive:
        from .live import KueLive  # loaded where jobs are taken, and not for who only reads them

        return KueLive(prefix, side_prefix, era=self._era)

    def steering(self, prefix: str) -> KueSteering:
        from .steering import KueSteering  # and this where somebody steers

        return KueSteering(self.live(prefix, DEFAULT_PREFIX))

    def expressed(self, job: Job, now_ms: int) -> Job:
        return writer.expressed(job)


FAMILY = Kue()
