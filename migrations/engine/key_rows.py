"""Key rows: what a PrefilteringReader (migrations/prefiltering_reader.py) remembers, for keyspaces of any size.

    entries -> accepted: a key row for each place claimed or found, in files that the tasks write themselves (shuffle.py)
            -> all others: facts, and a key row that says that their job is unverified

A key row holds what one key says about one job, so that a live server need not be read again for it. placement_check.py makes
jobs of the rows of those that are where they claim, and facts of the rows of all others. Called by snapshot.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa

from ...schema.columnar.batch_prefilter import NOT_ACCEPTED, UNDATED, AcceptedColumns, BatchPrefilter
from ...schema.columnar.binary_views import NO_NUMBER, BinaryViews, ScratchBuffer
from ...schema.columnar.field_sets import select_fields
from ...schema.connection.address import Address
from ...schema.connection.pipeline import mapping
from ...schema.fact import Entry, Fact
from ...schema.memo import Memo
from ...schema.prefilter import MIX, WORD, IndexKey, Item, JobGroup, OwnedList
from ..columnar.columns import DecodedKeys, Hashes, Lists, Zset
from ..fact_reader import ReadSummary
from ..prefiltering_reader import AcceptedRecords, PrefilteringReader
from . import storage
from .shuffle import ROUND_BYTES, LazyShuffleFile, buckets_of

RECORD, INDEX_MEMBER, OWNED, UNVERIFIED = 1, 2, 4, 8
"""What a key row is about: a record, a member of an index, what a job may have any number of (a list that belongs to it, its
entry in an optional index), or nothing but that the job is unverified, since facts say more about it than key rows do. A job that
is an item of a list is its own record."""
COLUMNS = {
    "number": pa.int64(),
    "kind": pa.int64(),
    "mark": pa.int64(),
    "home": pa.int64(),
    "created_at": pa.int64(),
    "size": pa.int64(),
    "key": pa.binary(),
    "index": pa.int64(),
    "score": pa.float64(),
    "shape": pa.int64(),
    "values": pa.list_(pa.field("element", pa.binary())),
}
"""``home`` is the group of a record, or of an index or list that tells it (``JobGroup.hash``); so is ``created_at``. ``shape``
tells which fields a record has (``hash_of_names``), or in what key a member or an item is (``hash_of_key``). ``values`` are the
values of these fields, a member, an item, or lines, and ``size`` their bytes. A member of a list has no ``score``, one of a set
no ``index`` either."""
SCHEMA = pa.schema(list(COLUMNS.items()))

HASHES_TOGETHER = 5_000
"""How many hashes are looked at together, at least: so many come over a wire at once, of a file in more parts."""
UNVERIFIED_TOGETHER = 40_000
"""How many unverified jobs are held before they become key rows."""
MAX_FIELD_SETS = 1_000
"""With how many combinations of fields a task remembers records. Where there are more, jobs are facts: the driver has all of
these together."""
OWNED_TOGETHER = 1_000
"""How many lists are held before they become key rows: a job's log may have a thousand lines."""


