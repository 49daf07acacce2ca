"""Sound: the jobs whose traces say that all is well, and those that the rules must look at after all.

    traces of a bucket -> by job: sum of all marks -> sound: counted, and grouped by kind for whoever reads jobs
                                                   -> suspects: their traces become facts

Each bucket (buckets.py) is the work of one task, which has all traces of its jobs; what a bucket says is the same whenever it is
asked. tests/spark/test_traces.py. Called by snapshot.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import islice, pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen

from ..migrations.engine import Census
from ..migrations.intake import Outline
from ..migrations.sifting import voucher_of
from ..schema.address import Address
from ..schema.columnvoucher import UNDATED
from ..schema.fact import Entry
from ..schema.voucher import Columns, Members, SoundJobs, Voucher
from .buckets import read_bucket, search_bucket
from .traces import ATTACHED, COLUMNS, DOUBT, PLACE, RECORD, SCHEMA, unpack_names

TYPES = {RECORD: "hash", PLACE: "zset", ATTACHED: "list"}
"""The Redis type of the key behind a trace."""
NAMES = list(COLUMNS)
TELLING = [NAMES.index(name) for name in ("number", "kind", "mark", "home", "created_at", "size")]
WHOLE = range(len(NAMES))
SLAB_BYTES = 32 << 20
"""How much of what keys hold is taken at once, so that memory grows neither with payloads nor with the number of jobs."""
JOB_BYTES = 500
"""What a job counts beside what its keys hold."""
JOBS = 1_000
"""How many of these become Python's objects at once: a Group has no more."""


class Judged(NamedTuple):
    """The sound jobs of a bucket."""

    numbers: Any
    """In ascending order."""
    homes: Any
    """The ``Home.mark`` of each."""
    sizes: Any
    """The bytes of all traces of each."""
    created_at: Any
    """Unix ms, of each; UNDATED where nothing tells."""


class Group(NamedTuple):
    """Some of the sound jobs of a slab."""

    rows: Sequence[int]
    """Which they are, of the slab's jobs in the order of their numbers."""
    jobs: SoundJobs


@frozen
class Traces:
    """All traces of a keyspace. A plain value: it travels to executors."""

    address: Address
    now_ms: int
    files: tuple[str, ...]
    buckets: int
    homes: dict[int, tuple[str, str]]
    """Queue and state by ``Home.mark``."""
    unsettled: frozenset[int]
    """The homes of queues at whose jobs the rules must look."""

    @classmethod
    def of(cls, address: Address, now_ms: int, outline: Outline, buckets: int) -> Traces:
        """The traces of which the tasks that made them have told."""
        voucher = voucher_of(address, now_ms)
        unsettled = (mark for mark, (queue, _) in outline.homes.items() if not voucher.is_settled(queue, outline.totals))
        return cls(address, now_ms, tuple(sorted(outline.files)), buckets, outline.homes, frozenset(unsettled))

    def judge(self, bucket: int) -> Judged:
        """The sound jobs of a bucket."""
        batches = list(read_bucket(self.files, bucket, self.buckets, TELLING))
        if not batches:
            return Judged(*(np.empty(0, np.int64) for _ in Judged._fields))
        cells = [column.to_numpy() for column in pa.Table.from_batches(batches).columns]
        order = np.argsort(cells[0], kind="stable")
        number, kind, mark, home, created_at, size = (column[order] for column in cells)
        starts = np.flatnonzero(np.concatenate(([True], number[1:] != number[:-1])))
        is_sound = (
            (np.add.reduceat(mark, starts) == 0)
            & (np.add.reduceat(kind == RECORD, starts, dtype=int) == 1)
            & (np.bitwise_or.reduceat(kind, starts) & DOUBT == 0)
        )
        # Of a job that stands where it claims, this is the sum of one cell and zeros.
        homes = np.add.reduceat(home, starts)
        is_sound &= ~np.isin(homes, list(self.unsettled))
        sizes, created = (np.add.reduceat(column, starts) for column in (size, created_at))
        return Judged(*(column[is_sound] for column in (number[starts], homes, sizes, created)))

    def census(self, sound: Judged) -> Census:
        """How many jobs are sound, where they stand, and how old they are."""
        census = Census()
        for home in np.unique(sound.homes).tolist():
            created_at = sound.created_at[sound.homes == home]
            times = created_at[created_at != UNDATED].tolist()
            census.count_created(*self.homes[home], times, self.now_ms, len(created_at) - len(times))
        return census

    def suspects(self, bucket: int, sound: Judged) -> Iterator[Entry]:
        """What the traces of all jobs but the sound ones hold, an entry for each."""

        def wanted(told: pa.RecordBatch) -> Any:
            number, kind = (column.to_numpy() for column in told.columns)
            return ~_among(number, sound.numbers) & (kind != DOUBT)

        columns = [NAMES.index(name) for name in ("number", "kind")]
        for batch in search_bucket(self.files, bucket, self.buckets, columns, wanted):
            yield from map(_entry, batch.to_pylist())

    def slabs(self, bucket: int, only: Collection[tuple[str, str]] | None = None) -> Iterator[Iterator[Group]]:
        """The sound jobs of a bucket, as many at once as memory should hold. ``only``: these, by scope and id."""
        sound = self.judge(bucket)
        wanted = np.ones(len(sound.numbers), bool)
        if only is not None:
            voucher = self.voucher()
            wanted = np.isin(sound.numbers, [voucher.number(job_id, scope) for scope, job_id in only])
        numbers, homes, sizes = (column[wanted] for column in (sound.numbers, sound.homes, sound.sizes))
        slabs = np.cumsum(sizes + JOB_BYTES) // SLAB_BYTES
        for slab in np.unique(slabs):
            those = slabs == slab
            yield _groups(self._traces(bucket, numbers[those]), numbers[those], homes[those])

    def voucher(self) -> Voucher:
        """The keyspace as its family sees it at a glance."""
        return voucher_of(self.address, self.now_ms)

    def _traces(self, bucket: int, numbers: Any) -> pa.Table:
        """All traces of some sound jobs of a bucket."""
        rows = []
        for batch in read_bucket(self.files, bucket, self.buckets, WHOLE):
            wanted = _among(batch.column(0).to_numpy(), numbers)
            rows.append(batch if wanted.all() else batch.filter(pa.array(wanted)))
        return pa.Table.from_batches(rows, SCHEMA).combine_chunks()


