"""The workers of qless, as its own register and the lists of their jobs tell. Called by ``family.py``.

``<prefix>:workers`` has every worker with the time, Unix s, at which it last popped or renewed a lock, and
``<prefix>:w:<worker>:jobs`` the jobs that it holds with the ends of their locks. When somebody asks qless for its workers, it
forgets those that have been silent for a day, lists and all; this only reads.
"""

from __future__ import annotations

from typing import Any

from ...schema.connection.pipeline import pairs
from ...schema.text import to_text
from ...schema.workers import MOST_JOBS, HeldJob, Worker, WorkerPage, WorkersQuery
from ..numbers import score_to_int
from .keys import layout


def workers(prefix: str, first: int, limit: int) -> WorkersQuery:
    """See KeyFamily.workers."""
    names = layout(prefix)
    register = names.key("workers")
    number, rows = yield [("ZCARD", register), ("ZREVRANGE", register, first, first + limit - 1, "WITHSCORES")]
    found = [(to_text(worker), _ms(score)) for worker, score in pairs(rows or [])]
    lists = [names.key("held", worker=worker) for worker, _ in found]
    replies = yield [command for key in lists for command in (("ZCARD", key), ("ZRANGE", key, 0, MOST_JOBS - 1, "WITHSCORES"))]
    held = [(count or 0, pairs(jobs or [])) for count, jobs in zip(replies[::2], replies[1::2], strict=True)]
    ids = [job_id for _, jobs in held for job_id, _ in jobs]
    queues = iter((yield [("HGET", names.key("record", id=to_text(job_id)), "queue") for job_id in ids]))
    told = []
    for (name, seen), (count, jobs) in zip(found, held, strict=True):
        of_worker = tuple(HeldJob(to_text(job_id), _queue(next(queues)), _ms(ends)) for job_id, ends in jobs)
        told.append(Worker(name, seen, count, of_worker))
    return WorkerPage(tuple(told), number or 0)


def _queue(value: bytes | None) -> str | None:
    return to_text(value) if value else None


def _ms(score: Any) -> int | None:
    """The Unix ms of a score in seconds; None for an endless one."""
    return score_to_int(float(score) * 1000)
