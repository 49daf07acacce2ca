"""Job hasher: 16 bytes for all of a job that a comparison would look at, of one job or of a table of them. Called by
job_digests.py.

What is hashed is one text, in which each value has its type and its size before it, so that no two jobs share one.
tests/spark/test_job_hasher.py.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import field, frozen

from ...schema.columnar.binary_views import BinaryViews
from ...schema.columnar.build import Datum, LengthPrefixed, concat_rows, format_ints, little_endian, merge_runs
from ...schema.columnar.jobtable import ENCODED, BinaryLists, JobTable
from ...schema.columnar.siphash import KEY_BYTES, siphash, siphash_of
from ...schema.family import KeyFamily
from ...schema.job import JOB_FIELDS, Job, State
from ...schema.tagged_json import decode_tagged, encode_tagged
from ...schema.text import to_bytes, to_text

FIELDS = tuple(name for name in JOB_FIELDS if name != "extra")
RAW = frozenset({"payload", "result"})
"""The attributes that are bytes; in other columns of BinaryViews they are texts, but for ENCODED ones."""
_values = attrgetter(*FIELDS)


@frozen
class JobHasher:
    """Makes the digests of one comparison, on both sides: they are equal for jobs between which it would find no difference, but
    for rare ones, which it then looks at field by field. So are mappings with the same items in another order.

    Different jobs have different digests, but for one in 2^128.
    """

    target: KeyFamily
    key: bytes = field(repr=False, factory=lambda: secrets.token_bytes(KEY_BYTES))
    """Nobody knows it before the comparison, so that nobody can have made jobs that it takes for one another."""

    def digest(self, job: Job) -> bytes:
        """The digest of a job."""
        extra: Any = job.extra if self.target.keeps_extra else job.extra.get(self.target.name)
        return siphash_of(b"".join(map(_cell, _values(job))) + _encoded_cell(extra), self.key)

    def digest_table(self, jobs: JobTable) -> pa.Array:
        """The digests of the jobs of a table (binary)."""
        parts: list[Datum] = []
        for name in FIELDS:
            column = jobs.columns.get(name)
            match column:
                case None:
                    parts.append(_cell(getattr(jobs.common, name)))
                case BinaryViews():
                    parts.append(LengthPrefixed(column, b"b" if name in RAW else b"x" if name in ENCODED else b"s"))
                case BinaryLists():
                    lines = concat_rows(len(column.items), [LengthPrefixed(column.items, b"b")])
                    parts += b"t", format_ints(column.counts), b":", merge_runs(lines, column.counts)
                case _:
                    parts += b"f" if column.dtype == np.float64 else b"i", little_endian(column)
        parts.append(_extra_cells(jobs, self.target))
        return siphash(concat_rows(len(jobs), parts), self.key)


def _extra_cells(jobs: JobTable, target: KeyFamily) -> Datum:
    """What is kept of each job, if the target keeps it."""
    encoded = jobs.columns.get("extra")
    if encoded is None:
        common = jobs.common.extra
        return _encoded_cell(common if target.keeps_extra else common.get(target.name))
    if target.keeps_extra:
        return LengthPrefixed(encoded, b"x")
    if target.name not in jobs.families:
        return _encoded_cell(None)
    codes, different = encoded.dictionary_encode()
    return BinaryViews.of([_encoded_cell(decode_tagged(text).get(target.name)) for text in different]).take(codes)


def _encoded_cell(value: Mapping[str, Any] | Sequence[Any] | None) -> bytes:
    """A value that JSON can say, as it is in the text."""
    if value is None:
        return b"n"
    encoded = encode_tagged(value) if value else b"{}"
    return b"x%d:%b" % (len(encoded), encoded)


def _cell(value: Any) -> bytes:
    """A value as it is in the text."""
    if value is None:
        return b"n"
    write = _CELLS.get(type(value))
    return _encoded_cell(value) if write is None else write(value)


def _text_cell(value: str) -> bytes:
    tag, raw = b"s", to_bytes(value)
    if not value.isascii() and to_text(raw) != value:  # it has surrogates that no bytes have made
        tag, raw = b"S", value.encode("utf-8", "surrogatepass")
    return b"%b%d:%b" % (tag, len(raw), raw)


def _tuple_cell(values: tuple[Any, ...]) -> bytes:
    if values and type(values[0]) is not bytes:
        return _encoded_cell(values)
    return b"t%d:%b" % (len(values), b"".join(map(_cell, values)))


def _int_cell(value: int) -> bytes:
    try:
        return b"i" + _INT64.pack(value)
    except struct.error:  # of more than 64 bits
        return b"I%d;" % value


_INT64, _FLOAT64 = struct.Struct("<q"), struct.Struct("<d")
_CELLS: Mapping[type, Any] = {
    bytes: lambda value: b"b%d:%b" % (len(value), value),
    int: _int_cell,
    float: lambda value: b"f" + _FLOAT64.pack(value),
    bool: b"?%d;".__mod__,
    str: _text_cell,
    State: _text_cell,
    tuple: _tuple_cell,
    list: _tuple_cell,
}
