"""Placement check: whether each job is exactly in the indexes that its record implies. The rules must look at those that are not.

    key rows of a bucket -> by job: sum of all placement hashes -> 0: verified, counted, and grouped by kind for who reads jobs
                                                                -> else: mismatches, whose key rows become facts

Each bucket (shuffle.py) is the work of one task, which has all key rows of its jobs; what a bucket says is the same whenever it
is asked. tests/spark/test_key_rows.py. Called by snapshot.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from io import BytesIO
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from attrs import frozen

from ...schema.columnar.batch_prefilter import UNDATED
from ...schema.columnar.binary_views import BinaryViews
from ...schema.columnar.jobtable import AcceptedJobs, Members, OwnedLists
from ...schema.connection.address import Address
from ...schema.fact import Entry
from ...schema.prefilter import Prefilter
from ..fact_reader import ReadSummary
from ..prefiltering_reader import prefilter_of
from . import Census, storage
from .key_rows import INDEX_MEMBER, OWNED, RECORD, SCHEMA, UNVERIFIED
from .shuffle import read_bucket

CHECKED_COLUMNS = ["number", "kind", "mark", "home", "created_at", "size"]
BATCH_BYTES = 56 << 20
"""How much of what keys hold is taken at once, so that memory grows neither with payloads nor with the number of jobs."""
COPY_THRESHOLD = 0.1
"""The part of a batch's bytes that is not worth a copy of the rest to be left out."""
ROW_BYTES = 100
"""What a key row counts beside what its key holds."""
JOB_BYTES = 500
"""What a job counts beside what its keys hold."""
MISMATCH, NO_ROW = -1, -2
"""Stand for the owner of a key row that belongs to no verified job."""
NOT_HERE = -1
"""Stands for the job of a key row that is not among those that are looked at."""


class Verified(NamedTuple):
    """The verified jobs of a bucket."""

    numbers: Any
    """In ascending order."""
    groups: Any
    """The ``JobGroup.hash`` of each."""
    sizes: Any
    """The bytes of all key rows of each."""
    created_at: Any
    """Unix ms, of each; UNDATED where nothing tells."""
    owners: Any
    """Of each key row in the bucket, in the order in which they are read: the index of its job among these, MISMATCH for a row of
    another, NO_ROW for one that only says that a job is unverified (int32)."""


def keep(found: Verified, folder: str) -> str:
    """Keeps what has been found of a bucket for later steps, in a new file in the folder; gives its path."""
    file = BytesIO()
    for column in found:
        np.save(file, column)
    storage.write(path := storage.new_name(folder, ".npy"), file.getvalue())
    return path


