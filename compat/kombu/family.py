"""The kombu family: names the functions that are its part of the contract in schema/family.py.

Sources: the ``redis://`` broker of kombu 4 to 5.7; the prefix is kombu's ``global_keyprefix``, empty by default. Holds no logic
of its own. Registered as ``kombu`` in the group ``ferryman.families``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...schema.fact import Entry, Fact
from ...schema.family import Command, KeyFamily, Keyspace, Target
from ...schema.job import Job, State
from ...schema.keys import glob_escape
from ...schema.native.keys import DEFAULT_PREFIX
from ...schema.rule import Finding
from ...schema.sampling import UNSHARDED, Shard
from ...schema.state_index import StateIndex, StateIndexQuery, known
from ...schema.totals import Totals
from . import faults, generate, reader, repairs, writer
from .keys import DEFAULT_QUEUE, PARAMETERS, PREFIX_FINDER, USUAL, Settings, bucket_key
from .prefilter import KombuPrefilter
from .related_keys import related_keys
from .rules import RULES

if TYPE_CHECKING:
    from .live import KombuLive
    from .steering import KombuSteering


class Kombu(KeyFamily):
    """Messages of the stock Celery broker."""

    name = "kombu"
    title = "kombu, the stock Celery broker on redis:// (4 to 5.7)"
    default_prefix = ""
    names_records = False
    ids_by_queue = True
    rules = RULES
    keeps_extra = True
    repairable = repairs.REPAIRABLE
    choosable = repairs.CHOOSABLE
    injectable = faults.INJECTABLE
    parameters = PARAMETERS
    finds_by_id = False
    ambiguous_roles = frozenset({reader.UNCLAIMED, reader.OTHER, reader.ELSEWHERE})

    read = staticmethod(reader.read)
    other_prefixes = staticmethod(reader.other_prefixes)
    has_twin = staticmethod(reader.has_twin)
    related_keys = staticmethod(related_keys)
    tally_written = staticmethod(writer.tally_written)
    repair = staticmethod(repairs.repair)
    inject = staticmethod(faults.inject)

    def __init__(self, settings: Settings = USUAL) -> None:
        self.settings = settings

    def configured(self, settings: Mapping[str, Any]) -> Kombu:
        return Kombu(Settings(**settings))

    def live(self, prefix: str, side_prefix: str) -> KombuLive:
        from .live import KombuLive  # loaded where jobs are taken, and not for who only reads them

        return KombuLive(prefix, side_prefix, self.settings)

    def steering(self, prefix: str) -> KombuSteering:
        from .steering import KombuSteering  # and this where somebody steers

        return KombuSteering(self.live(prefix, DEFAULT_PREFIX))

    def prefixes(self, key: bytes, redis_type: str) -> Iterable[str]:
        if key == DEFAULT_QUEUE.encode() and redis_type == "list":
            return ("",)
        return PREFIX_FINDER.prefixes(key, redis_type)

    def version(self, keyspace: Keyspace) -> str | None:
        totals = keyspace.totals
        if totals.sums["permanent", ""]:
            return "kombu 5.7 or newer"
        return "kombu 4 to 5.6" if totals.names.get("bound") else None

    def globs(self, prefix: str) -> tuple[str, ...]:
        return (glob_escape(prefix) + "*",)

    def facts(self, entry: Entry, prefix: str) -> Iterator[Fact]:
        return reader.facts(entry, prefix, self.settings)

    def prefilter(self, prefix: str, now_ms: int, *, for_transfer: bool = False) -> KombuPrefilter:
        return KombuPrefilter(prefix, now_ms, self.settings)

    def tally(self, fact: Fact, totals: Totals) -> None:
        reader.tally(fact, totals, self.settings)

    def queues(self, keyspace: Keyspace) -> Iterable[str]:
        return keyspace.totals.names.get("bound", ())

    def state_indexes(self, prefix: str, queue: str, state: State) -> StateIndexQuery | None:
        # What consumers hold, of all queues, stands in one hash.
        if state is not State.WAITING:
            return None
        buckets = (bucket_key(prefix, queue, step, self.settings) for step in self.settings.steps)
        return known([StateIndex(bucket, "list", runs_from_tail=True, has_records=True) for bucket in buckets])

    def incompatibilities(self, job: Job) -> Iterator[Finding]:
        return writer.incompatibilities(job, self.settings)

    def expressed(self, job: Job, now_ms: int) -> Job:
        return writer.expressed(job, now_ms, self.settings)

    def write(self, job: Job, target: Target) -> list[Command]:
        return writer.write(job, target, self.settings)

    def finish(self, target: Target, written: Totals) -> list[Command]:
        return writer.finish(target, written, self.settings)

    def generate(self, jobs: int, seed: int, now_ms: int, shard: Shard = UNSHARDED) -> Iterator[Job]:
        generate.check(self.settings)
        return generate.generate(jobs, seed, now_ms, shard)

    def generate_records(self, jobs: int, seed: int, now_ms: int, shard: Shard = UNSHARDED) -> Iterator[Job]:
        generate.check(self.settings)
        return generate.generate_records(jobs, seed, now_ms, shard)


FAMILY = Kombu()
