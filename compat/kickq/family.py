"""The kickq family: names the functions that are its part of the contract in schema/family.py.

Sources: kickq 0.0.1 to 1.1.0; the prefix is kickq's namespace, ``kickq`` by default, with whatever the option
``redisOptions.prefix`` puts before it. Holds no logic of its own. Registered as ``kickq`` in the group ``ferryman.families``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from ...schema.fact import Subject
from ...schema.family import KeyFamily, Keyspace
from ...schema.job import Job
from ...schema.keys import glob_escape
from ...schema.native.keys import DEFAULT_PREFIX
from . import faults, reader, repairs, writer
from .generate import generate, generate_records
from .keys import PREFIX_FINDER, state_indexes, version
from .prefilter import KickqPrefilter
from .process_options import PARAMETERS, ProcessOptions
from .related_keys import count_checks, related_keys
from .rules import RULES

if TYPE_CHECKING:
    from .live import KickqLive
    from .steering import KickqSteering

DEFAULTS = ProcessOptions()


class Kickq(KeyFamily):
    """Jobs of kickq, a small job queue for Node.js."""

    name = "kickq"
    title = "kickq, the job queue for Node.js (0.0.1 to 1.1)"
    default_prefix = "kickq"
    parameters: ClassVar = PARAMETERS
    rules = RULES
    keeps_extra = True
    repairable = repairs.REPAIRABLE
    choosable = repairs.CHOOSABLE
    injectable = faults.INJECTABLE

    prefixes = staticmethod(PREFIX_FINDER.prefixes)
    version = staticmethod(version)
    facts = staticmethod(reader.facts)
    tally = staticmethod(reader.tally)
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
    generate_records = staticmethod(generate_records)

    def __init__(self, options: ProcessOptions = DEFAULTS) -> None:
        self.options = options
        """What no key of a keyspace in use tells."""

    def configured(self, settings: Mapping[str, Any]) -> Kickq:
        return Kickq(ProcessOptions(**settings))

    def live(self, prefix: str, side_prefix: str) -> KickqLive:
        from .live import KickqLive  # loaded where jobs are taken, and not for who only reads them

        return KickqLive(prefix, side_prefix, self.options)

    def steering(self, prefix: str) -> KickqSteering:
        from .steering import KickqSteering  # and this where somebody steers

        return KickqSteering(self.live(prefix, DEFAULT_PREFIX))

    def prefilter(self, prefix: str, now_ms: int, *, for_transfer: bool = False) -> KickqPrefilter:
        return KickqPrefilter(prefix, now_ms, for_transfer=for_transfer)

    def globs(self, prefix: str) -> tuple[str, ...]:
        return (glob_escape(prefix) + ":*",)

    def read(self, subject: Subject, keyspace: Keyspace) -> Job | None:
        return reader.read(subject)

    def describe(self, subject: Subject, keyspace: Keyspace) -> Job | None:
        return reader.describe(subject)


FAMILY = Kickq()
