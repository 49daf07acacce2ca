"""PjqLive: a keyspace of pjq in use, every transition of a job as one call. The theory stands in ``lua/_common.lua``.

It serves the keys that every program from js-2 on has in common; those of the first JavaScript program are refused. Programs of
pjq are not woken by keys: they look at their next message. Called by the transport, by ``client.py`` and by tests.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeVar
from uuid import uuid4

from attrs import field, frozen

from ...schema.connection.call import Argument, Call
from ...schema.errors import UsageError
from ...schema.job import Job
from ...schema.keys import glob_escape
from ...schema.live import Failure, ForeignFamily, NewJob, Outcome
from ...schema.native.keys import DEFAULT_PREFIX
from ...schema.native.scripts import results
from ...schema.native.scripts.publication import check_name, optional
from ...schema.native.scripts.queue_scripts import FETCH_BYTES, MAX_PER_CALL
from ...schema.native.scripts.results import Found, Purged, Removed, Renewed, Role, Size, Taken
from ...schema.text import is_unicode, show, to_bytes, to_text
from .. import side
from . import replies
from .keys import LEASE_MS, can_be_id, layout
from .payload import Members, key_texts, members_of

T = TypeVar("T")


@frozen
class PjqLive(ForeignFamily):
    """The transitions of all queues under one prefix, beside programs and workers of pjq.

    ``put`` has no options. A job is a JSON object; its ``command`` is its name.
    """

    name = "pjq"
    priority_direction = 0
    can_delay = False
    has_names = True
    arguments = "object"
    longest_lease_ms = LEASE_MS

    prefix: str = ""
    side_prefix: str = DEFAULT_PREFIX
    _keys: tuple[bytes, bytes] = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        if not is_unicode(self.prefix):
            raise UsageError(f"the prefix {show(self.prefix)!r} is not UTF-8, which pjq's keys are")
        object.__setattr__(self, "_keys", (side.root(self.name, self.prefix, self.side_prefix), to_bytes(self.prefix)))

    # Before the first write

    def look(self) -> Call[None]:
        pattern = to_bytes(glob_escape(self.prefix))
        return self._call("look", None, (pattern,), partial(replies.check, self.prefix), f"pjq under {self.prefix!r}")

    # Jobs in

    def put(self, job: NewJob, *, now: int | None = None) -> Call[str]:
        """Stores a job and puts it at the end of its queue. Idle workers hear of it with the program's next message.

        ``payload`` must be a JSON object; ``uuid``, ``queue_name``, ``command`` and ``created_at`` are added where it lacks them.
        Raises UsageError for what pjq can't express: a delay, any option, another payload, an id that is the name of a key.
        """
        if job.delay_ms > 0:
            raise UsageError(f"pjq can't delay jobs: publish to queue {job.queue!r} without countdown or eta")
        if job.options:
            raise UsageError(f"pjq knows no options of a job, so not {', '.join(sorted(job.options))}")
        if job.publication is not None:
            _check_publication(job.publication)
        members = _members(job.payload)
        job_id = job.id or _id_in(members) or str(uuid4())
        if not can_be_id(job_id):
            raise UsageError(f"{show(job_id)!r} can't be the id of a job of pjq: it is the name of its key")
        text = dict(members)
        for name, value in (("uuid", job_id), ("queue_name", _queue(job.queue))):
            if value not in key_texts(text, name) and name in text:
                raise UsageError(f"the payload has {name} {text[name]!r}, but is to be job {job_id!r} of queue {job.queue!r}")
            text.setdefault(name, value)
        if job.name is not None:
            text.setdefault("command", job.name)
        stamp = "" if "created_at" in text else 1
        args = (to_bytes(job_id), _dump(text), job.extra or b"", job.publication or "", stamp)
        return self._about("put", job.queue, now, args, partial(replies.stored, job_id))

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
        """See ForeignFamily. A lease longer than 9 s holds as well: its job's dispatch is dated so that it ends with the lease.

        What is damaged, or nobody here knows, stays in its place.
        """
        if n < 0 or lease_ms <= 0:
            raise UsageError(f"take from queue {queue!r}: n must not be negative and lease_ms must be above 0")
        args: list[Argument] = [_member(consumer), n, lease_ms, optional(delivery_limit), fetch_bytes]
        args += [""] if tasks is None else [1, *map(to_bytes, tasks)]
        return self._about("take", queue, now, args, partial(replies.taken, queue))

    def complete(
        self, queue: str, consumer: str, results: Sequence[tuple[str, bytes | None]], *, now: int | None = None
    ) -> Call[tuple[Outcome, ...]]:
        """Ends jobs that are done with exit code 0; ``stdout`` is the result, as JSON text."""
        args: list[Argument] = [_member(consumer)]
        for job_id, result in results:
            args += (to_bytes(job_id), _string(to_text(result or b"")))
        return self._about("complete", queue, now, args, replies.completed)

    def fail(self, queue: str, consumer: str, job_id: str, failure: Failure, *, now: int | None = None) -> Call[Outcome]:
        """Ends a job with exit code 1; ``stderr`` is the failure's text. pjq knows no further attempts."""
        args = (_member(consumer), to_bytes(job_id), _string(failure.text))
        return self._about("fail", queue, now, args, lambda reply: "failed" if reply else "lost")

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
        """The same job again: at once behind all others, or after a delay before them, where taken back leases go.

        pjq counts no attempts and knows no most of them, so ours are counted in a field of the job's hash. A delayed retry stands
        in ``jobs_dispatched`` with a lease that ends with the delay.
        """
        text = b""
        if payload is not None:
            members = {**_members(payload), "uuid": job_id, "queue_name": _queue(queue)}
            text = _dump(members)
        args = (_member(consumer), to_bytes(job_id), max(delay_ms, 0), text, extra or b"")
        return self._about("retry", queue, now, args, replies.outcome)

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
        """Writes nothing: pjq keeps the progress of accepted jobs, and one of ours is accepted when it ends."""
        return self._about("progress", queue, now, (_member(consumer), to_bytes(job_id)), bool)

    def requeue(self, queue: str, consumer: str, ids: Sequence[str], *, now: int | None = None) -> Call[tuple[bool, ...]]:
        args: list[Argument] = [_member(consumer), "some", *map(to_bytes, ids)]
        return self._about("release", queue, now, args, results.flags)

    def release(self, queue: str, consumer: str, ids: Sequence[str] | None, *, now: int | None = None) -> Call[int]:
        which: tuple[Argument, ...] = ("all",) if ids is None else ("some", *map(to_bytes, ids))
        return self._about("release", queue, now, (_member(consumer), *which), sum)

    def forget(self, queue: str, consumer: str, *, now: int | None = None) -> Call[int]:
        return self._about("release", queue, now, (_member(consumer), "leave"), sum)

    def renew(self, queue: str, consumer: str, lease_ms: int, *, now: int | None = None) -> Call[Renewed]:
        return self._about("renew", queue, now, (_member(consumer), lease_ms), Renewed)

    def held(self, queue: str, consumer: str) -> Call[tuple[str, ...]]:
        return self._about("held", queue, None, (_member(consumer),), lambda ids: tuple(map(to_text, ids)))

    def size(self, queue: str, *, now: int | None = None) -> Call[Size]:
        """See ForeignFamily. ``scheduled`` are retries that are delayed; what has failed is counted in ``done``."""
        return self._about("size", queue, now, (), replies.size)

    def purge(self, queue: str, *, limit: int = MAX_PER_CALL, now: int | None = None) -> Call[Purged]:
        return self._about("purge", queue, now, (_positive(limit),), results.purged)

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
        own = to_bytes(f"{self.prefix}:") if self.prefix else b""
        args = (role, min(_positive(limit), MAX_PER_CALL), seen, own, *map(to_bytes, task_ids))
        return self._about("find", queue, now, args, results.found)

    def remove(self, queue: str, job_id: str, only: Role | None = None, *, now: int | None = None) -> Call[Removed | None]:
        return self._about("remove", queue, now, (to_bytes(job_id), only or ""), results.removed)

    # Looking at jobs

    def get(self, job_id: str) -> Call[Job | None]:
        """A job as it stands in the queue that its payload names; None: there is none."""
        return self._call("get", None, (to_bytes(job_id),), partial(replies.job, job_id), f"pjq job {job_id!r}")

    def peek(self, queue: str, n: int) -> Call[tuple[Job, ...]]:
        """The jobs of a queue that run next, at most MAX_PER_CALL."""
        return self._about("peek", queue, None, (n,), lambda found: tuple(replies.queued(queue, *each) for each in found))

    # The system's own clockwork

    def timers(self, *, delivery_limit: int | None = None, now: int | None = None) -> Sequence[Call[Any]]:
        """Takes back leases that are over, and forgets silent workers, in the queues that have consumers of ours."""
        args = (optional(delivery_limit),)
        return (self._call("timers", now, args, bool, f"pjq under {self.prefix!r}"),)

    def signals(self, queue: str) -> tuple[bytes, ...]:
        return (layout(self.prefix).key("queued", queue=queue),)

    def schedules(self, queue: str) -> tuple[bytes, ...]:
        """Where a retried job is held until its time."""
        return (layout(self.prefix).key("dispatched", queue=queue),)

    # Calls

    def _about(self, name: str, queue: str, now: int | None, args: Sequence[Argument], parse: Callable[[Any], T]) -> Call[T]:
        """A call about one queue, whose name stands in ARGV[2]."""
        return self._call(name, now, (to_bytes(_queue(queue)), *args), parse, f"pjq queue {queue!r}")

    def _call(self, name: str, now: int | None, args: Sequence[Argument], parse: Callable[[Any], T], what: str) -> Call[T]:
        assert __package__
        return side.call(__package__, name, self._keys, now, args, parse, what)


