"""Sink: writes a DataFrame of jobs to a keyspace, through the family's writer and in fenced batches.

The frame has the columns of the table ``jobs``, of which ``id``, ``queue``, ``name`` and ``state`` must be there and the others
may be missing. Jobs are added; a job whose id is there already is replaced. Active jobs are stored as waiting ones, since
nobody would finish them. A job that the family can't express fails the write by name, unless option ``lossy`` is true and the
loss is a small one. After the commit, or an abort, no task that lives on can write any more. Called by source.py.

A task that is tried again goes on where it stood; for that its rows must come in the same order again, as they do from files
and from sorted partitions. Where they don't, the write fails rather than storing a job twice.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from attrs import frozen
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema

from ..migrations.packed_jobs import identity
from ..migrations.partition_writer import open_partition, send
from ..migrations.plan import leaving
from ..migrations.probes import clock_ms
from ..migrations.run import Run
from ..migrations.store import ServerStore
from ..schema.connection.address import Address
from ..schema.connection.connect import open_client
from ..schema.errors import MigrationRefused, UsageError
from ..schema.family import Target
from ..schema.job import Job
from ..schema.rule import Severity
from ..schema.text import show
from ..schema.totals import Totals
from .job_frame import check_schema, jobs_of


@frozen
class Written(WriterCommitMessage):  # type: ignore[misc]
    """What one task has stored."""

    totals: str


def begin(address: Address, schema: Any, *, lossy: bool) -> Sink:
    """Checks the frame's schema and opens the target for one write. Raises UsageError naming the column at fault."""
    check_schema(to_arrow_schema(schema))
    run = Run(secrets.token_hex(8), 1)
    with open_client(address) as client:
        client.hset(
            run.key, mapping={"state": "running", "run": run.token, "source": "a Spark DataFrame", "target": address.display()}
        )
        return Sink(address, run, Target(address.prefix, clock_ms(client)), lossy)


@frozen
class Sink(DataSourceArrowWriter):  # type: ignore[misc]
    """One write. Travels to the tasks."""

    address: Address
    run: Run
    target: Target
    lossy: bool

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Stores the rows of one partition."""
        family = self.address.key_family
        name = str(TaskContext.get().partitionId())
        totals = Totals()
        with open_client(self.address) as client, open_partition(ServerStore(client), self.run, name) as writer:
            try:
                for row in jobs_of(iterator):
                    job = leaving(row, family.name, self.target.now_ms)
                    self._check(job)
                    family.tally_written(job, totals)
                    writer.put(identity(job), family.write(job, self.target))
                writer.close()
            except MigrationRefused as error:
                raise UsageError(
                    f"partition {name} came in another order when its task was tried again; "
                    "sort it before writing: .sortWithinPartitions('queue', 'id')"
                ) from error
        return Written(totals.to_json())

    def commit(self, messages: Sequence[Written]) -> None:
        """Stores what belongs to no single job, once, and forgets the write."""
        totals = Totals()
        for message in messages:
            totals.merge(Totals.from_json(message.totals))
        with open_client(self.address) as client:
            send(ServerStore(client), self.run, self.address.key_family.finish(self.target, totals))
        self._forget(len(messages))

    def abort(self, messages: Sequence[Written | None]) -> None:
        """Shuts out tasks that live on. What is stored already stays; the same write done again completes it."""
        self._forget(len(messages))

    def _forget(self, count: int) -> None:
        with open_client(self.address) as client:
            client.delete(self.run.key, *(self.run.partition_key(str(index)) for index in range(count)))

    def _check(self, job: Job) -> None:
        for finding in self.address.key_family.incompatibilities(job):
            if finding.severity is Severity.ERROR or not self.lossy:
                remedy = "leave it out" if finding.severity is Severity.ERROR else "leave it out, or set option lossy=true"
                raise UsageError(f"job {show(job.id)} can't be stored: {finding.detail}; {remedy}")
