"""Lookup: one job by its queue and id: by the keys that speak of it; where ids name no keys, among the first of each index."""

from __future__ import annotations

from attrs import frozen

from ...migrations.large_fields import without_large_fields
from ...migrations.lookup import read_by_id
from ...migrations.probes import clock_ms
from ...operations.lookup import FoundJob
from ...operations.pages import Cursor, page
from ...schema.connection.address import Address
from ...schema.connection.connect import open_client
from ...schema.fact import Subject
from ...schema.job import Job, State
from ...schema.text import to_bytes

MOST_BYTES = 4 << 20
PAGE = 200
MOST_PAGES = 10
"""Of each state, where a job must be looked for in a list: what is further behind is not found by its id."""


@frozen
class ShownJob:
    """A job and the moment at which it was read, Unix ms."""

    job: Job
    now_ms: int
    large: tuple[bytes, bytes, int] | None = None
    """The key, the field and the size in bytes of what was left out because it is too large."""
    reason: str = ""
    """The word for why it died, where the system has one."""
    keys: tuple[tuple[bytes, str], ...] = ()
    """The keys that speak of it, with what each of them is."""


def find(address: Address, queue: str, job_id: str) -> ShownJob | None:
    """The job as it stands there, without fields of more than MOST_BYTES; None if it does not. Raises ServerError."""
    with open_client(address) as client:
        now_ms = clock_ms(client)
    with without_large_fields(MOST_BYTES) as left_out:
        read = read_by_id(address, [job_id], [queue], now_ms=now_ms, scan=False)
        for subject in read.subjects:
            job = read.keyspace.family.read(subject, read.keyspace)
            if job is not None and job.queue == queue:
                reason = FoundJob(job, subject.facts).reason or ""
                return ShownJob(job, now_ms, left_out.of_job(to_bytes(job_id)), reason, _keys(subject))
        listed = None if address.key_family.finds_by_id else _in_lists(address, queue, job_id)
    return None if listed is None else ShownJob(listed, now_ms)


def _keys(subject: Subject) -> tuple[tuple[bytes, str], ...]:
    return tuple(dict.fromkeys((fact.key, fact.role) for fact in subject.facts))


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
