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
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa

from ..migrations.intake import Outline
from ..migrations.sifting import Sifting, SoundRecords
from ..schema.address import Address
from ..schema.fact import Entry, Fact
from ..schema.memo import Memo
from ..schema.voucher import MIX, Home, Item, Standing
from .buckets import BucketFile

RECORD, PLACE, ATTACHED, DOUBT = 1, 2, 4, 8
"""What a trace is of; of a job with the bit of doubt, facts tell what no trace does. A job that is an item of a list is its own
record."""
UNDATED = -(2**63)
"""Stands for the moment of creation where nothing tells it."""

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
    "names": pa.binary(),
    "values": pa.list_(pa.field("element", pa.binary())),
}
"""``home`` is that of a record, or of a place that tells it, ``created_at`` that of a record, ``names`` those of its fields
(``pack_names``), null for an item. ``values`` are the values of these, an item, a member, or lines, and ``size`` the bytes of
both."""
SCHEMA = pa.schema(list(COLUMNS.items()))

ROWS = 40_000
BYTES = 16 << 20
"""When traces go to the file."""
LOGS = 1_000
"""How many logs are held before they become traces: each may have a thousand lines."""


class Tracing(Sifting):
    """Leaves the traces of what it remembers in a file in ``folder``, in so many ``buckets``."""

    def __init__(self, address: Address, now_ms: int, folder: str, buckets: int) -> None:
        super().__init__(address, now_ms)
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

    def add_records(self, records: SoundRecords) -> None:
        homes = dict.fromkeys(records.homes)
        self._note(homes)
        self._add(_records(records, list(homes)))

    def add_items(self, entry: Entry, known: Sequence[tuple[int, Item]]) -> None:
        self._note(dict.fromkeys(item.home for _, item in known))
        self._add(_items(entry, known))

    def of_place(self, entry: Entry) -> Iterator[Fact]:
        standing = self.voucher.standing(entry)
        if standing is None:
            return self.doubtful(entry)
        known = [index for index, number in enumerate(standing.numbers) if number is not None]
        if known:
            self._note([standing.home] if standing.home else [])
            self._add(_members(entry, standing, known))
        return self.of_standing(entry, known)

    def _note(self, homes: Iterable[Home]) -> None:
        self._outline.homes.update((home.mark, (home.queue, str(home.state))) for home in homes if home.state is not None)

    def add_attached(self, number: int, entry: Entry) -> None:
        self._attached.append((number, entry))
        if len(self._attached) >= LOGS:
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
        if self._waiting:
            self._file = self._file or BucketFile(self._path, SCHEMA, self._buckets)
            for rows in pa.Table.from_batches(self._waiting).combine_chunks().to_batches():
                self._file.write(rows)
        self._waiting = []
        self._rows = self._bytes = 0


def _records(records: SoundRecords, homes: Sequence[Home]) -> pa.RecordBatch:
    """The traces of records, with ``homes`` for each of theirs; each takes away the marks of all places that it claims."""
    rows, fields = len(records.keys), len(records.names)
    index = {home: number for number, home in enumerate(homes)}
    at_home = np.array([index[home] for home in records.homes])
    bases = np.array([[place.base for place in home.places] for home in homes], np.uint64)
    factors = np.array([[place.factor for place in home.places] for home in homes], np.uint64)
    scores = np.array(records.scores, np.float64).transpose()
    claimed = marks(bases[at_home], factors[at_home], np.ascontiguousarray(scores))
    names = pack_names(records.names)
    texts = pa.array(list(chain.from_iterable(records.rows)), pa.binary())
    values = _lists(np.arange(0, fields * rows + 1, fields), texts)
    return _batch(
        rows,
        number=pa.array(records.numbers, pa.int64()),
        kind=_same(RECORD, rows, pa.int64()),
        mark=pa.array(-np.add.reduce(claimed, axis=1)),
        home=pa.array(np.array([home.mark for home in homes], np.int64)[at_home]),
        created_at=_dates(records.created_at),
        key=pa.array(records.keys, pa.binary()),
        names=_same(names, rows, pa.binary()),
        values=values,
        size=pa.array(_sizes(values) + len(names)),
    )


def _items(entry: Entry, known: Sequence[tuple[int, Item]]) -> pa.RecordBatch:
    """The traces of the items of a list that are known."""
    rows = len(known)
    indexes, items = zip(*known, strict=True)
    numbers, homes, created_at = zip(*items, strict=True)
    return _batch(
        rows,
        number=pa.array(numbers, pa.int64()),
        kind=_same(RECORD, rows, pa.int64()),
        home=pa.array(map(Memo(attrgetter("mark")).__getitem__, homes), pa.int64()),
        created_at=_dates(created_at),
        key=_same(entry.key, rows, pa.binary()),
        index=pa.array(np.array(indexes) + entry.offset),
        score=_same(0.0, rows, pa.float64()),
        values=_lists(np.arange(rows + 1), pa.array([entry.value[index] for index in indexes], pa.binary())),
    )


def _dates(created_at: Sequence[int | None]) -> pa.Array:
    return pa.array(created_at, pa.int64()).fill_null(UNDATED)


def _members(entry: Entry, standing: Standing, known: Sequence[int]) -> pa.RecordBatch:
    """The traces of the members of a place that are known."""
    rows = len(known)
    items = entry.value if rows == len(entry.value) else [entry.value[index] for index in known]
    members, scores = zip(*items, strict=True)
    place, array = standing.place, np.array(scores, np.float64)
    return _batch(
        rows,
        number=pa.array([standing.numbers[index] for index in known], pa.int64()),
        kind=_same(PLACE, rows, pa.int64()),
        mark=pa.array(marks(np.uint64(place.base), np.uint64(place.factor), array)),
        home=_same(standing.home.mark if standing.home else 0, rows, pa.int64()),
        key=_same(entry.key, rows, pa.binary()),
        index=pa.array(np.array(known) + entry.offset),
        score=pa.array(array),
        values=_lists(np.arange(rows + 1), pa.array(members, pa.binary())),
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


def pack_names(names: Iterable[bytes]) -> bytes:
    """Names of fields as one text: each with its length before it."""
    return b"".join(b"%d:%b" % (len(name), name) for name in names)


def unpack_names(text: bytes) -> list[bytes]:
    """The names behind ``pack_names``."""
    names, start = [], 0
    while start < len(text):
        colon = text.index(b":", start)
        end = colon + 1 + int(text[start:colon])
        names.append(text[colon + 1 : end])
        start = end
    return names


def _same(value: Any, rows: int, kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), rows)


def _lists(ends: Any, texts: pa.Array) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), texts, type=COLUMNS["values"])


def _batch(rows: int, **arrays: pa.Array) -> pa.RecordBatch:
    """The columns that are given; numbers that are not are 0, all else null."""
    if "values" in arrays and "size" not in arrays:
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
