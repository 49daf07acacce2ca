"""Related jobs: some jobs, each read by all keys that speak of it, for what these cost, however many jobs there are beside.

``RelatedReader`` begins with what is known of a job, an item of an index or its id alone, and asks the family which keys speak of
it (``KeyFamily.related_keys``) until there are no more; all keys of one job are read at one moment (``atomic_read.py``). Only
reads. Called by ``operations/pages.py`` and ``lookup.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import evolve, field, frozen

from ..schema.fact import Entry, Fact, Subject
from ..schema.family import Keyspace
from ..schema.key_refs import KeyRef
from ..schema.totals import Totals
from .atomic_read import AtomicReader
from .subjects import SubjectBuilder

MOST_ROUNDS = 4
"""A record may tell of keys that tell of keys: a job's record its queue, say, and that its worker."""

Name = tuple[str, str]
"""Scope and id of a job."""


@frozen
class RelatedJobs:
    """What was read of some jobs."""

    subjects: tuple[Subject, ...]
    """Those of which a key spoke, in the order in which they were asked for."""
    keyspace: Keyspace
    """The keyspace as far as their keys tell of it."""
    unread: frozenset[Name]
    """Jobs of which not all keys can be read at one moment, or named at all."""


@frozen
class RelatedReader:
    """Reads jobs of one keyspace."""

    reader: AtomicReader
    keyspace: Keyspace
    with_ranks: bool = field(default=False, kw_only=True)
    """Whether the rank of a job in its sorted sets is asked for: its position, as who reads these whole knows it."""

    def read(self, subjects: Sequence[Subject]) -> RelatedJobs:
        """What all keys say of these jobs, of which nothing but their names need be known, and of the keyspace beside."""
        family = self.keyspace.family
        found = {name_of(subject): subject for subject in subjects}
        asked: dict[Name, set[KeyRef]] = {name: set() for name in found}
        others: list[Fact] = []
        unread: set[Name] = set()
        for _ in range(MOST_ROUNDS):
            keyspace = self.with_totals(found.values(), others)
            refs = {name: set(family.related_keys(found[name], keyspace)) for name in asked.keys() - unread}
            unread |= {name for name, those in refs.items() if not those}
            names = [name for name in asked if name not in unread and refs[name] - asked[name]]
            if not names:
                break
            asked |= {name: refs[name] for name in names}
            read = self.reader.read([list(refs[name]) for name in names])
            for index, group in enumerate(read):
                if group is None:
                    apart = self.reader.read_apart(list(refs[names[index]]))
                    if apart is None or not apart[1]:
                        unread.add(names[index])
                    read[index] = None if apart is None else apart[0]
            for name, entries in zip(names, self._ranked(read) if self.with_ranks else read, strict=True):
                if entries is None:
                    continue
                builder = SubjectBuilder(family)
                if name in unread:  # what is known of its place was not read again
                    for fact in found[name].facts:
                        builder.add(fact)
                for fact in dict.fromkeys(fact for entry in entries for fact in family.facts(entry, keyspace.prefix)):
                    builder.add(fact)
                    others += [fact] if fact.job_id is None else []
                found |= {name_of(subject): subject for subject in builder.subjects() if name_of(subject) == name}
        there = tuple(subject for subject in found.values() if subject.facts)
        return RelatedJobs(there, self.with_totals(there, others), frozenset(unread))

    def _ranked(self, found: Sequence[Sequence[Entry] | None]) -> Sequence[Sequence[Entry] | None]:
        """The same entries, in which each member of a sorted set has its rank."""
        zsets = [[entry for entry in entries or () if entry.redis_type == "zset"] for entries in found]
        ranks = self.reader.ask([[("ZRANK", entry.key, entry.value[0][0]) for entry in entries] for entries in zsets])
        ranked: list[Sequence[Entry] | None] = []
        for entries, replies in zip(found, ranks, strict=True):
            those = iter(replies or ())
            ranked.append(
                entries and [_at(entry, next(those, None)) if entry.redis_type == "zset" else entry for entry in entries]
            )
        return ranked

    def with_totals(self, subjects: Iterable[Subject], others: Iterable[Fact] = ()) -> Keyspace:
        """The keyspace as far as these jobs and other facts tell of it."""
        keyspace = evolve(self.keyspace, totals=Totals())
        for fact in (*(fact for subject in subjects for fact in subject.facts), *others):
            keyspace.family.tally(fact, keyspace.totals)
        return keyspace


def _at(entry: Entry, rank: object) -> Entry:
    """An entry at a rank; as it is where its member has gone meanwhile."""
    return evolve(entry, offset=rank) if isinstance(rank, int) else entry


def name_of(subject: Subject) -> Name:
    """By which a job is known."""
    return subject.scope, subject.job_id
