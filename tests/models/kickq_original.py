"""kickq's own processes, as its format page describes them: every transition as the commands that it sends, one after the other.

Each transition is a generator of commands (a list of them is one transaction) that is sent their replies. Whoever drives it may
stop between any two commands, as a process does that is killed. What a process has in memory, a popped job or what a scheduler
has taken out of its sorted set, is in ``Running`` and ``Scheduler``, and dies with it.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from typing import Any, Generic, TypeVar

import redis
from attrs import define, field, frozen
from ferryman.compat.kickq.record import DEFAULTS, PURGE_MS
from ferryman.compat.members import stringify

T = TypeVar("T")

Words = tuple[Any, ...]
Steps = Generator[Words | list[Words], Any, T]

LOOK_MS = 1500
TIMED_OUT = "processing timed out"


class Process(Generic[T]):
    """A process that is at one transition. It may be left standing before any command, for ever if it was killed."""

    def __init__(self, client: redis.Redis, steps: Steps[T]) -> None:
        self._client, self._steps = client, steps
        self._next: Words | list[Words] | None = None
        self.results: list[T] = []
        """The transition's result, once it has come to its end."""
        self._go_on(None)

    @property
    def is_done(self) -> bool:
        return self._next is None

    def send(self, commands: int | None = None) -> None:
        """Sends so many of its commands, a transaction as one; None: all."""
        while self._next is not None and commands != 0:
            commands = None if commands is None else commands - 1
            if isinstance(self._next, list):
                with self._client.pipeline(transaction=True) as pipeline:
                    for words in self._next:
                        pipeline.execute_command(*words)
                    self._go_on(pipeline.execute())
            else:
                self._go_on(self._client.execute_command(*self._next))

    def _go_on(self, reply: Any) -> None:
        try:
            self._next = self._steps.send(reply)
        except StopIteration as end:
            self._next = None
            self.results.append(end.value)


def perform(client: redis.Redis, steps: Steps[T]) -> T:
    """Sends all commands and gives the transition's result."""
    process = Process(client, steps)
    process.send()
    return process.results[0]


@define
class Running:
    """A job in the memory of the process that works on it."""

    item: dict[str, Any]
    state: str
    started: int = 0

    @property
    def id(self) -> str:
        job_id: str = self.item["id"]
        return job_id


@frozen
class OriginalKickq:
    """A process of kickq with the default options of 1.x, or of an older release."""

    namespace: str = "kickq"
    error_name: str = "error"
    """``errorMessage`` up to 0.2.4."""
    has_state_sets: bool = True
    """Not up to 0.0.11."""

    def key(self, *parts: str) -> bytes:
        return ":".join((self.namespace, *parts)).encode("utf-8", "surrogateescape")

    # Pieces

    def _publish(self, event: str, item: dict[str, Any]) -> Iterator[Words]:
        text = stringify(item)
        name = item.get("name", "")
        yield ("PUBLISH", self.key(event, name) if name else self.key(event), text)
        yield ("PUBLISH", self.key(event), text)

    def _save(self, job: Running, now: int) -> Words:
        item = job.item
        item["updateTime"] = now
        item["state"] = job.state
        mirrors = {name: str(item[name]) for name in ("id", "name", "createTime", "updateTime")}
        pairs = [word for pair in mirrors.items() for word in pair]
        return ("HMSET", self.key("job", job.id), *pairs, "state", job.state, "itemData", stringify(item))

    def _move(self, job: Running, word: str) -> Steps[None]:
        before, job.state = job.state, word
        if before == word:
            return
        moves: list[Words] = [
            ("HSET", self.key("job", job.id), "state", word),
            ("SMOVE", self.key("state", before), self.key("state", word), job.id),
        ]
        _, moved = yield moves
        if not moved and self.has_state_sets:
            yield ("SADD", self.key("state", word), job.id)

    def _read(self, job_id: str) -> Steps[Running | None]:
        raw, state = yield ("HMGET", self.key("job", job_id), "itemData", "state")
        try:
            item = json.loads(raw)
        except (TypeError, ValueError):
            return None
        if not isinstance(item, dict) or item.get("id") != job_id:
            return None
        return Running(with_defaults(item), state.decode() if state else "")

    # Producing

    def create(self, name: str, data: Any, now: int, **options: Any) -> Steps[str]:
        job_id = str((yield ("INCR", self.key("id"))))
        delay = options.pop("delay", None)
        word = "new" if delay is None else "delayed"
        job = Running(new_item(job_id, name, data, now, delay, options), word)
        job.item["state"] = word
        yield self._save(job, now)
        if self.has_state_sets:
            yield ("SADD", self.key("state", word), job_id)
        yield ("ZADD", self.key("time-index"), now, job_id)
        if delay is None:
            yield from self._publish("create", job.item)
            yield ("RPUSH", self.key("queue", name), job_id)
            yield from self._publish("queued", job.item)
        else:
            job.item["scheduledFor"] = now + delay
            yield self._save(job, now)
            yield ("ZADD", self.key("scheduled"), now + delay, job_id)
        yield ("ZADD", self.key("time-index"), now, job_id)
        return job_id

    # Consuming

    def pop(self, name: str, now: int) -> Steps[Running | None]:
        """The first job of a list, if a worker can run it."""
        popped = yield ("LPOP", self.key("queue", name))
        return None if popped is None else (yield from self.begin(popped.decode(), now))

    def begin(self, job_id: str, now: int) -> Steps[Running | None]:
        """The job of an id that was popped."""
        job = yield from self._read(job_id)
        if job is not None:
            yield from self._move(job, "processing")
            job.started = now
        return job

    def _add_run(self, job: Running, now: int, state: str, problem: Any) -> None:
        runs = job.item["runs"]
        run = {"count": len(runs) + 1, "startTime": job.started, "processTime": now - job.started}
        run |= {"processTimeout": job.item["processTimeout"], "state": state, self.error_name: problem, "timeout": None}
        runs.append(run)
        if problem is not None:
            job.item["lastError"] = problem

    def _finish(self, job: Running, now: int, word: str, run: str, problem: Any = None) -> Steps[None]:
        yield from self._move(job, word)
        self._add_run(job, now, run, problem)
        total = sum(each["processTime"] for each in job.item["runs"])
        job.item.update(complete=True, success=word == "success", finishTime=now, totalProcessTime=total)
        yield self._save(job, now)
        job.item["scheduledFor"] = now + PURGE_MS
        yield self._save(job, now)
        yield ("ZADD", self.key("scheduled-purge"), now + PURGE_MS, job.id)
        yield from self._publish(word, job.item)

    def _postpone(self, job: Running, now: int, word: str, run: str, problem: Any, interval: int) -> Steps[None]:
        yield from self._move(job, word)
        self._add_run(job, now, run, problem)
        yield self._save(job, now)
        yield from self._publish("fail", job.item)
        job.item["scheduledFor"] = now + int(interval) % 2**32
        yield self._save(job, now)
        yield ("ZADD", self.key("scheduled"), job.item["scheduledFor"], job.id)

    def succeed(self, job: Running, now: int) -> Steps[None]:
        return self._finish(job, now, "success", "success")

    def fail(self, job: Running, problem: Any, now: int) -> Steps[None]:
        item = job.item
        if item["retry"] and len(item["runs"]) + 1 < item["retryTimes"]:
            return self._postpone(job, now, "retry", "fail", problem, item["retryInterval"])
        return self._finish(job, now, "fail", "fail", problem)

    def time_out(self, job: Running, now: int) -> Steps[None]:
        item = job.item
        ghosts = sum(run["state"] == "ghost" for run in item["runs"]) + 1
        if item["ghostRetry"] and ghosts <= item["ghostTimes"]:
            return self._postpone(job, now, "ghost", "ghost", TIMED_OUT, item["ghostInterval"])
        return self._finish(job, now, "fail", "ghost", TIMED_OUT)


