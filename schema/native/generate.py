"""Generates realistic queues of Celery tasks for demos, benchmarks and tests: the same jobs for the same seed, on any machine.

Queues with awkward names, priorities, delayed tasks, tasks that workers hold and dead letters; a few large bodies among many
small ones. Every job is one that the transport could have stored, and none is damaged: an audit finds nothing.
Called by ``family.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any

from ..job import Job, State
from ..sampling import UNSHARDED, Shard, StratifiedSample, text, uuid, weighted
from . import codec
from .record import NAME
from .scripts.waiting_score import IMPORTED, score_of

QUEUES = (
    ("celery", 45),
    ("emails 1", 15),
    ("reports.daily", 12),
    ("video:hd", 10),
    ("häppy {1}", 8),
    ('sync "o\'brien"', 5),
    ("a*b?[c]%", 5),
)
"""Queues and their shares. A blank, a colon, a brace or a wildcard in a name must trouble nobody."""

TASKS = ("proj.mail.send", "proj.video.encode", "proj.tasks.add", "proj.reports.build", "proj.sync.pull")
STATES = ((State.WAITING, 80), (State.SCHEDULED, 12), (State.ACTIVE, 5), (State.FAILED, 3))
PRIORITIES = ((0, 80), (3, 6), (6, 6), (9, 5), (5, 2), (1, 1))
ERRORS = ("delivered 20 times without an ack", "rejected by its consumer: ValueError('größer als 2 GB')", "expired")

DAY_MS = 86_400_000
CREATED_WITHIN_MS = 3 * DAY_MS
"""The oldest job is about this old."""
LEASE_MS = 30_000
WORKERS = 8
BODIES = 512
"""Texts made beforehand; what differs from job to job is put in front of one of them."""


def generate(jobs: int, seed: int, now_ms: int, shard: Shard = UNSHARDED) -> Iterator[Job]:
    """``jobs`` jobs as they stand at ``now_ms``."""
    start = Random(seed)
    bodies = [json.dumps(text(start)).encode() for _ in range(BODIES)]
    draw_queue, draw_state, draw_priority = weighted(start, QUEUES), weighted(start, STATES), weighted(start, PRIORITIES)
    sample = StratifiedSample(lambda: (draw_queue(), draw_state(), draw_priority()))
    for numbers, random in shard.blocks(jobs, seed):
        published = sample.counts_before(numbers, lambda kind: kind[0])
        for number, (queue, state, priority) in zip(numbers, sample.draw(numbers, random), strict=True):
            published[queue] += 1
            created_at = now_ms - 60_000 - (jobs - number) * CREATED_WITHIN_MS // jobs
            body = b"[[%d, %b], {}, {}]" % (number, bodies[int(random.random() * BODIES)])
            yield _job(random, queue, IMPORTED + published[queue], state, priority, body, created_at, now_ms)


def _job(
    random: Random, queue: str, sequence: int, state: State, priority: int, body: bytes, created_at: int, now_ms: int
) -> Job:
    chance = random.random
    job_id = uuid(random)
    task = TASKS[int(chance() * len(TASKS))]
    head = job_id.encode().join(_head_parts(task, queue, priority))
    attributes: dict[str, Any] = {}
    match state:
        case State.SCHEDULED:
            attributes["due_at"] = now_ms + 60_000 + int(chance() * 30 * DAY_MS)
        case State.ACTIVE:
            # Every job of one worker has the worker's one lease.
            attributes |= {"worker": f"worker-{int(chance() * WORKERS)}@host", "lease_expires_at": now_ms + LEASE_MS}
            attributes |= {"started_at": now_ms - int(chance() * 60_000), "attempts": 1}
        case State.FAILED:
            failed_at = created_at + int(chance() * 60_000)
            attributes |= {"finished_at": failed_at, "error": ERRORS[int(chance() * len(ERRORS))]}
            attributes |= {"started_at": failed_at - 5, "attempts": 1 + int(chance() * 20)}
    return Job(
        id=job_id,
        queue=queue,
        name=task,
        state=state,
        priority=priority,
        payload=body,
        created_at=created_at,
        rank=priority,
        extra={NAME: {"head": head, "score": float(score_of(priority, sequence))}},
        **attributes,
    )


@cache
def _head_parts(task: str, queue: str, priority: int) -> list[bytes]:
    """The head of such a message around the job's id: there are few, for any number of jobs."""
    id_mark = "<job>"
    return codec.encode(_head(id_mark, task, queue, priority), b"")[:-1].split(id_mark.encode())


def _head(job_id: str, task: str, queue: str, priority: int) -> dict[str, Any]:
    """The head of a Celery message, protocol 2."""
    headers = {"lang": "py", "task": task, "id": job_id, "root_id": job_id, "parent_id": None, "retries": 0, "eta": None}
    properties = {
        "correlation_id": job_id,
        "delivery_mode": 2,
        "delivery_info": {"exchange": "", "routing_key": queue},
        "priority": priority,
        "delivery_tag": job_id,
    }
    return {"content-encoding": "utf-8", "content-type": "application/json", "headers": headers, "properties": properties}
