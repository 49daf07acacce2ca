"""PrefilteringReader: how the rules are spared from looking at millions of sound jobs, for families that have a Prefilter.

    entries -> accepted: remembered by the places that the job claims, and those where it is found
            -> all others: facts, and their jobs are unverified

When all is read, the jobs that stand elsewhere than they claim, and those unverified, are the mismatches: what was remembered of
them becomes facts after all, and the rules look at these alone. The findings and totals are those of the facts of all jobs. Here
stands what can be kept in memory; engine/key_rows.py does the same for any size. Called by the local engine.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress, repeat
from typing import Any, TypeVar

from attrs import define, field, frozen

from ..schema.connection.address import Address
from ..schema.fact import Entry, Fact
from ..schema.memo import Memo
from ..schema.prefilter import WORD, Accepted, IndexMembers, Item, JobGroup, OwnedList, Prefilter
from .engine import Census
from .fact_reader import FactReader
from .long_keys import LIST_CHUNK

T = TypeVar("T")

RECORDS = 10_000
BYTES = 16 << 20
"""How many records, or bytes of these, are looked at together: those with the same fields as a table, column by column."""


def has_prefilter(address: Address) -> bool:
    """Whether the family of a keyspace has a Prefilter."""
    return address.key_family.prefilter(address.prefix, 0) is not None


def prefilter_of(address: Address, now_ms: int, *, for_transfer: bool = False) -> Prefilter:
    """The Prefilter of a keyspace whose family has one. ``for_transfer``: as for ``KeyFamily.prefilter``."""
    prefilter = address.key_family.prefilter(address.prefix, now_ms, for_transfer=for_transfer)
    if prefilter is None:
        raise ValueError(f"the family {address.family} has no Prefilter")
    return prefilter


@frozen
class AcceptedRecords:
    """Records that a prefilter accepts, and which have the same fields."""

    names: tuple[bytes, ...]
    """Of the fields."""
    keys: Sequence[bytes]
    numbers: Sequence[int]
    """Of their jobs."""
    rows: Sequence[Sequence[bytes]]
    """The values of their fields."""
    groups: Sequence[JobGroup]
    scores: Sequence[Sequence[float]]
    created_at: Sequence[int | None]
    """As in Accepted."""
    others: Sequence[int] = ()
    """As in Accepted."""


@define
class _Pending:
    """Records that have the same fields, before anybody has looked at them."""

    keys: list[bytes] = field(factory=list)
    rows: list[Sequence[bytes]] = field(factory=list)


class PrefilteringReader(FactReader):
    """Makes facts only of what the prefilter does not accept; subclasses remember the rest.

    ``for_transfer``: as for ``KeyFamily.prefilter``.
    """

    def __init__(self, address: Address, now_ms: int, *, for_transfer: bool = False) -> None:
        super().__init__(address)
        self.prefilter = prefilter_of(address, now_ms, for_transfer=for_transfer)
        self._pending: defaultdict[tuple[bytes, ...], _Pending] = defaultdict(_Pending)
        self._pending_rows = self._pending_bytes = 0

    def is_record(self, key: bytes) -> bool:
        return self.prefilter.is_record(key)

    def is_list(self, key: bytes) -> bool:
        return self.prefilter.is_owned_list(key)

    def facts(self, entry: Entry) -> Iterator[Fact]:
        redis_type = entry.redis_type
        if redis_type == "hash" and entry.ttl_ms is None and not entry.offset:
            return self._record(entry.key, entry.value)
        if redis_type == "list" and entry.ttl_ms is None and self.prefilter.is_owned_list(entry.key):
            owned = self.prefilter.owned_list(entry, self._summary.totals)
            if owned is None:
                return self.unverified(entry)
            self._summary.has_content = True
            self.add_owned_list(owned, entry)
            return iter(())
        if redis_type == "list":
            return self._of_list(entry)
        return self.of_index(entry) if redis_type in ("zset", "set") else self.unverified(entry)

    def row(self, key: bytes, redis_type: str, value: Any, ttl_ms: int | None) -> Iterator[Fact]:
        if redis_type == "hash" and ttl_ms is None:
            return self._record(key, value)
        return self.facts(Entry(key, redis_type, value, ttl_ms))

    def _record(self, key: bytes, fields: Mapping[bytes, bytes]) -> Iterator[Fact]:
        if not fields:  # those of a large hash may come later
            return self.unverified(Entry(key, "hash", fields))
        values = tuple(fields.values())
        self._add_pending(key, tuple(fields), values)
        return self._read_if_full(1, sum(map(len, values)))

    def _add_pending(self, key: bytes, names: tuple[bytes, ...], values: Sequence[bytes]) -> None:
        pending = self._pending[names]
        pending.keys.append(key)
        pending.rows.append(values)

    def _read_if_full(self, records: int, size: int) -> Iterator[Fact]:
        """So many records more are pending: the facts of those that are not accepted, when it is time to look at them."""
        self._pending_rows += records
        self._pending_bytes += size
        return self.rest() if self._pending_rows >= RECORDS or self._pending_bytes >= BYTES else iter(())

    def rest(self) -> Iterator[Fact]:
        by_names, self._pending = self._pending, defaultdict(_Pending)
        self._pending_rows = self._pending_bytes = 0
        for names, pending in by_names.items():
            yield from self._apply_prefilter(names, pending)

    def _apply_prefilter(self, names: tuple[bytes, ...], pending: _Pending) -> Iterator[Fact]:
        keys, rows = pending.keys, pending.rows
        numbers = list(map(self.prefilter.record, keys))
        records = dict(zip(names, zip(*rows, strict=True), strict=True))
        accepted = self.prefilter.accept(records, keys) if self.remembers(names) else Accepted.none(len(keys))
        groups, scores, created_at, others = accepted
        is_accepted = [number is not None and group is not None for number, group in zip(numbers, groups, strict=True)]
        all_accepted = all(is_accepted)

        def those(column: Sequence[T]) -> Sequence[T]:
            return column if all_accepted else list(compress(column, is_accepted))

        if any(is_accepted):
            self._summary.has_content = True
            counted = {name: those(column) for name, column in records.items()}
            self.prefilter.tally_accepted(counted, those(keys), self._summary.totals)
            known = [number for number in those(numbers) if number is not None]
            claimed = [group for group in those(groups) if group is not None]
            columns = [*map(those, scores)], those(created_at), those(others) if others else ()
            self.add_records(AcceptedRecords(names, those(keys), known, those(rows), claimed, *columns))
        for key, row, is_known in zip(keys, rows, is_accepted, strict=True):
            if not is_known:
                yield from self.unverified(Entry(key, "hash", dict(zip(names, row, strict=True))))

    def _of_list(self, entry: Entry) -> Iterator[Fact]:
        """Remembers the items of a list that are accepted jobs, or members of an index; the facts of all else."""
        # A snapshot file gives a list whole, however long it is.
        for start in range(0, len(entry.value) or 1, LIST_CHUNK):
            chunk = Entry(entry.key, "list", entry.value[start : start + LIST_CHUNK], entry.ttl_ms, entry.offset + start)
            items = self.prefilter.items(chunk, self._summary.totals)
            if items is None:
                yield from self.of_index(chunk)
                continue
            known = [(index, item) for index, item in enumerate(items) if item is not None]
            if known:
                self._summary.has_content = True
                self.add_items(chunk, known)
            for index, item in enumerate(items):
                if item is None:
                    yield from self.unverified(Entry(chunk.key, "list", [chunk.value[index]], None, chunk.offset + index))

    def unverified(self, entry: Entry) -> Iterator[Fact]:
        """All facts of an entry, whose jobs the rules will look at."""
        for fact in super().facts(entry):
            if fact.job_id is not None:
                self.add_unverified(self.prefilter.number(fact.job_id, fact.scope))
            yield fact

    def of_index_members(self, entry: Entry, known: Sequence[int], about_index: Iterable[Fact]) -> Iterator[Fact]:
        """Counts the members of an index whose jobs are known, by their positions; the facts of the others, and of the index."""
        items, scores = entry.value, scores_of(entry)
        self.prefilter.tally_index(entry, [scores[index] for index in known], self._summary.totals)
        self._summary.has_content = self._summary.has_content or bool(known)
        for fact in about_index:
            self._family.tally(fact, self._summary.totals)
            self._summary.about_jobs += fact.job_id is not None
            self._summary.has_content = True
            yield fact
        if len(known) < len(items):
            for index in sorted(set(range(len(items))).difference(known)):
                item = Entry(entry.key, entry.redis_type, [items[index]], entry.ttl_ms, entry.offset + index)
                yield from self.unverified(item)

    def remembers(self, names: tuple[bytes, ...]) -> bool:
        """Whether records with these fields, accepted as they may be, can be remembered."""
        return True

    @abstractmethod
    def add_records(self, records: AcceptedRecords) -> None:
        """Records that the prefilter accepts."""

    @abstractmethod
    def add_items(self, entry: Entry, known: Sequence[tuple[int, Item]]) -> None:
        """The items of an entry that the prefilter accepts, with their indexes: at least one."""

    @abstractmethod
    def of_index(self, entry: Entry) -> Iterator[Fact]:
        """Remembers the members of a key, if it is an index; the facts of those that name no job, and of all other keys."""

    @abstractmethod
    def add_owned_list(self, owned: OwnedList, entry: Entry) -> None:
        """A key that belongs to a job."""

    @abstractmethod
    def add_unverified(self, number: int) -> None:
        """A job that the rules must look at."""


def facts_of_mismatches(entries: Iterable[tuple[int, Entry]], address: Address, prefilter: Prefilter) -> Iterator[Fact]:
    """The facts of what was remembered of jobs at which the rules must look. ``entries``: with the number of the job of each.

    What an index states of itself is among the facts already.
    """
    for number, entry in entries:
        for fact in address.key_family.facts(entry, address.prefix):
            if fact.job_id is not None and prefilter.number(fact.job_id, fact.scope) == number:
                yield fact


def scores_of(entry: Entry) -> list[float]:
    """The scores of the members of an index; 0 where there are none."""
    return [score for _, score in entry.value] if entry.redis_type == "zset" else [0.0] * len(entry.value)


class InMemoryPrefilterReader(PrefilteringReader):
    """Remembers in memory."""

    def __init__(self, address: Address, now_ms: int) -> None:
        super().__init__(address, now_ms)
        self._address = address
        self._now_ms = now_ms
        self._placements: dict[int, int] = {}
        """The sum of the placement hashes of all places found, less those of all claimed, by job."""
        self._records: dict[int, tuple[JobGroup, int | None, Entry]] = {}
        self._owned_lists: dict[int, list[Entry]] = {}
        self._index_members: list[tuple[Entry, IndexMembers]] = []
        self._unverified: set[int] = set()
        self._group_of: dict[int, JobGroup] = {}
        self._created_at: dict[int, int] = {}
        """Of jobs whose indexes or lists tell what their records don't."""

    def add_records(self, records: AcceptedRecords) -> None:
        entries = (
            Entry(key, "hash", dict(zip(records.names, row, strict=True)))
            for key, row in zip(records.keys, records.rows, strict=True)
        )
        self._records.update(zip(records.numbers, zip(records.groups, records.created_at, entries, strict=True), strict=True))
        others = records.others or repeat(0, len(records.numbers))
        for number, group, other, *scores in zip(records.numbers, records.groups, others, *records.scores, strict=True):
            claimed = sum(index_key.placement_hash(score) for index_key, score in zip(group.index_keys, scores, strict=True))
            self._placements[number] = (self._placements.get(number, 0) - claimed - other) % WORD

    def add_items(self, entry: Entry, known: Sequence[tuple[int, Item]]) -> None:
        for index, (number, group, created_at) in known:
            item = Entry(entry.key, "list", [entry.value[index]], None, entry.offset + index)
            if number in self._records:
                self._owned_lists.setdefault(number, []).append(item)
                self._unverified.add(number)
            else:
                self._placements.setdefault(number, 0)
                self._records[number] = group, created_at, item

    def of_index(self, entry: Entry) -> Iterator[Fact]:
        index_members = self.prefilter.index_members(entry)
        if index_members is None:
            return self.unverified(entry)
        self._index_members.append((entry, index_members))
        placements, placement_hash = self._placements, index_members.key.placement_hash
        for score, number in zip(scores_of(entry), index_members.numbers, strict=True):
            if number is not None:
                placements[number] = (placements.get(number, 0) + placement_hash(score)) % WORD
                if index_members.group is not None:
                    self._group_of[number] = index_members.group
        known = [index for index, number in enumerate(index_members.numbers) if number is not None]
        return self.of_index_members(entry, known, index_members.facts)

    def add_owned_list(self, owned: OwnedList, entry: Entry) -> None:
        number = owned.number
        self._owned_lists.setdefault(number, []).append(entry)
        if owned.key is not None:
            self._placements[number] = (self._placements.get(number, 0) + owned.key.placement_hash(owned.score)) % WORD
        if owned.group is not None:
            self._group_of[number] = owned.group
        if owned.created_at is not None:
            self._created_at[number] = owned.created_at

    def add_unverified(self, number: int) -> None:
        self._unverified.add(number)

    def settle(self) -> tuple[Iterator[Fact], Census]:
        """When all is read: the facts of the mismatches that were remembered, and how many jobs are none. To be called once."""
        is_settled = Memo(lambda queue: self.prefilter.is_settled(queue, self._summary.totals))
        those = self._placements.keys() | self._owned_lists.keys()
        mismatches = {number for number in those if not self._is_verified(number, is_settled)}
        census = Census()
        by_group: dict[JobGroup, list[int | None]] = {}
        for number, (group, created_at, _) in self._records.items():
            if number not in mismatches:
                created = self._created_at.get(number, created_at)
                by_group.setdefault(self._group_of.get(number, group), []).append(created)
        for group, moments in by_group.items():
            times = [each for each in moments if each is not None]
            census.count_created(group.queue, str(group.state), times, self._now_ms, len(moments) - len(times))
        return facts_of_mismatches(self._entries(mismatches), self._address, self.prefilter), census

    def _is_verified(self, number: int, is_settled: Mapping[str, bool]) -> bool:
        record = self._records.get(number)
        if record is None or self._placements[number] or number in self._unverified:
            return False
        return is_settled[self._group_of.get(number, record[0]).queue]

    def _entries(self, mismatches: set[int]) -> Iterable[tuple[int, Entry]]:
        """What was remembered of these jobs, an entry for each, with their numbers."""
        for number in mismatches:
            if number in self._records:
                yield number, self._records[number][2]
            for entry in self._owned_lists.get(number, ()):
                yield number, entry
        if mismatches:
            for entry, index_members in self._index_members:
                for index, member in enumerate(index_members.numbers):
                    if member in mismatches:
                        yield member, Entry(entry.key, entry.redis_type, [entry.value[index]], None, entry.offset + index)
