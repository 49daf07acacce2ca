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
        over = self.now - LEASE
        self.client.eval(_READMIT, 2, f"jobs_dispatched:{queue}", f"jobs_queued:{queue}", over)
        yield
        workers = (f"workers_{name}:{queue}" for name in ("last_seen", "idle", "busy"))
        self.client.eval(_PURGE, 3, *workers, over)
        yield

    def _dispatch(self, queue: str) -> Iterator[None]:
        names = ("jobs_queued", "workers_idle", "workers_busy", "jobs_dispatched")
        found: Any = self.client.eval(_DISPATCH, 4, *(f"{name}:{queue}" for name in names), repr(self.now), self.iso())
        if found is None:
            return
        stored, worker, job_id = found
        yield
        assert stored is not None, f"the program dies at {job_id!r}: nothing to run"
        self.assigned.append((worker.decode(), {**json.loads(stored), "dispatched_at": self.iso()}))
        yield


_READMIT = """
for _, id in ipairs(redis.call('ZREVRANGEBYSCORE', KEYS[1], ARGV[1], '-inf')) do
  redis.call('ZREM', KEYS[1], id)
  redis.call('RPUSH', KEYS[2], id)
end
"""

_PURGE = """
for _, worker in ipairs(redis.call('ZREVRANGEBYSCORE', KEYS[1], ARGV[1], '-inf')) do
  redis.call('SREM', KEYS[2], worker)
  redis.call('SREM', KEYS[3], worker)
  redis.call('ZREM', KEYS[1], worker)
end
"""

_DISPATCH = """
if redis.call('LLEN', KEYS[1]) == 0 or redis.call('SCARD', KEYS[2]) == 0 then
  return false
end
local id, worker = redis.call('RPOP', KEYS[1]), redis.call('SPOP', KEYS[2])
redis.call('SADD', KEYS[3], worker)
redis.call('ZADD', KEYS[4], ARGV[1], id)
redis.call('HSET', id, 'dispatched_at', ARGV[2])
return {redis.call('HGET', id, 'json'), worker, id}
"""
"""Written from the description of the units, as all of this."""


def accepted(job: dict[str, Any], program: Program) -> dict[str, Any]:
    """What a worker says when it begins."""
    return {**job, "started_at": program.iso()}


def done(job: dict[str, Any], program: Program, exitcode: int = 0, stdout: str = "", stderr: str = "") -> dict[str, Any]:
    """What a worker says when it is done."""
    return {**job, "finished_at": program.now, "exitcode": exitcode, "stdout": stdout, "stderr": stderr}


def _dump(job: dict[str, Any]) -> str:
    return json.dumps(job, separators=(",", ":"))
