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

import math
import os
import socket
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Literal, TypeVar

from attrs import frozen

from ...schema.connection.call import Argument, Call
from ...schema.errors import KeyspaceRefused, MalformedValue, UsageError
from ...schema.job import Job
from ...schema.keys import glob_escape
from ...schema.live import Failure, ForeignDelivery, ForeignFamily, NewJob, Outcome
from ...schema.native.keys import DEFAULT_PREFIX
from ...schema.native.scripts import results
from ...schema.native.scripts.publication import optional
from ...schema.native.scripts.queue_scripts import FETCH_BYTES, MAX_PER_CALL
from ...schema.native.scripts.results import Found, Purged, Removed, Renewed, Role, Size, Taken
from ...schema.text import is_json, is_unicode, load_json_fast, show, to_bytes, to_text
from .. import side
from ..numbers import number_text, parse_int, parse_number
from .keys import Era
from .record import Record, canonical

T = TypeVar("T")

PRIORITIES: Mapping[str, int] = {"low": 10, "normal": 0, "medium": -5, "high": -10, "critical": -15}
"""kue's names for priorities; the lowest number runs first."""

OPTIONS = ("attempts", "backoff", "ttl", "removeOnComplete")
"""What ``put`` takes as options of a job."""


@frozen
class KueStats:
    """How many jobs have which state, and how long all completed ones have run."""

    waiting: int
    scheduled: int
    active: int
    completed: int
    failed: int
    work_time_ms: int
    queues: tuple[str, ...]
    """All that ever had a job."""


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
        fields = _options(job.options)
        attempts = fields.pop("max_attempts", b"")
        args: list[Argument] = [
            job.publication or "",
            _priority(job.priority),
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
        return self._call("take", queue, now, args, lambda reply: _taken(queue, reply))

    def complete(
        self, queue: str, consumer: str, results: Sequence[tuple[str, bytes | None]], *, now: int | None = None
    ) -> Call[tuple[Outcome, ...]]:
        args: list[Argument] = [consumer]
        for job_id, result in results:
            args += (job_id, result or b"", int(is_truthy(result)))
        return self._call("complete", queue, now, args, _outcomes)

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
        return self._call("fail", queue, now, args, _outcome)

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
        return self._call("size", queue, now, (), _size)

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

    def jobs(self, ids: Sequence[str]) -> Call[tuple[Job, ...]]:
        """Those of these jobs that there are, up to MAX_PER_CALL."""
        return self._call("jobs", None, None, ("ids", *ids), _jobs)

    def listed(self, state: str, queue: str | None = None, first: int = 0, n: int = MAX_PER_CALL) -> Call[tuple[Job, ...]]:
        """Jobs of a state, in kue's words, as kue lists them: ``n`` of them from the ``first`` on. None: of all queues."""
        return self._call("jobs", None, None, (state, to_bytes(queue or ""), first, n), _jobs)

    def stats(self) -> Call[KueStats]:
        """kue's own statistics."""
        return self._call("stats", None, None, (), _stats)

    # kue's clockwork

    def timers(self, *, delivery_limit: int | None = None, now: int | None = None) -> Sequence[Call[int]]:
        return (self._call("timers", None, now, (optional(delivery_limit),), int),)

    def signals(self, queue: str) -> tuple[bytes, ...]:
        return (self._keys[1] + b"jobs:" + to_bytes(queue) + b":inactive",)


# What the scripts get


@cache
def _host() -> str:
    return socket.gethostname()


def _priority(priority: float | None) -> bytes:
    if priority is not None and not math.isfinite(priority):
        raise UsageError("a kue priority is a finite number")
    return number_text(priority or 0)


def _options(options: Mapping[str, Any]) -> dict[str, bytes]:
    """The hash fields that the options of a new job become."""
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        raise UsageError(f"kue has no option {unknown[0]!r}; known are: {', '.join(OPTIONS)}")
    fields = {}
    attempts, ttl, backoff = options.get("attempts"), options.get("ttl"), options.get("backoff")
    if attempts is not None:
        if not _is_number(attempts) or attempts < 1 or attempts != int(attempts):
            raise UsageError("option 'attempts' must be a whole number above 0")
        fields["max_attempts"] = b"%d" % attempts
    if ttl:
        if not _is_number(ttl) or ttl < 0:
            raise UsageError("option 'ttl' must be a number of ms")
        fields["ttl"] = number_text(ttl)
    if options.get("removeOnComplete"):
        fields["removeOnComplete"] = b"true"
    if backoff:
        fields["backoff"] = _backoff(backoff)
    return fields


def _backoff(backoff: Any) -> bytes:
    if backoff is True:
        return b"true"
    if not isinstance(backoff, Mapping) or backoff.get("type") not in ("fixed", "exponential"):
        raise UsageError("option 'backoff' must be true, or have the type fixed or exponential")
    numbers = {name: backoff[name] for name in ("delay", "maxDelay") if backoff.get(name) is not None}
    if set(backoff) - {"type", "delay", "maxDelay"} or not all(_is_number(each) and each >= 0 for each in numbers.values()):
        raise UsageError("option 'backoff' has a type, a delay and a maxDelay, both numbers of ms, and nothing else")
    parts = [b'"type":"%s"' % backoff["type"].encode()]
    parts += [b'"%s":%s' % (name.encode(), number_text(each)) for name, each in numbers.items()]
    return b"{%s}" % b",".join(parts)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_truthy(raw: bytes | None) -> bool:
    """Whether a JSON text stands for something that JavaScript takes for true: kue keeps no other result."""
    if raw is None or raw in (b"null", b"false", b"0", b'""', b""):
        return False
    number = parse_number(raw)
    return number is None or number != 0


def percent(current: float, total: float) -> int:
    """How far a job is, as kue counts: whole percent, at most 100."""
    try:
        share = current * 100 / total
    except (ZeroDivisionError, OverflowError):
        return 0
    return min(100, int(share)) if abs(share) < 2**31 else 0


# What the scripts reply


def _taken(queue: str, reply: Any) -> Taken:
    now, next_event, unknown, *jobs = reply
    deliveries = tuple(_delivery(queue, job) for job in jobs)
    return Taken(True, int(now), int(next_event), deliveries, unknown=tuple(map(to_text, unknown)))


def _delivery(queue: str, job: Any) -> ForeignDelivery:
    job_id, raw_priority, lapses, data, extra, attempts, max_attempts, ttl = job
    priority = int(parse_number(raw_priority) or 0)
    limit = parse_number(ttl)
    return ForeignDelivery(
        to_text(job_id),
        priority,
        priority,
        lapses + attempts + 1,
        {},
        queue=queue,
        payload=data,
        extra=extra if is_extra(extra) else None,
        attempts=attempts,
        max_attempts=parse_int(max_attempts),
        time_limit_ms=None if limit is None else max(1, int(limit)),
    )


def is_extra(raw: bytes) -> bool:
    """Whether a field ``ferryman`` is what Celery knows of a job, not what a migration left there (``compat/overflow.py``)."""
    if not raw:
        return False
    try:
        value = load_json_fast(raw)
    except MalformedValue:
        return False
    return isinstance(value, dict) and "as_of" not in value


def _outcome(reply: Any) -> Outcome:
    outcome: Outcome = reply.decode()
    return outcome


def _outcomes(reply: Any) -> tuple[Outcome, ...]:
    return tuple(map(_outcome, reply))


def _jobs(reply: Any) -> tuple[Job, ...]:
    return tuple(_job(*each) for each in reply)


def _job(job_id: bytes, pairs: list[bytes], logs: list[bytes], score: bytes) -> Job:
    fields = dict(zip(pairs[::2], pairs[1::2], strict=True))
    scores = {"by_state": float(score)} if score else {}
    return canonical(to_text(job_id), Record(fields, scores), tuple(logs))


def _stats(reply: Any) -> KueStats:
    waiting, scheduled, active, completed, failed, work_time, queues = reply
    names = tuple(sorted(map(to_text, queues)))
    return KueStats(waiting, scheduled, active, completed, failed, parse_int(work_time) or 0, names)


def _size(reply: Any) -> Size:
    now, waiting, due, delayed, active, complete, failed, consumers, next_due = map(int, reply)
    return Size(
        exists=True,
        waiting=waiting + due,
        due=due,
        scheduled=delayed - due,
        held=active,
        dead=failed,
        done=complete,
        consumers=consumers,
        routes=0,
        next_due_ms=None if next_due < 0 else next_due,
        blocked=0,
        outbox=0,
        now=now,
    )
