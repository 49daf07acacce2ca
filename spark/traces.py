"""Traces: what a Sifting (migrations/sifting.py) remembers, for keyspaces of any size.

    entries -> vouched for: a trace of each place claimed or found, in Parquet files that the tasks write themselves
            -> all others: facts, and a trace of doubt
    traces  -> by job: XOR of all marks -> suspects -> their traces become facts after all

A trace holds what its key says about one job as an entry of its own, so that the family's own reader makes the facts, and no
live server has to be read twice. tests/spark/test_traces.py. Called by snapshot.py.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import SparkSession, functions

from ..migrations.engine import Census, Progress
from ..migrations.intake import Outline
from ..migrations.sifting import Sifting, voucher_of
from ..schema.address import Address
from ..schema.fact import Entry, Fact
from ..schema.family import get_family
from ..schema.voucher import Home, Sound, Standing
from .stage import Batches, Results, closing, run
from .tables import FACTS, Column, Table, batches, fact_bytes

RECORD, PLACE, ATTACHED, DOUBT = 1, 2, 4, 8
"""What a trace is of; of a job with the bit of doubt, facts tell that no trace does."""

COLUMNS = {
    "number": pa.int64(),
    "kind": pa.int32(),
    "mark": pa.int64(),
    "home": pa.int64(),
    "created_at": pa.int64(),
    "key": pa.binary(),
    "redis_type": pa.string(),
    "index": pa.int64(),
    "score": pa.float64(),
    "values": pa.list_(pa.field("element", pa.binary())),
}
SCHEMA = pa.schema(list(COLUMNS.items()))
DDL = (
    "number bigint, kind int, mark bigint, home bigint, created_at bigint, "
    "key binary, redis_type string, index bigint, score double, values array<binary>"
)

ROWS = 10_000
BYTES = 8 << 20
MOST_ATTACHED = 1_000
"""When traces go to the file. A log has up to a thousand lines."""


class Tracing(Sifting):
    """Leaves the traces of what it remembers in a file in ``folder``."""

    def __init__(self, address: Address, now_ms: int, folder: str) -> None:
        super().__init__(address, now_ms)
        self._records = _Records(self.voucher.width)
        self._attached: list[tuple[int, Entry]] = []
        self._doubts: list[int] = []
        self._path = os.path.join(folder, f"{uuid.uuid4()}.parquet")
        self._file: parquet.ParquetWriter | None = None

    def close(self) -> Outline:
        self._flush()
        self._write_doubts()
        outline = self._outline
        if self._file is not None:
            self._file.close()
            outline.files.append(self._path)
        return outline

    def add_record(self, number: int, sound: Sound, entry: Entry) -> None:
        self._records.add(number, sound, entry)
        if self._records.are_many:
            self._flush()

    def add_standing(self, entry: Entry, standing: Standing, known: Sequence[int]) -> None:
        for start in range(0, len(known), ROWS):
            self._write(_standing(entry, standing, known[start : start + ROWS]))

    def add_attached(self, number: int, entry: Entry) -> None:
        self._attached.append((number, entry))
        if len(self._attached) >= MOST_ATTACHED:
            self._flush()

    def add_doubt(self, number: int) -> None:
        self._doubts.append(number)
        if len(self._doubts) >= ROWS:
            self._write_doubts()

    def _flush(self) -> None:
        records = self._records
        if records.numbers:
            self.voucher.tally_vouched(records.numbers, self._outline.totals)
            self._outline.homes.update((home.mark, (home.queue, str(home.state))) for home in records.homes)
            self._write(records.batch())
            self._records = _Records(self.voucher.width)
        if self._attached:
            self._write(_attached(self._attached))
            self._attached = []

    def _write_doubts(self) -> None:
        if self._doubts:
            numbers = list(dict.fromkeys(self._doubts))
            self._write(_batch(len(numbers), number=pa.array(numbers, pa.int64()), kind=_same(DOUBT, len(numbers), pa.int32())))
            self._doubts = []

    def _write(self, batch: pa.RecordBatch) -> None:
        if self._file is None:
            self._file = parquet.ParquetWriter(
                self._path, SCHEMA, compression="lz4", use_dictionary=["redis_type"], write_statistics=False
            )
        self._file.write_batch(batch)


class _Records:
    """Vouched records on their way to the file."""

    def __init__(self, width: int) -> None:
        self._width = width
        self.numbers: list[int] = []
        self.homes: dict[Home, int] = {}
        self._at_home: list[int] = []
        self._scores: list[float] = []
        self._created_at: list[int] = []
        self._keys: list[bytes] = []
        self._ends = [0]
        self._values: list[bytes] = []
        self._size = 0

    def add(self, number: int, sound: Sound, entry: Entry) -> None:
        """One record."""
        home, scores, created_at = sound
        self.numbers.append(number)
        self._at_home.append(self.homes.setdefault(home, len(self.homes)))
        self._scores.extend(scores)
        self._created_at.append(created_at)
        self._keys.append(entry.key)
        self._values.extend(chain.from_iterable(entry.value.items()))
        self._size += sum(map(len, entry.value.values()))
        self._ends.append(len(self._values))

    @property
    def are_many(self) -> bool:
        """Whether they are to be written now."""
        return len(self.numbers) >= ROWS or self._size >= BYTES

    def batch(self) -> pa.RecordBatch:
        """Their traces; each has the marks of all places that it claims."""
        at_home, rows = np.array(self._at_home), len(self.numbers)
        bases = np.array([[place.base for place in home.places] for home in self.homes], np.uint64)
        factors = np.array([[place.factor for place in home.places] for home in self.homes], np.uint64)
        homes = np.array([home.mark for home in self.homes], np.int64)
        marks = _marks(bases[at_home], factors[at_home], np.array(self._scores).reshape(rows, self._width))
        return _batch(
            rows,
            number=pa.array(self.numbers, pa.int64()),
            kind=_same(RECORD, rows, pa.int32()),
            mark=pa.array(np.bitwise_xor.reduce(marks, axis=1).view(np.int64)),
            home=pa.array(homes[at_home]),
            created_at=pa.array(self._created_at, pa.int64()),
            key=pa.array(self._keys, pa.binary()),
            redis_type=_same("hash", rows, pa.string()),
            index=_same(0, rows, pa.int64()),
            values=_lists(self._ends, self._values),
        )


def _standing(entry: Entry, standing: Standing, which: Sequence[int]) -> pa.RecordBatch:
    """The traces of some members of a place."""
    items = entry.value if len(which) == len(entry.value) else [entry.value[index] for index in which]
    members, scores = zip(*items, strict=True)
    rows = len(which)
    array = np.array(scores, np.float64)
    marks = _marks(np.uint64(standing.place.base), np.uint64(standing.place.factor), array)
    return _batch(
        rows,
        number=pa.array([standing.numbers[index] for index in which], pa.int64()),
        kind=_same(PLACE, rows, pa.int32()),
        mark=pa.array(marks.view(np.int64)),
        key=_same(entry.key, rows, pa.binary()),
        redis_type=_same(entry.redis_type, rows, pa.string()),
        index=pa.array(np.array(which) + entry.offset),
        score=pa.array(array),
        values=_lists(range(rows + 1), members),
    )


def _attached(those: Sequence[tuple[int, Entry]]) -> pa.RecordBatch:
    """The traces of keys that belong to jobs."""
    entries = [entry for _, entry in those]
    return _batch(
        len(those),
        number=pa.array([number for number, _ in those], pa.int64()),
        kind=_same(ATTACHED, len(those), pa.int32()),
        key=pa.array([entry.key for entry in entries], pa.binary()),
        redis_type=pa.array([entry.redis_type for entry in entries], pa.string()),
        index=pa.array([entry.offset for entry in entries], pa.int64()),
        values=pa.array([entry.value for entry in entries], COLUMNS["values"]),
    )


def _marks(bases: Any, factors: Any, scores: Any) -> Any:
    """``Place.mark`` for whole arrays; no score of a zset is NaN."""
    with np.errstate(over="ignore"):
        return bases + (scores + 0.0).view(np.uint64) * factors


def _same(value: Any, rows: int, kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), rows)


def _lists(ends: Sequence[int], items: Sequence[bytes]) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(items, pa.binary()), type=COLUMNS["values"])


def _batch(rows: int, **arrays: pa.Array) -> pa.RecordBatch:
    """The columns that are given; a mark that is not is 0, all else null."""
    arrays.setdefault("mark", _same(0, rows, pa.int64()))
    return pa.RecordBatch.from_arrays(
        [arrays[name] if name in arrays else pa.nulls(rows, kind) for name, kind in COLUMNS.items()], schema=SCHEMA
    )


# From traces to suspects


NUMBERS: Table[int] = Table("numbers", int, (Column("number", "bigint", pa.int64()),))
"""Jobs by their number."""


def suspects(
    spark: SparkSession, address: Address, now_ms: int, outline: Outline, folder: str, tasks: int, progress: Progress
) -> tuple[Results[Fact], Census]:
    """The facts that traces hold of the jobs at which the rules must look, and how many others there are."""
    traces = spark.read.schema(DDL).parquet(*outline.files) if outline.files else spark.createDataFrame([], DDL)
    by_job = traces.groupBy("number").agg(
        functions.bit_xor("mark").alias("mark"),
        functions.bit_or("kind").alias("kinds"),
        functions.max("home").alias("home"),
        functions.max("created_at").alias("created_at"),
    )
    voucher = voucher_of(address, now_ms)
    unsettled = [mark for mark, (queue, _) in outline.homes.items() if not voucher.is_settled(queue, outline.totals)]
    task = _judging(outline.homes, unsettled, now_ms)
    chosen = run(by_job, task, NUMBERS, f"{folder}/numbers", "comparing places", progress)
    sound = Census()
    for word in chosen.tails():
        sound.merge(Census.from_json(word))
    held = traces.where("key is not null").join(chosen.frame(), "number", "left_semi")
    columns = held.select("key", "redis_type", "index", "score", "values").coalesce(tasks)
    return run(columns, _remaking(address), FACTS, f"{folder}/facts", "reading suspects", progress), sound


def _judging(homes: Mapping[int, tuple[str, str]], unsettled: Sequence[int], now_ms: int) -> Callable[[Batches], Batches]:
    """The task that tells suspects, by the traces of each job, and counts the others."""

    def judge(rows: Batches) -> Batches:
        sound = Census()

        def numbers() -> Batches:
            for batch in rows:
                mark, kinds = (batch.column(name).to_numpy() for name in ("mark", "kinds"))
                home, created_at = (batch.column(name).fill_null(0).to_numpy() for name in ("home", "created_at"))
                vouched = (mark == 0) & (kinds & RECORD != 0) & (kinds & DOUBT == 0) & ~np.isin(home, unsettled)
                for each in np.unique(home[vouched]).tolist():
                    sound.count_created(*homes[each], created_at[vouched & (home == each)].tolist(), now_ms)
                yield pa.RecordBatch.from_arrays([batch.column("number").filter(pa.array(~vouched))], schema=NUMBERS.arrow)

        yield from closing(numbers(), NUMBERS, sound.to_json)

    return judge


def _remaking(address: Address) -> Callable[[Batches], Batches]:
    """The task that makes facts of traces."""

    def remake(rows: Batches) -> Batches:
        family = get_family(address.family)
        entries = (_entry(cells) for batch in rows for cells in batch.to_pylist())
        facts = (fact for entry in entries for fact in family.facts(entry, address.prefix))
        yield from closing(batches(FACTS, facts, fact_bytes), FACTS, str)

    return remake


def _entry(cells: Mapping[str, Any]) -> Entry:
    """The entry behind a trace."""
    values = cells["values"]
    match cells["redis_type"]:
        case "hash":
            value: Any = dict(zip(values[::2], values[1::2], strict=True))
        case "zset":
            value = [(values[0], cells["score"])]
        case _:
            value = values
    return Entry(cells["key"], cells["redis_type"], value, None, cells["index"])
