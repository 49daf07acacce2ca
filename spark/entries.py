"""Entries: the keys of a keyspace as rows of a table, with whatever they hold in columns by the form of their values.

Rows come from entries, as those of other tables do, or from hashes whose parts stand in columns already. Pure. Called by the
data source and by forms.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain
from typing import Any

import pyarrow as pa
from attrs import frozen

from ..schema.fact import Entry
from .tables import Column, Table, bigint_column, text_column

_MAP = pa.map_(pa.binary(), pa.field("value", pa.binary()))
_MEMBERS = pa.list_(pa.field("element", pa.binary()))
_SCORES = pa.list_(pa.field("element", pa.float64()))


@frozen
class _Maps(Column):
    """A column of dicts."""

    def cells(self, rows: Sequence[Any]) -> pa.Array:
        found = list(map(self.get, rows))
        there = [each for each in found if each is not None]
        sizes = [None if each is None else len(each) for each in found]
        return _maps(sizes, list(chain.from_iterable(there)), list(chain.from_iterable(map(dict.values, there))))


def _maps(sizes: Sequence[int | None], names: Sequence[bytes], values: Sequence[bytes]) -> pa.Array:
    """Maps of these sizes, None for a null, whose names and values stand one after the other."""
    ends = accumulate((size or 0 for size in sizes), initial=0)
    offsets = [None if size is None else start for size, start in zip((*sizes, 0), ends, strict=True)]
    return pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()), pa.array(names, pa.binary()), pa.array(values, pa.binary()), type=_MAP
    )


def _members(entry: Entry) -> list[bytes] | None:
    match entry.redis_type:
        case "list" | "set":
            return list(entry.value)
        case "zset":
            return [member for member, _ in entry.value]
        case "string":
            return [entry.value]
    return None


def _scores(entry: Entry) -> list[float] | None:
    return [score for _, score in entry.value] if entry.redis_type == "zset" else None


def _entry(key: bytes, redis_type: str, ttl_ms: int | None, index: int, fields: Any, members: Any, scores: Any) -> Entry:
    value = members
    match redis_type:
        case "hash":
            value = dict(fields)
        case "zset":
            value = list(zip(members, scores, strict=True))
        case "string":
            (value,) = members
    return Entry(key, redis_type, value, ttl_ms, index)


ENTRIES: Table[Entry] = Table(
    "entries",
    _entry,
    (
        Column("key", "binary", pa.binary()),
        text_column("redis_type"),
        bigint_column("ttl_ms"),
        Column("index", "bigint", pa.int64(), get=lambda entry: entry.offset),
        _Maps("fields", "map<binary, binary>", _MAP, get=lambda entry: entry.value if entry.redis_type == "hash" else None),
        Column("members", "array<binary>", _MEMBERS, get=_members),
        Column("scores", "array<double>", _SCORES, get=_scores),
    ),
)
"""What each key holds, or a part of a long one that begins at ``index``. All values are null for types that are not read."""


def entry_bytes(entry: Entry) -> int:
    """The bytes of an entry's values."""
    match entry.value:
        case bytes() as text:
            return len(text)
        case dict() as fields:
            return sum(map(len, fields)) + sum(map(len, fields.values()))
        case list() as items:
            return sum(len(item[0] if entry.redis_type == "zset" else item) for item in items)
    return 0


def hashes(
    keys: Sequence[bytes], ttls: Sequence[int | None], sizes: Sequence[int], names: Sequence[bytes], values: Sequence[bytes]
) -> pa.RecordBatch:
    """The rows of hashes: their keys, times to live in ms, numbers of fields; then the fields of all, one after the other."""
    number = len(keys)
    columns = [
        pa.array(keys, pa.binary()),
        pa.array(["hash"] * number, pa.string()),
        pa.array(ttls, pa.int64()),
        pa.array([0] * number, pa.int64()),
        _maps(sizes, names, values),
        pa.nulls(number, _MEMBERS),
        pa.nulls(number, _SCORES),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ENTRIES.arrow)
