"""Job selection: some jobs of a snapshot that a second step looks at again.

As a table for jobs that are facts, and as a file for each partition for those that are none. Called by comparison.py.
"""

from __future__ import annotations

from pathlib import Path

from attrs import field, frozen
from pyarrow import parquet
from pyspark.sql import DataFrame

from .step import uri
from .tables import decode_text


@frozen
class JobSelection:
    """The selected jobs, in a folder."""

    frame: DataFrame = field(repr=False)
    """The columns ``scope`` and ``job_id``."""
    path: str


def select_jobs(jobs: DataFrame, path: str) -> JobSelection:
    """Jobs by the columns ``scope``, ``job_id`` and ``part``: the partition of ``Snapshot.work`` to which they belong."""
    jobs.repartition("part").write.partitionBy("part").parquet(uri(path))
    return JobSelection(jobs.sparkSession.read.schema("scope string, job_id string, part string").parquet(uri(path)), path)


def selected_ids(path: str, partition: str) -> frozenset[tuple[str, str]]:
    """The scopes and ids of the selected jobs of a partition."""
    folder = Path(path, f"part={partition}")
    if not folder.exists():
        return frozenset()
    scopes, ids = (
        map(decode_text, column.to_pylist()) for column in parquet.read_table(folder, columns=["scope", "job_id"]).columns
    )
    return frozenset((scope or "", job_id or "") for scope, job_id in zip(scopes, ids, strict=True))
