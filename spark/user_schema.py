"""User schema: some columns of a table, in the order and under the names of the schema that a reader was given by ``.schema(…)``.

Called by the data source. A schema chooses; it neither renames nor converts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from attrs import frozen
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from ..schema.errors import UsageError


@frozen
class UserSchemaReader(DataSourceReader):  # type: ignore[misc]
    """Reads what another reader reads, and gives out some columns of it."""

    reader: DataSourceReader
    columns: pa.Schema

    def partitions(self) -> Sequence[InputPartition]:
        partitions: Sequence[InputPartition] = self.reader.partitions()
        return partitions

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for batch in self.reader.read(partition):
            arrays = [batch.column(field.name).cast(field.type) for field in self.columns]
            # Without a column nothing else says how many rows there are.
            yield pa.RecordBatch.from_arrays(arrays, schema=self.columns) if arrays else batch.select([])


def with_user_schema(reader: DataSourceReader, wanted: Any, table: str, columns: pa.Schema) -> DataSourceReader:
    """The reader of the wanted columns of a table that has ``columns``; of all if ``wanted`` is no StructType.

    Raises UsageError that names the column that the table lacks.
    """
    if is_full_schema(wanted, columns):
        return reader
    selected = to_arrow_schema(wanted)
    for field, arrow in zip(wanted.fields, selected, strict=True):
        if arrow.name not in columns.names:
            raise UsageError(f"the table {table} has no column {arrow.name!r}; it has: {', '.join(columns.names)}")
        own = columns.field(arrow.name)
        if _type(own) != _type(arrow):
            raise UsageError(
                f"column {arrow.name!r} of the table {table} is {_type(own)}, not {field.dataType.simpleString()}: "
                ".schema(…) chooses columns and converts none; leave it out, and cast what is read"
            )
        if own.nullable and not arrow.nullable:
            raise UsageError(f"column {arrow.name!r} of the table {table} may be null; leave 'not null' out of the schema")
    return UserSchemaReader(reader, selected)


def chosen_columns(text: str, table: str, columns: pa.Schema) -> StructType:
    """The schema of the columns that are named in a text, with commas between them, in its order. Raises UsageError."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in columns.names:
            raise UsageError(f"option 'columns': the table {table} has no column {name!r}; it has: {', '.join(columns.names)}")
        if names.count(name) > 1:
            raise UsageError(f"option 'columns' names {name!r} twice")
    return StructType([StructField(name, from_arrow_type(columns.field(name).type)) for name in names])


def is_full_schema(wanted: Any, columns: pa.Schema) -> bool:
    """Whether a schema, which Spark gives as a StructType, is that of the whole table."""
    return not isinstance(wanted, StructType) or bool(to_arrow_schema(wanted).equals(columns))


def _type(field: pa.Field) -> Any:
    return from_arrow_type(field.type).simpleString()
