"""Buckets: Arrow files in which rows lie by the bucket of their number, so that one task finds all rows of a number.

    task -> file: a batch for bucket 0, 1, 2 …, again and again
    task of bucket n <- the n-th batch of each round, of every file

That is a shuffle of rows that only Python looks at: they never pass through Java, and stay on disk for as many questions as there
are. Driver and executors share the folder, as they share the snapshot's. Written by names.py, traces.py and stands.py, read by
names.py, sound.py and comparison.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

FACTOR = np.uint64(0x9E37_79B9_7F4A_7C15)
"""Spreads numbers that follow one another: the golden ratio, as a fraction of 2^64."""
SHIFT = np.uint64(33)
FEW = 128
"""Up to so many buckets, of a few million rows, stay in the system's memory for as long as they are needed: packing them, to a
third, would take longer than all else that is done with them here."""


def buckets_of(numbers: Any, count: int) -> Any:
    """The bucket, 0 to ``count`` - 1, of each of the whole numbers in an array."""
    with np.errstate(over="ignore"):
        return (((numbers.astype(np.uint64) * FACTOR) >> SHIFT) % np.uint64(count)).astype(np.int64)


class BucketFile:
    """A new file of rows of one schema, which has the column ``number``. ``count``: how many buckets there are."""

    def __init__(self, path: str, schema: pa.Schema, count: int) -> None:
        self._count = count
        compression = "lz4" if count > FEW else None
        self._writer = pa.ipc.new_file(path, schema, options=pa.ipc.IpcWriteOptions(compression=compression, use_threads=False))

    def write(self, rows: pa.RecordBatch) -> None:
        """Adds a round of one batch for each bucket, with these rows: the more at once, the better."""
        buckets = buckets_of(rows.column("number").to_numpy(), self._count)
        if (buckets[1:] < buckets[:-1]).any():
            rows = rows.take(pa.array(np.argsort(buckets, kind="stable")))
        ends = np.cumsum(np.bincount(buckets, minlength=self._count)).tolist()
        for start, end in zip([0, *ends], ends, strict=False):
            self._writer.write_batch(rows.slice(start, end - start))

    def close(self) -> None:
        """Completes the file."""
        self._writer.close()


def read_bucket(paths: Iterable[str], bucket: int, count: int, columns: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """The rows of one bucket in all files, as batches of some columns (numbers, from 0)."""
    for path in paths:
        with pa.memory_map(path) as file, _reader(file, columns) as reader:
            for index in range(bucket, reader.num_record_batches, count):
                batch = reader.get_batch(index)
                if batch.num_rows:
                    yield batch


def search_bucket(
    paths: Iterable[str], bucket: int, count: int, columns: Sequence[int], wanted: Callable[[pa.RecordBatch], Any]
) -> Iterator[pa.RecordBatch]:
    """Some rows of one bucket in all files, with all columns. ``wanted`` tells (bool) by the columns that it is given which."""
    for path in paths:
        with pa.memory_map(path) as file, _reader(file, columns) as brief, pa.ipc.open_file(file) as whole:
            for index in range(bucket, brief.num_record_batches, count):
                those = wanted(brief.get_batch(index))
                if those.any():
                    yield whole.get_batch(index).filter(pa.array(those))


def _reader(file: pa.MemoryMappedFile, columns: Sequence[int]) -> Any:
    return pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(included_fields=list(columns)))
