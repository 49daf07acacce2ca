"""Sound: the jobs whose traces say that all is well, and those that the rules must look at after all.

    traces of a bucket -> by job: sum of all placement hashes -> sound: counted, and grouped by kind for whoever reads jobs
                                                   -> suspects: their traces become facts

Each bucket (shuffle.py) is the work of one task, which has all traces of its jobs; what a bucket says is the same whenever it is
asked. tests/spark/test_key_rows.py. Called by snapshot.py.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from attrs import frozen

from ..migrations.engine import Census
from ..migrations.intake import Outline
from ..migrations.prefiltering_reader import prefilter_of
from ..schema.columnar.batch_prefilter import UNDATED
from ..schema.columnar.binary_views import Texts
from ..schema.columnar.jobtable import AcceptedJobs, Attached, Members
from ..schema.connection.address import Address
from ..schema.fact import Entry
from ..schema.prefilter import Prefilter
from .key_rows import ATTACHED, DOUBT, PLACE, RECORD, SCHEMA
from .shuffle import read_bucket

TYPES = {RECORD: "hash", PLACE: "zset", ATTACHED: "list"}
"""The Redis type of the key behind a trace."""
TELLING = ["number", "kind", "mark", "home", "created_at", "size"]
SLAB_BYTES = 96 << 20
"""How much of what keys hold is taken at once, so that memory grows neither with payloads nor with the number of jobs."""
FEW = 0.1
"""The part of a batch's bytes that is not worth a copy of the rest to be left out."""
TRACE_BYTES = 100
"""What a trace counts beside what its key holds."""
JOB_BYTES = 500
"""What a job counts beside what its keys hold."""
SUSPECT, NO_TRACE = -1, -2
"""Stand for the owner of a trace that belongs to no sound job."""
NOT_HERE = -1
"""Stands for the job of a trace that is not among those that are looked at."""


class Judged(NamedTuple):
    """The sound jobs of a bucket."""

    numbers: Any
    """In ascending order."""
    groups: Any
    """The ``JobGroup.hash`` of each."""
    sizes: Any
    """The bytes of all traces of each."""
    created_at: Any
    """Unix ms, of each; UNDATED where nothing tells."""
    owners: Any
    """Of each trace in the bucket, in the order in which they are read: the index of its job among these, SUSPECT for a trace of
    another, NO_TRACE for what is no more than a doubt (int32)."""


class Group(NamedTuple):
    """Some of the sound jobs of a slab."""

    rows: Any
    """Which they are, of the slab's jobs in the order of their numbers (indexes)."""
    jobs: AcceptedJobs


