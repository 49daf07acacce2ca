"""Projection: what the rows of the table ``entries`` are, and how a task makes them of what it reads.

EntireKeys: every key, with all that it holds. JobRecords: the same of the records of jobs alone. RecordFields: some fields of
these, each in a column. Hashes go from replies to columns without a dict or an Entry for each. Called by the data source.
"""

from __future__ import annotations

import base64
import binascii
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import ClassVar, Generic, TypeVar

import pyarrow as pa
from attrs import define, field, frozen
from pyspark.sql.types import BinaryType, StructField, StructType

from ..migrations.columnar.columns import NO_TTL, DecodedKeys, FieldValues, Hashes, entries_of
from ..migrations.columnar.hashes import KeyTest, read_fields, read_hashes, record_guess, record_test
from ..migrations.columnar.resp_views import RespReader
from ..migrations.engine.tables import BASE64, BYTES, ROWS, batches
from ..migrations.reading import read_all
from ..migrations.throttle import Pace
from ..schema.columnar.binary_views import BinaryViews
from ..schema.connection.address import Address
from ..schema.connection.pipeline import PipelineConnection
from ..schema.errors import UsageError
from ..schema.text import to_bytes
from .entries import ENTRIES, entry_bytes, hashes

T = TypeVar("T")

KEY = "key"
"""The column with the name of a record's key."""

Batches = Iterator[pa.RecordBatch]


@define
class _RowBuffer(Generic[T]):
    """What waits until there is enough of it for a batch of rows."""

    make: Callable[[list[T]], pa.RecordBatch]
    _pending: list[T] = field(factory=list)
    _rows: int = 0
    _bytes: int = 0

    def add(self, columns: T, rows: int, size: int) -> Batches:
        """This too, which has so many rows and bytes: a batch, if that is enough."""
        self._pending.append(columns)
        self._rows += rows
        self._bytes += size
        if self._rows >= ROWS or self._bytes >= BYTES:
            yield from self.rest()

    def rest(self) -> Batches:
        """All rows so far, which are none any more."""
        if self._rows:
            yield self.make(self._pending)
        self._pending, self._rows, self._bytes = [], 0, 0


def _rows_of_hashes(parts: list[Hashes]) -> pa.RecordBatch:
    return hashes(Hashes.concat(parts))


class Projection(ABC):
    """What rows there are."""

    arrow: pa.Schema
    redis_type: ClassVar[str | None] = None
    """The one Redis type that keys with rows have, if it is only one."""

    @property
    @abstractmethod
    def schema(self) -> str | StructType:
        """The same in Spark's words."""

    @abstractmethod
    def read(self, replies: RespReader, pages: Iterable[BinaryViews], pace: Pace, address: Address) -> Batches:
        """The rows of the keys of a keyspace whose names come page by page. Those that are gone by then are left out."""

    @abstractmethod
    def batches(self, found: Iterable[DecodedKeys], address: Address) -> Batches:
        """The rows of the keys of a file's piece."""


class EntireKeys(Projection):
    """Every key, with all that it holds."""

    arrow = ENTRIES.arrow

    @property
    def schema(self) -> str:
        return ENTRIES.ddl

    def read(self, replies: RespReader, pages: Iterable[BinaryViews], pace: Pace, address: Address) -> Batches:
        is_hash = record_guess(address.key_family, address.prefix)
        rows, others = _RowBuffer(_rows_of_hashes), list[bytes]()
        for keys in pages:
            likely = is_hash(keys)
            others += keys.take(~likely).to_list()
            yield from self._read_hashes(replies, keys.take(likely), pace, rows, others)
            if len(others) >= ROWS:
                yield from self._read_any(replies.pipe, others, pace)
                others = []
        yield from rows.rest()
        yield from self._read_any(replies.pipe, others, pace)

    def _read_hashes(
        self, replies: RespReader, keys: BinaryViews, pace: Pace, rows: _RowBuffer[Hashes], others: list[bytes]
    ) -> Batches:
        """Adds the keys to the rows, those that are no small hashes to the others."""
        for found, left in read_hashes(replies, keys, pace):
            others += left
            yield from rows.add(found, len(found), found.size)

    def _read_any(self, pipe: PipelineConnection, keys: Sequence[bytes], pace: Pace) -> Batches:
        entries = chain.from_iterable(read_all(pipe, keys, pace))
        return batches(ENTRIES, (entry for entry in entries if self.redis_type in (None, entry.redis_type)), entry_bytes)

    def batches(self, found: Iterable[DecodedKeys], address: Address) -> Batches:
        rows, others = _RowBuffer(_rows_of_hashes), _RowBuffer(ENTRIES.batch)
        for each in found:
            if isinstance(each, Hashes):
                yield from rows.add(each, len(each), each.size)
            else:
                for entry in entries_of(each):
                    yield from others.add(entry, 1, entry_bytes(entry))
        yield from rows.rest()
        yield from others.rest()


