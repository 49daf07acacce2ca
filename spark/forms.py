"""Forms: what the rows of the table ``entries`` are, and how a task makes them of what it reads.

Whole: every key, with all that it holds. Records: the same of the records of jobs alone. Fields: some fields of these, each in a
column. Hashes go from replies to columns without a dict or an Entry for each. Called by the data source.
"""

from __future__ import annotations

import base64
import binascii
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import ClassVar

import pyarrow as pa
from attrs import define, field, frozen
from pyspark.sql.types import BinaryType, StructField, StructType

from ..migrations.hashes import Hashes, Picked, read_fields, read_whole, record_guess, record_test
from ..migrations.rdbfile import Row
from ..migrations.reading import Guess, read_all
from ..migrations.throttle import Pace
from ..migrations.wire import Wire
from ..schema.address import Address
from ..schema.errors import UsageError
from ..schema.fact import Entry
from ..schema.family import get_family
from ..schema.text import to_bytes
from .entries import ENTRIES, entry_bytes, hashes
from .tables import BASE64, BYTES, ROWS, batches

KEY = "key"
"""The column with the name of a record's key."""
AT_HAND = 200
"""How many rows of a file become columns at once."""

Batches = Iterator[pa.RecordBatch]


@define
class _HashRows:
    """Rows of ENTRIES for hashes. They become columns while the processor still has them at hand, a few hundred at a time."""

    count: int = 0
    _packed: list[pa.RecordBatch] = field(factory=list)
    _keys: list[bytes] = field(factory=list)
    _ttls: list[int | None] = field(factory=list)
    _sizes: list[int] = field(factory=list)
    _names: list[bytes] = field(factory=list)
    _values: list[bytes] = field(factory=list)

    def add(self, found: Hashes) -> None:
        """Hashes of a server."""
        words = list(chain.from_iterable(found.replies))
        self._pack(
            hashes(
                found.keys,
                [ttl if ttl >= 0 else None for ttl in found.ttls],
                [len(reply) // 2 for reply in found.replies],
                words[::2],
                words[1::2],
            )
        )

    def put(self, key: bytes, fields: Mapping[bytes, bytes], ttl_ms: int | None) -> None:
        """A hash of a file."""
        self._keys.append(key)
        self._ttls.append(ttl_ms)
        self._sizes.append(len(fields))
        self._names += fields
        self._values += fields.values()
        self.count += 1
        if len(self._keys) >= AT_HAND:
            self._pack_put()

    def batches(self) -> Batches:
        """All rows so far, which are none any more."""
        self._pack_put()
        yield from pa.Table.from_batches(self._packed, ENTRIES.arrow).combine_chunks().to_batches()
        self._packed, self.count = [], 0

    def _pack_put(self) -> None:
        if self._keys:
            self.count -= len(self._keys)
            self._pack(hashes(self._keys, self._ttls, self._sizes, self._names, self._values))
            self._keys, self._ttls, self._sizes, self._names, self._values = [], [], [], [], []

    def _pack(self, rows: pa.RecordBatch) -> None:
        self._packed.append(rows)
        self.count += rows.num_rows


@define
class _RecordRows:
    """Rows of some fields of records."""

    _form: Fields
    keys: list[bytes] = field(factory=list)
    _columns: list[list[bytes | None]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._columns = [[] for _ in self._form.fields]

    def add(self, found: Picked) -> None:
        """Records of a server."""
        self.keys += found.keys
        for column, values in zip(self._columns, zip(*found.rows, strict=True), strict=False):
            column += values

    def put(self, key: bytes, fields: Mapping[bytes, bytes]) -> None:
        """A record of a file."""
        self.keys.append(key)
        for column, name in zip(self._columns, self._form.fields, strict=True):
            column.append(fields.get(name))

    def batch(self) -> pa.RecordBatch:
        """All rows so far."""
        columns = [pa.array(column, pa.binary()) for column in (self.keys, *self._columns)]
        return pa.RecordBatch.from_arrays(columns, schema=self._form.arrow)


class Form(ABC):
    """What rows there are."""

    arrow: pa.Schema
    kind: ClassVar[str | None] = None
    """The one Redis type that keys with rows have, if it is only one."""

    @property
    @abstractmethod
    def schema(self) -> str | StructType:
        """The same in Spark's words."""

    @abstractmethod
    def read(self, line: Wire, pages: Iterable[Sequence[bytes]], pace: Pace, address: Address) -> Batches:
        """The rows of the keys of a keyspace whose names come page by page. Those that are gone by then are left out."""

    @abstractmethod
    def batches(self, found: Iterable[Row], address: Address) -> Batches:
        """The rows of the keys of a file's piece, which is no longer than fits into memory."""


class Whole(Form):
    """Every key, with all that it holds."""

    arrow = ENTRIES.arrow

    @property
    def schema(self) -> str:
        return ENTRIES.ddl

    def read(self, line: Wire, pages: Iterable[Sequence[bytes]], pace: Pace, address: Address) -> Batches:
        is_record = self._guess(address)
        rows, others, received = _HashRows(), list[bytes](), line.received
        for page in pages:
            likely = [key for key in page if is_record(key)]
            if len(likely) < len(page):
                others += set(page).difference(likely)
            for found, left in read_whole(line, likely, pace):
                others += left
                rows.add(found)
                if rows.count >= ROWS or line.received - received >= BYTES:
                    yield from rows.batches()
                    received = line.received
            if len(others) >= ROWS:
                yield from self._read_any(line, others, pace)
                others, received = [], line.received
        yield from rows.batches()
        yield from self._read_any(line, others, pace)

    def _guess(self, address: Address) -> Guess:
        """Which keys are hashes in all likelihood."""
        return record_guess(get_family(address.family), address.prefix)

    def _read_any(self, line: Wire, keys: Sequence[bytes], pace: Pace) -> Batches:
        entries = chain.from_iterable(read_all(line, keys, pace))
        return batches(ENTRIES, (entry for entry in entries if self.kind in (None, entry.redis_type)), entry_bytes)

    def batches(self, found: Iterable[Row], address: Address) -> Batches:
        rows, others = _HashRows(), list[Entry]()
        for key, kind, value, ttl_ms in found:
            if kind == "hash":
                rows.put(key, value, ttl_ms)
                if rows.count >= ROWS:
                    yield from rows.batches()
            else:
                others.append(Entry(key, kind, value, ttl_ms))
                if len(others) >= ROWS:
                    yield ENTRIES.batch(others)
                    others = []
        yield from rows.batches()
        yield ENTRIES.batch(others)


class Records(Whole):
    """The records of jobs, with all that they hold."""

    kind = "hash"

    def read(self, line: Wire, pages: Iterable[Sequence[bytes]], pace: Pace, address: Address) -> Batches:
        is_record = record_test(get_family(address.family), address.prefix)
        return super().read(line, ([key for key in page if is_record(key)] for page in pages), pace, address)

    def _guess(self, address: Address) -> Guess:
        return lambda _key: True

    def batches(self, found: Iterable[Row], address: Address) -> Batches:
        is_record = record_test(get_family(address.family), address.prefix)
        return super().batches((row for row in found if row[1] == "hash" and is_record(row[0])), address)


@frozen
class Fields(Form):
    """Some fields of the records of jobs; null where a record lacks one."""

    kind = "hash"
    columns: tuple[str, ...]
    fields: tuple[bytes, ...]
    """The field behind each column."""
    arrow: pa.Schema = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "arrow", pa.schema([(name, pa.binary()) for name in (KEY, *self.columns)]))

    @property
    def schema(self) -> StructType:
        return StructType([StructField(name, BinaryType()) for name in self.arrow.names])

    def read(self, line: Wire, pages: Iterable[Sequence[bytes]], pace: Pace, address: Address) -> Batches:
        is_record = record_test(get_family(address.family), address.prefix)
        rows, received = _RecordRows(self), line.received
        for page in pages:
            for found in read_fields(line, [key for key in page if is_record(key)], self.fields, pace):
                rows.add(found)
                if len(rows.keys) >= ROWS or line.received - received >= BYTES:
                    yield rows.batch()
                    rows, received = _RecordRows(self), line.received
        yield rows.batch()

    def batches(self, found: Iterable[Row], address: Address) -> Batches:
        is_record = record_test(get_family(address.family), address.prefix)
        rows = _RecordRows(self)
        for key, kind, value, _ in found:
            if kind == "hash" and is_record(key):
                rows.put(key, value)
                if len(rows.keys) >= ROWS:
                    yield rows.batch()
                    rows = _RecordRows(self)
        yield rows.batch()


# The option ``fields``


ALL = "*"


def parse_fields(text: str) -> Form:
    """What a user has asked for: names of fields with commas between them, ``b64:`` and the base64 of one, or ``*`` for all.

    Columns are named as given. Raises UsageError.
    """
    if text.strip() == ALL:
        return Records()
    columns = [name.strip() for name in text.split(",")]
    fields = list(map(_field, columns))
    for index, (column, name) in enumerate(zip(columns, fields, strict=True)):
        if name in fields[:index]:
            raise UsageError(f"option 'fields' names {column!r} twice")
        # Spark takes names for one that differ in the case of letters alone.
        if column.lower() in (KEY, *map(str.lower, columns[:index])):
            raise UsageError(
                f"option 'fields': there is no column {column!r} beside another of that name; write b64: and its base64"
            )
    return Fields(tuple(columns), tuple(fields))


def _field(column: str) -> bytes:
    if not column:
        raise UsageError("option 'fields' must be names with commas between them, such as 'state,type'; one is empty")
    if not column.startswith(BASE64):
        return to_bytes(column)
    try:
        return base64.b64decode(column.removeprefix(BASE64), validate=True)
    except binascii.Error:
        raise UsageError(f"option 'fields': {column!r} is no base64") from None
