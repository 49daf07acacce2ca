"""Listing: the jobs of a snapshot as a table, and counted by queue. Called by the engine and by Spark's frames."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ...schema.job import Job
from ..queues import QueueStatus, counted, statuses
from . import Progress, silent
from .jobs import Jobs
from .output import Output, Results
from .snapshot import Snapshot, Work
from .tables import JOBS


def jobs(snapshot: Snapshot, path: str) -> Results[Job]:
    """Every job of a snapshot that has a record, as a table in the folder ``path``."""
    return snapshot.work(_read_work, JOBS, path, "reading jobs")


def queues(snapshot: Snapshot, path: str, progress: Progress = silent) -> list[QueueStatus]:
    """Every queue of a snapshot with its numbers, by name."""
    counts = snapshot.work(_count_work(snapshot.now_ms), JOBS, path, "counting jobs", progress)
    numbers = (QueueStatus.from_dict(status) for summary in counts.summaries for status in json.loads(summary))
    return statuses(numbers, snapshot.keyspace)


def read_jobs(jobs: Jobs) -> Iterator[Job]:
    """Those of a partition that have a record."""
    keyspace = jobs.keyspace
    return filter(None, jobs.in_order(lambda subject: keyspace.family.read(subject, keyspace)))


def _read_work(_partition: str, jobs: Jobs) -> Output[Job]:
    return Output(read_jobs(jobs))


def _count_work(now_ms: int) -> Work[Job]:
    def count(_partition: str, jobs: Jobs) -> Output[Job]:
        keyspace = jobs.keyspace
        described = jobs.in_order(lambda subject: keyspace.family.describe(subject, keyspace))
        numbers = counted(filter(None, described), now_ms)
        return Output(summary=lambda: json.dumps([status.to_dict() for status in numbers]))

    return count
