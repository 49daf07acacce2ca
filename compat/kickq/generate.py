"""Generates realistic kickq jobs for demos, benchmarks and tests: the same jobs for the same seed, on any machine.

Queues with awkward names, all eight state words in the shares of a busy installation, a few large payloads among many small ones,
retries, slow runs and their errors. Every job is one that kickq 1.x could have written, and none is damaged: an audit at the
same moment finds nothing. Called by the command line and by benchmarks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

from attrs import evolve

from ...schema.job import Job
from ...schema.sampling import UNSHARDED, Shard, StratifiedSample, text, weighted
from ..generated import GeneratedJob
from ..members import Member
from .reader import job_of
from .record import DEFAULTS, PURGE_MS, Record

QUEUES = (
    ("send emails", 30),
    ("convert videos", 20),
    ("billing:invoice:eu", 15),
    ("naïve ☃ 队列", 12),
    ('sync "o\'brien"', 10),
    ("state:new", 8),
    ("webhook/v2?retry=1&x=*", 5),
)
"""Queues and their shares. A blank, a colon, a quote, a wildcard or the name of another key must trouble nobody."""

STATES = (
    *(("new", 36), ("queued", 8), ("delayed", 8), ("retry", 4), ("ghost", 2), ("processing", 2)),
    *(("success", 32), ("fail", 8)),
)

ERRORS: tuple[Any, ...] = (
    "Error: connect ECONNREFUSED 10.0.0.7:5432\n    at Socket.<anonymous> (/srv/app/db.js:42:11)",
    "quota exceeded",
    "Konto gesperrt – siehe Log 🙂",
    {},
    {"code": "ECONNRESET", "errno": -104},
    17,
)
"""kickq stores any JSON; an Error object loses its text on the way."""
TIMED_OUT = "processing timed out"

CREATED_WITHIN_MS = 20 * 3_600_000
"""The oldest job is about this old: kickq deletes what has been finished for a day."""
BODIES = 512
"""Payload bodies made beforehand; what differs from job to job is put in front of one of them."""


_NEW: Mapping[str, Any] = (
    {"id": None, "name": None, "complete": False, "success": False, "createTime": None, "updateTime": None}
    | {"finishTime": None, "totalProcessTime": None, "delay": None}
    | dict(DEFAULTS)
    | {"data": None, "lastError": None, "scheduledFor": None, "state": "new", "runs": [], "hotjobPromise": None}
)
"""The document of a new job, in kickq's order."""
_NEW_MEMBERS = {name: Member.of(value) for name, value in _NEW.items()}


def generate(jobs: int, seed: int, now_ms: int, shard: Shard = UNSHARDED) -> Iterator[Job]:
    """``jobs`` jobs with ids from 1 on, as they stand at ``now_ms``."""
    for made in generate_records(jobs, seed, now_ms, shard):
        yield evolve(job_of(made.id, made.record), position=made.position)


def generate_records(jobs: int, seed: int, now_ms: int, shard: Shard = UNSHARDED) -> Iterator[GeneratedJob]:
    """The same jobs, ready to be written."""
    start = Random(seed)
    bodies = [_body(start) for _ in range(min(jobs, BODIES))]
    draw_queue, draw_word = weighted(start, QUEUES), weighted(start, STATES)
    sample = StratifiedSample(lambda: (draw_queue(), draw_word()))
    for numbers, random in shard.blocks(jobs, seed):
        pushed = sample.counts_before(numbers, _list_of)
        for number, (queue, word) in enumerate(sample.draw(numbers, random), numbers.start + 1):
            # Ids grow with time, as with kickq; some minutes are left for all that happened to the newest job.
            created_at = now_ms - 300_000 - (jobs - number) * CREATED_WITHIN_MS // jobs
            body = bodies[int(random.random() * len(bodies))]
            payload = b'{"n":%d,"to":"user%d@example.com",%b' % (number, number % 9973, body)
            position = None
            if _list_of((queue, word)) is not None:
                position = pushed[queue]
                pushed[queue] += 1
            job_id = str(number)
            record = _record(random, job_id, queue, word, payload, created_at, now_ms)
            yield GeneratedJob(id=job_id, queue=queue, name=queue, state=record.state, position=position, record=record)


