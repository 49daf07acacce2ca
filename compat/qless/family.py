"""The qless family: names the functions that are its part of the contract in schema/family.py.

Sources: qless of all generations from March 2012 on, and reqless. Holds no logic of its own. Registered as ``qless`` in the
group ``ferryman.families``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from ...schema.fact import Subject
from ...schema.family import Command, KeyFamily, Keyspace
from ...schema.job import Job
from ...schema.keys import glob_escape
from ...schema.native.keys import DEFAULT_PREFIX
from . import acceptance, faults, reader, repairs, writer
from .core import Core, parse_core
from .generate import generate, generate_records
from .keys import PREFIX_FINDER, UNPREFIXED, state_indexes, version
from .prefilter import QlessPrefilter
from .related_keys import related_keys
from .rules import RULES
from .statistics import days
from .view import view_of
from .workers import workers

if TYPE_CHECKING:
    from .live import QlessLive
    from .steering import QlessSteering


class Qless(KeyFamily):
    """Jobs of qless and reqless."""

    name = "qless"
    title = "qless and reqless, the job queue in Lua for many languages (2012 to 2024)"
    default_prefix = "ql"
    parameters: ClassVar = {"core": parse_core}
    rules = RULES
    left_behind_roles = reader.UNCARRIED
    keeps_extra = True
    reference_roles = frozenset({"waits"})
    repairable = repairs.REPAIRABLE
    choosable = repairs.CHOOSABLE
    injectable = faults.INJECTABLE

    prefixes = staticmethod(PREFIX_FINDER.prefixes)
    version = staticmethod(version)
    facts = staticmethod(reader.facts)
    tally = staticmethod(reader.tally)
    read = staticmethod(reader.read)
    describe = staticmethod(reader.describe)
    counted = staticmethod(reader.counted)
    back_references = staticmethod(reader.back_references)
    related_keys = staticmethod(related_keys)
    state_indexes = staticmethod(state_indexes)
    workers = staticmethod(workers)
    days = staticmethod(days)
    incompatibilities = staticmethod(writer.incompatibilities)
    write = staticmethod(writer.write)
    finish = staticmethod(writer.finish)
    tally_written = staticmethod(writer.tally_written)
    repair = staticmethod(repairs.repair)
    inject = staticmethod(faults.inject)
    generate = staticmethod(generate)
    generate_records = staticmethod(generate_records)

    def __init__(self, core: Core = "") -> None:
        self.core = core
        """Which software works on a keyspace in use; '' is told from its keys."""

    def accepts(self, subject: Subject, keyspace: Keyspace) -> bool:
        return acceptance.accepts(view_of(subject), keyspace)

    def expressed(self, job: Job, now_ms: int) -> Job:
        return writer.expressed(job)

    def configured(self, settings: Mapping[str, Any]) -> Qless:
        return Qless(**settings)

    def live(self, prefix: str, side_prefix: str) -> QlessLive:
        from .live import QlessLive  # loaded where jobs are taken, and not for who only reads them

        return QlessLive(prefix, side_prefix, self.core)

    def queue_list(self, prefix: str) -> Command:
        return ("ZRANGE", f"{prefix}:queues", 0, -1)

    def steering(self, prefix: str) -> QlessSteering:
        from .steering import QlessSteering  # and this where somebody steers

        return QlessSteering(self.live(prefix, DEFAULT_PREFIX))

    def prefilter(self, prefix: str, now_ms: int, *, for_transfer: bool = False) -> QlessPrefilter:
        return QlessPrefilter(prefix, now_ms, for_transfer=for_transfer)

    def globs(self, prefix: str) -> tuple[str, ...]:
        return (glob_escape(prefix) + ":*", *UNPREFIXED)


FAMILY = Qless()
