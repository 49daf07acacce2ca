"""Row filter: which rows of a table are wanted, from a reader's options and from what Spark pushes down.

A condition says of a cell what Spark would say of it: a null meets none but that it is null. Pure. Called by table_reader.py.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
from attrs import evolve, frozen

from ..migrations.engine.tables import Column, Table, encode_text
from ..schema.errors import UsageError
from ..schema.job import State

JOB_OPTIONS = ("id", "queue", "state", "name")
"""Options that want some jobs, each by the column of its name."""


def _is_in(cell: Any, values: frozenset[Any]) -> bool:
    return cell in values


Operator = Callable[[Any, Any], bool]
COMPARISONS: Mapping[str, Operator] = {
    "EqualTo": operator.eq,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
    "StringStartsWith": str.startswith,
    "StringEndsWith": str.endswith,
    "StringContains": operator.contains,
    "In": _is_in,
}
"""The names of Spark's filters, which Spark before 4.1 lacks, and what they say of a cell that is not null."""
FILTERABLE: Mapping[pa.DataType, type] = {pa.string(): str, pa.int64(): int}
"""Columns of these types can be filtered, by values of these."""


@frozen
class Condition:
    """What a cell must be."""

    column: str
    name: str
    """IsNull, IsNotNull, or one of COMPARISONS."""
    value: Any = None
    is_negated: bool = False

    def holds(self, cell: Any) -> bool:
        """Whether it is."""
        if self.name in ("IsNull", "IsNotNull"):
            return ((cell is None) == (self.name == "IsNull")) != self.is_negated
        return cell is not None and COMPARISONS[self.name](cell, self.value) != self.is_negated

    @property
    def values(self) -> frozenset[Any] | None:
        """The only cells for which it can hold; None: any other."""
        if self.is_negated:
            return None
        return {"EqualTo": frozenset([self.value]), "In": self.value}.get(self.name)


@frozen(slots=False)
class RowFilter:
    """Wanted are rows for which all conditions hold, and no more than ``limit`` of them."""

    conditions: tuple[Condition, ...] = ()
    limit: int | None = None

    @cached_property
    def columns(self) -> frozenset[str]:
        """What must be known of a row."""
        return frozenset(condition.column for condition in self.conditions)

    def values(self, column: str) -> frozenset[Any] | None:
        """The cells that a column may have; None: any."""
        named = [values for each in self.conditions if each.column == column and (values := each.values) is not None]
        return frozenset.intersection(*named) if named else None

    def test_of(self, table: Table[Any]) -> Callable[[Any], bool]:
        """The test whether a row is wanted, by its value."""
        tests = [
            (_cell(each), condition.holds)
            for condition in self.conditions
            for each in table.columns
            if each.name == condition.column
        ]
        return lambda row: all(holds(cell(row)) for cell, holds in tests)

    def push(self, filters: Sequence[Any], table: Table[Any]) -> tuple[RowFilter, list[Any]]:
        """With Spark's filters as far as they can be conditions, and the others. After a limit none can: Spark's come later."""
        if self.limit is not None:
            return self, list(filters)
        types = {column.name: FILTERABLE.get(column.arrow) for column in table.columns}
        conditions = [_condition(each, types) for each in filters]
        new = tuple(condition for condition in conditions if condition is not None)
        others = [each for each, condition in zip(filters, conditions, strict=True) if condition is None]
        return evolve(self, conditions=self.conditions + new), others


def _cell(column: Column) -> Callable[[Any], Any]:
    return lambda row: column.encode(column.get(row))


def _condition(pushed: Any, types: Mapping[str, type | None]) -> Condition | None:
    """A filter of Spark's as a condition; None for one that can't be."""
    if type(pushed).__name__ == "Not":
        inner = _condition(pushed.child, types)
        if type(pushed.child).__name__ == "EqualNullSafe" and pushed.child.value is not None:
            return None  # holds for a null too
        return inner and evolve(inner, is_negated=not inner.is_negated)
    name, path = type(pushed).__name__, tuple(pushed.attribute)
    expected = types.get(path[0]) if len(path) == 1 else None
    if expected is None:
        return None
    if name in ("IsNull", "IsNotNull"):
        return Condition(path[0], name)
    if name == "EqualNullSafe":
        return _null_safe(path[0], pushed.value, expected)
    values = pushed.value if name == "In" else [pushed.value]
    if name not in COMPARISONS or not all(type(value) is expected for value in values):
        return None
    return Condition(path[0], name, frozenset(values) if name == "In" else pushed.value)


def _null_safe(column: str, value: Any, expected: type) -> Condition | None:
    """A comparison that takes a null for a value."""
    if value is None:
        return Condition(column, "IsNull")
    return Condition(column, "EqualTo", value) if type(value) is expected else None


def parse_filter(options: Mapping[str, str], table: str, limit: int | None) -> RowFilter:
    """The filter that a reader's options make. Raises UsageError for those of another table, and for values that can't be."""
    given = [name for name in JOB_OPTIONS if name in options]
    if given and table != "jobs":
        raise UsageError(f"option {given[0]!r} goes with the table jobs alone; use .where(…) with the table {table}")
    return RowFilter(tuple(_option(name, options[name]) for name in given), limit)


def _option(name: str, text: str) -> Condition:
    texts = parse_texts(name, text)
    if name == "state":
        for each in texts:
            if each not in set(State):
                raise UsageError(f"option 'state' names no state: {each!r}; there are: {', '.join(State)}")
    return Condition(name, "In", frozenset(map(encode_text, texts)))


def parse_texts(name: str, text: str) -> list[str]:
    """One text, or several as a JSON list. Raises UsageError."""
    if not text.startswith("["):
        return [text]
    try:
        texts = json.loads(text)
    except ValueError:
        texts = None
    if not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
        raise UsageError(f'option {name!r} must be one text, or several as a JSON list: ["a", "b"]; not {text!r}')
    return texts


def take(rows: Iterable[Any], test: Callable[[Any], bool], limit: int | None) -> Iterable[Any]:
    """The rows that pass a test, no more than the limit. None more is asked for when they are there."""
    left = limit
    for row in rows if left != 0 else ():
        if test(row):
            yield row
            left = None if left is None else left - 1
            if left == 0:
                return
