"""Lookup: one job by its queue and id: by the keys that speak of it; where ids name no keys, among the first of each index."""

from __future__ import annotations

from attrs import frozen

from ...migrations.large_fields import without_large_fields
from ...migrations.lookup import jobs_by_id
from ...migrations.probes import clock_ms
from ...operations.pages import Cursor, page
from ...schema.connection.address import Address
from ...schema.connection.connect import open_client
from ...schema.job import Job, State
from ...schema.text import to_bytes

MOST_BYTES = 4 << 20
PAGE = 200
MOST_PAGES = 10
"""Of each state, where a job must be looked for in a list: what is further behind is not found by its id."""


@frozen
class FoundJob:
    """A job and the moment at which it was read, Unix ms."""

    job: Job
    now_ms: int
    large: tuple[bytes, bytes, int] | None = None
    """The key, the field and the size in bytes of what was left out because it is too large."""


def find(address: Address, queue: str, job_id: str) -> FoundJob | None:
    """The job as it stands there, without fields of more than MOST_BYTES; None if it does not. Raises ServerError."""
    with open_client(address) as client:
        now_ms = clock_ms(client)
    with without_large_fields(MOST_BYTES) as left_out:
        jobs = jobs_by_id(address, [job_id], [queue], now_ms=now_ms)
    if jobs is None:
        job = _in_lists(address, queue, job_id)
    else:
        job = next((job for job in jobs if job.queue == queue), None)
    return None if job is None else FoundJob(job, now_ms, left_out.of_job(to_bytes(job_id)))


def _in_lists(address: Address, queue: str, job_id: str) -> Job | None:
    for state in State:
        after: Cursor | None = Cursor()
        for _ in range(MOST_PAGES):
            found = None if after is None else page(address, queue, state, PAGE, after)
            if found is None:
                break
            for job in found.jobs:
                if job.id == job_id:
                    return job
            after = found.next
    return None