class KeyRowWriter(PrefilteringReader):
    """Writes what it remembers as key rows to a file in ``folder``, in so many ``buckets``."""

    def __init__(self, address: Address, now_ms: int, folder: str, buckets: int, *, for_transfer: bool = False) -> None:
        super().__init__(address, now_ms, for_transfer=for_transfer)
        self._buckets = buckets
        self._owned_lists: list[tuple[OwnedList, Entry]] = []
        self._unverified: list[int] = []
        self._records, self._others = (LazyShuffleFile(storage.new_name(folder), SCHEMA, buckets) for _ in range(2))
        """Rows of records, and all others: most rows of unverified jobs are among these."""
        self._batch = address.key_family.batch_prefilter(address.prefix, now_ms, for_transfer=for_transfer)
        self._pending_hashes: list[Hashes] = []
        self._hash_rows = self._hash_bytes = 0
        self._scratch = ScratchBuffer()

    def guess(self, keys: BinaryViews) -> tuple[Any, Any]:
        """Which keys are records of jobs, and which are lists that belong to one, in all likelihood (bool)."""
        if self._batch is not None:
            return self._batch.records(keys) != NO_NUMBER, self._batch.owners(keys) != NO_NUMBER
        names = keys.to_list()
        are_records, are_lists = (np.array(list(map(test, names)), bool) for test in (self.is_record, self.is_list))
        return are_records, are_lists

    def hashes(self, hashes: Hashes) -> Iterator[Fact]:
        """What many small hashes state, as from ``facts``."""
        if self._batch is None:
            for key, ttl_ms, words in zip(hashes.keys.to_list(), hashes.ttls.tolist(), hashes.lists(), strict=True):
                if ttl_ms < 0:
                    self._add_pending(key, tuple(words[::2]), words[1::2])
                else:
                    yield from self.unverified(Entry(key, "hash", mapping(words), ttl_ms))
            yield from self._read_if_full(len(hashes), hashes.size)
            return
        self._pending_hashes.append(hashes)
        self._hash_rows += len(hashes)
        self._hash_bytes += hashes.size
        if self._hash_rows >= HASHES_TOGETHER or self._hash_bytes >= ROUND_BYTES:
            yield from self._accept_pending(self._batch)

    def lists(self, lists: Lists) -> Iterator[Fact]:
        """What many short lists state, as from ``facts``."""
        numbers = np.full(len(lists), NO_NUMBER) if self._batch is None else self._batch.owners(lists.keys)
        are_known = (numbers != NO_NUMBER) & (lists.ttls < 0)
        known = lists.take(are_known)
        if len(known):
            self._others.add(
                _batch(
                    len(known),
                    number=pa.array(numbers[are_known]),
                    kind=_same(OWNED, len(known), pa.int64()),
                    key=known.keys.to_arrow(),
                    index=_same(0, len(known), pa.int64()),
                    values=_lists(np.append(known.begins(), known.counts.sum()), known.words.to_arrow()),
                )
            )
        for entry in lists.take(~are_known).entries():
            yield from self.facts(entry)

    def found(self, found: DecodedKeys) -> Iterator[Fact]:
        """What anything in a snapshot file states, as from ``facts``."""
        match found:
            case Hashes():
                return self.hashes(found)
            case Lists():
                return self.lists(found)
            case Zset():
                return self.zset(found)
        return self.row(*found)

    def zset(self, zset: Zset) -> Iterator[Fact]:
        """What some members of a zset state, as from ``facts``."""
        index_members = None
        if self._batch is not None and zset.ttl_ms is None:
            index_members = self._batch.index_members(zset.key, zset.members, zset.scores)
        if self._batch is None or index_members is None:
            yield from self.facts(zset.entry())
            return
        numbers, group = index_members.numbers, index_members.group
        are_known = numbers != NO_NUMBER
        known = np.flatnonzero(are_known)
        scores = zset.scores[known]
        self._batch.tally_index(zset.key, scores, self._summary.totals)
        if len(known):
            self._summary.has_content = True
            members = zset.members.take(known).to_arrow()
            self._note_groups([group] if group else [])
            group_hash, indexes = group.hash if group else 0, known + zset.offset
            self._others.add(_members(zset.key, index_members.key, group_hash, numbers[known], indexes, scores, members))
        for index in np.flatnonzero(~are_known).tolist():
            item = zset.members[index], float(zset.scores[index])
            yield from self.unverified(Entry(zset.key, "zset", [item], None, zset.offset + index))

    def rest(self) -> Iterator[Fact]:
        yield from super().rest()
        if self._batch is not None:
            yield from self._accept_pending(self._batch)

    def _accept_pending(self, batch: BatchPrefilter) -> Iterator[Fact]:
        """Looks at the pending hashes: the facts of those that are not accepted."""
        if not self._pending_hashes:
            return
        found = Hashes.concat(self._pending_hashes, self._scratch)
        self._pending_hashes, self._hash_rows, self._hash_bytes = [], 0, 0
        numbers = batch.records(found.keys)
        records, codes, field_sets = select_fields(found.counts, found.words, batch.fields)
        accepted = batch.accept(records)
        is_accepted = (accepted.at != NOT_ACCEPTED) & (found.ttls < 0) & (numbers != NO_NUMBER)
        field_set_hashes = np.zeros(len(field_sets), np.int64)
        for code in np.unique(codes[is_accepted]).tolist():
            if self.remembers(field_sets[code]):
                field_set_hashes[code] = self._field_set(field_sets[code])
            else:
                is_accepted &= codes != code
        if is_accepted.any():
            rows = np.flatnonzero(is_accepted)
            rows = rows[np.argsort(buckets_of(numbers[rows], self._buckets), kind="stable")]
            self._add_accepted(found, rows, numbers[rows], field_set_hashes[codes[rows]], accepted.take(rows), batch)
        for entry in found.take(~is_accepted).entries():
            yield from self.unverified(entry)

    def _add_accepted(
        self, found: Hashes, rows: Any, numbers: Any, field_set: Any, accepted: AcceptedColumns, batch: BatchPrefilter
    ) -> None:
        """Records that the prefilter accepts, those of a bucket in a row. ``field_set``: the hash of the fields of each."""
        self._summary.has_content = True
        keys, counts = found.keys.take(rows), found.counts[rows] // 2
        batch.tally_accepted(keys, numbers, self._summary.totals)
        self._note_groups(accepted.groups[at] for at in np.unique(accepted.at).tolist())
        ends = np.append(0, np.cumsum(counts))
        values = np.repeat(found.begins()[rows] + 1 - 2 * ends[:-1], counts) + 2 * np.arange(ends[-1])
        groups, at, scores, created_at = accepted.groups, accepted.at, accepted.scores, pa.array(accepted.created_at)
        texts = found.words.take(values).to_arrow()
        self._records.add(_records(keys.to_arrow(), numbers, pa.array(field_set), ends, texts, groups, at, scores, created_at))

    def close(self) -> ReadSummary:
        self._flush_owned_lists()
        self._flush_unverified()
        for file in (self._records, self._others):
            self._summary.files += file.close()
        return self._summary

    def remembers(self, names: tuple[bytes, ...]) -> bool:
        return len(self._summary.field_sets) < MAX_FIELD_SETS or hash_of_names(names) in self._summary.field_sets

    def _field_set(self, names: tuple[bytes, ...]) -> int:
        """The hash of these fields, of which the summary tells."""
        found = hash_of_names(names)
        self._summary.field_sets[found] = names
        return found

    def add_records(self, records: AcceptedRecords) -> None:
        groups = dict.fromkeys(records.groups)
        self._note_groups(groups)
        index = {group: number for number, group in enumerate(groups)}
        rows, width = len(records.keys), len(records.names)
        self._records.add(
            _records(
                pa.array(records.keys, pa.binary()),
                records.numbers,
                _same(self._field_set(records.names), rows, pa.int64()),
                np.arange(0, width * rows + 1, width),
                pa.array(chain.from_iterable(records.rows), pa.binary()),
                list(groups),
                np.array([index[group] for group in records.groups]),
                [np.array(score, np.float64) for score in records.scores],
                _dates(records.created_at),
                _signed(records.others) if records.others else 0,
            )
        )

    def add_items(self, entry: Entry, known: Sequence[tuple[int, Item]]) -> None:
        self._note_groups(dict.fromkeys(item.group for _, item in known))
        self._records.add(_items(entry, known))

    def of_index(self, entry: Entry) -> Iterator[Fact]:
        index_members = self.prefilter.index_members(entry)
        if index_members is None:
            return self.unverified(entry)
        known = [index for index, number in enumerate(index_members.numbers) if number is not None]
        if known:
            group, members = index_members.group, [entry.value[index] for index in known]
            self._note_groups([group] if group else [])
            numbers, scores = [index_members.numbers[index] for index in known], None
            indexes = None if entry.redis_type == "set" else np.array(known) + entry.offset
            if entry.redis_type == "zset":
                members, scores = map(list, zip(*members, strict=True))
            kind = OWNED if index_members.is_optional else INDEX_MEMBER
            columns = numbers, indexes, scores, pa.array(members, pa.binary()), kind
            self._others.add(_members(entry.key, index_members.key, group.hash if group else 0, *columns))
        return self.of_index_members(entry, known, index_members.facts)

    def _note_groups(self, groups: Iterable[JobGroup]) -> None:
        self._summary.groups.update((group.hash, (group.queue, str(group.state))) for group in groups if group.state is not None)

    def add_owned_list(self, owned: OwnedList, entry: Entry) -> None:
        self._owned_lists.append((owned, entry))
        if len(self._owned_lists) >= OWNED_TOGETHER:
            self._flush_owned_lists()

    def add_unverified(self, number: int) -> None:
        self._unverified.append(number)
        if len(self._unverified) >= UNVERIFIED_TOGETHER:
            self._flush_unverified()

    def _flush_owned_lists(self) -> None:
        if self._owned_lists:
            self._note_groups({owned.group for owned, _ in self._owned_lists if owned.group is not None})
            self._others.add(_owned_lists(self._owned_lists))
            self._owned_lists = []

    def _flush_unverified(self) -> None:
        if self._unverified:
            numbers = list(dict.fromkeys(self._unverified))
            self._others.add(
                _batch(len(numbers), number=pa.array(numbers, pa.int64()), kind=_same(UNVERIFIED, len(numbers), pa.int64()))
            )
            self._unverified = []


