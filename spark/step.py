"""Step: one distributed step, whose tasks turn Arrow batches into rows of a table and one summary row each.

The results go to Parquet before anything reads them, so that a step runs once however often its results are looked at:
steps read servers and write to them. Tasks write the files themselves, since rows that pass through Java take longer there than
in Python. In the summary row (JSON: counts, totals) all columns but ``tail`` are null. Files of attempts that Spark does not
count have hidden names, so there is exactly one summary row for each task, whatever was retried. Called by the snapshot and the
engine.
"""

from __future__ import annotations

import contextlib
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyarrow as pa
from attrs import field, frozen
from pyarrow import parquet
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from ..migrations.engine import Progress, silent
from ..migrations.gc_paused import gc_paused
from .failures import located, spark_errors, work_errors
from .tables import ROWS, Table
from .worker import prepare_process

T = TypeVar("T")

Batches = Iterator[pa.RecordBatch]
SUMMARY = "tail"
"""The column of summaries: null in every other row."""
SUMMARY_FIELD = pa.field(SUMMARY, pa.string())
COMPLETE = "_SUCCESS"
"""A file in the folder of Parquet files, when all are there: Spark has the same."""
GROUP_BYTES = 8 << 20
"""Rows of a file that a reader decodes at once, about."""
POLL_SECONDS = 0.5
"""How often progress is asked for while Spark works: Java takes ten milliseconds for an answer."""
NUMBERS_A_TASK = 8
"""How many numbers a task of ``few_tasks`` has at most: what Java does for each task takes as long as two of them."""


@frozen
class Results(Generic[T]):
    """What a step has left in its folder."""

    spark: SparkSession = field(repr=False)
    table: Table[T]
    path: str

    def frame(self) -> DataFrame:
        """The rows."""
        return self._all().where(f"{SUMMARY} is null").drop(SUMMARY)

    def rows(self) -> Iterator[T]:
        """The rows, one task's after the other's. A few are in memory."""
        for batch in self._batches([*self.table.arrow.names, SUMMARY]):
            yield from self.table.rows(batch.filter(batch.column(SUMMARY).is_null()))

    def summaries(self) -> Iterator[str]:
        """The summaries of all tasks (JSON)."""
        for batch in self._batches([SUMMARY]):
            yield from batch.column(SUMMARY).drop_null().to_pylist()

    def files(self) -> list[str]:
        """The Parquet files."""
        return sorted(map(str, Path(self.path).glob("[!.]*.parquet")))

    def _all(self) -> DataFrame:
        return self.spark.read.schema(_ddl(self.table)).parquet(uri(self.path))

    def _batches(self, columns: list[str]) -> Batches:
        # Read here and not by Spark, for which each look would be a job of its own.
        with work_errors(self.path):
            for path in self.files():
                with parquet.ParquetFile(path) as file:
                    yield from file.iter_batches(ROWS, columns=columns)