def _among(numbers: Any, those: Any) -> Any:
    """Whether each of the numbers is among those, which are in ascending order."""
    if not len(those):
        return np.zeros(len(numbers), bool)
    return those[np.minimum(np.searchsorted(those, numbers), len(those) - 1)] == numbers


def _groups(traces: pa.Table, numbers: Any, homes: Any) -> Iterator[Group]:
    """The sound jobs with these numbers, which are in ascending order, and these homes; these are all of their traces."""
    number, kind, index = (traces.column(name).fill_null(0).to_numpy() for name in ("number", "kind", "index"))
    job = np.searchsorted(numbers, number)
    # Each job has one record, and stands in as many places as all others, those of one home in the same.
    records = _sorted(np.flatnonzero(kind == RECORD), job)
    told = traces.select(["names", "key"]).take(pa.array(records))
    shapes = _codes(pc.coalesce(*told.columns))
    by_kind = np.lexsort((shapes, homes))
    turn = np.argsort(by_kind)[job]
    records = traces.take(pa.array(records[by_kind]))
    places = _sorted(np.flatnonzero(kind == PLACE), _codes(traces.column("key")), turn).reshape(len(numbers), -1)
    stands = [traces.take(pa.array(place)) for place in places.transpose()]
    attached = _sorted(np.flatnonzero(kind == ATTACHED), index, turn)
    ends = np.searchsorted(turn[attached], np.arange(len(numbers) + 1)).tolist()
    attached = traces.take(pa.array(attached))
    kinds = np.stack((shapes, homes))[:, by_kind]
    borders = np.flatnonzero((kinds[:, 1:] != kinds[:, :-1]).any(axis=0)) + 1
    for begin, border in pairwise([0, *borders.tolist(), len(numbers)]):
        for start in range(begin, border, JOBS):
            end = min(start + JOBS, border)
            entries = _entries(attached.slice(ends[start], ends[end] - ends[start]))
            alike = records.slice(start, end - start)
            columns = _columns(alike)
            stand = (place.slice(start, end - start) for place in stands) if columns else (alike,)
            yield Group(
                by_kind[start:end].tolist(),
                SoundJobs(
                    alike.column("key").to_pylist(),
                    columns,
                    dict(map(_members, stand)),
                    [list(islice(entries, last - first)) for first, last in pairwise(ends[start : end + 1])],
                ),
            )


def _columns(records: pa.Table) -> Columns:
    """The fields of records that have the same; none of items."""
    packed = records.column("names")[0].as_py()
    if packed is None:
        return {}
    names, values = unpack_names(packed), _texts(records)
    return {name: values[index :: len(names)] for index, name in enumerate(names)}


def _members(place: pa.Table) -> tuple[bytes, Members]:
    """The key of a place, and what stands there."""
    key, scores, ranks = (place.column(name) for name in ("key", "score", "index"))
    return key[0].as_py(), Members(_texts(place), scores.to_pylist(), ranks.to_pylist())


def _sorted(rows: Any, *columns: Any) -> Any:
    """Rows in the order of the last of these columns, and in that of the one before it where that is the same."""
    return rows[np.lexsort([column[rows] for column in columns])]


def _codes(texts: pa.ChunkedArray) -> Any:
    """A number for each text of a column, the same for the same text."""
    return texts.combine_chunks().dictionary_encode().indices.to_numpy()


def _texts(traces: pa.Table) -> list[bytes]:
    """The values of all of these, one after the other."""
    texts: list[bytes] = traces.column("values").combine_chunks().flatten().to_pylist()
    return texts


def _entries(attached: pa.Table) -> Iterator[Entry]:
    """The entries behind traces of keys that belong to jobs; pyarrow's own ``to_pylist`` takes four times as long for lists."""
    keys, indexes = (attached.column(name).to_pylist() for name in ("key", "index"))
    lists = attached.column("values").combine_chunks()
    texts = _texts(attached)
    bounds = np.cumsum(np.append(0, lists.value_lengths().to_numpy())).tolist()
    for key, index, (start, end) in zip(keys, indexes, pairwise(bounds), strict=True):
        yield Entry(key, TYPES[ATTACHED], texts[start:end], None, index)


def _entry(cells: dict[str, Any]) -> Entry:
    """The entry behind a trace."""
    values = cells["values"]
    kind = "list" if cells["names"] is None and cells["kind"] == RECORD else TYPES[cells["kind"]]
    match kind:
        case "hash":
            value: Any = dict(zip(unpack_names(cells["names"]), values, strict=True))
        case "zset":
            value = [(values[0], cells["score"])]
        case _:
            value = values
    return Entry(cells["key"], kind, value, None, cells["index"] or 0)