@frozen
class Traces:
    """All traces of a keyspace. A plain value: it travels to executors."""

    address: Address
    now_ms: int
    files: tuple[str, ...]
    buckets: int
    groups: dict[int, tuple[str, str]]
    """Queue and state by ``JobGroup.hash``."""
    shapes: dict[int, tuple[bytes, ...]]
    """The fields of records by the hash of these."""
    unsettled: frozenset[int]
    """The groups of queues at whose jobs the rules must look."""

    @classmethod
    def of(cls, address: Address, now_ms: int, outline: Outline, buckets: int) -> Traces:
        """The traces of which the tasks that made them have told."""
        prefilter = prefilter_of(address, now_ms)
        unsettled = (group for group, (queue, _) in outline.groups.items() if not prefilter.is_settled(queue, outline.totals))
        files = tuple(sorted(outline.files))
        return cls(address, now_ms, files, buckets, outline.groups, outline.shapes, frozenset(unsettled))

    def judge(self, bucket: int) -> Judged:
        """The sound jobs of a bucket. What is found lies beside the traces then, for the steps that ask again."""
        path = os.path.join(os.path.dirname(self.files[0]), f"judged-{bucket}")
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
            return Judged(*(np.load(file) for _ in Judged._fields))
        found = self._judged(bucket)
        with open(hidden := f"{path}-{uuid.uuid4()}", "wb") as file:
            for column in found:
                np.save(file, column)
        os.replace(hidden, path)
        return found

    def _judged(self, bucket: int) -> Judged:
        # Copies, so that no more than one file's pages are in memory at once.
        told = [[batch.column(name).to_numpy().copy() for name in TELLING] for batch in self._read(bucket)]
        if not told:
            nothing = np.empty(0, np.int64)
            return Judged(nothing, nothing, nothing, nothing, nothing)
        cells = [np.concatenate(column) for column in zip(*told, strict=True)]
        order = np.argsort(cells[0])
        number, kind, mark, group, created_at, size = (column[order] for column in cells)
        starts = np.flatnonzero(np.concatenate(([True], number[1:] != number[:-1])))
        is_sound = (
            (np.add.reduceat(mark, starts) == 0)
            & (np.add.reduceat(kind == RECORD, starts, dtype=int) == 1)
            & (np.bitwise_or.reduceat(kind, starts) & DOUBT == 0)
        )
        # Of a job that stands where it claims, this is the sum of one cell and zeros.
        groups = np.add.reduceat(group, starts)
        is_sound &= ~np.isin(groups, list(self.unsettled))
        sizes, created = (np.add.reduceat(column, starts) for column in (size, created_at))
        owners = np.empty(len(number), np.int32)
        indexes = np.where(is_sound, np.cumsum(is_sound) - 1, SUSPECT)
        owners[order] = np.where(kind == DOUBT, NO_TRACE, np.repeat(indexes, np.diff(starts, append=len(number))))
        return Judged(number[starts][is_sound], groups[is_sound], sizes[is_sound], created[is_sound], owners)

    def census(self, sound: Judged) -> Census:
        """How many jobs are sound, where they stand, and how old they are."""
        census = Census()
        for group in np.unique(sound.groups).tolist():
            created_at = sound.created_at[sound.groups == group]
            times = np.sort(created_at[created_at != UNDATED]).tolist()
            census.count_created(*self.groups[group], times, self.now_ms, len(created_at) - len(times))
        return census

    def suspects(self, bucket: int, sound: Judged) -> Iterator[Entry]:
        """What the traces of all jobs but the sound ones hold, an entry for each."""
        end = 0
        for batch in self._read(bucket):
            start, end = end, end + batch.num_rows
            those = sound.owners[start:end] == SUSPECT
            if those.any():
                yield from map(self._entry, batch.filter(pa.array(those)).to_pylist())

    def slabs(self, bucket: int, only: Collection[tuple[str, str]] | None = None, times: int = 1) -> Iterator[Iterator[Group]]:
        """The sound jobs of a bucket, as many at once as memory should hold, or so many times as many.

        ``only``: these, by scope and id.
        """
        sound = self.judge(bucket)
        wanted = np.ones(len(sound.numbers), bool)
        if only is not None:
            prefilter = self.prefilter()
            wanted = np.isin(sound.numbers, [prefilter.number(job_id, scope) for scope, job_id in only])
        jobs = np.flatnonzero(wanted)
        slabs = np.cumsum(sound.sizes[jobs] + JOB_BYTES) // (times * SLAB_BYTES)
        for slab in np.unique(slabs):
            those = jobs[slabs == slab]
            rows = np.full(len(wanted) + 2, NOT_HERE)  # the last two are those of suspects and of what is no trace
            rows[those] = np.arange(len(those))
            yield self._groups(*self._traces(bucket, rows[sound.owners]), sound.groups[those])

    def prefilter(self) -> Prefilter:
        """The keyspace as its family sees it at a glance."""
        return prefilter_of(self.address, self.now_ms)

    def _read(self, bucket: int) -> Iterator[pa.RecordBatch]:
        return read_bucket(self.files, bucket, self.buckets, SCHEMA)

    def _traces(self, bucket: int, jobs: Any) -> tuple[pa.Table, Any]:
        """All traces of some sound jobs of a bucket, and perhaps a few of others; and the job of each.

        ``jobs``: of all traces of the bucket, NOT_HERE for those of others.
        """
        rows, told, end = [], [], 0
        for batch in self._read(bucket):
            start, end = end, end + batch.num_rows
            those = jobs[start:end]
            wanted, sizes = those != NOT_HERE, batch.column("size").to_numpy() + TRACE_BYTES
            is_whole = sizes[~wanted].sum() <= FEW * sizes.sum()
            rows.append(batch if is_whole else batch.filter(pa.array(wanted)))
            told.append(those if is_whole else those[wanted])
        return pa.Table.from_batches(rows, SCHEMA).combine_chunks(), np.concatenate(told)

    def _groups(self, traces: pa.Table, job: Any, groups: Any) -> Iterator[Group]:
        """The sound jobs of these groups. ``job``: the index among these of the job of each trace, or NOT_HERE."""
        kind, index, shape = (traces.column(name).fill_null(0).to_numpy() for name in ("kind", "index", "shape"))
        held = _Held.of(traces, index)
        kind = np.where(job == NOT_HERE, 0, kind)
        # Each job has one record, and stands in as many places as all others, those of one group in the same.
        of_records = np.flatnonzero(kind == RECORD)
        records: Any = np.empty(len(groups), np.int64)
        records[job[of_records]] = of_records
        by_kind = np.lexsort((shape[records], groups))
        turn = np.argsort(by_kind)[job]
        records = records[by_kind]
        places = _sorted(np.flatnonzero(kind == PLACE), shape, turn).reshape(len(groups), -1).transpose()
        attached = _sorted(np.flatnonzero(kind == ATTACHED), index, turn)
        ends = np.searchsorted(turn[attached], np.arange(len(groups) + 1))
        kinds = np.stack((shape[records], groups[by_kind]))
        borders = np.flatnonzero((kinds[:, 1:] != kinds[:, :-1]).any(axis=0)) + 1
        for start, end in pairwise([0, *borders.tolist(), len(groups)]):
            alike = records[start:end]
            columns = held.columns(alike, self.shapes.get(shape[alike[0]], ()))
            those = places[:, start:end] if columns else [alike]
            owned = attached[ends[start] : ends[end]]
            yield Group(
                by_kind[start:end],
                AcceptedJobs(
                    held.keys.take(alike),
                    columns,
                    {held.keys[place[0]]: held.members(place) for place in those},
                    held.attached(owned, np.diff(ends[start : end + 1])),
                ),
            )

    def _entry(self, cells: dict[str, Any]) -> Entry:
        """The entry behind a trace."""
        values = cells["values"]
        names = self.shapes.get(cells["shape"])
        kind = "list" if names is None and cells["kind"] == RECORD else TYPES[cells["kind"]]
        match kind:
            case "hash":
                value: Any = dict(zip(names or (), values, strict=True))
            case "zset":
                value = [(values[0], cells["score"])]
            case _:
                value = values
        return Entry(cells["key"], kind, value, None, cells["index"] or 0)


