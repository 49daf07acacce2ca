"""Order check: whether the jobs that wait on both sides of a comparison would run in the same order.

    positions of jobs (comparison.py) -> files, by ranges of each queue -> ascending within each range?
    ascending from range to range? -> of the queues where they are not, the first job that is elsewhere

No task holds more than some ranges, and Spark sorts only the queues where something is wrong. Called by comparison.py.
tests/spark/test_order_check.py.
"""

from __future__ import annotations

import json
import os
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen
from pyspark.sql import DataFrame, SparkSession, Window, functions

from ..migrations.engine import Difference, Progress
from ..migrations.order import swapped
from .shuffle import ShuffleFile, read_bucket
from .step import Batches, few_tasks, run_light_step
from .tables import decode_text

SCHEMA = pa.schema(
    [("number", pa.int64()), ("queue", pa.string()), ("id", pa.string()), ("wanted", pa.int64()), ("found", pa.int64())]
)
"""``wanted`` and ``found``: the positions of a job among the waiting ones of its queue, as expected and as found."""
ROWS = "queue string, id string, wanted bigint, found bigint"
RANGE_SIZE = 100_000
"""Positions of a queue that are looked at together."""


class PositionsFile:
    """Positions on their way to a file in ``folder``, which is there once there are any, in so many ``buckets``."""

    def __init__(self, folder: str, buckets: int) -> None:
        self.path = os.path.join(folder, f"{uuid.uuid4()}.arrow")
        self._buckets = buckets
        self._file: ShuffleFile | None = None

    def add(self, queue: pa.Array, job_id: pa.Array, wanted: pa.Array, found: pa.Array) -> None:
        """Adds the positions of some jobs."""
        if not len(queue):
            return
        queues = queue.dictionary_encode()
        queue_hashes = np.array([crc32(each.encode()) for each in queues.dictionary.to_pylist()])[queues.indices.to_numpy()]
        number = pa.array(queue_hashes + wanted.to_numpy() // RANGE_SIZE)
        self._file = self._file or ShuffleFile(self.path, SCHEMA, self._buckets)
        self._file.write(pa.RecordBatch.from_arrays([number, queue, job_id, wanted, found], schema=SCHEMA))

    def close(self) -> list[str]:
        """Completes the file; gives its path, if it is there."""
        if self._file is None:
            return []
        self._file.close()
        return [self.path]


class PositionRange(NamedTuple):
    """What there is to know of the positions of a queue from one expected position up to another."""

    queue: str
    number: int
    ascends: bool
    """No two jobs have the same position, and who comes later on one side does so on the other."""
    first: int
    last: int
    """The least and the greatest position found, if they ascend."""


@frozen
class Positions:
    """All positions of a comparison. A plain value: it travels to executors."""

    files: tuple[str, ...]
    buckets: int

    def differences(self, spark: SparkSession, progress: Progress) -> Iterator[Difference]:
        """For each queue whose waiting jobs would run in another order, the first that is elsewhere."""
        if not self.files:
            return
        reports = run_light_step(few_tasks(spark, self.buckets), self._check_ranges, "comparing orders", progress)
        disordered = disordered_queues(PositionRange(*each) for report in reports for each in json.loads(report))
        if disordered:
            yield from _differences(self._of_queues(spark, disordered))

    def _check_ranges(self, rows: Batches) -> str:
        return json.dumps([each for positions in self._read(rows) for each in ranges(positions)])

    def _of_queues(self, spark: SparkSession, queues: Collection[str]) -> DataFrame:
        """The positions of some queues."""
        wanted = pa.array(queues, pa.string())

        def read(rows: Batches) -> Batches:
            for positions in self._read(rows):
                those = positions.filter(pc.is_in(positions.column("queue"), wanted))
                yield from those.drop_columns(["number"]).to_batches()

        return spark.range(0, self.buckets, 1, self.buckets).mapInArrow(read, ROWS)

    def _read(self, rows: Batches) -> Iterator[pa.Table]:
        """The positions in each of the buckets whose numbers are given."""
        for bucket in (bucket for row in rows for bucket in row.column("id").to_pylist()):
            yield pa.Table.from_batches(read_bucket(self.files, bucket, self.buckets, SCHEMA), SCHEMA)


def ranges(positions: pa.Table) -> Iterator[PositionRange]:
    """The ranges in a bucket."""
    if not len(positions):
        return
    queues = positions.column("queue").combine_chunks().dictionary_encode()
    code, wanted, found = queues.indices.to_numpy(), *(positions.column(name).to_numpy() for name in ("wanted", "found"))
    order = np.lexsort((wanted, code))
    code, wanted, found = code[order], wanted[order], found[order]
    number = wanted // RANGE_SIZE
    is_new = (code[1:] != code[:-1]) | (number[1:] != number[:-1])
    ascends = is_new | (wanted[1:] > wanted[:-1]) & (found[1:] > found[:-1])
    begins = np.flatnonzero(np.append(True, is_new))
    columns = code[begins], number[begins], np.logical_and.reduceat(np.append(True, ascends), begins)
    ends = found[begins], found[np.append(begins[1:], len(found)) - 1]
    names = queues.dictionary.to_pylist()
    for each, *others in zip(*(column.tolist() for column in (*columns, *ends)), strict=True):
        yield PositionRange(names[each], *others)


def disordered_queues(found: Iterable[PositionRange]) -> list[str]:
    """The queues in whose ranges positions don't ascend from the first to the last."""
    by_queue: defaultdict[str, list[PositionRange]] = defaultdict(list)
    for each in found:
        by_queue[each.queue].append(each)
    return [queue for queue, of_queue in by_queue.items() if not _ascend(sorted(of_queue))]


def _ascend(of_queue: Sequence[PositionRange]) -> bool:
    return all(each.ascends for each in of_queue) and all(one.last < other.first for one, other in pairwise(of_queue))


def _differences(positions: DataFrame) -> Iterator[Difference]:
    """The same as ``migrations.order.order_difference``, of a table of positions."""
    for name in ("wanted", "found"):
        order = Window.partitionBy("queue").orderBy(name, "id")
        positions = positions.withColumn(name, functions.row_number().over(order) - 1)
    ranks = positions.where("wanted <> found")
    first = ranks.groupBy("queue").agg(functions.min_by(functions.struct("id", "wanted", "found"), "wanted").alias("first"))
    instead = ranks.select("queue", functions.col("id").alias("instead"), functions.col("found").alias("position"))
    pairs = first.select("queue", "first.*").join(instead, "queue").where("position = wanted")
    for row in pairs.orderBy("queue").toLocalIterator():
        names = [decode_text(row[name]) or "" for name in ("queue", "id", "instead")]
        yield swapped(names[0], names[1], row["wanted"], row["found"], names[2])