class JobRecords(EntireKeys):
    """The records of jobs, with all that they hold."""

    redis_type = "hash"

    def read(self, replies: RespReader, pages: Iterable[BinaryViews], pace: Pace, address: Address) -> Batches:
        is_record = record_test(address.key_family, address.prefix)
        rows, others = _RowBuffer(_rows_of_hashes), list[bytes]()
        for keys in pages:
            yield from self._read_hashes(replies, keys.take(is_record(keys)), pace, rows, others)
        yield from rows.rest()
        yield from self._read_any(replies.pipe, others, pace)

    def batches(self, found: Iterable[DecodedKeys], address: Address) -> Batches:
        return super().batches(_records(found, record_test(address.key_family, address.prefix)), address)


@frozen
class RecordFields(Projection):
    """Some fields of the records of jobs; null where a record lacks one."""

    redis_type = "hash"
    columns: tuple[str, ...]
    fields: tuple[bytes, ...]
    """The field behind each column."""
    arrow: pa.Schema = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "arrow", pa.schema([(name, pa.binary()) for name in (KEY, *self.columns)]))

    @property
    def schema(self) -> StructType:
        return StructType([StructField(name, BinaryType()) for name in self.arrow.names])

    def read(self, replies: RespReader, pages: Iterable[BinaryViews], pace: Pace, address: Address) -> Batches:
        is_record = record_test(address.key_family, address.prefix)
        rows = _RowBuffer(self._rows)
        for keys in pages:
            for found in read_fields(replies, keys.take(is_record(keys)), self.fields, pace):
                yield from rows.add(found, len(found.keys), found.size)
        yield from rows.rest()

    def batches(self, found: Iterable[DecodedKeys], address: Address) -> Batches:
        rows = _RowBuffer(self._rows)
        for records in _records(found, record_test(address.key_family, address.prefix)):
            field_values = records.field_values(self.fields)
            yield from rows.add(field_values, len(field_values.keys), field_values.size)
        yield from rows.rest()

    def _rows(self, parts: list[FieldValues]) -> pa.RecordBatch:
        field_values = FieldValues.concat(parts)
        columns = [field_values.keys, *map(field_values.column, range(len(self.fields)))]
        return pa.RecordBatch.from_arrays([column.to_arrow() for column in columns], schema=self.arrow)


def _records(found: Iterable[DecodedKeys], is_record: KeyTest) -> Iterator[Hashes]:
    """The records of jobs among all that is found."""
    for each in found:
        if isinstance(each, Hashes):
            yield each.take(is_record(each.keys))
        elif isinstance(each, tuple) and each[1] == "hash":
            key, _, fields, ttl_ms = each
            if is_record(BinaryViews.of([key])).all():
                words = list(chain.from_iterable(fields.items()))
                yield Hashes.of([key], [NO_TTL if ttl_ms is None else ttl_ms], [words])


# The option ``fields``


ALL = "*"


def parse_fields(text: str) -> Projection:
    """What a user has asked for: names of fields with commas between them, ``b64:`` and the base64 of one, or ``*`` for all.

    Columns are named as given. Raises UsageError.
    """
    if text.strip() == ALL:
        return JobRecords()
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
    return RecordFields(tuple(columns), tuple(fields))


def _field(column: str) -> bytes:
    if not column:
        raise UsageError("option 'fields' must be names with commas between them, such as 'state,type'; one is empty")
    if not column.startswith(BASE64):
        return to_bytes(column)
    try:
        return base64.b64decode(column.removeprefix(BASE64), validate=True)
    except binascii.Error:
        raise UsageError(f"option 'fields': {column!r} is no base64") from None
