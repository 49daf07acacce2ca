"""Jobs in columns: many at once, where they have so much in common that nobody need look at each. Needs the extra ``columnar``.

Nearly all jobs of a keyspace are sound and of a few kinds, and to treat each by itself is most of what a migration costs. So
who reads accepted jobs (AcceptedJobs: what their keys hold) may give those of one kind as tables (JobTable: what they are), and
who writes jobs may take these. What comes out is what ``Prefilter.subject``, ``KeyFamily.read`` and ``KeyFamily.write`` make of
each job; where a table can't say that, these are asked. Made by a family's BatchPrefilter and by tables_of_jobs.py, used by the
steps of migrations/engine/.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise, repeat
from typing import Any, NamedTuple

import numpy as np
from attrs import frozen

from ..fact import Entry, Subject
from ..job import Job
from ..prefilter import Member, Prefilter
from .binary_views import BinaryViews


@frozen(eq=False)
class Members:
    """The entries of some jobs in one of their indexes."""

    members: BinaryViews
    scores: Any
    """float64."""
    ranks: Any
    """From the low end, 0 first (int64)."""

    def take(self, rows: Any) -> Members:
        """Those of some of the jobs (bool)."""
        return Members(self.members.take(rows), self.scores[rows], self.ranks[rows])


@frozen(eq=False)
class OwnedLists:
    """The lists that belong to some jobs, and their entries in optional indexes.

    The keys of one job stand after those of the other, the items of one key after the other.
    """

    keys: BinaryViews
    offsets: Any
    """How many items of its key stand before those that are here (int64)."""
    counts: Any
    """How many items there are of each key (int64)."""
    items: BinaryViews
    owned: Any
    """How many of the keys each job has (int64)."""
    scores: Any = None
    """Of the one item of each key that is a zset; NaN for lists (float64). None: all are lists."""

    def lines(self) -> BinaryLists:
        """All items of each job."""
        ends = np.append(0, np.cumsum(self.counts))
        lasts = np.cumsum(self.owned)
        return BinaryLists(self.items, ends[lasts] - ends[lasts - self.owned])

    def take(self, rows: Any) -> OwnedLists:
        """Those of some of the jobs (bool)."""
        keys = np.repeat(rows, self.owned)
        items = self.items.take(np.repeat(keys, self.counts))
        scores = None if self.scores is None else self.scores[keys]
        return OwnedLists(self.keys.take(keys), self.offsets[keys], self.counts[keys], items, self.owned[rows], scores)

    def entries(self) -> Iterator[list[Entry]]:
        """Those of each job."""
        items, ends = self.items.to_list(), np.append(0, np.cumsum(self.counts)).tolist()
        values = (items[start:end] for start, end in pairwise(ends))
        scores = [math.nan] * len(self.keys) if self.scores is None else self.scores.tolist()
        entries = map(_owned_entry, self.keys.to_list(), values, self.offsets.tolist(), scores)
        for owned in self.owned.tolist():
            yield [next(entries) for _ in range(owned)]


def _owned_entry(key: bytes, items: list[bytes], offset: int, score: float) -> Entry:
    """A list, or with a score that is a number the one member of a zset."""
    if math.isnan(score):
        return Entry(key, "list", items, None, offset)
    return Entry(key, "zset", [(items[0], score)], None, offset)


class JobKeys(NamedTuple):
    """What the keys of an accepted job hold."""

    key: bytes
    """Of its record, or the list of which it is an item."""
    record: Mapping[bytes, bytes]
    members: Sequence[Member]
    """Its entries in its indexes."""
    owned: Sequence[Entry]
    """Its lists, and its entries in optional indexes."""


@frozen(eq=False)
class AcceptedJobs:
    """Jobs of one group whose records have the same fields, which ``accept`` has accepted: what their keys hold."""

    keys: BinaryViews
    """Of their records, or the list of which they are items."""
    records: Mapping[bytes, BinaryViews]
    """The values of each field; empty for items, which are their own members in the index that the list is."""
    indexes: Mapping[bytes, Members]
    """By key."""
    owned_lists: OwnedLists

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, rows: Any) -> AcceptedJobs:
        """Some of the jobs (bool)."""
        if rows.all():
            return self
        records = {name: values.take(rows) for name, values in self.records.items()}
        indexes = {key: members.take(rows) for key, members in self.indexes.items()}
        return AcceptedJobs(self.keys.take(rows), records, indexes, self.owned_lists.take(rows))

    def keys_of_each(self) -> Iterator[JobKeys]:
        """What the keys of each job hold."""
        names = list(self.records)
        rows = zip(*(values.to_list() for values in self.records.values()), strict=True) if names else repeat(())
        indexes = [
            map(Member, repeat(key), members.members.to_list(), members.scores.tolist(), members.ranks.tolist())
            for key, members in self.indexes.items()
        ]
        columns = zip(self.keys.to_list(), rows, self.owned_lists.entries(), *indexes, strict=False)
        for key, values, owned, *members in columns:
            yield JobKeys(key, dict(zip(names, values, strict=True)), members, owned)

    def subjects(self, prefilter: Prefilter) -> Iterator[Subject]:
        """Each job by itself."""
        for key, record, members, owned in self.keys_of_each():
            yield prefilter.subject(key, tuple(chain.from_iterable(record.items())), members, owned)


@frozen(eq=False)
class BinaryLists:
    """Lists of bytes, one of each job: their items one after the other, and how many each has (int64)."""

    items: BinaryViews
    counts: Any

    def take(self, rows: Any) -> BinaryLists:
        """Those of some of the jobs (bool)."""
        return BinaryLists(self.items.take(np.repeat(rows, self.counts)), self.counts[rows])


Column = Any
"""The values of an attribute: BinaryViews, as ``to_bytes`` has them, for texts and bytes; BinaryLists for ``logs``; an array of
int64 for whole numbers, of float64 for ``progress``; and for those in ENCODED BinaryViews as ``encode_tagged`` (tagged_json.py)
makes them."""
ENCODED = frozenset({"tags", "depends_on", "history", "extra"})


@frozen(eq=False)
class JobTable:
    """Jobs of one queue in one state, whose ids are those of their keys. None of them has None for what has a column."""

    rows: Any
    """Which they are of the jobs of which they were made (bool)."""
    common: Job
    """What has no column is the same in all of them. What has one means nothing here."""
    columns: Mapping[str, Column]
    """By attribute of Job. ``id`` at least is one of them."""
    families: frozenset[str] = frozenset()
    """The names that may stand in ``extra``, if that is a column."""
    scope: str = ""
    """As in Subject."""
    lasting: BinaryViews | None = None
    """Of active jobs: what their family alone keeps in ``extra`` that would be true in another state as well, as
    ``encode_tagged`` has it; empty where that is nothing. None: nobody knows, or they are not active."""

    @classmethod
    def of(
        cls,
        rows: Any,
        common: Job,
        columns: Mapping[str, Column],
        families: frozenset[str] = frozenset(),
        scope: str = "",
        lasting: BinaryViews | None = None,
    ) -> JobTable | None:
        """The table of some jobs (bool), if there are any, of columns that have the values of all."""
        if not rows.any():
            return None
        if not rows.all():
            columns = {name: _some(column, rows) for name, column in columns.items()}
            lasting = None if lasting is None else lasting.take(rows)
        return cls(rows, common, columns, families, scope, lasting)

    @property
    def ids(self) -> BinaryViews:
        """Of all of them."""
        ids: BinaryViews = self.columns["id"]
        return ids

    def __len__(self) -> int:
        return len(self.ids)


def _some(column: Column, rows: Any) -> Column:
    return column.take(rows) if isinstance(column, BinaryViews | BinaryLists) else column[rows]


@frozen(eq=False)
class CommandTable:
    """The commands that store jobs, as they go over the wire."""

    commands: BinaryViews
    """Those of each job, one after the other."""
    commands_per_job: int
    """How many those are. The keys of all of them have the same hash tags."""
    zset: bytes
    """To which one ZADD more adds all of the jobs, or as many of them as go at once."""
    members: BinaryViews
    """The score and the member of each there, as words of that command."""