def _records(
    keys: pa.Array,
    numbers: Any,
    field_set: pa.Array,
    ends: Any,
    texts: pa.Array,
    groups: Sequence[JobGroup],
    at_group: Any,
    scores: Sequence[Any],
    created_at: pa.Array,
    others: Any = 0,
) -> pa.RecordBatch:
    """The key rows of records; each takes away the placement hashes of all places that it claims.

    ``field_set``: the hashes of their fields; ``texts``: the values of these, of one record after the other; ``ends``: where
    those of each begin, and the last end. ``at_group``: which of the groups is that of each; ``scores``: for each index of a
    group, those there; ``others``: the sum of the hashes of all other places (int64).
    """
    rows = len(keys)
    bases = np.array([[index_key.base for index_key in group.index_keys] for group in groups], np.uint64)
    factors = np.array([[index_key.factor for index_key in group.index_keys] for group in groups], np.uint64)
    claimed = placement_hashes(bases[at_group], factors[at_group], np.stack(scores, axis=1))
    return _batch(
        rows,
        number=pa.array(numbers, pa.int64()),
        kind=_same(RECORD, rows, pa.int64()),
        mark=pa.array(-(np.add.reduce(claimed, axis=1) + others)),
        home=pa.array(np.array([group.hash for group in groups], np.int64)[at_group]),
        created_at=created_at,
        key=keys,
        shape=field_set,
        values=_lists(ends, texts),
    )


