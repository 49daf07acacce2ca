"""The pjq family: names the functions that are its part of the contract in schema/family.py.

Sources: processor-job-queue in all its layouts, JavaScript and Python, September 2017 on. Keys have no prefix. Holds no logic
of its own. Registered as ``pjq`` in the group ``ferryman.families``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...schema.family import KeyFamily
from ...schema.job import Job
from ...schema.keys import glob_escape
from ...schema.native.keys import DEFAULT_PREFIX
from . import faults, passthrough, reader, repairs, workers, writer
from .generate import generate, generate_records
from .keys import PREFIX_FINDER, state_indexes, version
from .prefilter import PjqPrefilter
from .related_keys import related_keys
from .rules import RULES

if TYPE_CHECKING:
    from .live import PjqLive
    from .steering import PjqSteering


class Pjq(KeyFamily):
    """Jobs of processor-job-queue."""

    name = "pjq"
    title = "pjq, processor-job-queue for MQTT workers (JavaScript and Python, 2017 on)"
    default_prefix = ""
    names_records = False
    finds_by_id = False
    rules = RULES
    keeps_extra = True
    repairable = repairs.REPAIRABLE
    countdowns = (("found", "ttl"),)
    choosable = repairs.CHOOSABLE
    injectable = faults.INJECTABLE

    ambiguous_roles = frozenset({reader.OTHER})

    prefixes = staticmethod(PREFIX_FINDER.prefixes)
    version = staticmethod(version)
    facts = staticmethod(reader.facts)
    tally = staticmethod(reader.tally)
    read = staticmethod(reader.read)
    other_prefixes = staticmethod(reader.other_prefixes)
    describe = staticmethod(reader.describe)
    consumers = staticmethod(workers.alive)
    related_keys = staticmethod(related_keys)
    state_indexes = staticmethod(state_indexes)
    incompatibilities = staticmethod(writer.incompatibilities)
    write = staticmethod(writer.write)
    finish = staticmethod(writer.finish)
    tally_written = staticmethod(writer.tally_written)
    repair = staticmethod(repairs.repair)
    inject = staticmethod(faults.inject)
    generate = staticmethod(generate)
    generate_records = staticmethod(generate_records)

    def prefilter(self, prefix: str, now_ms: int, *, for_transfer: bool = False) -> PjqPrefilter:
        return PjqPrefilter(prefix)

    def globs(self, prefix: str) -> tuple[str, ...]:
        return (glob_escape(prefix) + "*",)

    def live(self, prefix: str, side_prefix: str) -> PjqLive:
        from .live import PjqLive  # loaded where jobs are taken, and not for who only reads them

        return PjqLive(prefix, side_prefix)

    def steering(self, prefix: str) -> PjqSteering:
        from .steering import PjqSteering  # and this where somebody steers

        return PjqSteering(self.live(prefix, DEFAULT_PREFIX))

    def expressed(self, job: Job, now_ms: int) -> Job:
        return passthrough.expressed(job)


FAMILY = Pjq()
