"""The processes of kue 0.11, command by command, so that anything can happen between two of them, their death included.

Each is a generator over real commands, which yields wherever kue waits for an answer or where a cut connection could stop it.
Written from the description of the key family, and deliberately as blind as kue: no step asks what others have done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import redis
from attrs import define, field

STATES = ("inactive", "delayed", "active", "complete", "failed")
LOCK_MS = 2000


def member(job_id: str) -> str:
    return f"{len(job_id):02d}|{job_id}"


def id_of(name: bytes) -> str:
    return name.decode().partition("|")[2]


@define
class Job:
    """What a process of kue has in its memory of a job."""

    id: str
    fields: dict[str, str]

    @classmethod
    def read(cls, client: redis.Redis, job_id: str) -> Job | None:
        fields = {name.decode(): value.decode() for name, value in client.hgetall(f"q:job:{job_id}").items()}
        return cls(job_id, fields) if fields.get("type") else None

    @property
    def queue(self) -> str:
        return self.fields["type"]

    @property
    def ttl(self) -> int:
        return int(self.fields.get("ttl", 0))

    def get(self, name: str) -> int:
        return int(self.fields.get(name, 0))


@define
class Original:
    """One process of kue: what it does, and how far it is."""

    client: redis.Redis
    clock: Callable[[], int]
    name: str
    run: Iterator[None] | None = None
    stage: str = "idle"
    """``running``: a handler has the job, and may take its time; all else takes milliseconds."""
    job: Job | None = None
    token: str | None = None
    """The type whose wake token it has in its hand."""
    outcome: str = "ok"
    started: list[str] = field(factory=list)
    """The jobs whose handlers it has begun."""

    def step(self) -> bool:
        """Goes on to the next command. False: there was none."""
        if self.run is None:
            return False
        if next(self.run, self) is self:
            self.run, self.stage, self.job, self.token = None, "idle", None, None
        return True

    def finish(self) -> None:
        """All that takes milliseconds: until a handler runs, or to the end."""
        while self.run is not None and self.stage != "running":
            self.step()

    # The common step

    def _set_state(self, job: Job, state: str) -> None:
        now, name, old = self.clock(), member(job.id), job.fields.get("state")
        self.client.hset(f"q:job:{job.id}", "updated_at", now)
        priority = job.fields["priority"]
        pipeline = self.client.pipeline(transaction=True)
        if old and old != state:
            pipeline.zrem(f"q:jobs:{old}", name)
            pipeline.zrem(f"q:jobs:{job.queue}:{old}", name)
        pipeline.hset(f"q:job:{job.id}", "state", state)
        score: float = float(priority)
        if state == "delayed":
            score = job.get("promote_at")
        elif state == "active":
            score = now + job.ttl if job.ttl else -abs(float(priority))
        pipeline.zadd(f"q:jobs:{state}", {name: score})
        pipeline.zadd(f"q:jobs:{job.queue}:{state}", {name: priority})
        if state == "inactive":
            pipeline.lpush(f"q:{job.queue}:jobs", 1)
        pipeline.execute()
        job.fields["state"] = state

    def _set(self, job: Job, **fields: Any) -> None:
        for name, value in fields.items():
            self.client.hset(f"q:job:{job.id}", name, value)
            job.fields[name] = str(value)

    # Creating

    def create(self, queue: str, **options: Any) -> Iterator[None]:
        self.stage = "creating"
        job = Job(str(self.client.incr("q:ids")), {"type": queue, "priority": str(options.get("priority", 0))})
        self.job = job
        yield
        now, delay = self.clock(), options.get("delay", 0)
        self._set(job, max_attempts=options.get("attempts", 1))
        self.client.sadd("q:job:types", queue)
        self._set(job, type=queue, created_at=now, promote_at=now)
        yield
        if delay:
            self._set(job, delay=delay, promote_at=now + delay)
        for name in ("ttl", "backoff", "removeOnComplete"):
            if options.get(name):
                self._set(job, **{name: options[name]})
        self._set(job, updated_at=now, priority=job.fields["priority"])
        self.client.zadd("q:jobs", {member(job.id): job.fields["priority"]})
        self._set(job, data="{}")
        yield
        self._set_state(job, "delayed" if delay else "inactive")

    # Working

    def work(self, queue: str) -> Iterator[None]:
        """One turn of a worker. Waits for no token: there is one, or its turn is over."""
        self.stage = "taking"
        if self.client.lpop(f"q:{queue}:jobs") is None:
            return
        self.token = queue
        yield
        pipeline = self.client.pipeline(transaction=True)
        pipeline.zrange(f"q:jobs:{queue}:inactive", 0, 0)
        pipeline.zremrangebyrank(f"q:jobs:{queue}:inactive", 0, 0)
        first = pipeline.execute()[0]
        self.token = None
        if not first:
            return
        self.job = Job(id_of(first[0]), {"type": queue})
        yield
        job = Job.read(self.client, self.job.id)
        if job is None:
            return
        self.job = job
        self._set(job, started_at=self.clock(), workerId=f"kue:host:{self.name}:{queue}:1")
        yield
        self._set_state(job, "active")
        self.started.append(job.id)
        self.stage = "running"
        yield
        self.stage = "ending"
        yield from self._complete(job) if self.outcome == "ok" else self.fail_attempt(job, "it failed")

    def _complete(self, job: Job) -> Iterator[None]:
        duration = max(0, self.clock() - job.get("started_at"))
        self._set(job, duration=duration, progress=100)
        yield
        self._set_state(job, "complete")
        yield
        self._count_attempt(job)
        yield
        if job.fields.get("removeOnComplete"):
            self._remove(job)
        self.client.incrby("q:stats:work-time", duration)

    def _count_attempt(self, job: Job) -> int:
        if job.get("attempts") < job.get("max_attempts"):
            job.fields["attempts"] = str(self.client.hincrby(f"q:job:{job.id}", "attempts", 1))
        return job.get("max_attempts") - job.get("attempts")

    def fail_attempt(self, job: Job, text: str) -> Iterator[None]:
        self._set(job, error=text)
        self.client.rpush(f"q:job:{job.id}:log", text)
        self._set(job, updated_at=self.clock(), failed_at=self.clock())
        yield
        self._set_state(job, "failed")
        yield
        left = self._count_attempt(job)
        yield
        if left <= 0:
            return
        if job.fields.get("backoff"):
            self._set(job, promote_at=job.get("failed_at") + job.get("delay"), updated_at=self.clock())
            self._set_state(job, "failed")
            yield
            self._set_state(job, "delayed")
        else:
            self._set_state(job, "inactive")

    # Timers

    def promote(self) -> Iterator[None]:
        self.stage = "promoting"
        if not self.client.set("promotion:lock", self.name, nx=True, px=600_000):
            return
        yield
        for name in self.client.zrangebyscore("q:jobs:delayed", 0, self.clock()):
            self.job = Job.read(self.client, id_of(name))
            if self.job:
                yield
                self._set_state(self.job, "inactive")
                self.job = None
            yield
        self.client.delete("promotion:lock")

    def check_ttl(self, workers: Callable[[str], Original | None]) -> Iterator[None]:
        """``workers``: the process that runs a job and can answer."""
        self.stage = "checking"
        if not self.client.set("activeJobsTTL:lock", self.name, nx=True, px=600_000):
            return
        unanswered = []
        for name in self.client.zrangebyscore("q:jobs:active", 100_000, self.clock()):
            worker = workers(id_of(name))
            if worker and worker.job:
                worker.stage = "ending"
                worker.run = worker.fail_attempt(worker.job, "TTL exceeded")
                worker.finish()
            else:
                unanswered.append(id_of(name))
        yield
        for job_id in unanswered:
            self.job = Job.read(self.client, job_id)
            if self.job:
                yield from self.fail_attempt(self.job, "TTL exceeded")
                self.job = None
        self.client.delete("activeJobsTTL:lock")

    # By hand

    def _remove(self, job: Job) -> None:
        pipeline = self.client.pipeline(transaction=True)
        name, state = member(job.id), job.fields["state"]
        pipeline.zrem(f"q:jobs:{state}", name)
        pipeline.zrem(f"q:jobs:{job.queue}:{state}", name)
        pipeline.zrem("q:jobs", name)
        pipeline.delete(f"q:job:{job.id}:log", f"q:job:{job.id}")
        pipeline.execute()

    def remove(self, job_id: str) -> bool:
        """What its API does when somebody clicks. False: there is no such job."""
        job = Job.read(self.client, job_id)
        if job and "state" in job.fields:
            self._remove(job)
        return job is not None

    def restart(self, job_id: str) -> bool:
        job = Job.read(self.client, job_id)
        if job and "state" in job.fields:
            self._set_state(job, "inactive")
        return job is not None
