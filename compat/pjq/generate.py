"""Generates realistic jobs of pjq for demos, benchmarks and tests: the same jobs for the same seed, on any machine.

Queues with awkward names, all states in the shares of a busy installation, a few large payloads among many small ones. Every
job is one that the current program could have written, with its workers alive at that moment, and none is damaged: an audit at
the same moment finds nothing. Nine seconds later leases are over, as in every keyspace whose program stands still. Called by
the command line and by benchmarks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from random import Random
from typing import Any

from attrs import evolve

from ...schema.job import Job, State
from ...schema.sampling import UNSHARDED, Shard, StratifiedSample, text, uuid, weighted
from ..generated import GeneratedJob
from .passthrough import job_of
from .record import Record

QUEUES = (
    ("ffmpeg", 38),
    ("mail: send queue", 22),
    ("thumbs:large:v2", 18),
    ('größe/日本語 "q"', 10),
    ("webhook/v2?retry=1&x=*[a]", 7),
    ("archive\n2026", 5),
)
"""Queues and their shares. A colon, a blank, a quote, a wildcard or a line break in a name must trouble nobody."""

ROLES = (("queued", 50), ("dispatched", 3), ("processing", 5), ("finished", 42))
STATES = {
    "queued": State.WAITING,
    "dispatched": State.ACTIVE,
    "processing": State.ACTIVE,
    "finished": State.COMPLETED,
}
"""The state of a job in each place, if it has not failed."""
COMMANDS = ("/usr/local/bin/ffmpeg", "/usr/bin/convert", "/opt/mail/send", "/opt/hooks/call")
ERRORS = ("in00.mp4: No such file or directory", "Konto gesperrt – siehe Log", "connect ECONNREFUSED 10.0.0.7:25", "")

DAY = 86_400.0
BODIES = 512
"""Texts made beforehand; each job gets one of them."""


def generate(jobs: int, seed: int, now_ms: int, shard: Shard = UNSHARDED) -> Iterator[Job]:
    """``jobs`` jobs as they stand at ``now_ms``, oldest first."""
    for made in generate_records(jobs, seed, now_ms, shard):
        yield evolve(job_of(made.id, made.queue, made.record, {}), position=made.position)


def generate_records(jobs: int, seed: int, now_ms: int, shard: Shard = UNSHARDED) -> Iterator[GeneratedJob]:
    """The same jobs, ready to be written."""
    start = Random(seed)
    bodies = [text(start) for _ in range(BODIES)]
    draw_queue, draw_role = weighted(start, QUEUES), weighted(start, ROLES)
    sample = StratifiedSample(lambda: (draw_queue(), draw_role()))
    for numbers, random in shard.blocks(jobs, seed):
        waiting = sample.counts_before(numbers, lambda kind: kind[0] if kind[1] == "queued" else None)
        for number, (queue, role) in zip(numbers, sample.draw(numbers, random), strict=True):
            created = now_ms / 1000 - 7200 - (jobs - number) * 30 * DAY / jobs
            job_id = uuid(random)
            exitcode = 0 if random.random() < 0.9 else 1 + int(random.random() * 3)
            record = _record(random, job_id, queue, role, bodies[int(random.random() * BODIES)], created, now_ms / 1000, exitcode)
            position = None
            if role == "queued":
                position = waiting[queue]
                waiting[queue] += 1
            state = State.FAILED if role == "finished" and exitcode else STATES[role]
            yield GeneratedJob(id=job_id, queue=queue, name=queue, state=state, position=position, record=record)


def _record(random: Random, job_id: str, queue: str, role: str, words: str, created: float, now: float, exitcode: int) -> Record:
    """One job whose story is drawn to fit its place."""
    chance = random.random
    payload: dict[str, Any] = {"uuid": job_id, "queue_name": queue, "reference_uuid": uuid(random)}
    payload |= {"command": COMMANDS[int(chance() * len(COMMANDS))], "args": ["-i", words], "created_at": _stamp(created)}
    fields: dict[bytes, bytes] = {}
    scores: dict[str, float] = {}
    started = created + chance() * 3600
    match role:
        case "dispatched":
            scores["dispatched"] = round(now - 0.1 - chance() * 5, 6)
            fields[b"dispatched_at"] = _stamp(scores["dispatched"]).encode()
        case "processing" | "finished":
            dispatched_at, started_at = _stamp(started - 0.01), _stamp(started)
            payload |= {"dispatched_at": dispatched_at, "started_at": started_at}
            fields |= {b"dispatched_at": dispatched_at.encode(), b"started_at": started_at.encode()}
            fields[b"worker_uuid"] = uuid(random).encode()
    if role == "processing":
        # Workers say every three seconds that they are busy.
        scores = dict.fromkeys(("processing", "seen"), round(now - 0.1 - chance() * 3, 6)) | {"progress": round(chance(), 3)}
    elif role == "finished":
        scores["finished"] = round(started + 0.01 + chance() ** 4 * 3600, 6)
        stderr = ERRORS[int(chance() * len(ERRORS))] if exitcode else ""
        payload |= {"finished_at": scores["finished"], "exitcode": exitcode, "stdout": "frame=500\nok ✓", "stderr": stderr}
        fields[b"finished_at"] = repr(scores["finished"]).encode()
    fields[b"json"] = json.dumps(payload, separators=(",", ":")).encode()
    return Record(role, fields, scores)


def _stamp(seconds: float) -> str:
    """A time as the program writes it."""
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat() + "Z"
