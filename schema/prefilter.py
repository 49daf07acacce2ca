"""Prefilter: how a family audits millions of sound jobs without taking each of them apart.

Nearly all jobs of a keyspace are plainly sound. Where a family has a Prefilter, a glance at the record decides whether the rules
could find anything in it, provided that the job stands in exactly the places where its record says it does (``accept``). An
engine then compares places claimed with places found by one number for each job: the sum of the hashes of all places found, less
those of all claimed. Only jobs where it is not zero, or that are not accepted, become facts, subjects and findings. A family
whose records don't say where their jobs stand claims one index for each, ANYWHERE. One whose jobs have no keys, but are items of
lists, has a Prefilter that accepts these (``items``): a job is sound then if there is one such item, and no fact speaks of it.
A list without which a job is not sound (a history) counts as a place, and may tell what the record doesn't (``owned_list``).

A Prefilter never decides that something is wrong; it only says what need not be looked at. Hashes have 64 bits: a job that
stands elsewhere is taken for sound with a probability of 2^-64. Pure. Implemented in a family's ``prefilter.py``, called by
migrations/prefiltering_reader.py, migrations/engine/key_rows.py and migrations/engine/placement_check.py.
"""

from __future__ import annotations

import hashlib
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from attrs import field, frozen

from .fact import Entry, Fact, Subject
from .job import State
from .totals import Totals

WORD = 1 << 64
MIX = (0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB)
"""The factors of splitmix64, which makes numbers that differ in few bits differ in half of them."""


@frozen
class IndexKey:
    """A zset in which jobs stand with a score, or a list or a set in which they stand without one."""

    key: bytes
    is_scored: bool = True
    """Whether records tell the score. If not, or where there are none, to stand here has the same hash with any score."""
    base: int = field(init=False)
    factor: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        base, factor = struct.unpack("<QQ", hashlib.blake2b(self.key, digest_size=16).digest())
        object.__setattr__(self, "base", base)
        object.__setattr__(self, "factor", factor | 1 if self.is_scored else 0)

    def placement_hash(self, score: float) -> int:
        """The hash of standing here with this score; migrations/engine/key_rows.py computes the same for whole arrays."""
        bits: int = struct.unpack("<Q", struct.pack("<d", score + 0.0))[0]
        # Scores differ in few bits, and hashes are added up: what is added must not.
        found = (self.base + bits * self.factor) % WORD
        found = (found ^ found >> 30) * MIX[0] % WORD
        found = (found ^ found >> 27) * MIX[1] % WORD
        return found ^ found >> 31


ANYWHERE = IndexKey(b"", is_scored=False)
"""For all indexes of a family whose records don't tell theirs: to stand in any of them has the same hash."""


@frozen(eq=False)
class JobGroup:
    """What all jobs of one queue and state have in common. Compared by identity: a Prefilter makes each once."""

    queue: str
    state: State | None
    """None: the index tells, which has a group of its own."""
    index_keys: tuple[IndexKey, ...]
    """Where such a job stands, in the order of the scores that ``accept`` gives. The same number for all groups."""

    @property
    def hash(self) -> int:
        """A signed 64-bit number for the queue, the state and the indexes, the same everywhere; 0 for a group that does not tell.

        Jobs of one queue and state may stand in different indexes.
        """
        if self.state is None:
            return 0
        keys = b"\0".join(index_key.key for index_key in self.index_keys)
        text = f"{self.state}\0{self.queue}\0".encode("utf-8", "surrogatepass") + keys
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), signed=True)


class Accepted(NamedTuple):
    """What there is to know of the jobs that a prefilter accepts, in columns."""

    groups: Sequence[JobGroup | None]
    """None: the rules must look, and the other columns mean nothing."""
    scores: Sequence[Sequence[float]]
    """In each of the indexes of their groups."""
    created_at: Sequence[int | None]
    """Unix ms, as in Job; 0 where a list that belongs to the job tells (``OwnedList``)."""
    others: Sequence[int] = ()
    """Of each job the sum, below 2^64, of the placement hashes of all other places where it stands, of which jobs of one group
    may have different ones (tags). Empty: there are none."""

    @classmethod
    def none(cls, rows: int) -> Accepted:
        """The rules must look at all of so many jobs."""
        return cls([None] * rows, [], [0] * rows)


class Item(NamedTuple):
    """An item of a list that is a job by itself, which the prefilter accepts."""

    number: int
    """Of the job."""
    group: JobGroup
    """One without indexes."""
    created_at: int | None
    """Unix ms, as in Job."""