@frozen(eq=False)
class _Held:
    """What traces hold, as slices of the buffers in which it lies."""

    keys: Texts
    values: Texts
    ends: Any
    """Where the values of each trace begin among these, and where those of the last end."""
    scores: Any
    indexes: Any

    @classmethod
    def of(cls, traces: pa.Table, indexes: Any) -> _Held:
        """What all of these hold. ``indexes``: the column of that name."""
        key, values = (_array(traces.column(name)) for name in ("key", "values"))
        ends = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
        scores = traces.column("score").fill_null(0).to_numpy()
        return cls(Texts.from_arrow(key), Texts.from_arrow(values.values), ends, scores, indexes)

    def columns(self, rows: Any, names: Sequence[bytes]) -> dict[bytes, Texts]:
        """The fields of records that have these."""
        begins = self.ends[rows]
        return {name: self.values.take(begins + index) for index, name in enumerate(names)}

    def members(self, rows: Any) -> Members:
        """What stands in an index."""
        return Members(self.values.take(self.ends[rows]), self.scores[rows], self.indexes[rows])

    def attached(self, rows: Any, owned: Any) -> Attached:
        """What belongs to jobs. ``owned``: how many of these each has."""
        counts = self.ends[rows + 1] - self.ends[rows]
        items = np.repeat(self.ends[rows] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        return Attached(self.keys.take(rows), self.indexes[rows], counts, self.values.take(items), owned)


def _sorted(rows: Any, *columns: Any) -> Any:
    """Rows in the order of the last of these columns, and in that of the one before it where that is the same."""
    return rows[np.lexsort([column[rows] for column in columns])]


def _array(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array. Arrow would copy one that is of one piece already."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
