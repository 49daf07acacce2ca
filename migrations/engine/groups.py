"""Groups: rows of a table, brought together by the job that they are about, for more of them than memory holds.

    task -> rows -> file of buckets (shuffle.py), by the number of their job
    task of bucket n <- the groups of its jobs, one job after the other, in the order of their numbers

A bucket that is larger than memory should hold is gone through several times, each time for a range of numbers: the order of the
groups is the same however often that is. Called by the snapshot for facts, and by comparison.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from attrs import evolve, frozen

from ...schema.jobnumber import number_of
from . import storage
from .failures import work_errors
from .shuffle import ShuffleFile, read_bucket
from .tables import Table, gathered

T = TypeVar("T")
Name = tuple[str, str]

ROWS = 20_000
BYTES = 16 << 20
"""When rows go to the file."""
RANGE_BYTES = 16 << 20
"""How much of a bucket is looked at together: as Python's values it is ten times as much."""
NUMBERS = 1 << 63
"""All numbers of jobs are below."""


@frozen
class Grouping(Generic[T]):
    """How rows of a table are brought together."""

    table: Table[T]
    name: Callable[[T], Name]
    """The name of the job that a row is about: queue or scope, and id."""

    def key(self, row: T) -> tuple[int, str, str]:
        """What groups are sorted by."""
        name = self.name(row)
        return number_of(*name), *name

    @property
    def schema(self) -> pa.Schema:
        """That of the files."""
        return self.table.arrow.append(pa.field("number", pa.int64()))

    def write(self, rows: Iterable[T], folder: str, buckets: int) -> list[str]:
        """Writes rows to a new file in the folder; gives its path, if there are any."""
        path = storage.new_name(folder)
        file: ShuffleFile | None = None
        with work_errors(folder):
            for batch in map(self._batch, gathered(rows, self.table.weight, ROWS, BYTES)):
                file = file or ShuffleFile(path, self.schema, buckets)
                file.write(batch)
            if file is not None:
                file.close()
        return [path] if file is not None else []

    def _batch(self, rows: Sequence[T]) -> pa.RecordBatch:
        numbers = pa.array([number_of(*self.name(row)) for row in rows], pa.int64())
        return pa.RecordBatch.from_arrays([*self.table.batch(rows).columns, numbers], schema=self.schema)


@frozen
class Groups(Generic[T]):
    """Rows in files, by bucket. A plain value: it travels to executors."""

    grouping: Grouping[T]
    files: tuple[str, ...]
    buckets: int

    def plus(self, files: Iterable[str]) -> Groups[T]:
        """These rows, and those in more files."""
        return evolve(self, files=(*self.files, *files))

    def rows(self, bucket: int) -> Iterator[T]:
        """All rows of a bucket, in any order."""
        for batch in self._read(bucket):
            yield from self.grouping.table.rows(batch)

    def of(self, bucket: int, numbers: pa.Array | None = None) -> Iterator[list[T]]:
        """The groups in a bucket, one for each job; those of one range of numbers are in memory.

        ``numbers``: only of jobs with these.
        """
        size = sum(batch.nbytes for batch in self._wanted(bucket, numbers))
        ranges = size // RANGE_BYTES + 1
        for index in range(ranges):
            bounds = NUMBERS * index // ranges, NUMBERS * (index + 1) // ranges
            batches = self._wanted(bucket, numbers)
            yield from self._groups(batches if ranges == 1 else _between(batches, *bounds))

    def numbers(self, bucket: int, column: str, words: Iterable[str]) -> pa.Array:
        """The numbers of the jobs of which a row has one of these words in a column of text. Makes no rows."""
        wanted = pa.array(sorted(words), pa.string())
        found = [batch.column("number").filter(pc.is_in(batch.column(column), wanted)) for batch in self._read(bucket)]
        return pa.chunked_array(found, pa.int64()).unique()

    def _wanted(self, bucket: int, numbers: pa.Array | None) -> Iterator[pa.RecordBatch]:
        if numbers is None:
            return self._read(bucket)
        return (batch.filter(pc.is_in(batch.column("number"), numbers)) for batch in self._read(bucket))

    def _groups(self, batches: Iterable[pa.RecordBatch]) -> Iterator[list[T]]:
        name = self.grouping.name
        groups: defaultdict[tuple[Any, ...], list[T]] = defaultdict(list)
        for batch in batches:
            for number, row in zip(batch.column("number").to_pylist(), self.grouping.table.rows(batch), strict=True):
                groups[number, *name(row)].append(row)
        for key in sorted(groups):
            yield groups.pop(key)

    def _read(self, bucket: int) -> Iterator[pa.RecordBatch]:
        return read_bucket(self.files, bucket, self.buckets, self.grouping.schema)


def _between(batches: Iterable[pa.RecordBatch], first: int, end: int) -> Iterator[pa.RecordBatch]:
    """The rows whose numbers are in a range."""
    for batch in batches:
        number = batch.column("number")
        yield batch.filter(pc.and_(pc.greater_equal(number, first), pc.less_equal(number, end - 1)))
