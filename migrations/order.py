"""Order: in which order jobs are listed, and whether two keyspaces would run them in the same one. Pure; all engines call it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from ..schema.job import Job, State
from ..schema.text import show
from .engine import Difference

_STATES = {state: rank for rank, state in enumerate(State)}
_LAST = float("inf")


def listing_order(job: Job) -> tuple[object, ...]:
    """Sort key of a list of jobs: by queue and state; waiting jobs as they will run, and all others by id, numbers as numbers."""
    place = _LAST if job.position is None else job.position
    number = int(job.id) if job.id.isascii() and job.id.isdigit() and len(job.id) < 20 else _LAST
    return (job.queue, _STATES[job.state], place if job.state is State.WAITING else 0, number, job.id)


def pop_orders(jobs: Iterable[Job]) -> dict[str, list[str]]:
    """For each queue the ids of its waiting jobs in pop order. A job that its queue's index has lost has no place there."""
    places: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    for job in jobs:
        if job.state is State.WAITING and job.position is not None:
            places[job.queue].append((job.position, job.id))
    return {queue: [job_id for _, job_id in sorted(found)] for queue, found in places.items()}


def order_difference(queue: str, expected: Sequence[str], actual: Sequence[str]) -> Difference | None:
    """The first job at which the pop order of a queue at the target leaves that of the source; None where they agree.

    Only jobs that wait on both sides are compared: what is missing is reported elsewhere, and a requeued job has no order.
    """
    common = set(expected) & set(actual)
    want = [job_id for job_id in expected if job_id in common]
    have = [job_id for job_id in actual if job_id in common]
    for rank, (first, second) in enumerate(zip(want, have, strict=True)):
        if first != second:
            return swapped(queue, first, rank, have.index(first), second)
    return None


def swapped(queue: str, job_id: str, expected: int, actual: int, instead: str) -> Difference:
    """A job that stands at another place in the pop order than was expected, and the one that stands there instead."""
    return Difference(job_id, queue, "order", f"place {expected}", f"place {actual}, after job {show(instead, 40)}")
