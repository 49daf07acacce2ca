"""Audit input: the jobs that are facts, which an audit looks at one by one, cut for its tasks.

Of a keyspace with a prefilter (key_rows.py) a hundredth of the jobs are facts. Spark takes a third of a second to join
them by job however few they are; up to some number of them, each task reads them all and keeps those of its own jobs. Called by
audit.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
from attrs import frozen
from pyarrow import parquet
from pyspark.sql import DataFrame

from .key_scan import round_to_cores
from .snapshot import JOB_KEY, Snapshot
from .step import Batches
from .tables import FACTS, ROWS

FACTS_A_TASK = 50_000
"""Where most jobs are no facts, fewer tasks than read them are enough for the others."""
MOST_FACTS = 250_000
MOST_BYTES = 64 << 20
"""Beyond this, facts are joined by Spark."""


@frozen
class AuditInput:
    """The jobs that are facts, for so many tasks."""

    tasks: int
    frame: DataFrame
    facts: Callable[[Batches], Batches]
    """The facts of the jobs of a task, those of one job in a row, by what its partition of ``frame`` holds."""


def input_of(snapshot: Snapshot) -> AuditInput:
    """The jobs of a snapshot that are facts, for as many tasks as they keep busy."""
    spark = snapshot.facts.spark
    files = [*snapshot.facts.files(), *(snapshot.mismatched.files() if snapshot.mismatched else ())]
    # A file has one row at least, with the summary of its task.
    found = {path: about for path, about in zip(files, map(parquet.read_metadata, files), strict=True) if about.num_rows > 1}
    rows = sum(each.num_rows for each in found.values())
    size = sum(each.row_group(group).total_byte_size for each in found.values() for group in range(each.num_row_groups))
    cores = int(spark.sparkContext.defaultParallelism)
    tasks = min(snapshot.tasks, round_to_cores(max(rows // FACTS_A_TASK, cores), cores))
    if snapshot.references or rows > MOST_FACTS or size > MOST_BYTES:
        return AuditInput(tasks, snapshot.subjects(partitions=tasks), lambda facts: facts)
    return AuditInput(tasks, spark.range(0, tasks, 1, tasks), _facts_task(list(found), tasks))


def _facts_task(files: Sequence[str], tasks: int) -> Callable[[Batches], Batches]:
    """What reads the facts of the tasks whose numbers it is given."""

    def find(rows: Batches) -> Batches:
        numbers = [number for row in rows for number in row.column("id").to_pylist()]
        facts = pa.Table.from_batches(_facts_of(files, tasks, numbers), FACTS.arrow)
        yield from facts.sort_by([(name, "ascending") for name in JOB_KEY]).to_batches(ROWS)

    return find


def _facts_of(files: Sequence[str], tasks: int, numbers: Sequence[int]) -> Batches:
    """The facts of the jobs of the tasks with these numbers."""
    for path in files:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(columns=FACTS.arrow.names):
                about_jobs = batch.filter(batch.column("job_id").is_valid())
                yield about_jobs.filter(pa.array(np.isin(_tasks_of(about_jobs.column("job_id"), tasks), numbers)))


def _tasks_of(ids: pa.Array, tasks: int) -> Any:
    """The task that looks at each of these jobs; the same for all with the same id."""
    found = ids.dictionary_encode()
    numbers = [crc32(job_id.encode()) % tasks for job_id in found.dictionary.to_pylist()]
    return np.array(numbers, int)[found.indices.to_numpy()]
