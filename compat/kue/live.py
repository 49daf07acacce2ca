"""A kue keyspace in use: every transition of a job, made as kue's own processes make it, as one call.

Theory. kue moves a job between indexes by blind transactions and never asks whose it is; each window between two of them loses or
doubles jobs. Here a transition is one script, which first asks: is the job active, and does its ``workerId`` say that this
consumer took it? If not, the outcome is ``lost``. kue has no leases: those of our consumers stand in side keys
(``compat/side.py``), and a job whose consumer has lapsed waits again. A job's ttl is the limit of a run, which kue's own checks
enforce as well: no lease renews it. Wake tokens, which kue's workers wait for, are taken inside ``lua/take.lua`` only.

kue's versions write differently; the scripts see in the keys which they have before them. ``lua/_common.lua`` has the keys and
what all scripts share. Called by ``family.py``, ``client.py`` and the transport.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache
from typing import Any, Literal, TypeVar

from ...schema.connection.call import Argument, Call
from ...schema.errors import KeyspaceRefused, UsageError
from ...schema.job import Job
from ...schema.keys import glob_escape
from ...schema.live import Failure, ForeignFamily, NewJob, Outcome, Upcoming
from ...schema.native.keys import DEFAULT_PREFIX
from ...schema.native.scripts import results
from ...schema.native.scripts.publication import optional
from ...schema.native.scripts.queue_scripts import FETCH_BYTES, MAX_PER_CALL
from ...schema.native.scripts.results import Found, Purged, Removed, Renewed, Role, Size, Taken
from ...schema.steering import Action
from ...schema.steering import Outcome as SteeringOutcome
from ...schema.text import is_json, is_unicode, show, to_bytes, to_text
from .. import side
from ..steering import outcome_of
from . import replies
from .keys import Era
from .options import hash_fields, is_truthy, percent, priority_text

T = TypeVar("T")


class KueLive(ForeignFamily):
    """The transitions of the kue keyspace under ``prefix``; that of an ioredis installation has the braces in it.

    ``era``: whose form new jobs get in a keyspace where no other job tells; None: that of 0.11.

    Options of ``put``: ``attempts``, how often it is tried (1); ``backoff``, True for the job's own delay between attempts, or
    ``{"type": "fixed" or "exponential", "delay": ms, "maxDelay": ms}``; ``ttl``, how many ms a run may take;
    ``removeOnComplete``.
    """

    name = "kue"
    time_limit_option = "ttl"
    priority_direction = 1
    can_delay = True

    def __init__(self, prefix: str = "q", side_prefix: str = DEFAULT_PREFIX, *, era: Era | None = None) -> None:
        if not prefix:
            raise UsageError("a kue keyspace has a prefix; kue's own default is q")
        self.prefix = prefix
        self._era = era
        self._keys = (side.root(self.name, prefix, side_prefix), to_bytes(prefix) + b":")

    def _call(
        self, script: str, queue: str | None, now: int | None, args: Sequence[Argument], parse: Callable[[Any], T]
    ) -> Call[T]:
        what = f"kue keyspace {self.prefix!r}" if queue is None else f"kue queue {queue!r}"
        first = () if queue is None else (to_bytes(queue),)
        assert __package__
        return side.call(__package__, script, self._keys, now, (*first, *args), parse, what)

    # Before the first write

    def look(self) -> Call[None]:
        return self._call("look", None, None, (to_bytes(glob_escape(self.prefix)) + b":*",), self._looked)

    def _looked(self, reply: Any) -> None:
        word, detail = to_text(reply[0]), show(reply[1])
        match word:
            case "fine" if reply[2] and self._era is not None and Era(int(detail)).is_padded is not self._era.is_padded:
                raise KeyspaceRefused(
                    f"the jobs under prefix {self.prefix!r} are of kue {Era(int(detail)).versions}, and the URL's version says "
                    f"{self._era.versions}: leave it out, or correct it"
                )
            case "other":
                raise KeyspaceRefused(
                    f"prefix {self.prefix!r} is not kue's: key {detail!r} is none of it; give the prefix of the kue installation"
                )
            case "mixed":
                raise KeyspaceRefused(
                    f"the kue keyspace {self.prefix!r} was upgraded across 0.10.3 (member {detail!r}): kue runs its old jobs "
                    "again and again; migrate them, or audit with --repair, first"
                )
            case "forbidden":
                raise KeyspaceRefused(
                    f"the user may not do {detail}: a user beside kue needs +pttl +publish ~promotion:lock "
                    f"~activeJobsTTL:lock &{self.prefix}:events"
                )
            case "replica":
                raise KeyspaceRefused("this server is a read-only replica: give the address of the master")
            case "literal":
                raise KeyspaceRefused(
                    f"kue before 0.8 has the prefix 'q' and no other, not {self.prefix!r}: set max_attempts, or move it"
                )

    # Jobs in

    def put(self, job: NewJob, *, now: int | None = None) -> Call[str]:
        if not job.queue or not is_unicode(job.queue):
            raise UsageError("a kue job needs a queue whose name has UTF-8 bytes")
        if not is_json(job.payload):
            raise UsageError("the payload of a kue job is JSON")
        if job.delay_ms < 0:
            raise UsageError("a delay is a number of ms, 0 for none")
        fields = hash_fields(job.options)
        attempts = fields.pop("max_attempts", b"")
        args: list[Argument] = [
            job.publication or "",
            priority_text(job.priority),
            job.delay_ms,
            attempts,
            job.payload,
            job.extra or b"",
            "" if self._era is None else int(self._era),
        ]
        for name, value in fields.items():
            args += (name, value)
        return self._call("put", job.queue, now, args, to_text)

    # Consuming

    def take(
        self,
        queue: str,
        consumer: str,
        n: int,
        lease_ms: int,
        *,
        no_ack: bool = False,
        delivery_limit: int | None = None,
        fetch_bytes: int = FETCH_BYTES,
        tasks: Collection[str] | None = None,
        now: int | None = None,
    ) -> Call[Taken]:
        chosen: list[Argument] = [""] if tasks is None else ["1", *map(to_bytes, sorted(tasks))]
        args: list[Argument] = [
            consumer,
            n,
            lease_ms,
            optional(delivery_limit),
            fetch_bytes,
            f"kue:{_host()}:{os.getpid()}",
            *chosen,
        ]
        return self._call("take", queue, now, args, lambda reply: replies.taken(queue, reply))

    def complete(
        self, queue: str, consumer: str, results: Sequence[tuple[str, bytes | None]], *, now: int | None = None
    ) -> Call[tuple[Outcome, ...]]:
        args: list[Argument] = [consumer]
        for job_id, result in results:
            args += (job_id, result or b"", int(is_truthy(result)))
        return self._call("complete", queue, now, args, replies.outcomes)

    def fail(self, queue: str, consumer: str, job_id: str, failure: Failure, *, now: int | None = None) -> Call[Outcome]:
        return self._fail(queue, consumer, job_id, failure, None, None, None, now)

    def retry(
        self,
        queue: str,
        consumer: str,
        job_id: str,
        delay_ms: int,
        *,
        failure: Failure,
        payload: bytes | None = None,
        extra: bytes | None = None,
        now: int | None = None,
    ) -> Call[Outcome]:
        return self._fail(queue, consumer, job_id, failure, max(0, delay_ms), payload, extra, now)

    def _fail(
        self,
        queue: str,
        consumer: str,
        job_id: str,
        failure: Failure,
        delay_ms: int | None,
        payload: bytes | None,
        extra: bytes | None,
        now: int | None,
    ) -> Call[Outcome]:
        texts = to_bytes(failure.message), to_bytes(failure.text)
        args = (consumer, job_id, *texts, int(failure.is_final), optional(delay_ms), payload or b"", extra or b"")
        return self._call("fail", queue, now, args, replies.outcome)

    def progress(
        self,
        queue: str,
        consumer: str,
        job_id: str,
        current: float,
        total: float,
        data: bytes | None = None,
        *,
        now: int | None = None,
    ) -> Call[bool]:
        args = (consumer, job_id, percent(current, total), data or b"", int(is_truthy(data)))
        return self._call("progress", queue, now, args, bool)

    def requeue(self, queue: str, consumer: str, ids: Sequence[str], *, now: int | None = None) -> Call[tuple[bool, ...]]:
        return self._call("requeue", queue, now, (consumer, *ids), results.flags)

    def release(self, queue: str, consumer: str, ids: Sequence[str] | None, *, now: int | None = None) -> Call[int]:
        if ids is None:
            return self._call("release", queue, now, (consumer, MAX_PER_CALL, 0), int)
        return self._call("requeue", queue, now, (consumer, *ids), sum)

    def forget(self, queue: str, consumer: str, *, now: int | None = None) -> Call[int]:
        return self._call("release", queue, now, (consumer, MAX_PER_CALL, 1), int)

    def renew(self, queue: str, consumer: str, lease_ms: int, *, now: int | None = None) -> Call[Renewed]:
        return self._call("renew", queue, now, (consumer, lease_ms), Renewed)

    def held(self, queue: str, consumer: str) -> Call[tuple[str, ...]]:
        return self._call("held", queue, None, (consumer,), lambda reply: tuple(map(to_text, reply)))

    # Queues

    def size(self, queue: str, *, now: int | None = None) -> Call[Size]:
        return self._call("size", queue, now, (), replies.size)

    def purge(self, queue: str, *, limit: int = MAX_PER_CALL, now: int | None = None) -> Call[Purged]:
        return self._call("purge", queue, now, (min(limit, MAX_PER_CALL),), results.purged)

    def find(
        self,
        queue: str,
        task_ids: Iterable[str],
        role: Literal["waiting", "scheduled"] = "waiting",
        *,
        seen: int = 0,
        limit: int = MAX_PER_CALL,
        now: int | None = None,
    ) -> Call[Found]:
        state = "inactive" if role == "waiting" else "delayed"
        args: list[Argument] = [state, min(limit, MAX_PER_CALL), seen, to_bytes(self.prefix) + b":", *map(to_bytes, task_ids)]
        return self._call("find", queue, now, args, results.found)

    def remove(self, queue: str, job_id: str, only: Role | None = None, *, now: int | None = None) -> Call[Removed | None]:
        return self._call("remove", queue, now, (job_id, only or ""), results.removed)

    def steer(
        self, queue: str, job_id: str, action: Action, told: Argument = "", *, now: int | None = None
    ) -> Call[SteeringOutcome]:
        """What an operator does to a job that nobody runs (``steering.py``)."""
        return self._call("steer", queue, now, (to_bytes(job_id), str(action), told), outcome_of)

    def upcoming(self, queue: str, limit: int, *, fetch_bytes: int = FETCH_BYTES) -> Call[tuple[Upcoming, ...]]:
        return self._call("upcoming", queue, None, (limit, fetch_bytes), lambda reply: replies.upcoming(queue, reply))

    def jobs(self, ids: Sequence[str]) -> Call[tuple[Job, ...]]:
        """Those of these jobs that there are, up to MAX_PER_CALL."""
        return self._call("jobs", None, None, ("ids", *ids), replies.jobs)

    def listed(self, state: str, queue: str | None = None, first: int = 0, n: int = MAX_PER_CALL) -> Call[tuple[Job, ...]]:
        """Jobs of a state, in kue's words, as kue lists them: ``n`` of them from the ``first`` on. None: of all queues."""
        return self._call("jobs", None, None, (state, to_bytes(queue or ""), first, n), replies.jobs)

    def stats(self) -> Call[replies.KueStats]:
        """kue's own statistics."""
        return self._call("stats", None, None, (), replies.stats)

    # kue's clockwork

    def timers(self, *, delivery_limit: int | None = None, now: int | None = None) -> Sequence[Call[int]]:
        return (self._call("timers", None, now, (optional(delivery_limit),), int),)

    def signals(self, queue: str) -> tuple[bytes, ...]:
        return (self._keys[1] + b"jobs:" + to_bytes(queue) + b":inactive",)

    def schedules(self, queue: str) -> tuple[bytes, ...]:
        return (self._keys[1] + b"jobs:delayed",)


@cache
def _host() -> str:
    return socket.gethostname()
