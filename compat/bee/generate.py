"""Generates realistic bee jobs for demos, benchmarks and tests: the same jobs for the same seed, on any machine.

Queues with awkward names, all states in the shares of a busy installation, retries, duplicates of finished jobs, jobs that wait
for others, children, tags. Every job is one that the newest bee could have written, and none is damaged: an audit finds
nothing but running jobs whose workers keys alone leave open. Called by ``family.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

from attrs import define, evolve, field

from ...schema.job import Job, State
from ...schema.sampling import UNSHARDED, Shard, StratifiedSample, text, weighted
from ..generated import GeneratedJob
from ..lua_json import dump_plain
from .history import Event
from .keys import LOCK_MS, OPTIONS_TTL
from .passthrough import job_of
from .record import Record, standard

QUEUES = (
    ("Image.Resize", 30),
    ("mail:bulk send", 25),
    ('reports.日次 "Q"', 10),
    ("sync/v2?x=*", 20),
    ("übersetzung ✓", 15),
)
"""Queues and their shares. A colon, a quote, a blank or a wildcard in a name must trouble nobody."""

WORDS = (
    ("queued", 42),
    ("new", 10),
    ("retried", 3),
    ("running", 3),
    ("completed", 30),
    ("failed", 6),
    ("canceled", 4),
    ("expired", 2),
    ("follower", 8),
)
"""Statuses and their shares. A follower waits for another job, or is its duplicate."""
STATE_OF = {
    "queued": State.WAITING,
    "new": State.SCHEDULED,
    "retried": State.SCHEDULED,
    "running": State.ACTIVE,
    "completed": State.COMPLETED,
    "failed": State.FAILED,
    "canceled": State.CANCELLED,
    "expired": State.COMPLETED,
}
FOLLOWED = frozenset({"queued", "new", "completed"})
"""The statuses of jobs that can have a follower."""

PRIORITIES = ((0, 80), (5, 8), (10, 4), (-5, 4), (2.5, 2), (1, 2))
TAGS = ("customer=42", "größe L", "a:children", "nightly", "reports/2014")
ERRORS = ("Error: connect ECONNREFUSED 10.0.0.7:5432", "bad image", "Error: Konto gesperrt – “siehe Log” 🙂")
RESULTS = (b"null", b'"sent"', b'{"messageId":"m-0","ok":true}', b"[1,2,3]", '{"u":"東京"}'.encode(), b"42", b"{}")

Kind = tuple[str, str, float]
"""Queue, status and priority of a job that is to be made."""

DAY_MS = 86_400_000
BODIES = 512
"""Payload bodies made beforehand; what differs from job to job is put in front of one of them."""


def generate(jobs: int, seed: int, now_ms: int, shard: Shard = UNSHARDED) -> Iterator[Job]:
    """``jobs`` jobs as they stand at ``now_ms``."""
    for made in generate_records(jobs, seed, now_ms, shard):
        yield evolve(job_of(made.id, made.record), position=made.position, rank=0)


def generate_records(jobs: int, seed: int, now_ms: int, shard: Shard = UNSHARDED) -> Iterator[GeneratedJob]:
    """The same jobs, ready to be written."""
    start = Random(seed)
    bodies = [dump_plain(text(start)) or b"" for _ in range(BODIES)]
    draw_queue, draw_word, draw_priority = weighted(start, QUEUES), weighted(start, WORDS), weighted(start, PRIORITIES)
    sample = StratifiedSample(lambda: (draw_queue(), draw_word(), draw_priority()))
    for numbers, random in shard.blocks(jobs, seed):
        waiting = sample.counts_before(numbers, lambda kind: kind[0] if kind[1] == "queued" else None)
        maker = _Maker(random, bodies, jobs, now_ms, waiting, numbers.start)
        yield from maker.jobs_of(sample.draw(numbers, random))


def _paired(kinds: Iterable[Kind]) -> Iterator[tuple[Kind, bool]]:
    """Each kind with whether its job has a follower; each follower goes to the next job that can have one."""
    followers: list[Kind] = []
    for kind in kinds:
        if kind[1] == "follower":
            followers.append(kind)
        else:
            follows = bool(followers) and kind[1] in FOLLOWED
            if follows:
                followers.pop()
            yield kind, follows
    yield from (((queue, "new", priority), False) for queue, _, priority in followers)


@define
class _Maker:
    """Makes the jobs of one block, one after the other."""

    random: Random
    bodies: Sequence[bytes]
    jobs: int
    now_ms: int
    waiting: Counter[str | None]
    """How many jobs of each queue wait already."""
    made: int
    latest: str | None = None

    def jobs_of(self, kinds: Iterable[Kind]) -> Iterator[GeneratedJob]:
        """One job of each kind."""
        for (queue, word, priority), follows in _paired(kinds):
            follower = self._id() if follows else None
            job, fields, scores = self._job(queue, word, priority, self.bodies[int(self.random.random() * BODIES)], follower)
            yield self._stored(job, word, fields, scores)
            if follower is not None and word == "completed":
                yield self._duplicate(job, fields[b"hash"], follower)
            elif follower is not None:
                yield self._blocked(job, follower)

    def _job(
        self, queue: str, word: str, priority: float, body: bytes, follower: str | None
    ) -> tuple[Job, dict[bytes, bytes], dict[str, float]]:
        """One job that depends on no other, its unusual fields, and its place. ``follower``: the one that will depend on it."""
        random, job_id = self.random, self._id()
        # Jobs come in the order of their time; finished ones came within their time to live.
        age = OPTIONS_TTL * 0.9 * random.random() if word in ("completed", "failed") else self._age()
        story = _Story(random, queue, self.now_ms - 60_000 - int(age))
        retries = int(random.random() * 1.3) if word not in ("new", "canceled") else 0
        retries = max(retries, word == "retried")
        story.run(word, retries)
        scores = {}
        match word:
            case "queued":
                scores["queue"] = float(story.now)
            case "new" | "retried":
                scores["delayed"] = float(story.till or 0)
            case "running":
                scores["locks"] = float(self.now_ms + LOCK_MS - int(random.random() * 30_000))
            case "completed" | "failed":
                scores["expires"] = float(story.now + OPTIONS_TTL)
        fields: dict[bytes, bytes] = {}
        if word in ("completed", "expired"):
            fields[b"result"] = RESULTS[int(random.random() * len(RESULTS))]
            if follower is not None or (word == "completed" and random.random() < 0.6):
                fields[b"hash"] = b"%040x" % random.getrandbits(160)
        if word == "failed":
            fields[b"failedReason"] = str(story.events[-1].get("message", "")).encode()
        if follower is not None and word != "completed":
            fields[b"dependants"] = dump_plain([follower]) or b"{}"
        if self.latest is not None and word not in ("canceled", "expired") and random.random() < 0.05:
            fields[b"parent"] = self.latest.encode()
        words = (self.made, self.made % 9973, body, b"true" if random.random() < 0.5 else b"false")
        payload = b'[{"n":%d,"to":"user%d@example.com","text":%b,"ok":%b}]' % words
        job = Job(
            id=job_id,
            queue=queue,
            name=queue,
            state=STATE_OF[word],
            priority=priority,
            payload=payload,
            created_at=story.created_at,
            due_at=story.till,
            attempts=retries + (word not in ("queued", "new", "retried", "canceled")),
            max_attempts=6,
            worker=story.worker,
            tags=tuple(random.sample(TAGS, int(random.random() * 2.5))) if random.random() < 0.2 else (),
            history=tuple(story.events),
        )
        self.latest = job_id
        return job, fields, scores

    def _duplicate(self, original: Job, unique_key: bytes, job_id: str) -> GeneratedJob:
        """A job equal to one that has ended."""
        story = _Story(self.random, original.queue, self.now_ms - 60_000 - int(self.random.random() * 60_000))
        story.run("duplicate", 0)
        story.events[-1] = {**story.events[-1], "worker": story.worker, "duplicateJid": original.id}
        job = evolve(original, id=job_id, created_at=story.created_at, history=tuple(story.events), tags=(), worker=story.worker)
        return self._stored(job, "duplicate", {b"duplicate": original.id.encode(), b"hash": unique_key}, {})

    def _blocked(self, needed: Job, job_id: str) -> GeneratedJob:
        """A job that waits for one that has yet to end."""
        story = _Story(self.random, needed.queue, (needed.created_at or 0) + 1 + int(self.random.random() * 1000))
        story.add("dependancyWaiting")
        job = Job(
            id=job_id,
            queue=needed.queue,
            name=needed.queue,
            state=State.BLOCKED,
            priority=0,
            payload=b'[{"after":"%s"}]' % needed.id.encode(),
            created_at=story.created_at,
            max_attempts=6,
            depends_on=(needed.id,),
            history=tuple(story.events),
        )
        return self._stored(job, "new", {}, {})

    def _stored(self, job: Job, word: str, fields: Mapping[bytes, bytes], scores: Mapping[str, float]) -> GeneratedJob:
        """The job with its record, and its place in the queue."""
        usual = standard(job, word)
        stored = Record({**usual.fields, **fields}, scores, usual.needs, usual.dying, usual.original)
        position = None
        if word == "queued":
            position = self.waiting[job.queue]
            self.waiting[job.queue] += 1
        self.made += 1
        return GeneratedJob(
            id=job.id,
            queue=job.queue,
            name=job.name,
            state=job.state,
            created_at=job.created_at,
            depends_on=job.depends_on,
            position=position,
            record=stored,
        )

    def _age(self) -> float:
        return DAY_MS * (1 - self.made / self.jobs)

    def _id(self) -> str:
        """A UUID of version 1, as bee makes them."""
        chance = self.random.getrandbits
        return f"{chance(32):08x}-{chance(16):04x}-11f1-{0x8000 | chance(14):04x}-{chance(48):012x}"


@define
class _Story:
    """What happened to one job, event by event."""

    random: Random
    queue: str
    created_at: int
    now: int = 0
    till: int | None = None
    worker: str | None = None
    events: list[Event] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.now = self.created_at
        self.add("submitted")

    def add(self, event: str, **more: Any) -> None:
        """One event, now."""
        self.events.append({"hive": f"web-{len(self.queue) % 4}.example.org", "timestamp": self.now, "event": event, **more})

    def run(self, word: str, retries: int) -> None:
        """Everything that leads to a status."""
        for _ in range(retries):
            self._take()
            self.add("exception", message=ERRORS[int(self.random.random() * len(ERRORS))])
            self._delay(30_000)
        match word:
            case "new":
                self._delay(DAY_MS + int(self.random.random() * 30 * DAY_MS))
            case "retried":
                self._last_delay()
            case "queued" | "canceled":
                self.add("queued")
            case _:
                self._take()
        if word == "canceled":
            self.add(word)
        elif word == "failed":
            message = ERRORS[int(self.random.random() * len(ERRORS))]
            self.add("exception", message=message)
            self.add(word, message=message)
        elif word in ("completed", "expired", "duplicate"):
            self.add("completed" if word == "expired" else word)

    def _take(self) -> None:
        number = int(self.random.random() * 9)
        self.add("queued")
        self.now += 1 + int(self.random.random() * 500)
        self.worker = f"worker-{number}.example.org:{12_000 + number}:07081540-e5a9-11f1-a542-{number:012x}:{self.queue}"
        self.add("popped")
        self.now += 1 + int(self.random.random() * 5000)

    def _delay(self, duration: int) -> None:
        self.till = self.now + duration
        self.add("delayed", till=self.till)

    def _last_delay(self) -> None:
        """The last try is to come: its delay is a long one."""
        last = dict(self.events[-1])
        self.till = last["till"] = self.now + DAY_MS + int(self.random.random() * DAY_MS)
        self.events[-1] = last