@frozen
class KeyRows:
    """All key rows of a keyspace. A plain value: it travels to executors."""

    address: Address
    now_ms: int
    files: tuple[str, ...]
    buckets: int
    groups: dict[int, tuple[str, str]]
    """Queue and state by ``JobGroup.hash``."""
    field_sets: dict[int, tuple[bytes, ...]]
    """The fields of records by the hash of these."""
    unsettled: frozenset[int]
    """The groups of queues at whose jobs the rules must look."""
    verified: tuple[str, ...] = ()
    """For each bucket the file with what an earlier step has found of it (``keep``), if there was one."""

    @classmethod
    def of(cls, address: Address, now_ms: int, read_summary: ReadSummary, buckets: int) -> KeyRows:
        """The key rows that the tasks have written whose outline this is."""
        prefilter = prefilter_of(address, now_ms)
        unsettled = (
            group for group, (queue, _) in read_summary.groups.items() if not prefilter.is_settled(queue, read_summary.totals)
        )
        files = tuple(sorted(read_summary.files))
        return cls(address, now_ms, files, buckets, read_summary.groups, read_summary.field_sets, frozenset(unsettled))

    def verify(self, bucket: int) -> Verified:
        """The verified jobs of a bucket."""
        if self.verified:
            file = BytesIO(storage.read(self.verified[bucket]))
            return Verified(*(np.load(file) for _ in Verified._fields))
        # Copies, so that no more than one file's pages are in memory at once.
        columns = [[batch.column(name).to_numpy().copy() for name in CHECKED_COLUMNS] for batch in self._read(bucket)]
        if not columns:
            nothing = np.empty(0, np.int64)
            return Verified(nothing, nothing, nothing, nothing, nothing)
        cells = [np.concatenate(column) for column in zip(*columns, strict=True)]
        order = np.argsort(cells[0])
        number, kind, mark, group, created_at, size = (column[order] for column in cells)
        starts = np.flatnonzero(np.concatenate(([True], number[1:] != number[:-1])))
        is_verified = (
            (np.add.reduceat(mark, starts) == 0)
            & (np.add.reduceat(kind == RECORD, starts, dtype=int) == 1)
            & (np.bitwise_or.reduceat(kind, starts) & UNVERIFIED == 0)
        )
        # Of a job that is where it claims, this is the sum of one cell and zeros.
        groups = np.add.reduceat(group, starts)
        is_verified &= ~np.isin(groups, list(self.unsettled))
        sizes, created = (np.add.reduceat(column, starts) for column in (size, created_at))
        owners = np.empty(len(number), np.int32)
        indexes = np.where(is_verified, np.cumsum(is_verified) - 1, MISMATCH)
        owners[order] = np.where(kind == UNVERIFIED, NO_ROW, np.repeat(indexes, np.diff(starts, append=len(number))))
        return Verified(number[starts][is_verified], groups[is_verified], sizes[is_verified], created[is_verified], owners)

    def census(self, verified: Verified) -> Census:
        """How many jobs are verified, by queue and state, and how old they are."""
        census = Census()
        for group in np.unique(verified.groups).tolist():
            created_at = verified.created_at[verified.groups == group]
            times = np.sort(created_at[created_at != UNDATED]).tolist()
            census.count_created(*self.groups[group], times, self.now_ms, len(created_at) - len(times))
        return census

    def mismatches(self, bucket: int, verified: Verified) -> Iterator[tuple[int, Entry]]:
        """What the key rows of all jobs but the verified ones hold, an entry for each, with the number of its job."""
        end = 0
        for batch in self._read(bucket):
            start, end = end, end + batch.num_rows
            those = verified.owners[start:end] == MISMATCH
            if those.any():
                for cells in batch.filter(pa.array(those)).to_pylist():
                    yield cells["number"], self._entry(cells)

    def batches(
        self, bucket: int, only: Collection[tuple[str, str]] | None = None, times: int = 1
    ) -> Iterator[Iterator[tuple[Any, AcceptedJobs]]]:
        """The verified jobs of a bucket, as many at once as memory should hold, or so many times as many.

        Jobs that are alike come together, with their rows: the indexes of these among all jobs of the batch in the order of their
        numbers. ``only``: these, by scope and id.
        """
        verified = self.verify(bucket)
        wanted = np.ones(len(verified.numbers), bool)
        if only is not None:
            prefilter = self.prefilter()
            wanted = np.isin(verified.numbers, [prefilter.number(job_id, scope) for scope, job_id in only])
        jobs = np.flatnonzero(wanted)
        batches = np.cumsum(verified.sizes[jobs] + JOB_BYTES) // (times * BATCH_BYTES)
        for batch in np.unique(batches):
            those = jobs[batches == batch]
            rows = np.full(len(wanted) + 2, NOT_HERE)  # the last two are for MISMATCH and NO_ROW
            rows[those] = np.arange(len(those))
            yield self._groups(*self._wanted_rows(bucket, rows[verified.owners]), verified.groups[those])

    def prefilter(self) -> Prefilter:
        """The prefilter of the keyspace's family."""
        return prefilter_of(self.address, self.now_ms)

    def _read(self, bucket: int) -> Iterator[pa.RecordBatch]:
        return read_bucket(self.files, bucket, self.buckets, SCHEMA)

    def _wanted_rows(self, bucket: int, jobs: Any) -> tuple[pa.Table, Any]:
        """All key rows of some verified jobs of a bucket, and perhaps a few of others; and the job of each.

        ``jobs``: of all key rows of the bucket, NOT_HERE for those of others.
        """
        rows, owners, end = [], [], 0
        for batch in self._read(bucket):
            start, end = end, end + batch.num_rows
            those = jobs[start:end]
            wanted, sizes = those != NOT_HERE, batch.column("size").to_numpy() + ROW_BYTES
            is_whole = sizes[~wanted].sum() <= COPY_THRESHOLD * sizes.sum()
            # Copies: with the rows of a bucket in mapped files, what lies around them is in memory too, which may be as much.
            rows.append(_copy(batch) if is_whole else batch.filter(pa.array(wanted)))
            owners.append(those if is_whole else those[wanted])
        return pa.Table.from_batches(rows, SCHEMA).combine_chunks(), np.concatenate(owners)

    def _groups(self, key_rows: pa.Table, job: Any, groups: Any) -> Iterator[tuple[Any, AcceptedJobs]]:
        """The verified jobs of these groups. ``job``: the index among these of the job of each key row, or NOT_HERE."""
        kind, index, shape = (key_rows.column(name).fill_null(0).to_numpy() for name in ("kind", "index", "shape"))
        views = _RowViews.of(key_rows, index)
        kind = np.where(job == NOT_HERE, 0, kind)
        # Each job has one record, and is in as many indexes as all others, those of one group in the same, but for optional ones.
        of_records = np.flatnonzero(kind == RECORD)
        records: Any = np.empty(len(groups), np.int64)
        records[job[of_records]] = of_records
        by_group = np.lexsort((shape[records], groups))
        rank = np.argsort(by_group)[job]
        records = records[by_group]
        places = _sorted(np.flatnonzero(kind == INDEX_MEMBER), shape, rank).reshape(len(groups), -1).transpose()
        lists = _sorted(np.flatnonzero(kind == OWNED), index, rank)
        ends = np.searchsorted(rank[lists], np.arange(len(groups) + 1))
        field_sets_and_groups = np.stack((shape[records], groups[by_group]))
        borders = np.flatnonzero((field_sets_and_groups[:, 1:] != field_sets_and_groups[:, :-1]).any(axis=0)) + 1
        for start, end in pairwise([0, *borders.tolist(), len(groups)]):
            alike = records[start:end]
            columns = views.columns(alike, self.field_sets.get(shape[alike[0]], ()))
            those = places[:, start:end] if columns else [alike]
            owned = lists[ends[start] : ends[end]]
            yield (
                by_group[start:end],
                AcceptedJobs(
                    views.keys.take(alike),
                    columns,
                    {views.keys[place[0]]: views.members(place) for place in those},
                    views.owned_lists(owned, np.diff(ends[start : end + 1])),
                ),
            )

    def _entry(self, cells: dict[str, Any]) -> Entry:
        """The entry behind a key row."""
        values = cells["values"]
        names = self.field_sets.get(cells["shape"])
        value: Any = values
        if cells["kind"] == RECORD:
            redis_type = "list" if names is None else "hash"
            value = values if names is None else dict(zip(names, values, strict=True))
        elif cells["score"] is not None:
            redis_type, value = "zset", [(values[0], cells["score"])]
        else:
            redis_type = "set" if cells["index"] is None else "list"
        return Entry(cells["key"], redis_type, value, None, cells["index"] or 0)