def _list_of(kind: tuple[str, str]) -> str | None:
    """The queue in whose list a job of this queue and state waits."""
    queue, word = kind
    return queue if word in ("new", "queued") else None


def _record(random: Random, job_id: str, queue: str, word: str, payload: bytes, created_at: int, now_ms: int) -> Record:
    """One job whose story is drawn to fit its state."""
    item = {**_NEW, "id": job_id, "name": queue, "createTime": created_at, "state": word}
    item["updateTime"] = created_at + 1 + int(random.random() * 20)
    scores: dict[str, float] = {"time_index": float(created_at)}
    story = _STORIES.get(word)
    if story is not None:
        story(random, item, now_ms)
    role = {"delayed": "scheduled", "retry": "scheduled", "ghost": "scheduled", "success": "purge", "fail": "purge"}.get(word)
    if role is not None:
        scores[role] = float(item["scheduledFor"])
    members = {name: _NEW_MEMBERS[name] if value is _NEW[name] else Member.of(value) for name, value in item.items()}
    members["data"] = Member(None, payload)
    fields = {name.encode(): str(item[name]).encode() for name in ("id", "name", "createTime", "updateTime")}
    return Record({**fields, b"state": word.encode()}, members, scores)


def _delay(random: Random, item: dict[str, Any], now_ms: int) -> None:
    item["scheduledFor"] = now_ms + 60_000 + int(random.random() * 30 * PURGE_MS)
    item["delay"] = item["scheduledFor"] - item["updateTime"]


def _promote(random: Random, item: dict[str, Any], now_ms: int) -> None:
    """It was due seconds ago, for the first time or again."""
    item["scheduledFor"] = now_ms - 1 - int(random.random() * 5000)
    if item["state"] == "queued" and random.random() < 0.4:
        _run(random, item, "fail", item["scheduledFor"] - item["retryInterval"])
        item |= {"retry": True, "state": "retry"}
    else:
        item |= {"delay": item["scheduledFor"] - item["updateTime"], "state": "delayed"}
        item["processTimeout"] = 600_000


def _retry(random: Random, item: dict[str, Any], now_ms: int) -> None:
    item["scheduledFor"] = now_ms + 60_000 + int(random.random() * 1_000_000)
    ended = "fail" if item["state"] == "retry" else "ghost"
    item["retry"] = ended == "fail"
    _run(random, item, ended, item["scheduledFor"] - item["retryInterval"])


def _finish(random: Random, item: dict[str, Any], _now_ms: int) -> None:
    at = item["updateTime"]
    if random.random() < 0.15:
        item |= {"retry": True, "retryInterval": 1000}
        at = _run(random, item, "fail", at + 1000) + 1000
    at = _run(random, item, "success" if item["state"] == "success" else "fail", at + int(random.random() * 5000))
    item |= {"complete": True, "success": item["state"] == "success", "finishTime": at}
    item |= {"totalProcessTime": sum(run["processTime"] for run in item["runs"]), "scheduledFor": item["updateTime"] + PURGE_MS}
    if random.random() < 0.1:
        item |= {"hotjob": True, "hotjobTimeout": 9000}


def _run(random: Random, item: dict[str, Any], state: str, ended_at: int) -> int:
    """Adds a run that ended at this time, and gives the time."""
    took = item["processTimeout"] if state == "ghost" else 3 + int(random.random() ** 4 * 10_000)
    error = None if state == "success" else TIMED_OUT if state == "ghost" else ERRORS[int(random.random() * len(ERRORS))]
    run = {"count": len(item["runs"]) + 1, "startTime": ended_at - took, "processTime": took}
    run |= {"processTimeout": item["processTimeout"], "state": state, "error": error, "timeout": None}
    item["runs"] = [*item["runs"], run]
    item["updateTime"] = ended_at + 1
    if error is not None:
        item["lastError"] = error
    return ended_at


_STORIES = {
    "queued": _promote,
    "processing": _promote,
    "delayed": _delay,
    "retry": _retry,
    "ghost": _retry,
    "success": _finish,
    "fail": _finish,
}


def _body(random: Random) -> bytes:
    """The rest of a JSON object: mostly some hundred bytes, now and then many thousand."""
    rest = {"text": text(random), "ok": random.random() < 0.5, "list": [1, None, {"deep": [random.random()]}]}
    return json.dumps(rest, ensure_ascii=False, separators=(",", ":"))[1:].encode()
