"""The program of pjq as tests need it: its transitions, written from the format's description, unit by unit.

Each message is a generator of the units that it consists of; each unit is atomic on the server, and between two of them the
program may die: whoever runs it stops there. ``run`` runs them all. The finish is that of a program whose client takes several
pairs in HSET.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import redis
from ferryman.compat.timestamps import timestamp_text

TICK, LEASE = 3.0, 9.0


def run(message: Iterator[Any]) -> list[Any]:
    """Runs a message to its end: what its units gave."""
    return list(message)


class Program:
    """A running program. ``assigned`` are the assignments that it has sent out: (worker, job)."""

    def __init__(self, client: redis.Redis, now_ms: int) -> None:
        self.client = client
        self.now_ms = now_ms
        self.assigned: list[tuple[str, dict[str, Any]]] = []

    @property
    def now(self) -> float:
        return self.now_ms / 1000

    def iso(self) -> str:
        return timestamp_text(self.now_ms) or ""

    # Messages

    def add_job(self, job: dict[str, Any]) -> Iterator[None]:
        """A producer's message."""
        queue = job["queue_name"]
        with self.client.pipeline() as unit:
            unit.hset(job["uuid"], "json", _dump(job))
            unit.lpush(f"jobs_queued:{queue}", job["uuid"])
            unit.execute()
        yield
        yield from self._tend(queue)
        yield from self._dispatch(queue)

    def worker_idle(self, worker: str, queue: str, sent_at: float | None = None) -> Iterator[None]:
        """A worker's message, each tick while it is idle."""
        sent = self.now if sent_at is None else sent_at
        with self.client.pipeline() as unit:
            unit.sadd(f"workers_idle:{queue}", worker)
            unit.srem(f"workers_busy:{queue}", worker)
            unit.zadd(f"workers_last_seen:{queue}", {worker: sent})
            unit.execute()
        yield
        yield from self._tend(queue)
        if sent > self.now - TICK:
            yield from self._dispatch(queue)

    def job_accepted(self, worker: str, job: dict[str, Any]) -> Iterator[None]:
        """A worker has begun; ``job`` is what it was assigned, with ``started_at``."""
        queue, job_id = job["queue_name"], job["uuid"]
        with self.client.pipeline() as unit:
            unit.zrem(f"jobs_dispatched:{queue}", job_id)
            unit.zadd(f"jobs_processing:{queue}", {job_id: self.now})
            unit.zadd(f"jobs_progress:{queue}", {job_id: 0})
            unit.hset(job_id, mapping={"json": _dump(job), "started_at": job["started_at"], "worker_uuid": worker})
            unit.execute()
        yield

    def job_finished(self, worker: str, job: dict[str, Any]) -> Iterator[None]:
        """A worker is done; ``job`` has ``finished_at`` and what came out."""
        queue, job_id = job["queue_name"], job["uuid"]
        with self.client.pipeline() as unit:
            unit.sadd(f"workers_idle:{queue}", worker)
            unit.srem(f"workers_busy:{queue}", worker)
            unit.zadd(f"workers_last_seen:{queue}", {worker: self.now})
            unit.zrem(f"jobs_processing:{queue}", job_id)
            unit.zrem(f"jobs_progress:{queue}", job_id)
            unit.hset(job_id, mapping={"json": _dump(job), "finished_at": str(job["finished_at"]), "worker_uuid": worker})
            unit.zadd(f"jobs_finished:{queue}", {job_id: float(job["finished_at"])})
            unit.execute()
        yield

    # Units

    def _tend(self, queue: str) -> Iterator[None]:
        dispatched = f"jobs_dispatched:{queue}"
        over = self.client.zrevrangebyscore(dispatched, self.now - LEASE, "-inf")
        with self.client.pipeline() as unit:
            for job_id in over:
                unit.zrem(dispatched, job_id)
                unit.rpush(f"jobs_queued:{queue}", job_id)
            unit.execute()
        yield
        seen = f"workers_last_seen:{queue}"
        silent = self.client.zrevrangebyscore(seen, self.now - LEASE, "-inf")
        with self.client.pipeline() as unit:
            for worker in silent:
                unit.srem(f"workers_idle:{queue}", worker)
                unit.srem(f"workers_busy:{queue}", worker)
                unit.zrem(seen, worker)
            unit.execute()
        yield

    def _dispatch(self, queue: str) -> Iterator[None]:
        if not (self.client.llen(f"jobs_queued:{queue}") and self.client.scard(f"workers_idle:{queue}")):
            return
        job_id = self.client.rpop(f"jobs_queued:{queue}")
        worker = self.client.spop(f"workers_idle:{queue}")
        assert job_id is not None
        assert worker is not None
        self.client.sadd(f"workers_busy:{queue}", worker)
        self.client.zadd(f"jobs_dispatched:{queue}", {job_id: self.now})
        self.client.hset(job_id, "dispatched_at", self.iso())
        stored = self.client.hget(job_id, "json")
        yield
        assert stored is not None, f"the program dies at {job_id!r}: nothing to run"
        self.assigned.append((worker.decode(), {**json.loads(stored), "dispatched_at": self.iso()}))
        yield


def accepted(job: dict[str, Any], program: Program) -> dict[str, Any]:
    """What a worker says when it begins."""
    return {**job, "started_at": program.iso()}


def done(job: dict[str, Any], program: Program, exitcode: int = 0, stdout: str = "", stderr: str = "") -> dict[str, Any]:
    """What a worker says when it is done."""
    return {**job, "finished_at": program.now, "exitcode": exitcode, "stdout": stdout, "stderr": stderr}


def _dump(job: dict[str, Any]) -> str:
    return json.dumps(job, separators=(",", ":"))