def few_tasks(spark: SparkSession, numbers: int) -> DataFrame:
    """The numbers from 0 on, so many, for a step that takes little time for each: a task has several, as long as all cores do."""
    return spark.range(0, numbers, 1, min(numbers, max(spark.sparkContext.defaultParallelism, numbers // NUMBERS_A_TASK)))


def run_step(
    frame: DataFrame,
    task: Callable[[Batches], Batches],
    table: Table[T],
    path: str,
    phase: str,
    progress: Progress = silent,
    *,
    more: bool = False,
) -> Results[T]:
    """Runs ``task`` on every partition of ``frame``, and leaves what it yields, through ``with_summary``, in the folder ``path``.

    ``more``: beside what another step has left there. Raises the FerrymanError that a task has raised, when all its attempts
    have failed; it says which part failed, and where.
    """

    def write_partition(rows: Batches) -> str:
        with located(f"{phase}, part {TaskContext.get().partitionId() + 1}"), work_errors(path):
            return _write_parquet(path, table, task(rows))

    with work_errors(path):
        os.makedirs(path, exist_ok=more)
        for file in run_light_step(frame, write_partition, phase, progress):
            os.rename(os.path.join(path, f".{file}"), os.path.join(path, file))
        Path(path, COMPLETE).touch()
    return Results(frame.sparkSession, table, path)


def run_light_step(frame: DataFrame, task: Callable[[Batches], str], phase: str, progress: Progress = silent) -> list[str]:
    """Runs ``task`` on every partition of ``frame``, without files: the one text that each of them returns."""

    def run_partition(rows: Batches) -> Batches:
        prepare_process()
        with gc_paused(), work_errors("the folder of --work"):
            yield pa.RecordBatch.from_arrays([pa.array([task(rows)])], ["answer"])

    texts: list[str] = []
    results = frame.mapInArrow(run_partition, "answer string")
    run_action(frame.sparkSession, lambda: texts.extend(row.answer for row in results.collect()), phase, progress)
    return texts


def _write_parquet(path: str, table: Table[Any], batches: Batches) -> str:
    """Writes a file in the folder under a name that Spark does not read: the name with a dot before it."""
    name = f"{uuid.uuid4()}.parquet"
    file = Path(path, f".{name}")
    try:
        with parquet.ParquetWriter(file, table.arrow.append(SUMMARY_FIELD)) as writer:
            for group in _row_groups(batches):
                writer.write_table(pa.Table.from_batches(group))
    except BaseException:
        file.unlink(missing_ok=True)
        raise
    return name


def _row_groups(batches: Batches) -> Iterator[list[pa.RecordBatch]]:
    """The batches, as many together as Parquet should keep together."""
    group: list[pa.RecordBatch] = []
    for batch in batches:
        group.append(batch)
        if sum(each.nbytes for each in group) >= GROUP_BYTES:
            yield group
            group = []
    if group:
        yield group


def with_summary(batches: Batches, table: Table[T], summary: Callable[[], str]) -> Batches:
    """The batches of a task with the column ``tail``, and its summary row, asked for when all else is done."""
    schema = table.arrow.append(SUMMARY_FIELD)
    for batch in batches:
        yield pa.RecordBatch.from_arrays([*batch.columns, pa.nulls(batch.num_rows, pa.string())], schema=schema)
    cells = [pa.nulls(1, column.type) for column in table.arrow]
    yield pa.RecordBatch.from_arrays([*cells, pa.array([summary()], pa.string())], schema=schema)


def run_action(spark: SparkSession, action: Callable[[], Any], phase: str, progress: Progress = silent) -> None:
    """Runs an action, telling how many of its tasks are done, and stops its tasks when the caller is interrupted.

    Spark finds out step by step what is to do, so each step is a phase of its own: ``phase``, then ``phase, step 2``.
    """
    context = spark.sparkContext
    group = f"ferryman-{uuid.uuid4()}"

    def work() -> None:
        context.setJobGroup(group, phase)
        context.setLocalProperty("spark.scheduler.pool", phase)  # those of one pool come one after the other
        with spark_errors():
            action()

    with ThreadPoolExecutor(1) as pool:
        doing: Future[None] = pool.submit(work)
        try:
            while not wait([doing], POLL_SECONDS).done:
                steps = list(_steps(context, group, phase))
                if not steps:
                    progress(phase, 0, None)
                for step, done, total in steps:
                    progress(step, done, total)
        except BaseException:
            # A job that Spark has not begun yet can't be cancelled: it must be caught when it begins.
            while not wait([doing], POLL_SECONDS).done:
                context.cancelJobGroup(group)
            raise
        doing.result()
        for step, _, total in _steps(context, group, phase):
            progress(step, total, total)


class Cancelled(Exception):
    """Raised in a thread that nobody waits for any more."""


@contextlib.contextmanager
def in_background(work: Callable[[Progress], T], progress: Progress = silent) -> Iterator[tuple[Future[T], Progress]]:
    """Does ``work`` in a thread of its own, so that Spark has tasks of two steps when one has too few; ends when both have.

    Gives what it will return, and the progress for the block to tell: that raises the error of the work as soon as there is one.
    The work's own is shown once the block has nothing more to tell, and stops the work when the block fails.
    """
    is_over = threading.Event()
    latest: list[tuple[str, int, int | None]] = []

    def of_work(phase: str, done: int, total: int | None) -> None:
        latest[:] = [(phase, done, total)]
        if is_over.is_set():
            raise Cancelled

    with ThreadPoolExecutor(1) as pool:
        doing = pool.submit(work, of_work)

        def of_block(phase: str, done: int, total: int | None) -> None:
            if doing.done():
                doing.result()
            progress(phase, done, total)

        try:
            yield doing, of_block
            while not wait([doing], POLL_SECONDS).done:
                for each in latest:
                    progress(*each)
        except BaseException:
            is_over.set()
            raise


def _steps(context: Any, group: str, phase: str) -> Iterator[tuple[str, int, int]]:
    """The steps of a group of jobs that have begun: name, tasks done, all tasks."""
    tracker = context.statusTracker()
    for number, job in enumerate(sorted(tracker.getJobIdsForGroup(group)), 1):
        info = tracker.getJobInfo(job)
        stages = [stage for stage in map(tracker.getStageInfo, sorted(info.stageIds if info else ())) if stage]
        begun = [stage for stage in stages if stage.numActiveTasks or stage.numCompletedTasks]
        # What stands before them and has not begun never will: an earlier job has left its results.
        counted = begun + [stage for stage in stages if not begun or stage.stageId > begun[-1].stageId]
        total = sum(stage.numTasks for stage in counted)
        if total:
            yield phase if number == 1 else f"{phase}, step {number}", sum(stage.numCompletedTasks for stage in counted), total


def uri(path: str) -> str:
    """The name for Spark of a path that all executors share; without the scheme it may be one of a cluster's own file system."""
    return f"file://{Path(path).absolute()}"  # Hadoop's paths are not percent-encoded


def _ddl(table: Table[Any]) -> str:
    return f"{table.ddl}, {SUMMARY} string"