@frozen(eq=False)
class _RowViews:
    """What key rows hold, as slices of the buffers in which it lies."""

    keys: BinaryViews
    values: BinaryViews
    ends: Any
    """Where the values of each key row begin among these, and where those of the last end."""
    scores: Any
    are_scored: Any
    """Whether a key row has a score (bool)."""
    indexes: Any

    @classmethod
    def of(cls, key_rows: pa.Table, indexes: Any) -> _RowViews:
        """What all of these hold. ``indexes``: the column of that name."""
        key, values = (_array(key_rows.column(name)) for name in ("key", "values"))
        ends = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
        score = key_rows.column("score")
        scores, are_scored = score.fill_null(0).to_numpy(), score.is_valid().to_numpy()
        return cls(BinaryViews.from_arrow(key), BinaryViews.from_arrow(values.values), ends, scores, are_scored, indexes)

    def columns(self, rows: Any, names: Sequence[bytes]) -> dict[bytes, BinaryViews]:
        """The fields of records that have these."""
        begins = self.ends[rows]
        return {name: self.values.take(begins + index) for index, name in enumerate(names)}

    def members(self, rows: Any) -> Members:
        """Some members of an index."""
        return Members(self.values.take(self.ends[rows]), self.scores[rows], self.indexes[rows])

    def owned_lists(self, rows: Any, owned: Any) -> OwnedLists:
        """What belongs to jobs. ``owned``: how many of these each has."""
        counts = self.ends[rows + 1] - self.ends[rows]
        items = np.repeat(self.ends[rows] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        scores = np.where(self.are_scored[rows], self.scores[rows], np.nan)
        return OwnedLists(self.keys.take(rows), self.indexes[rows], counts, self.values.take(items), owned, scores)


def _sorted(rows: Any, *columns: Any) -> Any:
    """Rows in the order of the last of these columns, and in that of the one before it where that is the same."""
    return rows[np.lexsort([column[rows] for column in columns])]


def _copy(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch in memory of its own."""
    return pa.ipc.read_record_batch(batch.serialize(), batch.schema)


def _array(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array. Arrow would copy one that is of one piece already."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
