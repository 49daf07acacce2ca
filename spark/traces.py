"""Traces: what a Sifting (migrations/sifting.py) remembers, for keyspaces of any size.

    entries -> vouched for: a trace of each place claimed or found, in files that the tasks write themselves (buckets.py)
            -> all others: facts, and a trace of doubt

A trace holds what its key says about one job, so that a live server need not be read again for it: sound.py makes a job of the
traces of those that stand where they claim, and facts of all others'. Called by snapshot.py.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import define, field

from ..migrations.hashes import Hashes
from ..migrations.intake import Outline
from ..migrations.sifting import Sifting
from ..migrations.wire import mapping
from ..schema.address import Address
from ..schema.fact import Entry, Fact
from ..schema.voucher import MIX, Home, Standings, Vouched
from .buckets import BucketFile

RECORD, PLACE, ATTACHED, DOUBT = 1, 2, 4, 8
"""What a trace is of; of a job with the bit of doubt, facts tell what no trace does."""

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
    "values": pa.list_(pa.field("element", pa.binary())),
}
"""``home`` is that of a record, or of a place that tells it, ``created_at`` that of a record; ``values`` are its fields and their
values in turn, a member, or lines, and ``size`` their bytes."""
SCHEMA = pa.schema(list(COLUMNS.items()))

ROWS = 40_000
BYTES = 16 << 20
"""When traces go to the file."""
ENTRIES = 1_000
"""When entries become traces: an entry may be a log of a thousand lines."""


class Tracing(Sifting):
    """Leaves the traces of what it remembers in a file in ``folder``, in so many ``buckets``."""

    def __init__(self, address: Address, now_ms: int, folder: str, buckets: int) -> None:
        super().__init__(address, now_ms)
        self._columns = self.voucher.columns()
        self._held = _Held()
        self._attached: list[tuple[int, Entry]] = []
        self._doubts: list[int] = []
        self._path = os.path.join(folder, f"{uuid.uuid4()}.arrow")
        self._buckets = buckets
        self._file: BucketFile | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def close(self) -> Outline:
        self._flush_attached()
        self._flush_doubts()
        self._write()
        outline = self._outline
        if self._file is not None:
            self._file.close()
            outline.files.append(self._path)
        return outline

    def of_record(self, entry: Entry) -> Iterator[Fact]:
        yield from self._hold(entry.key, tuple(entry.value), list(entry.value.values()))

    def hashes(self, hashes: Hashes) -> Iterator[Fact]:
        for key, ttl_ms, reply in zip(hashes.keys, hashes.ttls, hashes.replies, strict=True):
            if ttl_ms < 0:
                yield from self._hold(key, tuple(reply[::2]), reply[1::2])
            else:
                yield from self.doubtful(Entry(key, "hash", mapping(reply), ttl_ms))

    def rest(self) -> Iterator[Fact]:
        yield from self._vouch()

    def _hold(self, key: bytes, names: tuple[bytes, ...], values: Sequence[bytes]) -> Iterator[Fact]:
        """Takes a record, to be looked at with others."""
        held = self._held
        held.keys.append(key)
        held.names.append(names)
        held.values.append(values)
        held.size += sum(map(len, values))
        if len(held.keys) >= ENTRIES or held.size >= BYTES:
            yield from self._vouch()

    def _vouch(self) -> Iterator[Fact]:
        """Remembers the records for which the family vouches; the facts of the others."""
        held, self._held = self._held, _Held()
        if not held.keys:
            return
        found = self._columns.vouch(held.keys, held.names, held.values)
        rows = found.rows.tolist()
        if rows:
            outline = self._outline
            outline.speaks = True
            self._note(found.homes)
            self.voucher.tally_vouched([held.keys[row] for row in rows], outline.totals)
            self._add(_records(held, rows, found))
        for row in sorted(set(range(len(held.keys))).difference(rows)):
            fields = dict(zip(held.names[row], held.values[row], strict=True))
            yield from self.doubtful(Entry(held.keys[row], "hash", fields))

    def of_place(self, entry: Entry) -> Iterator[Fact]:
        found = self._columns.standings(entry)
        if found is None:
            yield from self.doubtful(entry)
            return
        known = np.flatnonzero(found.numbers >= 0)
        if len(known):
            self._note([found.home] if found.home else [])
            self._add(_members(entry, found, known))
        yield from self.of_standing(entry, known.tolist())

    def _note(self, homes: Iterable[Home]) -> None:
        self._outline.homes.update((home.mark, (home.queue, str(home.state))) for home in homes if home.state is not None)

    def add_attached(self, number: int, entry: Entry) -> None:
        self._attached.append((number, entry))
        if len(self._attached) >= ENTRIES:
            self._flush_attached()

    def add_doubt(self, number: int) -> None:
        self._doubts.append(number)
        if len(self._doubts) >= ROWS:
            self._flush_doubts()

    def _flush_attached(self) -> None:
        if self._attached:
            self._add(_attached(self._attached))
            self._attached = []

    def _flush_doubts(self) -> None:
        if self._doubts:
            numbers = list(dict.fromkeys(self._doubts))
            self._add(_batch(len(numbers), number=pa.array(numbers, pa.int64()), kind=_same(DOUBT, len(numbers), pa.int64())))
            self._doubts = []

    def _add(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= ROWS or self._bytes >= BYTES:
            self._write()

    def _write(self) -> None:
        if not self._waiting:
            return
        if self._file is None:
            self._file = BucketFile(self._path, SCHEMA, self._buckets)
        for rows in pa.Table.from_batches(self._waiting).combine_chunks().to_batches():
            self._file.write(rows)
        self._waiting = []
        self._rows = self._bytes = 0


@define
class _Held:
    """Records that wait to be looked at together."""

    keys: list[bytes] = field(factory=list)
    names: list[tuple[bytes, ...]] = field(factory=list)
    values: list[Sequence[bytes]] = field(factory=list)
    size: int = 0


def _records(held: _Held, rows: Sequence[int], found: Vouched) -> pa.RecordBatch:
    """The traces of records; each takes away the marks of all places that it claims."""
    bases = np.array([[place.base for place in home.places] for home in found.homes], np.uint64)
    factors = np.array([[place.factor for place in home.places] for home in found.homes], np.uint64)
    homes = np.array([home.mark for home in found.homes], np.int64)
    claimed = marks(bases[found.at_home], factors[found.at_home], found.scores)
    texts = list(chain.from_iterable(chain.from_iterable(zip(held.names[row], held.values[row], strict=True)) for row in rows))
    ends = np.cumsum([2 * len(held.names[row]) for row in rows])
    return _batch(
        len(rows),
        number=pa.array(found.numbers),
        kind=_same(RECORD, len(rows), pa.int64()),
        mark=pa.array(-np.add.reduce(claimed, axis=1)),
        home=pa.array(homes[found.at_home]),
        created_at=pa.array(found.created_at),
        key=pa.array([held.keys[row] for row in rows], pa.binary()),
        values=_lists([0, *ends.tolist()], texts),
    )


def _members(entry: Entry, found: Standings, known: Any) -> pa.RecordBatch:
    """The traces of the members of a place that are known."""
    members, scores = zip(*entry.value, strict=True)
    rows = len(known)
    array = np.array(scores, np.float64)[known]
    return _batch(
        rows,
        number=pa.array(found.numbers[known]),
        kind=_same(PLACE, rows, pa.int64()),
        mark=pa.array(marks(np.uint64(found.place.base), np.uint64(found.place.factor), array)),
        home=_same(found.home.mark if found.home else 0, rows, pa.int64()),
        key=_same(entry.key, rows, pa.binary()),
        index=pa.array(known + entry.offset),
        score=pa.array(array),
        values=_lists(range(rows + 1), members if rows == len(members) else [members[index] for index in known.tolist()]),
    )


def _attached(those: Sequence[tuple[int, Entry]]) -> pa.RecordBatch:
    """The traces of keys that belong to jobs."""
    entries = [entry for _, entry in those]
    return _batch(
        len(those),
        number=pa.array([number for number, _ in those], pa.int64()),
        kind=_same(ATTACHED, len(those), pa.int64()),
        key=pa.array([entry.key for entry in entries], pa.binary()),
        index=pa.array([entry.offset for entry in entries], pa.int64()),
        values=pa.array([entry.value for entry in entries], COLUMNS["values"]),
    )


def marks(bases: Any, factors: Any, scores: Any) -> Any:
    """``Place.mark`` for whole arrays, as signed numbers; no score of a zset is NaN."""
    with np.errstate(over="ignore"):
        found = bases + (scores + 0.0).view(np.uint64) * factors
        found = (found ^ found >> np.uint64(30)) * np.uint64(MIX[0])
        found = (found ^ found >> np.uint64(27)) * np.uint64(MIX[1])
        return (found ^ found >> np.uint64(31)).view(np.int64)


def _same(value: Any, rows: int, kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), rows)


def _lists(ends: Sequence[int], items: Sequence[bytes]) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(items, pa.binary()), type=COLUMNS["values"])


def _batch(rows: int, **arrays: pa.Array) -> pa.RecordBatch:
    """The columns that are given; numbers that are not are 0, all else null."""
    if "values" in arrays:
        arrays["size"] = pa.array(_sizes(arrays["values"]))
    for name in ("mark", "home", "created_at", "size"):
        arrays.setdefault(name, _same(0, rows, pa.int64()))
    return pa.RecordBatch.from_arrays(
        [arrays[name] if name in arrays else pa.nulls(rows, kind) for name, kind in COLUMNS.items()], schema=SCHEMA
    )


def _sizes(lists: pa.ListArray) -> Any:
    """The bytes of the texts of each list, of a new array."""
    starts = np.frombuffer(lists.values.buffers()[1], np.int32)
    return np.diff(starts[lists.offsets.to_numpy()].astype(np.int64))
