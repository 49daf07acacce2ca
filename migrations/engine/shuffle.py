"""Shuffle: files in which rows lie by the bucket of their number, so that one task finds all rows of a number.

    task -> file: a batch for bucket 0, 1, 2 …, again and again, and at its end where each begins
    task of bucket n <- the n-th batch of each round, of every file

A shuffle of rows that only Python looks at: they never pass through Java, and stay on disk for as many questions as there are. A
file is a stream of Arrow's, which begins with the schema, and after that the positions of its batches: every task opens
every file, and Arrow's own reader of files takes twenty times as long to do so. Driver and executors share the folder, as they
share the snapshot's. Written by key_scan.py, key_rows.py and job_digests.py, read by key_scan.py, placement_check.py and
comparison.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from mmap import ACCESS_READ, mmap
from typing import Any

import numpy as np
import pyarrow as pa

from . import storage

FACTOR = np.uint64(0x9E37_79B9_7F4A_7C15)
"""Spreads numbers that follow one another: the golden ratio, as a fraction of 2^64."""
SHIFT = np.uint64(33)
MOST_UNCOMPRESSED = 128
"""Up to so many buckets, of a few million rows, stay in the system's memory for as long as they are needed: packing them, to a
third, would take longer than all else that is done with them here."""
TRAILER_BYTES = 64 << 10
"""What is read of a file's end at first: most often it has all positions."""
ROUND_ROWS = 160_000
ROUND_BYTES = 32 << 20
"""When rows of a lazy file are written: what is done once for each bucket would take a third of the time if it were done more
often."""
NOTHING = -1
"""The position of a batch that would be empty."""


def buckets_of(numbers: Any, count: int) -> Any:
    """The bucket, 0 to ``count`` - 1, of each of the whole numbers in an array."""
    with np.errstate(over="ignore"):
        return (((numbers.astype(np.uint64) * FACTOR) >> SHIFT) % np.uint64(count)).astype(np.int64)


def bucket_of(number: int, count: int) -> int:
    """The bucket of one number."""
    return int(buckets_of(np.array([number], np.int64), count)[0])


class ShuffleFile:
    """A new file of rows of one schema, which has the column ``number``. ``count``: how many buckets there are."""

    def __init__(self, path: str, schema: pa.Schema, count: int) -> None:
        self._count = count
        self._file = storage.create(path)
        compression = "lz4" if count > MOST_UNCOMPRESSED else None
        self._writer = pa.ipc.new_stream(
            self._file, schema, options=pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
        )
        self._writer.write_batch(pa.RecordBatch.from_pylist([], schema))  # Arrow writes the schema before the first batch
        self._positions: list[int] = []

    def write(self, *batches: pa.RecordBatch) -> None:
        """Adds a round of one batch for each bucket, with the rows of all ``batches``: the more at once, the better.

        It takes least where the rows of each, of thousands, come in the order of their buckets.
        """
        rounds = list(self._in_order(batches))
        for bucket in range(self._count):
            found = [rows.slice(ends[bucket], ends[bucket + 1] - ends[bucket]) for rows, ends in rounds]
            found = [rows for rows in found if rows.num_rows]
            self._positions.append(self._file.tell() if found else NOTHING)
            if found:
                (batch,) = found if len(found) == 1 else pa.Table.from_batches(found).combine_chunks().to_batches()
                self._writer.write_batch(batch)

    def _in_order(self, batches: Sequence[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, list[int]]]:
        """The rows by bucket, and where each bucket begins, in as many batches as are worth the while."""
        others = []
        for batch in batches:
            buckets = buckets_of(batch.column("number").to_numpy(), self._count)
            if len(batches) > 1 and (self._count > MOST_UNCOMPRESSED or (buckets[1:] < buckets[:-1]).any()):
                others.append(batch)
            else:
                yield self._sorted(batch, buckets)
        if others:
            for batch in pa.Table.from_batches(others).combine_chunks().to_batches():
                yield self._sorted(batch, buckets_of(batch.column("number").to_numpy(), self._count))

    def _sorted(self, rows: pa.RecordBatch, buckets: Any) -> tuple[pa.RecordBatch, list[int]]:
        if (buckets[1:] < buckets[:-1]).any():
            rows = rows.take(pa.array(np.argsort(buckets, kind="stable")))
        return rows, [0, *np.cumsum(np.bincount(buckets, minlength=self._count)).tolist()]

    def close(self) -> None:
        """Completes the file."""
        self._writer.close()
        self._file.write(np.array([*self._positions, len(self._positions)], np.int64).tobytes())
        self._file.close()


class LazyShuffleFile:
    """The same, but that the file is there once there are any rows, and that they are written many at once."""

    def __init__(self, path: str, schema: pa.Schema, count: int) -> None:
        self._path = path
        self._schema = schema
        self._count = count
        self._file: ShuffleFile | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= ROUND_ROWS or self._bytes >= ROUND_BYTES:
            self._write()

    def close(self) -> list[str]:
        """Completes the file; gives its path, if it is there."""
        self._write()
        if self._file is None:
            return []
        self._file.close()
        return [self._path]

    def _write(self) -> None:
        if self._waiting:
            self._file = self._file or ShuffleFile(self._path, self._schema, self._count)
            self._file.write(*self._waiting)
            self._waiting = []
            self._rows = self._bytes = 0


def read_bucket(paths: Iterable[str], bucket: int, count: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of one bucket in all files, which have this schema. What nobody looks at is not read from the disk."""
    paths = tuple(paths)
    if any(map(storage.is_url, paths)):
        for messages in storage.side_by_side(partial(_fetched, bucket=bucket, count=count), paths):
            yield from (pa.ipc.read_record_batch(message, schema) for message in messages)
        return
    for path in paths:
        # Arrow's own maps ask the system for all of the file at once.
        with open(path, "rb") as file:
            whole = pa.py_buffer(mmap(file.fileno(), 0, access=ACCESS_READ))
        number = int(np.frombuffer(whole, np.int64, 1, len(whole) - 8)[0])
        positions = np.frombuffer(whole, np.int64, number, len(whole) - 8 - 8 * number)[bucket::count]
        for position in positions[positions != NOTHING].tolist():
            yield pa.ipc.read_record_batch(whole.slice(position), schema)


def _fetched(path: str, bucket: int, count: int) -> list[pa.Buffer]:
    """The batches of one bucket in a file of an object store, which is asked for each in one piece."""
    with storage.open_file(path) as file:
        size = file.size()
        last = file.read_at(min(size, TRAILER_BYTES), max(0, size - TRAILER_BYTES))
        trailer = 8 * (int(np.frombuffer(last, np.int64, 1, len(last) - 8)[0]) + 1)
        if trailer > len(last):
            last = file.read_at(trailer, size - trailer)
        positions = np.frombuffer(last, np.int64, trailer // 8 - 1, len(last) - trailer)
        begins = positions[positions != NOTHING]
        ends = np.append(begins[1:], size - trailer)
        wanted = np.isin(begins, positions[bucket::count])
        return [
            pa.py_buffer(file.read_at(end - begin, begin))
            for begin, end in zip(begins[wanted].tolist(), ends[wanted].tolist(), strict=True)
        ]
