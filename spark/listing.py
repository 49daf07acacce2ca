"""Listing: the jobs of a snapshot as a table, in the order in which ``ferryman jobs`` shows them, and counted by queue.

Called by the engine and by frames.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from pyspark.sql import Column, functions

from ..migrations.queues import QueueStatus, counted, statuses
from ..schema.job import Job, State
from .jobs import Jobs
from .snapshot import Snapshot, Work
from .step import Batches, Results, with_summary
from .tables import JOBS, batches, encode_text, job_bytes


def jobs(snapshot: Snapshot, path: str) -> Results[Job]:
    """Every job of a snapshot that has a record, as a table in the folder ``path``."""
    return snapshot.work(_read_work, JOBS, path, "reading jobs")


def list_jobs(snapshot: Snapshot, path: str, queue: str | None, state: State | None) -> Iterator[Job]:
    """Jobs by queue and state; waiting jobs as they will run, and all others by id, numbers as numbers."""
    frame = jobs(snapshot, path).frame()
    if queue is not None:
        frame = frame.where(functions.col("queue") == encode_text(queue))
    if state is not None:
        frame = frame.where(functions.col("state") == str(state))
    yield from map(JOBS.row, frame.orderBy(*_listing_order()).toLocalIterator())


def queues(snapshot: Snapshot, path: str) -> list[QueueStatus]:
    """Every queue of a snapshot with its numbers, by name."""
    counts = snapshot.work(_count_work(snapshot.now_ms), JOBS, path, "counting jobs")
    numbers = (QueueStatus.from_dict(status) for summary in counts.summaries() for status in json.loads(summary))
    return statuses(numbers, snapshot.keyspace)


def _listing_order() -> list[Column]:
    """The same order as ``migrations.order.listing_order``."""
    waiting = functions.col("state") == str(State.WAITING)
    number = functions.when(functions.col("id").rlike("^[0-9]{1,19}$"), functions.col("id").cast("decimal(19)"))
    return [
        functions.col("queue"),
        functions.array_position(functions.array(*(functions.lit(str(each)) for each in State)), functions.col("state")),
        functions.when(waiting, functions.col("position")).otherwise(functions.lit(0)).asc_nulls_last(),
        number.asc_nulls_last(),
        functions.col("id"),
    ]


def _read_work(_partition: str, jobs: Jobs) -> Batches:
    keyspace = jobs.keyspace
    found = filter(None, jobs.in_order(lambda subject: keyspace.family.read(subject, keyspace)))
    yield from with_summary(batches(JOBS, found, job_bytes), JOBS, str)


def _count_work(now_ms: int) -> Work:
    def count(_partition: str, jobs: Jobs) -> Batches:
        keyspace = jobs.keyspace
        described = jobs.in_order(lambda subject: keyspace.family.describe(subject, keyspace))
        numbers = counted(filter(None, described), now_ms)
        yield from with_summary(iter(()), JOBS, lambda: json.dumps([status.to_dict() for status in numbers]))

    return count
