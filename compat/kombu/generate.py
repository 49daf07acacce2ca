"""Generates realistic Celery messages for demos, benchmarks and tests: the same jobs for the same seed, on any machine.

Queues with awkward names, priorities, delayed tasks, retries, tasks that workers hold, some compressed or pickled bodies, a few
large ones among many small. Every job is one that kombu 5.7 and Celery 5.7 could have written, and none is damaged: an audit
finds nothing. Called by the command line and by benchmarks.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator
from random import Random
from typing import Any

from attrs import evolve, frozen

from ...schema.errors import UsageError
from ...schema.job import Job, State
from ...schema.sampling import UNSHARDED, Shard, StratifiedSample, text, uuid, weighted
from ..generated import GeneratedJob
from .bindings import default_bindings
from .keys import Settings, can_be_queue
from .passthrough import QueuedRecord, job_of
from .record import Message, Record, eta_text

QUEUES = (
    ("celery", 45),
    ("emails 1", 15),
    ("reports.daily", 12),
    ("video:hd", 10),
    ("häppy-1", 8),
    ('sync "o\'brien"', 5),
    ("a*b?[c]", 5),
)
"""Queues and their shares. A blank, a colon, a quote or a wildcard in a name must trouble nobody."""

TASKS = ("proj.mail.send", "proj.video.encode", "proj.tasks.add", "proj.reports.build", "proj.sync.pull")
STATES = ((State.WAITING, 87), (State.SCHEDULED, 10), (State.ACTIVE, 3))
PRIORITIES = ((0, 80), (3, 6), (6, 6), (9, 5), (5, 2), (1, 1))
EMBED = b'{"callbacks": null, "errbacks": null, "chain": null, "chord": null}'

PICKLED = base64.b64decode("gASVPQAAAAAAAABdlEsBSwKGlGF9lH2UKIwJY2FsbGJhY2tzlE6MCGVycmJhY2tzlE6MBWNoYWlulE6MBWNob3JklE51h5Qu")
"""A body as the pickle serializer makes it. Nothing here could read it."""

DAY_MS = 86_400_000
BODIES = 512
"""Texts made beforehand; what differs from job to job is put in front of one of them."""


def check(settings: Settings) -> None:
    """Raises UsageError for a separator that stands in the name of a generated queue: kombu could not use it."""
    unusable = [queue for queue, _ in QUEUES if not can_be_queue(queue, settings)]
    if unusable:
        raise UsageError(
            f"sep={settings.separator!r} stands in the name of a generated queue, {unusable[0]!r}; choose another one"
        )


def generate(jobs: int, seed: int, now_ms: int, shard: Shard = UNSHARDED) -> Iterator[Job]:
    """``jobs`` messages as they stand at ``now_ms``."""
    for made in generate_records(jobs, seed, now_ms, shard):
        yield job_of(made.id, evolve(made.record, position=made.position))


def generate_records(jobs: int, seed: int, now_ms: int, shard: Shard = UNSHARDED) -> Iterator[GeneratedJob]:
    """The same messages, ready to be written."""
    start = Random(seed)
    bodies = [_Body.of(text(start)) for _ in range(BODIES)]
    draw_queue, draw_state, draw_priority = weighted(start, QUEUES), weighted(start, STATES), weighted(start, PRIORITIES)
    sample = StratifiedSample(lambda: (draw_queue(), draw_state(), draw_priority()))
    for numbers, random in shard.blocks(jobs, seed):
        published = sample.counts_before(numbers, lambda kind: kind[0])
        for number, (queue, state, priority) in zip(numbers, sample.draw(numbers, random), strict=True):
            message = _message(random, number, queue, priority, bodies[int(random.random() * BODIES)])
            record = Record(message)
            match state:
                case State.SCHEDULED:
                    due_at = now_ms + 60_000 + int(random.random() * 30 * DAY_MS)
                    record = Record(message.with_headers(eta=eta_text(due_at)))
                case State.ACTIVE:
                    record = Record(message, held=True, since=now_ms / 1000 - random.random() * 1800)
            queued = QueuedRecord(queue, record, record.text, message.step(), now_ms, default_bindings(queue))
            position = None if record.held else published[queue]
            published[queue] += 1
            yield GeneratedJob(id=message.tag, queue=queue, name="", state=state, position=position, record=queued)


@frozen
class _Body:
    """A text as an argument, in JSON and in Python."""

    json: bytes
    python: str

    @classmethod
    def of(cls, words: str) -> _Body:
        return cls(json.dumps(words).encode(), repr(words)[:1024])


def _message(random: Random, number: int, queue: str, priority: int, words: _Body) -> Message:
    """One task that is due at once."""
    chance = random.random
    task_id, tag = uuid(random), uuid(random)
    kwargs = {"ok": chance() < 0.5, "nested": {"list": [1, None, chance()]}}
    body = b"[[%d, %b], %b, %b]" % (number, words.json, json.dumps(kwargs).encode(), EMBED)
    content_type = "application/json"
    headers: dict[str, Any] = {
        "lang": "py",
        "task": TASKS[int(chance() * len(TASKS))],
        "id": task_id,
        "shadow": None,
        "eta": None,
        "expires": None,
        "group": None,
        "group_index": None,
        "retries": int(chance() * 4) if chance() < 0.1 else 0,
        "timelimit": [300, None] if chance() < 0.1 else [None, None],
        "root_id": task_id,
        "parent_id": None,
        "argsrepr": f"[{number}, {words.python}]"[:1024],
        "kwargsrepr": repr(kwargs),
        "origin": f"gen{20_000 + int(chance() * 9000)}@app-{number % 7}",
        "ignore_result": False,
        "replaced_task_nesting": 0,
        "stamped_headers": None,
        "stamps": {},
    }
    if chance() < 0.03:
        body = zlib.compress(body)
        headers["compression"] = "application/x-gzip"
    elif chance() < 0.01:
        body, content_type = PICKLED, "application/x-python-serialize"
    properties = {
        "correlation_id": task_id,
        "reply_to": "29fe1d26-fe6c-35ba-beda-7b84427951d4",
        "delivery_mode": 2,
        "delivery_info": {"exchange": "", "routing_key": queue},
        "priority": priority,
        "delivery_tag": tag,
    }
    encoding = "utf-8" if content_type == "application/json" else "binary"
    head = {"content-encoding": encoding, "content-type": content_type, "headers": headers, "properties": properties}
    return Message(head, body)
