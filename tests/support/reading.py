"""What a family reads of captured keyspaces, beside what the original software said of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

import pytest
from ferryman.schema.family import get_family
from ferryman.schema.job import Job
from ferryman.testing.keyspaces import KeyspaceReading, read_keyspace

from .captures import Capture, captures


def each_capture(system: str) -> pytest.MarkDecorator:
    """For tests of a ``case``."""
    return pytest.mark.parametrize("case", captures(system), ids=str)


def each_job(system: str) -> pytest.MarkDecorator:
    """For tests of a ``case`` and the ``job_id`` of one job that the original software knows in it."""
    known = [(case, job_id) for case in captures(system) for job_id in case.expected["jobs_by_id"]]
    return pytest.mark.parametrize(("case", "job_id"), known, ids=[f"{case}-{job_id}" for case, job_id in known])


@cache
def reading_of(case: Capture) -> KeyspaceReading:
    """The capture as its family sees it, at the time of the capture."""
    return read_keyspace(get_family(case.system), case.entries(), case.prefix, case.captured_at_ms)


@cache
def jobs(case: Capture) -> dict[str, Job]:
    """All jobs of a capture by id."""
    return {job.id: job for job in reading_of(case).jobs()}


def popped(case: Capture) -> dict[str, list[str]]:
    """The waiting jobs of each queue by position."""
    queues: dict[str, list[str]] = {}
    for job in sorted(jobs(case).values(), key=lambda job: job.position or 0):
        if job.position is not None:
            queues.setdefault(job.queue, []).append(job.id)
    return queues


def assert_all_read(case: Capture, found: Iterable[str]) -> None:
    """These are the ids of all jobs that the original software knows, and of no others."""
    ids = set(found)
    assert ids == case.expected["jobs_by_id"].keys()
    assert len(ids) == case.expected["jobs"]


def assert_counted(found: Iterable[Job], by_state: Mapping[str, int], by_queue: Mapping[str, int]) -> None:
    """There are as many jobs in each state and queue as the original software says."""
    found = list(found)
    for state, number in by_state.items():
        assert sum(job.state == state for job in found) == number, state
    for queue, number in by_queue.items():
        assert sum(job.queue == queue for job in found) == number, queue
