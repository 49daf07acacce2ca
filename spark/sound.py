"""Sound: the jobs whose traces say that all is well, and those that the rules must look at after all.

    traces of a bucket -> by job: sum of all marks -> sound: counted, and made subjects for whoever reads jobs
                                                   -> suspects: their traces become facts

Each bucket (buckets.py) is the work of one task, which has all traces of its jobs; what a bucket says is the same whenever it is
asked. tests/spark/test_traces.py. Called by snapshot.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import pairwise, starmap
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from attrs import frozen

from ..migrations.engine import Census
from ..migrations.intake import Outline
from ..migrations.sifting import voucher_of
from ..schema.address import Address
from ..schema.fact import Entry, Subject
from ..schema.voucher import Member, Voucher
from .buckets import read_bucket
from .traces import ATTACHED, COLUMNS, DOUBT, PLACE, RECORD, SCHEMA

TYPES = {RECORD: "hash", PLACE: "zset", ATTACHED: "list"}
"""The Redis type of the key behind a trace."""
NAMES = list(COLUMNS)
TELLING = [NAMES.index(name) for name in ("number", "kind", "mark", "home", "created_at", "size")]
WHOLE = range(len(NAMES))
SLAB_BYTES = 32 << 20
"""What is made subjects at once, so that memory does not grow with the payloads of jobs."""
JOBS = 1_000
"""How many of these become Python's objects at once."""


class Judged(NamedTuple):
    """The sound jobs of a bucket."""

    numbers: Any
    """In ascending order."""
    sizes: Any
    """The bytes of all traces of each."""
    census: Census


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
        census = Census()
        batches = list(read_bucket(self.files, bucket, self.buckets, TELLING))
        if not batches:
            return Judged(np.empty(0, np.int64), np.empty(0, np.int64), census)
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
        homes, created = homes[is_sound], np.add.reduceat(created_at, starts)[is_sound]
        for each in np.unique(homes).tolist():
            census.count_created(*self.homes[each], created[homes == each].tolist(), self.now_ms)
        return Judged(number[starts][is_sound], np.add.reduceat(size, starts)[is_sound], census)

    def suspects(self, bucket: int, sound: Judged) -> Iterator[Entry]:
        """What the traces of all jobs but the sound ones hold, an entry for each."""
        for batch in read_bucket(self.files, bucket, self.buckets, WHOLE):
            number, kind = (batch.column(NAMES.index(name)).to_numpy() for name in ("number", "kind"))
            wanted = ~_among(number, sound.numbers) & (kind != DOUBT)
            if wanted.any():
                yield from map(_entry, batch.filter(pa.array(wanted)).to_pylist())

    def subjects(self, bucket: int, only: Collection[tuple[str, str]] | None = None) -> Iterator[Subject]:
        """The sound jobs of a bucket in the order of their numbers. ``only``: these, by scope and id."""
        voucher, sound = self._voucher(), self.judge(bucket)
        numbers, sizes = sound.numbers, sound.sizes
        if only is not None:
            wanted = np.isin(numbers, [voucher.number(job_id, scope) for scope, job_id in only])
            numbers, sizes = numbers[wanted], sizes[wanted]
        slabs = np.cumsum(sizes) // SLAB_BYTES
        for slab in np.unique(slabs):
            yield from _subjects(voucher, self._traces(bucket, numbers[slabs == slab]))

    def _traces(self, bucket: int, numbers: Any) -> pa.Table:
        """All traces of some sound jobs of a bucket: of one after the other the record, its places, and the rest."""
        rows = []
        for batch in read_bucket(self.files, bucket, self.buckets, WHOLE):
            wanted = _among(batch.column(0).to_numpy(), numbers)
            rows.append(batch if wanted.all() else batch.filter(pa.array(wanted)))
        table = pa.Table.from_batches(rows, SCHEMA)
        order = np.lexsort((table.column(NAMES.index("kind")).to_numpy(), table.column(0).to_numpy()))
        return table.take(pa.array(order))

    def _voucher(self) -> Voucher:
        return voucher_of(self.address, self.now_ms)


def _among(numbers: Any, those: Any) -> Any:
    """Whether each of the numbers is among those, which are in ascending order."""
    if not len(those):
        return np.zeros(len(numbers), bool)
    return those[np.minimum(np.searchsorted(those, numbers), len(those) - 1)] == numbers


def _subjects(voucher: Voucher, traces: pa.Table) -> Iterator[Subject]:
    """The subjects of sound jobs, of which these are all traces: each job has one record, which comes first."""
    kinds = traces.column(NAMES.index("kind")).to_numpy()
    starts = np.flatnonzero(kinds == RECORD)
    ends = np.append(starts[1:], len(kinds))
    middles = starts + 1 + np.add.reduceat(kinds == PLACE, starts, dtype=int)
    for first in range(0, len(starts), JOBS):
        those = slice(first, first + JOBS)
        begin, end = int(starts[those][0]), int(ends[those][-1])
        keys, indexes, scores, values = _cells(traces.slice(begin, end - begin))
        bounds = (column[those] - begin for column in (starts, middles, ends))
        for start, middle, stop in zip(*(column.tolist() for column in bounds), strict=True):
            places, rest = slice(start + 1, middle), slice(middle, stop)
            members = zip(keys[places], (text for (text,) in values[places]), scores[places], indexes[places], strict=True)
            attached = zip(keys[rest], values[rest], indexes[rest], strict=True)
            yield voucher.subject(
                keys[start],
                tuple(values[start]),
                starmap(Member, members),
                [Entry(key, TYPES[ATTACHED], lines, None, index) for key, lines, index in attached],
            )


def _cells(traces: pa.Table) -> tuple[list[bytes], list[int], list[float], list[list[bytes]]]:
    """Keys, indexes, scores and values; pyarrow's own ``to_pylist`` takes four times as long for lists."""
    keys, indexes, scores = (traces.column(name).to_pylist() for name in ("key", "index", "score"))
    lists = traces.column("values").combine_chunks()
    texts = lists.flatten().to_pylist()
    bounds = np.cumsum(np.append(0, lists.value_lengths().to_numpy())).tolist()
    return keys, indexes, scores, [texts[start:end] for start, end in pairwise(bounds)]


def _entry(cells: dict[str, Any]) -> Entry:
    """The entry behind a trace."""
    values = cells["values"]
    kind = TYPES[cells["kind"]]
    match kind:
        case "hash":
            value: Any = dict(zip(values[::2], values[1::2], strict=True))
        case "zset":
            value = [(values[0], cells["score"])]
        case _:
            value = values
    return Entry(cells["key"], kind, value, None, cells["index"] or 0)
