"""Entries: the keys of a keyspace as rows of a table, with whatever they hold in columns by the form of their values.

Rows come from entries, as those of other tables do, or from hashes that are columns already. Pure. Called by the
data source and by projection.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import frozen

from ..migrations.columnar.columns import Hashes
from ..migrations.engine.tables import Column, Table, bigint_column, text_column
from ..schema.fact import Entry

_MAP = pa.map_(pa.binary(), pa.field("value", pa.binary()))
_MEMBERS = pa.list_(pa.field("element", pa.binary()))
_SCORES = pa.list_(pa.field("element", pa.float64()))


@frozen
class _Maps(Column):
    """A column of dicts."""

    @property
    def arrow(self) -> pa.DataType:
        return _MAP

    def cells(self, rows: Sequence[Any]) -> pa.Array:
        found = list(map(self.get, rows))
        there = [each for each in found if each is not None]
        ends = accumulate((len(each or ()) for each in found), initial=0)
        offsets = [None if each is None else start for each, start in zip((*found, {}), ends, strict=True)]
        names, values = chain.from_iterable(there), chain.from_iterable(map(dict.values, there))
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
        Column("key", "binary"),
        text_column("redis_type"),
        bigint_column("ttl_ms"),
        Column("index", "bigint", get=lambda entry: entry.offset),
        _Maps("fields", "map<binary, binary>", get=lambda entry: entry.value if entry.redis_type == "hash" else None),
        Column("members", "array<binary>", get=_members),
        Column("scores", "array<double>", get=_scores),
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


def hashes(found: Hashes) -> pa.RecordBatch:
    """The rows of hashes."""
    number = len(found)
    offsets = pa.array(np.append(found.begins() // 2, found.counts.sum() // 2).astype(np.int32))
    names, values = (found.words.take(slice(first, None, 2)).to_arrow() for first in (0, 1))
    columns = [
        found.keys.to_arrow(),
        pa.repeat(pa.scalar(found.redis_type, pa.string()), number),
        pa.array(found.ttls, mask=found.ttls < 0),
        pa.repeat(pa.scalar(0, pa.int64()), number),
        pa.MapArray.from_arrays(offsets, names, values, type=_MAP),
        pa.nulls(number, _MEMBERS),
        pa.nulls(number, _SCORES),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ENTRIES.arrow)
