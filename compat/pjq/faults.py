"""Faults: breaks one rule at one sound job, as crashes, other programs and operators do.

Every rule is injectable but PJQ-26: it is about keys of the first JavaScript program, which beside those that the writer
writes break PJQ-23 already. Rules about workers show up at a queue: that of the job, or, where a worker must be alone, one
whose name is the job's queue with ``LONELY`` behind it. Never called on a keyspace that anybody needs. Called by tests and
demos.

The keys that one fault changes must accept the commands of all others, so a key of a wrong type is that of a queue of its own,
named after the job's queue with ``WRONG_TYPE`` behind it.
"""

from __future__ import annotations

from collections.abc import Callable

from ...schema.family import Command, Target
from ...schema.job import Job
from ..faults import FaultTarget
from ..overflow import FIELD, TRUNCATED
from .keys import layout
from .passthrough import record_for
from .record import Record

GHOST = "ghost-worker"
LONELY = " (workers only)"
WRONG_TYPE = " (wrong type)"


class PjqFaultTarget(FaultTarget):
    """One sound job as it was written, and the keys around it."""

    def __init__(self, job: Job, target: Target) -> None:
        super().__init__(job, target)
        self.stored: Record = record_for(job)

    @property
    def record(self) -> bytes:
        """The job's own key."""
        return layout(self.prefix).key("record", id=self.job.id)

    @property
    def worker(self) -> bytes:
        """Who has accepted it."""
        return self.stored.fields[b"worker_uuid"]

    @property
    def now_s(self) -> float:
        return self.now_ms / 1000

    def key(self, role: str, queue: str | None = None) -> bytes:
        """A container of the job's queue, or of another."""
        return layout(self.prefix).key(role, queue=self.job.queue if queue is None else queue)


Fault = Callable[[PjqFaultTarget], list[Command]]


def inject(rule: str, job: Job, target: Target) -> list[Command]:
    """The commands that break the rule at the job; none for a rule that this job can't break."""
    written = PjqFaultTarget(job, target)
    container = written.stored.role or ""
    if container == "processing" and "seen" not in written.stored.scores:
        return []
    fault = _FAULTS.get((rule, container)) or _FAULTS.get((rule, "any"))
    return fault(written) if fault else []


def _without_worker(target: PjqFaultTarget) -> list[Command]:
    return [("SREM", target.key("busy"), target.worker), ("ZREM", target.key("seen"), target.worker)]


def _long_silent(target: PjqFaultTarget) -> list[Command]:
    long_ago = repr(target.now_s - 60)
    return [("ZADD", target.key("processing"), long_ago, target.id), ("ZADD", target.key("seen"), long_ago, target.worker)]


def _lonely(target: PjqFaultTarget, role: str) -> list[Command]:
    queue = target.job.queue + LONELY
    return [("SADD", target.key(role, queue), GHOST), ("ZADD", target.key("seen", queue), repr(target.now_s), GHOST)]


def _wrong_uuid(target: PjqFaultTarget) -> list[Command]:
    # Python and JavaScript take the last of two members with one name.
    return [("HSET", target.record, "json", target.stored.fields[b"json"].rstrip()[:-1] + b',"uuid":"another"}')]


_FAULTS: dict[tuple[str, str], Fault] = {
    ("PJQ-1", "any"): lambda target: [("ZADD", target.key("idle", target.job.queue + WRONG_TYPE), target.now_ms, GHOST)],
    ("PJQ-2", "queued"): lambda target: [("DEL", target.record)],
    ("PJQ-3", "queued"): lambda target: [("HSET", target.record, "json", target.stored.fields[b"json"][:20])],
    ("PJQ-3", "dispatched"): lambda target: [("HSET", target.record, "json", b'{"name":"Gr\xf6\xdfe"}')],
    ("PJQ-4", "dispatched"): lambda target: [("HDEL", target.record, "json")],
    ("PJQ-4", "finished"): lambda target: [("DEL", target.record)],
    ("PJQ-5", "queued"): _wrong_uuid,
    ("PJQ-5", "dispatched"): _wrong_uuid,
    ("PJQ-6", "queued"): lambda target: [("LPUSH", target.key("queued"), target.id)],
    ("PJQ-7", "processing"): lambda target: [("ZADD", target.key("dispatched"), repr(target.now_s), target.id)],
    ("PJQ-8", "processing"): lambda target: [("ZREM", target.key("progress"), target.id)],
    ("PJQ-8", "queued"): lambda target: [("ZADD", target.key("progress"), "0.3", target.id)],
    ("PJQ-9", "processing"): lambda target: [("ZADD", target.key("progress"), 42, target.id)],
    ("PJQ-10", "dispatched"): lambda target: [("ZADD", target.key("dispatched"), repr(target.now_s - 60), target.id)],
    ("PJQ-11", "processing"): _without_worker,
    ("PJQ-12", "finished"): lambda target: [("ZREM", target.key("finished"), target.id)],
    ("PJQ-13", "processing"): lambda target: [("SADD", target.key("idle"), target.worker)],
    ("PJQ-14", "processing"): lambda target: [("ZREM", target.key("seen"), target.worker)],
    ("PJQ-15", "any"): lambda target: [("ZADD", target.key("seen"), repr(target.now_s), GHOST)],
    ("PJQ-16", "processing"): lambda target: [("ZADD", target.key("seen"), repr(target.now_s + 86_400), target.worker)],
    ("PJQ-17", "queued"): lambda target: [("LREM", target.key("queued"), 0, target.id)],
    ("PJQ-18", "processing"): lambda target: [("HDEL", target.record, "started_at")],
    ("PJQ-18", "dispatched"): lambda target: [("HDEL", target.record, "dispatched_at")],
    ("PJQ-19", "processing"): lambda target: [("HDEL", target.record, "dispatched_at")],
    ("PJQ-19", "finished"): lambda target: [("HDEL", target.record, "dispatched_at")],
    ("PJQ-20", "dispatched"): lambda target: [("ZADD", target.key("dispatched"), target.now_ms, target.id)],
    ("PJQ-20", "finished"): lambda target: [("ZINCRBY", target.key("finished"), 5, target.id)],
    ("PJQ-20", "processing"): lambda target: [("ZADD", target.key("seen"), target.now_ms, target.worker)],
    ("PJQ-21", "any"): lambda target: _lonely(target, "busy"),
    ("PJQ-22", "any"): lambda target: [("EXPIRE", target.record, 86_400)],
    ("PJQ-23", "any"): lambda target: [("ZADD", target.key("js_idle"), target.now_ms, GHOST)],
    ("PJQ-24", "queued"): lambda target: [
        ("SADD", target.key("idle"), GHOST),
        ("ZADD", target.key("seen"), repr(target.now_s), GHOST),
    ],
    ("PJQ-25", "processing"): _long_silent,
    ("PJQ-27", "any"): lambda target: [("HSET", target.record, FIELD, TRUNCATED)],
    ("PJQ-28", "processing"): lambda target: [("HSET", target.record, "started_at", "soon")],
}
"""By rule and container of the job."""

INJECTABLE = frozenset(rule for rule, _ in _FAULTS)