def _items(entry: Entry, known: Sequence[tuple[int, Item]]) -> pa.RecordBatch:
    """The key rows of the items of a list that are known."""
    rows = len(known)
    indexes, items = zip(*known, strict=True)
    numbers, groups, created_at = zip(*items, strict=True)
    return _batch(
        rows,
        number=pa.array(numbers, pa.int64()),
        kind=_same(RECORD, rows, pa.int64()),
        home=pa.array(map(Memo(attrgetter("hash")).__getitem__, groups), pa.int64()),
        created_at=_dates(created_at),
        key=_same(entry.key, rows, pa.binary()),
        index=pa.array(np.array(indexes) + entry.offset),
        score=_same(0.0, rows, pa.float64()),
        shape=_same(hash_of_key(entry.key), rows, pa.int64()),
        values=_lists(np.arange(rows + 1), pa.array([entry.value[index] for index in indexes], pa.binary())),
    )


def _dates(created_at: Sequence[int | None]) -> pa.Array:
    return pa.array(created_at, pa.int64()).fill_null(UNDATED)


def _members(
    key: bytes,
    index_key: IndexKey,
    group: int,
    numbers: Any,
    indexes: Any,
    scores: Any,
    members: pa.Array,
    kind: int = INDEX_MEMBER,
) -> pa.RecordBatch:
    """The key rows of members of an index: a list has no ``scores``, a set no ``indexes`` either; ``group`` may be 0: untold."""
    rows = len(members)
    hashed = np.zeros(rows) if scores is None else np.asarray(scores, np.float64)
    return _batch(
        rows,
        number=pa.array(numbers, pa.int64()),
        kind=_same(kind, rows, pa.int64()),
        mark=pa.array(placement_hashes(np.uint64(index_key.base), np.uint64(index_key.factor), hashed)),
        home=_same(group, rows, pa.int64()),
        key=_same(key, rows, pa.binary()),
        index=pa.nulls(rows, pa.int64()) if indexes is None else pa.array(indexes),
        score=pa.nulls(rows, pa.float64()) if scores is None else pa.array(hashed),
        shape=_same(hash_of_key(key), rows, pa.int64()),
        values=_lists(np.arange(rows + 1), members),
    )


