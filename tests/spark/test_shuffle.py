"""Rows that were put into buckets are all read again, each once, by whoever reads the bucket of their number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from ferryman.migrations.engine.shuffle import ShuffleFile, buckets_of, read_bucket

SCHEMA = pa.schema([("number", pa.int64()), ("text", pa.list_(pa.field("element", pa.binary()))), ("left", pa.int64())])
ROWS = 1_000


def rows(start: int) -> pa.RecordBatch:
    numbers = range(start, start + ROWS)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(numbers, pa.int64()),
            pa.array([[b"%d" % n] * (n % 3) for n in numbers], SCHEMA.field(1).type),
            pa.array(numbers),
        ],
        schema=SCHEMA,
    )


def in_order(batch: pa.RecordBatch, count: int) -> pa.RecordBatch:
    """The same rows in the order of their buckets."""
    return batch.take(pa.array(np.argsort(buckets_of(batch.column("number").to_numpy(), count), kind="stable")))


@pytest.mark.parametrize("count", [1, 7, 2_000])
@pytest.mark.parametrize("ordered", [(), (0,), (0, 1)])
@pytest.mark.parametrize("at_once", [1, 2])
def test_each_row_is_in_the_bucket_of_its_number(count: int, ordered: tuple[int, ...], at_once: int, tmp_path: Path) -> None:
    paths = [str(tmp_path / "one"), str(tmp_path / "two")]
    for path, starts in zip(paths, ([0, ROWS], [2 * ROWS]), strict=True):
        file = ShuffleFile(path, SCHEMA, count)
        batches = [in_order(rows(start), count) if index in ordered else rows(start) for index, start in enumerate(starts)]
        for start in range(0, len(batches), at_once):
            file.write(*batches[start : start + at_once])
        file.close()
    found: list[int] = []
    for bucket in range(count):
        for batch in read_bucket(paths, bucket, count, SCHEMA):
            assert batch.schema == SCHEMA
            numbers, texts, _ = (column.to_pylist() for column in batch.columns)
            assert texts == [[b"%d" % n] * (n % 3) for n in numbers]
            assert set(buckets_of(np.array(numbers), count).tolist()) == {bucket}
            found += numbers
    assert sorted(found) == list(range(3 * ROWS))


def test_numbers_in_a_row_are_spread_evenly() -> None:
    sizes = np.bincount(buckets_of(np.arange(1, 100_001), 16).astype(int))
    assert sizes.min() > 0.9 * 100_000 / 16
