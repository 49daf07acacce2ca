"""Publish: a DataFrame of jobs published to queues in use, each job once for each batch, whatever Spark repeats.

    mended.write.format("ferryman").option("batch", "mended-2026-11-27").mode("append").save("ferryman://…")
    mended.writeStream.format("ferryman").option("checkpointLocation", "…").start("ferryman://…")

A batch has a name; that of a stream's micro-batch is made of the query's id, which its checkpoint keeps, and the number of the
micro-batch. The server remembers for each queue what a batch has stored, in the transaction that stores it
(``QueueScripts.publish_batch``): a task that is tried again, two attempts of one, a micro-batch or a query that is run again
store nothing twice, in whatever order and partitions the rows come. A batch that is complete takes nothing more. A dead letter of
the same id makes room for what is published in its place. Called by source.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

import pyarrow as pa
from attrs import frozen
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema

from ..migrations.engine.tables import job_bytes
from ..migrations.store import Store, open_store
from ..schema.connection.address import DEFAULT_FAMILY, Address, Kind
from ..schema.errors import MalformedValue, ServerError, UsageError
from ..schema.job import Job
from ..schema.native.publishing import publication_of
from ..schema.native.scripts.publication import Publication, check_name
from ..schema.native.scripts.queue_scripts import QueueScripts
from ..schema.text import show
from .job_frame import check_schema, jobs_of

logger = logging.getLogger(__name__)

CHUNK_JOBS = 200
CHUNK_BYTES = 1 << 20
"""A call stores this many jobs, or bytes of payloads: some milliseconds of the server's time."""
QUERY, MICRO_BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""Spark's local properties of a task that belongs to a stream."""
SHOWN = 10
"""Ids in a warning."""
ROWS = 1_000
"""Rows that a stream hands over one by one make batches of so many."""


@frozen
class Published(WriterCommitMessage):  # type: ignore[misc]
    """What one task has published."""

    batch: str
    queues: frozenset[str]
    standing: tuple[str, ...]
    """Ids of jobs that stand in their queues by somebody else's doing and have not died, so that these were not published."""


@frozen
class Publisher:
    """Publishes jobs to the queues of one keyspace. Travels to the tasks."""

    address: Address
    remember_ms: int
    """For how long the server remembers what a batch has stored, since it last stored something."""

    @classmethod
    def begin(cls, address: Address, schema: Any, remember_ms: int) -> Publisher:
        """Checks the frame's schema and the address. Raises UsageError."""
        check_schema(to_arrow_schema(schema))
        if address.family != DEFAULT_FAMILY or address.kind is Kind.RDB:
            raise UsageError(
                f"{address.display()}: jobs are published to ferryman's own queues on a server; jobs of other systems are "
                "written without option 'batch'"
            )
        return cls(address, remember_ms)

    @property
    def scripts(self) -> QueueScripts:
        return QueueScripts(self.address.prefix)

    def publish(self, batch: str, batches: Iterable[pa.RecordBatch]) -> Published:
        """Publishes the rows of one task. Raises UsageError that names a job or queue at fault, and ServerError."""
        queues: set[str] = set()
        standing: list[str] = []
        with open_store(self.address) as store:
            for queue, jobs in _chunks(jobs_of(batches)):
                standing += self._send(store, batch, queue, jobs)
                queues.add(queue)
        return Published(batch, frozenset(queues), tuple(standing))

    def _send(self, store: Store, batch: str, queue: str, jobs: Sequence[Job]) -> list[str]:
        call = self.scripts.publish_batch(queue, batch, list(map(_publication, jobs)), self.remember_ms)
        published = call.parse(store.ask([call.eval()])[0])
        match published.status:
            case "stored":
                return [job.id for job, stands in zip(jobs, published.standing, strict=True) if stands]
            case "missing":
                raise UsageError(
                    f"there is no queue {show(queue)}; declare it first, as a worker does, or mend the column 'queue'"
                )
            case _:
                raise ServerError(
                    f"queue {show(queue)} is at its greatest length and rejects more; make room there, then write the same batch "
                    "again: what it has stored is not stored twice"
                )

    def complete(self, messages: Sequence[Published | None]) -> None:
        """Remembers that the batch is complete, for less room than its ids take."""
        done = sorted({(each.batch, queue) for each in messages if each is not None for queue in each.queues})
        with open_store(self.address) as store:
            for batch, queue in done:
                store.ask([self.scripts.complete_batch(queue, batch, self.remember_ms).words])
        standing = [job_id for each in messages if each is not None for job_id in each.standing]
        if standing:
            some = ", ".join(map(show, standing[:SHOWN])) + (", …" if len(standing) > SHOWN else "")
            logger.warning(
                "%d jobs were not published, since they stand in their queues and are not dead: %s", len(standing), some
            )


