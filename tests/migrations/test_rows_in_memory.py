"""The key rows of a bucket that are kept are in memory of their own: a mapped file brings what lies around them too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from ferryman.migrations.engine.key_rows import COLUMNS, SCHEMA
from ferryman.migrations.engine.placement_check import NOT_HERE, KeyRows
from ferryman.migrations.engine.shuffle import ShuffleFile
from ferryman.schema.connection.address import Address

ROWS, BUCKETS, BUCKET = 5_000, 3, 1


def rows() -> pa.RecordBatch:
    """Key rows of as many jobs."""
    cells: dict[str, object] = dict.fromkeys(COLUMNS)
    names = ("kind", "mark", "home", "created_at", "size", "shape")
    return pa.RecordBatch.from_pylist(
        [cells | dict.fromkeys(names, 1) | {"number": n, "key": b"k%d" % n, "values": [b"v%d" % n]} for n in range(ROWS)], SCHEMA
    )


@pytest.mark.parametrize("left_out", [0, 2, 900])
def test_wanted_rows_are_all_there_and_the_file_is_not_mapped(tmp_path: Path, left_out: int) -> None:
    file = ShuffleFile(path := str(tmp_path / "rows"), SCHEMA, BUCKETS)
    file.write(rows())
    file.close()
    key_rows = KeyRows(Address.parse("ferryman://localhost/0?family=kue"), 0, (path,), BUCKETS, {}, {}, frozenset())
    there = pa.Table.from_batches(key_rows._read(BUCKET), SCHEMA)
    jobs = np.arange(len(there))
    jobs[:left_out] = NOT_HERE
    found, owners = key_rows._wanted_rows(BUCKET, jobs)
    assert found.filter(pa.array(owners != NOT_HERE)).equals(there.slice(left_out))
    assert np.array_equal(owners[owners != NOT_HERE], jobs[left_out:])
    del there
    assert path not in Path("/proc/self/maps").read_text()