# Arguments


def _member(consumer: str) -> bytes:
    return to_bytes(check_name(consumer, "consumer"))


def _queue(queue: str) -> str:
    if not is_unicode(queue):
        raise UsageError(f"a queue of pjq has a name in UTF-8; this one is {show(queue)!r}")
    return queue


def _positive(limit: int) -> int:
    if limit <= 0:
        raise UsageError(f"limit {limit!r} must be above 0")
    return limit


def _check_publication(publication: str) -> None:
    producer, _, number = publication.rpartition("-")
    if not (producer and number.isascii() and number.isdecimal()):
        raise UsageError(f"publication {publication!r} must be <producer>-<n>")


def _members(payload: bytes) -> Members:
    members = members_of(payload)
    if members is None:
        raise UsageError(f"a job of pjq is a JSON object, and {show(payload, 40)!r} is none: publish it as an envelope")
    return members


def _id_in(members: Members) -> str | None:
    found = members.get("uuid")
    return found if isinstance(found, str) and found else None


def _dump(members: Mapping[str, Any]) -> bytes:
    """As the program stores it."""
    try:
        return json.dumps(members, separators=(",", ":"), allow_nan=False).encode("ascii")
    except ValueError:
        raise UsageError("NaN and infinity are not JSON: a job of pjq may reach a worker that refuses them") from None


def _string(text: str) -> bytes:
    """A text as a JSON string. What is not UTF-8 in it is replaced."""
    return json.dumps(text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")).encode("ascii")