@define
class Scheduler:
    """A scheduler of kickq, and what it has taken and waits for in memory."""

    kickq: OriginalKickq
    taken: list[tuple[int, str, Running]] = field(factory=list)
    """When each is due, out of which set, and the job as it was when it was taken."""

    def look(self, now: int) -> Steps[None]:
        """Takes what is due within 1.5 s, before and after; an id without a record makes it forget all of that set."""
        for role in ("scheduled", "scheduled-purge"):
            window = (self.kickq.key(role), now - LOOK_MS, now + LOOK_MS)
            take: list[Words] = [("ZRANGEBYSCORE", *window), ("ZREMRANGEBYSCORE", *window)]
            ids, _ = yield take
            jobs = []
            for raw in ids:
                jobs.append((yield from self.kickq._read(raw.decode())))
            if None not in jobs:
                self.taken += [(job.item["scheduledFor"] or now, role, job) for job in jobs]

    def fire(self, now: int) -> Steps[None]:
        """What was taken and is due now."""
        due = [each for each in self.taken if each[0] <= now]
        self.taken = [each for each in self.taken if each[0] > now]
        for _, role, job in due:
            yield from self._purge(job) if role == "scheduled-purge" else self._queue(job)

    def _queue(self, job: Running) -> Steps[None]:
        yield from self.kickq._move(job, "queued")
        job.item["state"] = "queued"
        yield ("RPUSH", self.kickq.key("queue", job.item["name"]), job.id)
        yield from self.kickq._publish("queued", job.item)

    def _purge(self, job: Running) -> Steps[None]:
        key = self.kickq.key
        removals: list[Words] = [
            ("DEL", key("job", job.id)),
            ("ZREM", key("time-index"), job.id),
            ("SREM", key("state", job.state), job.id),
        ]
        yield removals
        said = {"id": job.id, "queue": job.item["name"], "jobItem": job.item, "status": job.state}
        yield ("PUBLISH", key("delete"), stringify(said))


def new_item(job_id: str, name: str, data: Any, now: int, delay: float | None, options: dict[str, Any]) -> dict[str, Any]:
    """The document of a new job."""
    item: dict[str, Any] = {"id": job_id, "name": name, "complete": False, "success": False, "createTime": now, "updateTime": now}
    item |= {"finishTime": None, "totalProcessTime": None, "delay": delay, **DEFAULTS, **options}
    return item | {"data": data, "lastError": None, "scheduledFor": None, "state": "new", "runs": [], "hotjobPromise": None}


def with_defaults(item: dict[str, Any]) -> dict[str, Any]:
    """A document as kickq has it in memory: with all members in its order; what it doesn't know comes last."""
    whole = new_item(item["id"], item.get("name", ""), None, 0, None, {})
    known = {name: item.get(name, whole[name]) for name in whole}
    return known | {name: value for name, value in item.items() if name not in whole}