class OwnedList(NamedTuple):
    """A list that belongs to a job, and what it says of it."""

    number: int
    """Of the job."""
    key: IndexKey | None = None
    """The place that it stands for, which the job must claim; None: it makes no difference whether there is such a list."""
    score: float = 0.0
    """There."""
    group: JobGroup | None = None
    """That of the job, if its record does not tell."""
    created_at: int | None = None
    """When the job was created (Unix ms), if its record does not tell."""


RecordColumns = Mapping[bytes, Sequence[bytes]]
"""The records of some jobs that have the same fields: the values of each field, of one job after the other."""


class Member(NamedTuple):
    """A job's entry in one of its indexes."""

    key: bytes
    member: bytes
    score: float
    rank: int
    """From the low end, 0 first."""


@frozen
class IndexMembers:
    """The members of one entry of an index, all of them jobs."""

    key: IndexKey
    numbers: Sequence[int | None]
    """The job of each member, in order; None for a member that must be looked at more closely."""
    group: JobGroup | None = None
    """That of all members, if their records don't tell."""
    is_optional: bool = False
    """Whether jobs of one group may be in any number of such indexes."""
    facts: Sequence[Fact] = ()
    """What ``KeyFamily.facts`` states beside of the index itself, for the members that have a number: about no job of these."""


class Prefilter(ABC):
    """One keyspace at one moment, as a family sees it at a glance. Not for use by two threads at once: it may remember groups."""

    def record(self, key: bytes) -> int | None:
        """The number (below 2^63) of the job whose record, a hash, a key of this name is; None for every other key.

        Different jobs have different numbers, but for one in 2^63. Jobs that share one are left to the rules.
        """
        return None

    def is_record(self, key: bytes) -> bool:
        """Whether ``record`` has a number for a key."""
        return self.record(key) is not None

    @abstractmethod
    def number(self, job_id: str, scope: str) -> int:
        """The same number, for a job named by a fact."""

    def accept(self, records: RecordColumns, keys: Sequence[bytes]) -> Accepted:
        """Where the jobs with these records stand, if no rule can find anything as long as they do. ``keys``: of the records.

        What is not in a record the caller sees to: the key does not expire, the job stands in those places and in no
        other, and its queue ``is_settled``.
        """
        return Accepted.none(len(keys))

    def index_members(self, entry: Entry) -> IndexMembers | None:
        """The jobs in an index, for an entry that is one and does not expire; None for all other entries."""
        return None

    def items(self, entry: Entry, totals: Totals) -> Sequence[Item | None] | None:
        """The jobs that are items of an entry, if no rule can find anything in them as long as each is there but once.

        Adds what ``KeyFamily.tally`` adds for these. An item that is None is for the rules, and must state in an entry of its own
        what it states in this one. None for an entry whose items are no jobs, that expires, or that takes a closer look.
        """
        return None

    def owner(self, key: bytes) -> int | None:
        """The number of the job to which a list belongs in which no rule can find anything if the job is there (a log).

        By the name of its key; None for every other key. The caller sees to it that the key is a list and does not expire.
        """
        return None

    def is_owned_list(self, key: bytes) -> bool:
        """Whether there is an ``owner`` of a key."""
        return self.owner(key) is not None

    def owned_list(self, entry: Entry, totals: Totals) -> OwnedList | None:
        """What a list with an ``owner`` says, which does not expire; None for one that the rules must look at.

        Adds what ``KeyFamily.tally`` adds for one that is not left to the rules.
        """
        number = self.owner(entry.key)
        return None if number is None else OwnedList(number)

    @abstractmethod
    def subject(self, key: bytes, record: tuple[bytes, ...], members: Iterable[Member], owned: Iterable[Entry]) -> Subject:
        """The subject of a job that ``accept`` has accepted: what ``KeyFamily.facts`` makes of its keys, joined.

        ``key``: of its record; ``record``: the fields and their values in turn; ``members``: its entries in all of its indexes,
        but for those in optional ones, which are among ``owned``: an entry for each, of a set as of a list.
        Of a job that is an item ``key`` is the list, ``record`` is empty, and the one member is the item, with its index as rank.
        """

    def tally_accepted(self, records: RecordColumns, keys: Sequence[bytes], totals: Totals) -> None:
        """What ``KeyFamily.tally`` adds for the records with these keys, which ``accept`` has accepted."""
        assert not keys, "whoever accepts records counts them"

    def tally_index(self, entry: Entry, scores: Sequence[float], totals: Totals) -> None:
        """What ``KeyFamily.tally`` adds for the members of an index that have a number; ``scores``: theirs, or 0."""
        assert not scores, "whoever knows the members of an index counts them"

    def is_settled(self, queue: str, totals: Totals) -> bool:
        """Whether rules need not look at the jobs of a queue for the sake of the totals, which are known only at the end."""
        return True
