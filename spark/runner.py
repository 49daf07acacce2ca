"""SparkRunner: does the parts of a step as Spark's tasks, which Spark tries again where they fail.

Nothing but numbers goes to tasks, and nothing but summaries comes back: rows are in files that the tasks themselves read and
write, since rows that pass through Java take longer there than in Python. Called by the engine and by frames.py.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

import pyarrow as pa
from attrs import frozen
from pyspark.sql import SparkSession

from ..migrations.engine import Progress, silent
from ..migrations.engine.background import in_background
from ..migrations.engine.failures import located, work_errors
from ..migrations.engine.runner import Task, part_name
from ..migrations.engine.worker import prepare_process
from ..migrations.gc_paused import gc_paused
from .failures import spark_errors

S = TypeVar("S")
T = TypeVar("T")

Batches = Iterator[pa.RecordBatch]
POLL_SECONDS = 0.5
"""How often progress is asked for while Spark works: Java takes ten milliseconds for an answer."""
PARTS_A_TASK = 8
"""How many light parts a task has at most: what Java does for each task takes as long as two of them."""


@frozen
class SparkRunner:
    """See Runner. ``spark``: the session."""

    spark: SparkSession

    @property
    def cores(self) -> int:
        """See Runner.cores."""
        return int(self.spark.sparkContext.defaultParallelism)

    def run(self, task: Task, parts: int, phase: str, progress: Progress = silent, *, light: bool = False) -> list[str]:
        """See Runner.run."""
        if not parts:
            return []

        def do_parts(rows: Batches) -> Batches:
            prepare_process()
            with gc_paused(), work_errors("the folder of --work"):
                for part in (part for row in rows for part in row.column("id").to_pylist()):
                    with located(part_name(phase, part)):
                        yield pa.RecordBatch.from_arrays([pa.array([part]), pa.array([task(part)])], ["part", "answer"])

        tasks = min(parts, max(self.cores, parts // PARTS_A_TASK)) if light else parts
        results = self.spark.range(0, parts, 1, tasks).mapInArrow(do_parts, "part bigint, answer string")
        answers: dict[int, str] = {}
        run_action(self.spark, lambda: answers.update((row.part, row.answer) for row in results.collect()), phase, progress)
        return [answers[part] for part in range(parts)]

    def together(self, first: Callable[[Progress], S], second: Callable[[Progress], T], progress: Progress) -> tuple[S, T]:
        """See Runner.together: Spark has tasks of two steps when one has too few."""
        with in_background(second, progress) as (other, block_progress):
            found = first(block_progress)
        return found, other.result()


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
