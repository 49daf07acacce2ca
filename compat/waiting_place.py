"""Waiting place: the score by which a writer stages a waiting job that goes into a list. Pure.

A job without a position waits before all jobs that have one, because a worker held it. Several such jobs wait in the order in
which their leases end: the original software gives them back in this order. Called by the writers of bee, kickq, kombu and pjq.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..schema.job import CARRIED_FROM, Job

LATEST_TIME = 10**14
"""Later times count as this one, Unix ms."""


def waiting_place(job: Job) -> float:
    """The score by which the job is staged: the lowest runs first."""
    return lease_end(job) / (LATEST_TIME + 1) if job.position is None else job.position + 1


def lease_end(job: Job) -> int:
    """When the lease ends under which a worker held the job, Unix ms; if that is not known, when it was started; otherwise 0."""
    before = job.extra.get(CARRIED_FROM)
    times = (before.get("lease_expires_at") if isinstance(before, Mapping) else None, job.started_at)
    return min(max(next((time for time in times if isinstance(time, int)), 0), 0), LATEST_TIME)
