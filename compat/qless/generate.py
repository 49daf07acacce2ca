"""Generates realistic qless jobs for demos, benchmarks and tests: the same jobs for the same seed, on any machine.

Queues with awkward names, all states in the shares of a busy installation, tags, pipelines, dependencies, failures with their
traces, priorities of both signs. Odd seeds give the jobs of a reqless installation, with throttles. Every job is one that the
software could have written, and none is damaged: an audit finds nothing. Called by the command line and by benchmarks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any

from attrs import frozen

from ...schema.job import Job, State
from ...schema.sampling import UNSHARDED, Shard, StratifiedSample, text, weighted
from .. import lua_json
from ..generated import GeneratedJob
from .passthrough import THROTTLED, Passthrough
from .record import NAME, STALLED, Record, canonical, standard, work_score

QUEUES = (
    ("emails", 30),
    ("image: resize", 15),
    ("reports-work", 15),
    ("höhle/日本", 12),
    ("cron:nightly", 10),
    ("slow lane", 13),
    ('say "hi"?*[x]', 5),
)
"""Queues and their shares. A suffix of a key, a slash, a quote or a wildcard in a name must trouble nobody."""

STATES = (
    (State.WAITING, 42),
    (State.SCHEDULED, 9),
    (State.BLOCKED, 5),
    (State.ACTIVE, 4),
    (State.COMPLETED, 30),
    (State.FAILED, 10),
)
PRIORITIES = ((0, 65), (5, 10), (-5, 8), (10, 6), (100, 4), (-20, 4), (1.5, 3))
TAGS = ("urgent", "customer:42", "with space", "ünï-täg", '"quoted"', "1.5")
WORKERS = ("web-01.example-4121", "batch-02-77", "wörker ü-9")
KLASSES = ("shop.jobs.Email", "shop.jobs.Resize", "shop.jobs.Report", "Backup::Full")
THROTTLES = ("gpu", "api: eu/west")
FAILURES = (
    ("emails-ConnectionError", "gateway said: \"declined\" for card '4242'\n\ttotal=19.00 €\n"),
    ("img-Timeout", 'Traceback (most recent call last):\n  File "/srv/shop/jobs.py", line 9, in render\nTimeout\n'),
    ("группа", "Конто заблокировано"),
)

DAY_MS = 86_400_000
CREATED_WITHIN_MS = 6 * DAY_MS
"""Completed jobs older than a week are gone."""
LEASE_MS = 50_000
"""Locks end at most this much later: workers take 60 s at a time."""
BODIES = 512
PARENTS = 50
"""A blocked job waits for one of this many jobs before it."""


def generate(jobs: int, seed: int, now_ms: int, shard: Shard = UNSHARDED) -> Iterator[Job]:
    """``jobs`` jobs as they stand at ``now_ms``, the oldest first."""
    for made in generate_records(jobs, seed, now_ms, shard):
        yield canonical(made.id, made.record, made.extra)


def generate_records(jobs: int, seed: int, now_ms: int, shard: Shard = UNSHARDED) -> Iterator[GeneratedJob]:
    """The same jobs, ready to be written."""
    start = Random(seed)
    bodies = [
        lua_json.dump({"text": text(start), "ok": start.random() < 0.5, "list": [1, None, {}]}) for _ in range(min(BODIES, jobs))
    ]
    draw_queue, draw_state, draw_priority = weighted(start, QUEUES), weighted(start, STATES), weighted(start, PRIORITIES)
    sample = StratifiedSample(lambda: (draw_queue(), draw_state(), draw_priority()))
    for numbers, random in shard.blocks(jobs, seed):
        parents: deque[str] = deque(maxlen=PARENTS)
        story = _Story(random, now_ms, bool(seed % 2))
        for number, (queue, state, priority) in enumerate(sample.draw(numbers, random), numbers.start + 1):
            # Ids are random with qless, times are not; a minute is left for all that happened to the newest job.
            created_at = now_ms - 120_000 - (jobs - number) * CREATED_WITHIN_MS // jobs
            drawn = State.WAITING if state is State.BLOCKED and not parents else state
            job = Job(
                id=f"{random.getrandbits(128):032x}",
                queue=queue,
                name=KLASSES[int(random.random() * len(KLASSES))],
                state=drawn,
                priority=priority,
                payload=b'{"n":%d,"body":%b}' % (number, bodies[int(random.random() * len(bodies))]),
                max_attempts=6,
                **story.fields(drawn, created_at, parents),
            )
            made = story.stored(job)
            if made.state is State.WAITING:
                parents.append(made.id)
            yield made


@frozen
class _Story:
    """What has happened to a job."""

    random: Random
    now_ms: int
    throttles: bool

    def fields(self, state: State, created_at: int, parents: deque[str]) -> dict[str, Any]:
        """The canonical fields that tell how a job has come into its state."""
        fields: dict[str, Any] = {"created_at": created_at, "attempts": 0}
        if self.random.random() >= 0.7:
            fields["tags"] = tuple(sorted(self.random.sample(TAGS, 1 + int(self.random.random() * 2))))
        if state in (State.ACTIVE, State.COMPLETED, State.FAILED):
            # Of earlier moments the history keeps whole seconds.
            fields["created_at"] = created_at // 1000 * 1000
            started_at = fields["created_at"] + 1000 * int(self.random.random() * 30)
            fields |= {"started_at": started_at, "attempts": 1}
            if state is not State.COMPLETED:
                fields["worker"] = WORKERS[int(self.random.random() * len(WORKERS))]
        match state:
            case State.SCHEDULED:
                fields["due_at"] = self.now_ms + 60_000 + self._ms(30 * DAY_MS)
            case State.BLOCKED:
                fields["depends_on"] = (parents[int(self.random.random() * len(parents))],)
            case State.ACTIVE:
                fields["lease_expires_at"] = self.now_ms + 1000 + self._ms(LEASE_MS)
            case State.COMPLETED:
                fields["finished_at"] = started_at + 1 + self._ms(20_000)
            case State.FAILED:
                group, message = FAILURES[int(self.random.random() * len(FAILURES))]
                fields["finished_at"] = started_at + 1000 * int(self.random.random() * 20)
                fields["error"] = f"{group}: {message}"
        return fields

    def _ms(self, most: int) -> int:
        return int(self.random.random() * most)

    def stored(self, job: Job) -> GeneratedJob:
        """The job with its record, and with what stands in Redis beside the canonical fields."""
        record = standard(job)
        fields: dict[bytes, bytes] = {}
        scores: dict[str, float] = {}
        if job.state is State.WAITING:
            # Live scores have more digits than a time in ms.
            seconds = (job.created_at or 0) / 1000 + int(self.random.random() * 9) / 1e4
            scores["work"] = work_score(job.priority or 0, seconds)
            if self.random.random() < 0.02:
                scores["work"] = float("inf")
                fields |= {b"state": STALLED.encode(), b"worker": WORKERS[0].encode()}
        if self.throttles:
            self._throttle(job, fields, scores)
        own = scores if THROTTLED in scores else {**record.scores, **scores}
        own = {role: score for role, score in own.items() if ":" not in role}
        stored = Record({**record.fields, **fields}, record.history, own, record.depends_on)
        bound = bool(scores) or job.state is State.ACTIVE
        own = Passthrough(state=stored.fields[b"state"].decode() if bound else None, scores=scores, fields=fields).to_extra()
        return GeneratedJob(
            id=job.id,
            queue=job.queue,
            name=job.name,
            state=stored.state,
            created_at=job.created_at,
            started_at=job.started_at,
            finished_at=job.finished_at,
            extra={NAME: own} if own else {},
            record=stored,
        )

    def _throttle(self, job: Job, fields: dict[bytes, bytes], scores: dict[str, float]) -> None:
        """Adds what reqless keeps of a job: each needs its queue's own throttle, some another one too."""
        needed = [f"ql:q:{job.queue}"]
        if self.random.random() < 0.2:
            needed.insert(0, THROTTLES[int(self.random.random() * len(THROTTLES))])
        fields[b"throttles"] = _names_text(*needed)
        if job.state is State.ACTIVE:
            scores.update((f"slot:{throttle}", 1.0) for throttle in needed)
        elif job.state is State.WAITING and len(needed) > 1 and b"state" not in fields:
            since = (job.created_at or 0) / 1000
            fields[b"state"] = THROTTLED.encode()
            scores.clear()
            scores.update({THROTTLED: since, f"pending:{needed[0]}": since})


@cache
def _names_text(*names: str) -> bytes:
    return lua_json.dump(names)