def _owned_lists(those: Sequence[tuple[OwnedList, Entry]]) -> pa.RecordBatch:
    """The key rows of lists that belong to jobs."""
    lists, entries = zip(*those, strict=True)
    places = [owned.key for owned in lists]
    bases, factors = (np.array([getattr(key, name, 0) for key in places], np.uint64) for name in ("base", "factor"))
    # Where a list stands for no place, nothing is added up.
    marks = placement_hashes(bases, factors, np.array([owned.score for owned in lists], np.float64))
    marks[[key is None for key in places]] = 0
    hashes = Memo(attrgetter("hash"))
    return _batch(
        len(those),
        number=pa.array([owned.number for owned in lists], pa.int64()),
        kind=_same(OWNED, len(those), pa.int64()),
        mark=pa.array(marks),
        home=pa.array([0 if owned.group is None else hashes[owned.group] for owned in lists], pa.int64()),
        created_at=pa.array([owned.created_at or 0 for owned in lists], pa.int64()),
        key=pa.array([entry.key for entry in entries], pa.binary()),
        index=pa.array([entry.offset for entry in entries], pa.int64()),
        values=pa.array([entry.value for entry in entries], COLUMNS["values"]),
    )


def placement_hashes(bases: Any, factors: Any, scores: Any) -> Any:
    """``IndexKey.placement_hash`` for whole arrays, as signed numbers; no score of a zset is NaN."""
    with np.errstate(over="ignore"):
        found = bases + (scores + 0.0).view(np.uint64) * factors
        found = (found ^ found >> np.uint64(30)) * np.uint64(MIX[0])
        found = (found ^ found >> np.uint64(27)) * np.uint64(MIX[1])
        return (found ^ found >> np.uint64(31)).view(np.int64)


def _signed(hashes: Sequence[int]) -> Any:
    """Sums of placement hashes as signed numbers."""
    return np.array([each % WORD for each in hashes], np.uint64).view(np.int64)


def hash_of_names(names: Iterable[bytes]) -> int:
    """A signed 64-bit number for the names of fields in this order."""
    return hash_of_key(b"".join(b"%d:%b" % (len(name), name) for name in names))


def hash_of_key(key: bytes) -> int:
    """A signed 64-bit number for the name of a key."""
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), signed=True)


def _same(value: Any, rows: int, arrow_type: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(value, arrow_type), rows)


def _lists(ends: Any, texts: pa.Array) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), texts, type=COLUMNS["values"])


def _batch(rows: int, **arrays: pa.Array) -> pa.RecordBatch:
    """The columns that are given; numbers that are not are 0, all else null."""
    if "values" in arrays:
        arrays["size"] = pa.array(_sizes(arrays["values"]))
    for name in ("mark", "home", "created_at", "size", "shape"):
        arrays.setdefault(name, _same(0, rows, pa.int64()))
    return pa.RecordBatch.from_arrays(
        [arrays[name] if name in arrays else pa.nulls(rows, arrow_type) for name, arrow_type in COLUMNS.items()], schema=SCHEMA
    )


def _sizes(lists: pa.ListArray) -> Any:
    """The bytes of the texts of each list, of a new array."""
    starts = np.frombuffer(lists.values.buffers()[1], np.int32)
    return np.diff(starts[lists.offsets.to_numpy()].astype(np.int64))
