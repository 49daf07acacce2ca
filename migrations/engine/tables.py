"""Tables: facts, jobs and findings as Arrow batches, and back again without losing anything.

Every table has one exact schema, because Spark compares batches with it by position, name and nullability. Text from Redis
may hold bytes that are no UTF-8, which no string column can: such text is written as ``b64:`` and its base64, so that columns are
always valid, compare like the texts they stand for, and can be read back. Pure. Called by the data source and the engine.
Arrow is imported by whatever makes a batch, and not before: small keyspaces are carried without it.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from attrs import Factory, field, fields, frozen, has

from ...schema.fact import Fact, FactKind
from ...schema.job import Job, State
from ...schema.memo import Memo
from ...schema.rule import Finding, Severity
from . import Difference

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

BASE64 = "b64:"
BIGINT_MAX = (1 << 63) - 1


def _same(value: Any) -> Any:
    return value


@frozen
class Column:
    """One column. ``encode`` turns what ``get`` finds in a row's value into a cell, ``decode`` back."""

    name: str
    ddl: str
    """Its type in Spark's words."""
    encode: Callable[[Any], Any] = _same
    decode: Callable[[Any], Any] = _same
    attribute: str = Factory(lambda self: self.name, takes_self=True)
    """The attribute of a row's value, where it is not called as the column."""
    get: Callable[[Any], Any] = Factory(lambda self: attrgetter(self.attribute), takes_self=True)
    repeats: bool = False
    """Whether many rows of a batch have the same text here."""

    @property
    def arrow(self) -> pa.DataType:
        """Its type in Arrow's words."""
        return arrow_type(self.ddl)

    def cells(self, rows: Sequence[Any]) -> pa.Array:
        """The column of these rows."""
        import pyarrow as pa

        return pa.array(_mapped(self.encode, map(self.get, rows), self.repeats), self.arrow)

    def values(self, cells: Iterable[Any]) -> list[Any]:
        """What the cells stand for."""
        return _mapped(self.decode, cells, self.repeats)


def _mapped(function: Callable[[Any], Any], values: Iterable[Any], repeats: bool) -> list[Any]:
    if function is _same:
        return list(values)
    return list(map(Memo(function).__getitem__ if repeats else function, values))


