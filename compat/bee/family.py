"""The bee family: names the functions that are its part of the contract in schema/family.py.

Sources: bee 0.0.1 to the head of its repository (2014-01-13), whose keys always begin with ``bee``. Holds no logic of its own.
Registered as ``bee`` in the group ``ferryman.families``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...schema.fact import Subject
from ...schema.family import KeyFamily, Keyspace
from ...schema.job import Counted, Job
from ...schema.keys import glob_escape
from ...schema.native.keys import DEFAULT_PREFIX
from . import acceptance, faults, reader, repairs, workers, writer
from .generate import generate, generate_records
from .keys import prefixes, state_indexes, version
from .prefilter import BeePrefilter
from .related_keys import related_keys
from .rules import RULES
from .view import REFERENCE_ROLES, view_of

if TYPE_CHECKING:
    from .live import BeeLive
    from .steering import BeeSteering


class Bee(KeyFamily):
    """Jobs of bee, the job server for Node.js by oleksiyk."""

    name = "bee"
    title = "bee, the job server for Node.js by oleksiyk (0.0.1 to 2014)"
    default_prefix = "bee"
    rules = RULES
    keeps_extra = True
    reference_roles = REFERENCE_ROLES
    repairable = repairs.REPAIRABLE
    choosable = repairs.CHOOSABLE
    injectable = faults.INJECTABLE

    prefixes = staticmethod(prefixes)
    version = staticmethod(version)
    facts = staticmethod(reader.facts)
    tally = staticmethod(reader.tally)
    back_references = staticmethod(reader.back_references)
    consumers = staticmethod(workers.consumers)
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

    def prefilter(self, prefix: str, now_ms: int, *, for_transfer: bool = False) -> BeePrefilter:
        return BeePrefilter(prefix, now_ms, for_transfer=for_transfer)

    def globs(self, prefix: str) -> tuple[str, ...]:
        return (glob_escape(prefix) + ":*",)

    def read(self, subject: Subject, keyspace: Keyspace) -> Job | None:
        return reader.read(subject)

    def describe(self, subject: Subject, keyspace: Keyspace) -> Job | None:
        return reader.describe(subject)

    def counted(self, subject: Subject, keyspace: Keyspace) -> Job | Counted | None:
        return reader.counted(subject)

    def accepts(self, subject: Subject, keyspace: Keyspace) -> bool:
        return acceptance.accepts(view_of(subject), keyspace)

    def live(self, prefix: str, side_prefix: str) -> BeeLive:
        from .live import BeeLive  # loaded where jobs are taken, and not for who only reads them

        return BeeLive(prefix, side_prefix)

    def steering(self, prefix: str) -> BeeSteering:
        from .steering import BeeSteering  # and this where somebody steers

        return BeeSteering(self.live(prefix, DEFAULT_PREFIX))

    def queues(self, keyspace: Keyspace) -> Iterable[str]:
        # Those that workers have served; those with jobs only are seen by their jobs.
        return keyspace.totals.names.get("served", ())


FAMILY = Bee()
