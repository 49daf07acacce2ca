"""Sorted jobs: all jobs of a snapshot in the order in which ``ferryman jobs`` shows them, for more of them than memory holds.

Each partition leaves its jobs in sorted runs, which are merged as they are read. Called by the engine.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator
from functools import partial

import pyarrow as pa

from ...schema.job import Job, State
from ..order import listing_order
from . import storage
from .failures import work_errors
from .jobs import Jobs
from .listing import read_jobs
from .output import Output
from .snapshot import Snapshot, Work
from .tables import JOBS, job_bytes

RUN_BYTES = 32 << 20
"""Jobs that are sorted together."""
JOB_BYTES = 1_000
"""What a job counts beside what may be long of it."""
ROWS = 50
"""Jobs of a sorted run that are in memory when runs are merged."""


def list_jobs(snapshot: Snapshot, path: str, queue: str | None, state: State | None) -> Iterator[Job]:
    """Jobs by queue and state; waiting jobs as they will run, and all others by id, numbers as numbers."""
    storage.make_folder(path)
    found = snapshot.work(_sort_work(path, queue, state), JOBS, storage.join(path, "summaries"), "reading jobs")
    runs = (file for files in map(json.loads, found.summaries) for file in files)
    yield from heapq.merge(*map(_read_run, runs), key=listing_order)


def _sort_work(folder: str, queue: str | None, state: State | None) -> Work[Job]:
    """The work that leaves its jobs in sorted runs, a file each; its summary has their paths."""

    def sort(_partition: str, jobs: Jobs) -> Output[Job]:
        wanted = (job for job in read_jobs(jobs) if queue in (None, job.queue) and state in (None, job.state))
        files = [_write_run(run, folder) for run in _runs(wanted)]
        return Output(summary=partial(json.dumps, files))

    return sort


def _runs(found: Iterable[Job]) -> Iterator[list[Job]]:
    """The jobs, as many together as memory should hold."""
    run: list[Job] = []
    size = 0
    for job in found:
        run.append(job)
        size += JOB_BYTES + job_bytes(job)
        if size >= RUN_BYTES:
            yield run
            run, size = [], 0
    if run:
        yield run


def _write_run(run: list[Job], folder: str) -> str:
    path = storage.new_name(folder)
    run.sort(key=listing_order)
    with work_errors(folder), storage.create(path) as file, pa.ipc.new_stream(file, JOBS.arrow) as writer:
        for start in range(0, len(run), ROWS):
            writer.write_batch(JOBS.batch(run[start : start + ROWS]))
    return path


def _read_run(path: str) -> Iterator[Job]:
    with work_errors(path), storage.open_stream(path) as file, pa.ipc.open_stream(file) as batches:
        for batch in batches:
            yield from JOBS.rows(batch)
