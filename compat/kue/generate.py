"""Generates realistic kue jobs for demos, benchmarks and tests: the same jobs for the same seed, on any machine.

Types with awkward names, all states in the shares of a busy installation, a few large payloads among many small ones,
retries with their errors and logs. Every job is one that kue 0.11 could have written, and none is damaged: an audit finds
nothing but active jobs whose workers keys alone leave open. Called by the command line and by benchmarks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

from ...schema.job import Job, State
from ...schema.sampling import UNSHARDED, Shard, StratifiedSample, text, weighted
from .keys import WORDS
from .passthrough import NAME

QUEUES = (
    ("email", 30),
    ("video:transcode hd", 8),
    ("überweisung ✓", 10),
    ("report", 20),
    ('sync "o\'brien"', 15),
    ("thumbs:inactive", 12),
    ("webhook/v2?retry=1&x=*", 5),
)
"""Types and their shares. A colon, a quote, a state word or a wildcard in a name must trouble nobody."""

STATES = ((State.WAITING, 45), (State.SCHEDULED, 12), (State.ACTIVE, 2), (State.COMPLETED, 33), (State.FAILED, 8))

PRIORITIES = ((0, 70), (-5, 10), (5, 8), (-10, 6), (10, 4), (-15, 1), (3, 1))
"""kue's named priorities, and two numbers of an application's own."""

ERRORS = (
    "Error: connect ECONNREFUSED 10.0.0.7:5432",
    "TypeError: Cannot read properties of undefined (reading 'codec')",
    "Error: Konto gesperrt – siehe Log",
    "Error: ffmpeg exited: 1 – “bad” 🙂",
)
STACK = "\n    at process (app/worker.js:42:11)\n    at Queue.next (app/lib/queue.js:7:3)"
RESULTS = (None, b'"sent"', b'{"messageId":"m-0","ok":true}', b"[1,2,3]", '{"u":"東京"}'.encode(), b"42")
BACKOFFS = (b'{"type":"exponential","delay":60000}', b'{"type":"fixed","delay":5000}', b"true")
LOG_LINES = (b"started", b"", "größer als 2 GB, in Teilen".encode(), b"line one\nline two")

DAY_MS = 86_400_000
CREATED_WITHIN_MS = 30 * DAY_MS
"""The oldest job is about this old."""
BODIES = 512
"""Payload bodies made beforehand; what differs from job to job is put in front of one of them."""


def generate(jobs: int, seed: int, now_ms: int, shard: Shard = UNSHARDED) -> Iterator[Job]:
    """``jobs`` jobs with ids from 1 on, as they stand at ``now_ms``."""
    start = Random(seed)
    bodies = [_body(start) for _ in range(BODIES)]
    draw_queue, draw_state, draw_priority = weighted(start, QUEUES), weighted(start, STATES), weighted(start, PRIORITIES)
    sample = StratifiedSample(lambda: (draw_queue(), draw_state(), draw_priority()))
    for numbers, random in shard.blocks(jobs, seed):
        for number, (queue, state, priority) in enumerate(sample.draw(numbers, random), numbers.start + 1):
            # Ids grow with time, as with kue; a minute is left for all that happened to the newest job.
            created_at = now_ms - 60_000 - (jobs - number) * CREATED_WITHIN_MS // jobs
            payload = b'{"n":%d,"to":"user%d@example.com",%b' % (number, number % 9973, bodies[int(random.random() * BODIES)])
            yield _job(random, str(number), queue, state, priority, payload, created_at, now_ms)


def _job(
    random: Random, job_id: str, queue: str, state: State, priority: int, payload: bytes, created_at: int, now_ms: int
) -> Job:
    """One job whose story is drawn to fit its state."""
    chance = random.random
    max_attempts = 3 if chance() < 0.3 else 1
    failures = max_attempts if state is State.FAILED else int(chance() * 1.4) if max_attempts > 1 else 0
    failed_at = created_at + int(chance() * 10_000)
    started_at = failed_at + int(chance() * 10_000) if state in (State.ACTIVE, State.COMPLETED) else failed_at
    # The canonical fields that this job's story sets, and the hash fields that only kue has.
    story: dict[str, Any] = {"updated_at": created_at + 2, "attempts": failures, "progress": 0.0}
    fields: dict[str, bytes] = {}
    extra: dict[str, Any] = {}
    if max_attempts > 1:
        fields["backoff"] = BACKOFFS[int(chance() * len(BACKOFFS))]
    if failures:
        error = ERRORS[int(chance() * len(ERRORS))]
        story |= {"error": error + STACK, "logs": (error.encode(),) * failures, "updated_at": failed_at + 2}
        if state is not State.FAILED:
            fields["failed_at"] = b"%d" % failed_at
    if failures or state in (State.ACTIVE, State.COMPLETED):
        story |= {"started_at": started_at, "worker": f"kue:worker-{job_id[-1]}:{31000 + int(chance() * 900)}:{queue}:1"}
    match state:
        case State.WAITING if chance() < 0.1:
            fields["removeOnComplete"] = b"true"
        case State.SCHEDULED:
            story["due_at"] = now_ms + 60_000 + int(chance() * 90 * DAY_MS)
        case State.ACTIVE:
            extra["state"] = WORDS[state]
            story |= {"progress": int(chance() * 100) / 100, "updated_at": started_at + 3}
            if chance() < 0.5:
                story |= {"ttl": 600_000, "lease_expires_at": now_ms + 1 + int(chance() * 600_000)}
        case State.COMPLETED:
            finished_at = started_at + 3 + int(chance() ** 4 * 30_000)
            story |= {"finished_at": finished_at, "updated_at": finished_at + 1, "progress": 1.0}
            story |= {"attempts": failures + 1, "result": RESULTS[int(chance() * len(RESULTS))]}
            if chance() < 0.2:
                story["logs"] = (*story.get("logs", ()), LOG_LINES[int(chance() * len(LOG_LINES))])
        case State.FAILED:
            story["finished_at"] = failed_at
    if fields:
        extra["fields"] = fields
    return Job(
        id=job_id,
        queue=queue,
        name=queue,
        state=state,
        priority=priority,
        payload=payload,
        created_at=created_at,
        max_attempts=max_attempts,
        extra={NAME: extra} if extra else {},
        **story,
    )


def _body(random: Random) -> bytes:
    """The rest of a JSON object: mostly some hundred bytes, now and then many thousand."""
    rest = {"text": text(random), "ok": random.random() < 0.5, "list": [1, None, {"deep": [random.random()]}]}
    return json.dumps(rest, ensure_ascii=random.random() < 0.5)[1:].encode()