def arrow_type(ddl: str) -> pa.DataType:
    """The type that Spark's word stands for."""
    import pyarrow as pa

    if ddl.startswith("array<"):
        return pa.list_(pa.field("element", arrow_type(ddl[len("array<") : -1])))
    return {
        "string": pa.string(),
        "binary": pa.binary(),
        "bigint": pa.int64(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
    }[ddl]


@frozen(slots=False)
class Table(Generic[T]):
    """Rows that are values of one class; ``make`` builds one from its cells by column name."""

    name: str
    make: Callable[..., T] = field(repr=False)
    columns: tuple[Column, ...] = field(repr=False)
    weight: Callable[[T], int] | None = field(default=None, repr=False)
    """The bytes of a row that may be long."""

    @cached_property
    def arrow(self) -> pa.Schema:
        """The schema of its batches."""
        import pyarrow as pa

        return pa.schema([(column.name, column.arrow) for column in self.columns])

    @cached_property
    def _in_order(self) -> bool:
        """Whether ``make`` is a class whose fields are the columns, in their order."""
        return _fields(self.make) == [column.attribute for column in self.columns]

    @property
    def ddl(self) -> str:
        """The schema in Spark's words."""
        return ", ".join(f"`{column.name}` {column.ddl}" for column in self.columns)

    def batch(self, rows: Sequence[T]) -> pa.RecordBatch:
        """The rows as one batch."""
        import pyarrow as pa

        return pa.RecordBatch.from_arrays([column.cells(rows) for column in self.columns], schema=self.arrow)

    def rows(self, batch: pa.RecordBatch) -> Iterator[T]:
        """The rows of a batch; columns that it lacks are taken for null, and more columns are left alone."""
        there = set(batch.schema.names)
        nothing = [None] * batch.num_rows
        values = [
            column.values(batch.column(column.name).to_pylist() if column.name in there else nothing) for column in self.columns
        ]
        if self._in_order:
            return map(self.make, *values)
        names = [column.attribute for column in self.columns]
        return (self.make(**dict(zip(names, row, strict=True))) for row in zip(*values, strict=True))


def _fields(make: Callable[..., Any]) -> list[str]:
    """The fields of a class, in the order in which it takes them."""
    if isinstance(make, type) and has(make):
        return [each.name for each in fields(make)]
    return list(getattr(make, "_fields", ()))


ROWS = 2_000
"""Most rows in a batch that a task makes."""
BYTES = 4 << 20
"""How many bytes of payload fill a batch before its rows do."""


def batches(table: Table[T], rows: Iterable[T], weight: Callable[[T], int] | None = None) -> Iterator[pa.RecordBatch]:
    """The rows in batches of bounded size. ``weight``: instead of that of the table."""
    return map(table.batch, gathered(rows, weight or table.weight))


def gathered(
    rows: Iterable[T], weight: Callable[[T], int] | None, most_rows: int = ROWS, most_bytes: int = BYTES
) -> Iterator[list[T]]:
    """The rows, so many together. ``weight``: bytes of a row, where rows may be large."""
    full: list[T] = []
    size = 0
    for row in rows:
        full.append(row)
        size += weight(row) if weight else 0
        if len(full) >= most_rows or size >= most_bytes:
            yield full
            full, size = [], 0
    if full:
        yield full


def fact_bytes(fact: Fact) -> int:
    """What a fact weighs."""
    return sum(map(len, fact.values))


def job_bytes(job: Job) -> int:
    """What a job weighs."""
    return len(job.payload or b"") + len(job.result or b"") + sum(map(len, job.logs))


def encode_text(text: str | None) -> str | None:
    """Text for a string column. Different texts stay different, whatever surrogates they hold."""
    if text is None or (text.isascii() and not text.startswith(BASE64)):
        return text
    raw = text.encode("utf-8", "surrogatepass")
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return BASE64 + base64.b64encode(raw).decode("ascii")
    return BASE64 + base64.b64encode(raw).decode("ascii") if text.startswith(BASE64) else text


def decode_text(cell: str | None) -> str | None:
    """The text behind ``encode_text``. A cell that only looks encoded, as somebody else may write it, stands for itself."""
    if cell is None or not cell.startswith(BASE64):
        return cell
    try:
        return base64.b64decode(cell.removeprefix(BASE64), validate=True).decode("utf-8", "surrogatepass")
    except ValueError:
        return cell


def encode_json(value: Any, *, sort_keys: bool = False) -> str:
    """JSON that gives the same value back: bytes become ``{"b64": …}``, other mappings with that key as ``{"map": …}``."""
    if value == () or value == {}:
        return "[]" if value == () else "{}"
    tagged = _tagged(value)
    text = json.dumps(tagged, ensure_ascii=False, separators=(",", ":"), sort_keys=sort_keys)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(tagged, separators=(",", ":"), sort_keys=sort_keys)
    return text


def decode_json(cell: str | None) -> Any:
    """The value behind ``encode_json``; tuples have become lists. Null: an empty mapping."""
    return {} if cell is None else json.loads(cell, object_hook=_untagged)


def _tagged(value: Any) -> Any:
    match value:
        case bytes():
            return {"b64": base64.b64encode(value).decode("ascii")}
        case Mapping():
            mapping = {key: _tagged(each) for key, each in value.items()}
            return {"map": list(mapping.items())} if mapping.keys() & {"b64", "map"} else mapping
        case tuple() | list():
            return [_tagged(each) for each in value]
        case _:
            return value


def _untagged(mapping: dict[str, Any]) -> Any:
    match mapping:
        case {"b64": str(text), **rest} if not rest:
            return base64.b64decode(text)
        case {"map": list(items), **rest} if not rest:
            return dict(items)
        case _:
            return mapping


def _clip(number: int | None) -> int | None:
    return number if number is None or -BIGINT_MAX <= number <= BIGINT_MAX else None


def _to_double(number: int | float | None) -> float | None:
    if number is None:
        return None
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _from_double(cell: float | None) -> int | float | None:
    return int(cell) if cell is not None and cell.is_integer() else cell


def text_column(name: str, attribute: str | None = None) -> Column:
    """A column of text that is always valid. ``attribute``: as in Column."""
    return Column(name, "string", encode_text, decode_text, attribute or name, repeats=True)


def bigint_column(name: str) -> Column:
    """A column of whole numbers of 64 bits."""
    return Column(name, "bigint", _clip)


def _double(name: str) -> Column:
    return Column(name, "double")


def _binary(name: str) -> Column:
    return Column(name, "binary")


def enum_column(name: str, decode: Callable[[str], Any]) -> Column:
    """A column of the words of an enumeration."""
    return Column(name, "string", str, decode, repeats=True)


def _binaries(name: str) -> Column:
    return Column(name, "array<binary>", decode=lambda cell: tuple(cell) if cell else ())


def _texts(name: str) -> Column:
    def encode(texts: Sequence[str]) -> list[str | None]:
        return [encode_text(text) for text in texts]

    def decode(cells: Sequence[str] | None) -> tuple[str | None, ...]:
        return tuple(decode_text(cell) for cell in cells or ())

    return Column(name, "array<string>", encode, decode)


FACTS: Table[Fact] = Table(
    "facts",
    Fact,
    (
        enum_column("kind", FactKind),
        text_column("role"),
        _binary("key"),
        text_column("redis_type"),
        text_column("job_id"),
        text_column("scope"),
        text_column("queue"),
        text_column("place", "label"),
        _binary("member"),
        _double("score"),
        bigint_column("index"),
        _binaries("values"),
        bigint_column("ttl_ms"),
    ),
    fact_bytes,
)
"""What single keys state. ``job_id`` null: about the keyspace as a whole."""

DIFFERENCES: Table[Difference] = Table(
    "differences",
    Difference,
    tuple(text_column(name) for name in ("job_id", "queue", "field", "source", "target")),
)
"""What a verification found."""

FINDINGS: Table[Finding] = Table(
    "findings",
    Finding,
    (
        text_column("rule"),
        enum_column("severity", Severity),
        text_column("job_id"),
        text_column("key"),
        text_column("queue"),
        text_column("detail"),
        text_column("repair"),
    ),
)
"""Broken rules."""


INT_COLUMNS = (
    "created_at",
    "updated_at",
    "due_at",
    "started_at",
    "finished_at",
    "attempts",
    "max_attempts",
    "lease_expires_at",
    "ttl",
    "position",
)


_int_values = attrgetter(*INT_COLUMNS)


def _exact(job: Job) -> str | None:
    """The numbers of a job that their columns can't hold, as JSON; None for nearly all jobs."""
    numbers = {name: number for name, number in zip(INT_COLUMNS, _int_values(job), strict=True) if _clip(number) != number}
    if _from_double(_to_double(job.priority)) != job.priority:
        numbers["priority"] = job.priority
    return json.dumps(numbers) if numbers else None


def _make_job(exact: str | None, **cells: Any) -> Job:
    return Job(**{**cells, **json.loads(exact or "{}")})


def _json(name: str, decode: Callable[[str | None], Any] = decode_json) -> Column:
    return Column(name, "string", encode_json, decode)


JOBS: Table[Job] = Table(
    "jobs",
    _make_job,
    (
        text_column("id"),
        text_column("queue"),
        text_column("name"),
        enum_column("state", State),
        Column("priority", "double", _to_double, _from_double),
        _binary("payload"),
        *(bigint_column(name) for name in INT_COLUMNS[:7]),
        _double("progress"),
        _binary("result"),
        text_column("error"),
        text_column("worker"),
        bigint_column("lease_expires_at"),
        _texts("tags"),
        _texts("depends_on"),
        text_column("unique_key"),
        bigint_column("ttl"),
        _binaries("logs"),
        _json("history", lambda cell: tuple(decode_json(cell))),
        _json("extra"),
        bigint_column("position"),
        bigint_column("rank"),
        Column("exact", "string", get=_exact),
    ),
    job_bytes,
)
"""The canonical fields in their order; then ``position`` and ``rank``, which keep the order of a queue when the table is written;
then ``exact``: the numbers that are too large for their columns, which hold null or the nearest number instead."""
