"""Damage: breaks one rule at one sound job, as crashes, other programs and operators do.

Every rule can be planted but PJQ-26: it is about keys of the first JavaScript program, which beside those that the writer
writes break PJQ-23 already. Rules about workers show up at a queue: that of the job, or, where a worker must be alone, one
whose name is the job's queue with ``LONELY`` behind it. Never called on a keyspace that anybody needs. Called by tests and
demos.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen

from ...schema.family import Command, Target
from ...schema.job import Job
from ...schema.text import to_bytes
from .kept import record_of
from .keys import layout
from .record import Record

GHOST = "ghost-worker"
LONELY = " (workers only)"


@frozen
class Scene:
    """One sound job as it was written, and the keys around it."""

    job: Job
    record: Record
    target: Target

    @property
    def id(self) -> bytes:
        return to_bytes(self.job.id)

    @property
    def hash(self) -> bytes:
        """The job's own key."""
        return layout(self.target.prefix).key("record", id=self.job.id)

    @property
    def worker(self) -> bytes:
        """Who has accepted it."""
        return self.record.fields[b"worker_uuid"]

    @property
    def now(self) -> float:
        """In seconds."""
        return self.target.now_ms / 1000

    def key(self, role: str, queue: str | None = None) -> bytes:
        """A container of the job's queue, or of another."""
        return layout(self.target.prefix).key(role, queue=self.job.queue if queue is None else queue)


Planter = Callable[[Scene], list[Command]]


def damage(rule: str, job: Job, target: Target) -> list[Command]:
    """The commands that break the rule at the job; none for a rule that this job can't break."""
    scene = Scene(job, record_of(job), target)
    place = scene.record.place or ""
    if place == "processing" and "seen" not in scene.record.scores:
        return []
    planter = _PLANTERS.get((rule, place)) or _PLANTERS.get((rule, "any"))
    return planter(scene) if planter else []


def _without_worker(scene: Scene) -> list[Command]:
    return [("SREM", scene.key("busy"), scene.worker), ("ZREM", scene.key("seen"), scene.worker)]


def _long_silent(scene: Scene) -> list[Command]:
    long_ago = repr(scene.now - 60)
    return [("ZADD", scene.key("processing"), long_ago, scene.id), ("ZADD", scene.key("seen"), long_ago, scene.worker)]


def _lonely(scene: Scene, role: str) -> list[Command]:
    queue = scene.job.queue + LONELY
    return [("SADD", scene.key(role, queue), GHOST), ("ZADD", scene.key("seen", queue), repr(scene.now), GHOST)]


def _wrong_uuid(scene: Scene) -> list[Command]:
    # Python and JavaScript take the last of two members with one name.
    return [("HSET", scene.hash, "json", scene.record.fields[b"json"].rstrip()[:-1] + b',"uuid":"another"}')]


_PLANTERS: dict[tuple[str, str], Planter] = {
    ("PJQ-1", "any"): lambda scene: [("ZADD", scene.key("idle"), scene.target.now_ms, GHOST)],
    ("PJQ-2", "queued"): lambda scene: [("DEL", scene.hash)],
    ("PJQ-3", "queued"): lambda scene: [("HSET", scene.hash, "json", scene.record.fields[b"json"][:20])],
    ("PJQ-3", "dispatched"): lambda scene: [("HSET", scene.hash, "json", b'{"name":"Gr\xf6\xdfe"}')],
    ("PJQ-4", "dispatched"): lambda scene: [("HDEL", scene.hash, "json")],
    ("PJQ-4", "finished"): lambda scene: [("DEL", scene.hash)],
    ("PJQ-5", "queued"): _wrong_uuid,
    ("PJQ-5", "dispatched"): _wrong_uuid,
    ("PJQ-6", "queued"): lambda scene: [("LPUSH", scene.key("queued"), scene.id)],
    ("PJQ-7", "processing"): lambda scene: [("ZADD", scene.key("dispatched"), repr(scene.now), scene.id)],
    ("PJQ-8", "processing"): lambda scene: [("ZREM", scene.key("progress"), scene.id)],
    ("PJQ-8", "queued"): lambda scene: [("ZADD", scene.key("progress"), "0.3", scene.id)],
    ("PJQ-9", "processing"): lambda scene: [("ZADD", scene.key("progress"), 42, scene.id)],
    ("PJQ-10", "dispatched"): lambda scene: [("ZADD", scene.key("dispatched"), repr(scene.now - 60), scene.id)],
    ("PJQ-11", "processing"): _without_worker,
    ("PJQ-12", "finished"): lambda scene: [("ZREM", scene.key("finished"), scene.id)],
    ("PJQ-13", "processing"): lambda scene: [("SADD", scene.key("idle"), scene.worker)],
    ("PJQ-14", "processing"): lambda scene: [("ZREM", scene.key("seen"), scene.worker)],
    ("PJQ-15", "any"): lambda scene: [("ZADD", scene.key("seen"), repr(scene.now), GHOST)],
    ("PJQ-16", "processing"): lambda scene: [("ZADD", scene.key("seen"), repr(scene.now + 86_400), scene.worker)],
    ("PJQ-17", "queued"): lambda scene: [("LREM", scene.key("queued"), 0, scene.id)],
    ("PJQ-18", "processing"): lambda scene: [("HDEL", scene.hash, "started_at")],
    ("PJQ-18", "dispatched"): lambda scene: [("HDEL", scene.hash, "dispatched_at")],
    ("PJQ-19", "processing"): lambda scene: [("HDEL", scene.hash, "dispatched_at")],
    ("PJQ-19", "finished"): lambda scene: [("HDEL", scene.hash, "dispatched_at")],
    ("PJQ-20", "dispatched"): lambda scene: [("ZADD", scene.key("dispatched"), scene.target.now_ms, scene.id)],
    ("PJQ-20", "finished"): lambda scene: [("ZINCRBY", scene.key("finished"), 5, scene.id)],
    ("PJQ-20", "processing"): lambda scene: [("ZADD", scene.key("seen"), scene.target.now_ms, scene.worker)],
    ("PJQ-21", "any"): lambda scene: _lonely(scene, "busy"),
    ("PJQ-22", "any"): lambda scene: [("EXPIRE", scene.hash, 86_400)],
    ("PJQ-23", "any"): lambda scene: [("ZADD", scene.key("js_idle"), scene.target.now_ms, GHOST)],
    ("PJQ-24", "queued"): lambda scene: [
        ("SADD", scene.key("idle"), GHOST),
        ("ZADD", scene.key("seen"), repr(scene.now), GHOST),
    ],
    ("PJQ-25", "processing"): _long_silent,
}
"""By rule and place of the job."""

PLANTABLE = frozenset(rule for rule, _ in _PLANTERS)