@frozen
class PublishWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Publishes one DataFrame as a batch whose name the user gives."""

    publisher: Publisher
    batch: str

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        return self.publisher.publish(self.batch, iterator)

    def commit(self, messages: Sequence[Published | None]) -> None:
        self.publisher.complete(messages)

    def abort(self, messages: Sequence[Published | None]) -> None:
        """What is published stays, and the batch remembers it: written again, it goes on."""


@frozen
class PublishStreamWriter(DataSourceStreamWriter):  # type: ignore[misc]
    """Publishes each micro-batch of a query as a batch."""

    publisher: Publisher
    schema: pa.Schema

    def write(self, iterator: Iterator[Any]) -> Published:
        return self.publisher.publish(_micro_batch(), _batches(iterator, self.schema))

    def commit(self, messages: Sequence[Published | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        self.publisher.complete(messages)

    def abort(self, messages: Sequence[Published | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """As for a DataFrame: Spark runs the micro-batch again."""


def publish_writer(address: Address, schema: Any, batch: str, remember_ms: int) -> PublishWriter:
    """The writer of one DataFrame. Raises UsageError."""
    return PublishWriter(Publisher.begin(address, schema, remember_ms), check_name(batch, "batch"))


def publish_stream_writer(address: Address, schema: Any, remember_ms: int) -> PublishStreamWriter:
    """The writer of a query. Raises UsageError."""
    return PublishStreamWriter(Publisher.begin(address, schema, remember_ms), to_arrow_schema(schema))


def _micro_batch() -> str:
    """The name of the micro-batch to which this task belongs: the same whenever it is run again from its checkpoint."""
    context = TaskContext.get()
    query, number = (context.getLocalProperty(name) if context else None for name in (QUERY, MICRO_BATCH))
    if not query or not number:
        raise UsageError(
            "this Spark does not tell tasks their micro-batch; use foreachBatch, and write each DataFrame with option 'batch'"
        )
    return f"{query}-{number}"


def _batches(rows: Iterator[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    some: list[dict[str, Any]] = []
    for row in rows:
        some.append(row.asDict())
        if len(some) == ROWS:
            yield pa.RecordBatch.from_pylist(some, schema=schema)
            some = []
    if some:
        yield pa.RecordBatch.from_pylist(some, schema=schema)


def _chunks(jobs: Iterable[Job]) -> Iterator[tuple[str, list[Job]]]:
    """Jobs of one queue that go in one call."""
    for queue, those in groupby(jobs, attrgetter("queue")):
        chunk: list[Job] = []
        size = 0
        for job in those:
            chunk.append(job)
            size += job_bytes(job)
            if len(chunk) == CHUNK_JOBS or size >= CHUNK_BYTES:
                yield queue, chunk
                chunk, size = [], 0
        if chunk:
            yield queue, chunk


def _publication(job: Job) -> Publication:
    if not (job.id and job.queue):
        raise UsageError("a job has an empty id or queue; every job needs both")
    try:
        return publication_of(job)
    except MalformedValue as error:
        raise UsageError(f"job {show(job.id)} can't be published: {error}; leave it out, or mend it") from None
