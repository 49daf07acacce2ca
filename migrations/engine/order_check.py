"""Order check: whether the jobs that wait on both sides of a comparison would run in the same order.

    positions of jobs (comparison.py) -> files, by ranges of each queue -> ascending within each range?
    ascending from range to range? -> of the queues where they are not, the first job that is elsewhere

No task holds more than some ranges; only queues where something is wrong are sorted, each by one task. Called by comparison.py.
tests/spark/test_order_check.py.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import asdict, frozen

from ..order import swapped
from . import Difference, Progress, storage
from .runner import Runner
from .shuffle import ShuffleFile, read_bucket
from .tables import decode_text

SCHEMA = pa.schema(
    [("number", pa.int64()), ("queue", pa.string()), ("id", pa.string()), ("wanted", pa.int64()), ("found", pa.int64())]
)
"""``wanted`` and ``found``: the positions of a job among the waiting ones of its queue, as expected and as found."""
RANGE_SIZE = 100_000
"""Positions of a queue that are looked at together."""


class PositionsFile:
    """Positions on their way to a file in ``folder``, which is there once there are any, in so many ``buckets``."""

    def __init__(self, folder: str, buckets: int) -> None:
        self.path = storage.new_name(folder)
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

    def differences(self, runner: Runner, progress: Progress) -> Iterator[Difference]:
        """For each queue whose waiting jobs would run in another order, the first that is elsewhere."""
        if not self.files:
            return
        reports = runner.run(self._check_ranges, self.buckets, "comparing orders", progress, light=True)
        queues = sorted(disordered_queues(PositionRange(*each) for report in reports for each in json.loads(report)))
        if not queues:
            return
        find = partial(self._first_elsewhere, queues)
        for found in runner.run(find, len(queues), "comparing disordered queues", progress):
            if found:
                yield Difference(**json.loads(found))

    def _check_ranges(self, bucket: int) -> str:
        return json.dumps(list(ranges(self._read(bucket))))

    def _first_elsewhere(self, queues: Sequence[str], index: int) -> str:
        """The first job of a queue that is elsewhere, as JSON; nothing if there is none. All positions of it are in memory."""
        of_queue = pc.field("queue") == queues[index]
        columns = ["id", "wanted", "found"]
        positions = pa.concat_tables(self._read(bucket).filter(of_queue).select(columns) for bucket in range(self.buckets))
        difference = first_difference(queues[index], positions)
        return "" if difference is None else json.dumps(asdict(difference))

    def _read(self, bucket: int) -> pa.Table:
        """The positions in a bucket."""
        return pa.Table.from_batches(read_bucket(self.files, bucket, self.buckets, SCHEMA), SCHEMA)


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


def first_difference(queue: str, positions: pa.Table) -> Difference | None:
    """The same as ``migrations.order.order_difference``, of a table of positions."""
    orders = [pc.sort_indices(positions, [(name, "ascending"), ("id", "ascending")]).to_numpy() for name in ("wanted", "found")]
    elsewhere = np.flatnonzero(orders[0] != orders[1])
    if not len(elsewhere):
        return None
    first = int(elsewhere[0])
    row, instead = (int(order[first]) for order in orders)
    names = [decode_text(text) or "" for text in (queue, *(positions.column("id")[each].as_py() for each in (row, instead)))]
    return swapped(names[0], names[1], first, int(np.flatnonzero(orders[1] == row)[0]), names[2])
