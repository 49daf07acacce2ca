"""Frames: a keyspace as DataFrames, for work of one's own on it.

    from ferryman.spark.frames import read
    keyspace = read(spark, "ferryman://localhost:6379/0?family=kue")
    keyspace.jobs().groupBy("queue", "state").count().show()

The server is read once, by parallel tasks, when ``read`` is called: all tables show the same moment, and asking them again
costs the server nothing. They read Parquet files in a folder.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from typing import Any

from attrs import field, frozen
from pyspark.sql import DataFrame, SparkSession

from ..migrations.engine import audit, listing, storage
from ..migrations.engine.file_snapshot import FileSnapshot, take
from ..migrations.engine.key_scan import task_count
from ..migrations.engine.output import Results
from ..migrations.engine.step import RowsInFiles
from ..migrations.engine.tables import FACTS, FINDINGS, Table, batches
from ..migrations.source import open_source
from ..schema.connection.address import Address
from ..schema.errors import UsageError
from . import preflight
from .runner import Batches, SparkRunner


@frozen
class Frames:
    """The tables of one keyspace at one moment."""

    spark: SparkSession = field(repr=False)
    snapshot: FileSnapshot
    folder: str

    def facts(self) -> DataFrame:
        """What each key states."""
        facts, tasks = self.snapshot.facts, self.snapshot.tasks

        def read_buckets(rows: Batches) -> Batches:
            for bucket in (bucket for row in rows for bucket in row.column("id").to_pylist()):
                yield from batches(FACTS, facts.all(bucket))

        return self.spark.range(0, tasks, 1, tasks).mapInArrow(read_buckets, FACTS.ddl)

    def jobs(self) -> DataFrame:
        """Every job that has a record."""
        return self._frame(listing.jobs(self.snapshot, self._path("jobs")))

    def findings(self) -> DataFrame:
        """Every broken rule."""
        found = self._frame(audit.findings(self.snapshot, self._path("findings")))
        batch = FINDINGS.batch(audit.of_keyspace(self.snapshot))
        return found.unionByName(self.spark.createDataFrame(batch.to_pylist(), FINDINGS.ddl))

    def _frame(self, results: Results[Any]) -> DataFrame:
        """The rows of a step. Paths get a scheme: without it one may be of a cluster's own file system."""
        assert isinstance(results, RowsInFiles), "a FileSnapshot's"
        read = self.spark.read.schema(results.table.ddl)
        return (
            read.parquet(*(f"file://{path}" for path in results.files)) if results.files else _nothing(self.spark, results.table)
        )

    def _path(self, table: str) -> str:
        return tempfile.mkdtemp(prefix=f"{table}-", dir=self.folder) + "/table"


def _nothing(spark: SparkSession, table: Table[Any]) -> DataFrame:
    return spark.createDataFrame([], table.ddl)


def read(spark: SparkSession, url: str, now_ms: int | None = None, work: str | None = None) -> Frames:
    """Reads the keyspace at ``url``.

    ``now_ms``: the moment that rules compare with, by default the server's clock. ``work``: the folder for the files, which all
    executors must be able to reach; by default a temporary one on this machine that goes when the process ends.
    Raises UsageError for a wrong URL, KeyspaceNotFound where no key of the keyspace exists, ServerError when the server fails.
    """
    if work is not None and storage.is_url(work):
        raise UsageError(f"{work}: tables are in files that Spark itself reads: let work name a path that all executors have")
    address = Address.parse(url)
    with open_source(address) as source:
        now = source.clock_ms() if now_ms is None else now_ms
    folder = tempfile.mkdtemp(prefix="ferryman-", dir=work)
    if work is None:
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    preflight.check(spark, folder)
    # Who asks for facts wants those of all jobs.
    snapshot = take(SparkRunner(spark), address, now, storage.join(folder, "facts"), task_count(address), prefiltering=False)
    snapshot.require_content()
    return Frames(spark, snapshot, folder)
