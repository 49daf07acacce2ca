"""kickq in use: every transition of a job as one call, so that ferryman's consumers work beside kickq's own, or without them.

Where jobs stand and what each move writes is in ``lua/_common.lua``. Facts of kickq that shape this:

- Whoever pops an id from a list runs it, whatever its state; nothing tells who that was. Here a job is held in side keys, and
  goes back to the head of its list, in the state that it had, when its consumer lapses.
- A run that takes longer than ``processTimeout`` is a *ghost*: the worker's own timer ends it. Here ``renew`` does, and ``fail``
  with one of TIME_LIMITS. A ghost run is repeated ``ghostTimes`` times, a failed one if ``retry`` is set.
- There are no priorities, names, progress, results, logs, pause and cancelling. A job is removed by taking it out of all keys.
- Documents are written at the end of a run, with ``errorMessage`` instead of ``error`` where the last run before was of 0.2.4 or
  earlier, and without sets by state where there are none (up to 0.0.11).

Called by the transport, by ``client.py`` and by tests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeVar

from attrs import field, frozen

from ...schema.connection.call import Argument, Call, Command
from ...schema.errors import UsageError
from ...schema.keys import glob_escape
from ...schema.live import Failure, ForeignFamily, NewJob, Outcome, Upcoming
from ...schema.native.keys import DEFAULT_PREFIX
from ...schema.native.scripts.publication import optional
from ...schema.native.scripts.queue_scripts import FETCH_BYTES, MAX_PER_CALL
from ...schema.native.scripts.results import Found, Purged, Removed, Renewed, Role, Size, Taken
from ...schema.steering import Action
from ...schema.steering import Outcome as SteeringOutcome
from ...schema.text import is_unicode, show, to_bytes, to_text
from .. import side
from ..members import stringify
from ..steering import outcome_of
from . import replies
from .job_options import option_members
from .keys import counted
from .process_options import ProcessOptions
from .record import data_member
from .replies import KickqJob

T = TypeVar("T")

TIME_LIMITS = frozenset({"TimeLimitExceeded", "SoftTimeLimitExceeded"})
"""The exceptions of Celery that say that a run took too long."""


@frozen
class KickqLive(ForeignFamily):
    """The transitions of the jobs under one namespace, which is the ``prefix``."""

    prefix: str
    side_prefix: str = DEFAULT_PREFIX
    options: ProcessOptions = field(factory=ProcessOptions)

    name: ClassVar[str] = "kickq"
    time_limit_option = "processTimeout"
    priority_direction: ClassVar[Literal[-1, 0, 1]] = 0

    _root: bytes = field(init=False, repr=False)
    _begin: bytes = field(init=False, repr=False)
    _channels: bytes = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        if not self.prefix or not is_unicode(self.prefix):
            raise UsageError(f"a namespace of kickq must be text, and not empty; {show(self.prefix)!r} can't be one")
        object.__setattr__(self, "_root", side.root("kickq", self.prefix, self.side_prefix))
        object.__setattr__(self, "_begin", to_bytes(self.prefix) + b":")
        object.__setattr__(self, "_channels", self.options.channels(self.prefix))

    def _call(self, name: str, what: str, now: int | None, args: Sequence[Argument], parse: Callable[[Any], T]) -> Call[T]:
        assert __package__
        words = (self._channels, self.options.purge_timeout, *args)
        return side.call(__package__, name, (self._root, self._begin), now, words, parse, f"kickq {what}")

    def _about(self, name: str, queue: str, now: int | None, args: Sequence[Argument], parse: Callable[[Any], T]) -> Call[T]:
        """A call of a script about one queue."""
        return self._call(name, f"queue {queue!r}", now, (to_bytes(queue), *args), parse)

    # Before the first write

    def look(self) -> Call[None]:
        pattern = to_bytes(glob_escape(self.prefix)) + b":*"
        return self._call("look", f"keyspace {self.prefix!r}", None, (pattern,), lambda reply: replies.judge(reply, self.prefix))

    # Jobs in

    def put(self, job: NewJob, *, now: int | None = None) -> Call[str]:
        """As in ForeignFamily. Options: ``attempts`` (all runs), ``backoff`` (ms), ``ttl`` (ms that a run may take); and kickq's
        own, ``retry``, ``retryTimes``, ``retryInterval``, ``processTimeout``, ``ghostRetry``, ``ghostTimes``, ``ghostInterval``,
        ``hotjob``, ``hotjobTimeout``, with its own defaults.

        An ``id`` may be any text but a number, which kickq's counter would reach; where there is a job of that id, its id is the
        result, and nothing is written.
        """
        if not is_unicode(job.queue):
            raise UsageError(f"kickq can't have a queue named {show(job.queue, 60)!r}: it is not Unicode")
        if job.id is not None and (not job.id or not is_unicode(job.id) or counted(job.id) is not None):
            raise UsageError(f"a kickq job can't be given the id {show(job.id, 60)!r}: it must be text, and no number")
        args: tuple[Argument, ...] = (
            stringify(job.queue),
            to_bytes(job.id or ""),
            stringify(job.id or ""),
            max(0, job.delay_ms),
            option_members(job.options),
            _payload_text(job.payload),
            job.extra or b"",
            to_bytes(job.publication or ""),
        )
        return self._about("put", job.queue, now, args, to_text)

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
        names = () if tasks is None else tuple(map(to_bytes, tasks))
        args = (consumer, n, lease_ms, optional(delivery_limit), fetch_bytes, "" if tasks is None else 1, *names)
        return self._about("take", queue, now, args, lambda reply: replies.taken(reply, queue))

    def complete(
        self, queue: str, consumer: str, results: Sequence[tuple[str, bytes | None]], *, now: int | None = None
    ) -> Call[tuple[Outcome, ...]]:
        """As in ForeignFamily; kickq keeps no results."""
        args: tuple[Argument, ...] = (consumer, *(to_bytes(job_id) for job_id, _ in results))
        return self._about("complete", queue, now, args, replies.completed)

    def fail(self, queue: str, consumer: str, job_id: str, failure: Failure, *, now: int | None = None) -> Call[Outcome]:
        """As in ForeignFamily. One of TIME_LIMITS makes a ghost of the run, whose error is kickq's own; any other has failed."""
        return self._fail(queue, consumer, job_id, failure, now)

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
        text = b"" if payload is None else _payload_text(payload)
        return self._fail(queue, consumer, job_id, failure, now, max(0, delay_ms), text, extra or b"")

    def _fail(
        self,
        queue: str,
        consumer: str,
        job_id: str,
        failure: Failure,
        now: int | None,
        delay_ms: int | None = None,
        payload: bytes = b"",
        extra: bytes = b"",
    ) -> Call[Outcome]:
        is_ghost = failure.exception in TIME_LIMITS and delay_ms is None
        args: tuple[Argument, ...] = (
            consumer,
            to_bytes(job_id),
            b"" if is_ghost else stringify(failure.text),
            1 if failure.is_final else "",
            optional(delay_ms),
            payload,
            extra,
        )
        return self._about("fail", queue, now, args, replies.outcome)

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
        """As in ForeignFamily; kickq has no place for it."""
        return self._about("held", queue, now, (consumer, to_bytes(job_id)), bool)

    def requeue(self, queue: str, consumer: str, ids: Sequence[str], *, now: int | None = None) -> Call[tuple[bool, ...]]:
        return (
            self._back(queue, consumer, ids, now, replies.flags)
            if ids
            else replies.known(self._held(queue, consumer, ids, now), ())
        )

    def release(self, queue: str, consumer: str, ids: Sequence[str] | None, *, now: int | None = None) -> Call[int]:
        if ids is not None and not ids:
            return replies.known(self._held(queue, consumer, ids, now), 0)
        return self._back(queue, consumer, ids or (), now, sum)

    def forget(self, queue: str, consumer: str, *, now: int | None = None) -> Call[int]:
        return self._back(queue, consumer, (), now, sum, goes=True)

    def _back(
        self, queue: str, consumer: str, ids: Sequence[str], now: int | None, parse: Callable[[Any], T], *, goes: bool = False
    ) -> Call[T]:
        args = (consumer, 1 if goes else "", MAX_PER_CALL, *map(to_bytes, ids))
        return self._about("requeue", queue, now, args, parse)

    def renew(self, queue: str, consumer: str, lease_ms: int, *, now: int | None = None) -> Call[Renewed]:
        """As in LiveFamily. Also ends the consumer's runs that have taken longer than their ``processTimeout``, as ghosts."""
        return self._about("renew", queue, now, (consumer, lease_ms), Renewed)

    def held(self, queue: str, consumer: str) -> Call[tuple[str, ...]]:
        return self._held(queue, consumer, (), None)

    def _held(self, queue: str, consumer: str, ids: Sequence[str], now: int | None) -> Call[tuple[str, ...]]:
        return self._about("held", queue, now, (consumer, *map(to_bytes, ids)), lambda reply: tuple(map(to_text, reply)))

    # Everything that is not one's own job

    def size(self, queue: str, *, now: int | None = None) -> Call[Size]:
        """As in LiveFamily. ``held``: by ferryman's consumers. What kickq's own run, and what has ended, no key tells
        by queue."""
        return self._about("size", queue, now, (), replies.size)

    def purge(self, queue: str, *, limit: int = MAX_PER_CALL, now: int | None = None) -> Call[Purged]:
        return self._about("purge", queue, now, (limit,), lambda reply: Purged(reply[0], bool(reply[1])))

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
        args = (role, limit, seen, self._begin, *map(to_bytes, task_ids))
        return self._about("find", queue, now, args, replies.found)

    def upcoming(self, queue: str, limit: int, *, fetch_bytes: int = FETCH_BYTES) -> Call[tuple[Upcoming, ...]]:
        return self._about("upcoming", queue, None, (limit, fetch_bytes), lambda reply: replies.upcoming(reply, queue))

    def remove(self, queue: str, job_id: str, only: Role | None = None, *, now: int | None = None) -> Call[Removed | None]:
        return self._about("remove", queue, now, (to_bytes(job_id), only or ""), lambda reply: reply.decode() or None)

    def steer(
        self, queue: str, job_id: str, action: Action, told: Argument = "", *, now: int | None = None
    ) -> Call[SteeringOutcome]:
        """What an operator does to a job that nobody runs (``steering.py``)."""
        return self._about("steer", queue, now, (to_bytes(job_id), str(action)), outcome_of)

    def get(self, job_id: str) -> Command[KickqJob | None]:
        """A job as its record tells; None if there is none."""
        key = self._begin + b"job:" + to_bytes(job_id)
        return Command(("HMGET", key, *replies.JOB_FIELDS), lambda reply: replies.job(job_id, reply))

    def stats(self) -> Call[Mapping[str, int]]:
        """How many jobs of all queues are in each of kickq's eight states."""
        return self._call("stats", f"keyspace {self.prefix!r}", None, (), replies.stats)

    # kickq's own clockwork

    def timers(self, *, delivery_limit: int | None = None, now: int | None = None) -> Sequence[Call[bool]]:
        args = (optional(delivery_limit), 1 if self.options.purge_jobs else "")
        return (self._call("timers", f"keyspace {self.prefix!r}", now, args, bool),)

    def signals(self, queue: str) -> tuple[bytes, ...]:
        return (self._begin + b"queue:" + to_bytes(queue),)

    def schedules(self, queue: str) -> tuple[bytes, ...]:
        return (self._begin + b"scheduled",)


# What goes into scripts


def _payload_text(payload: bytes) -> bytes:
    """A payload as a member of a document. Raises UsageError for what is no JSON."""
    text = payload.decode("utf-8", "surrogatepass") if b"\xed" in payload else ""
    if not is_unicode(text):
        # JavaScript writes half a surrogate pair as an escape; it can only stand in a string.
        payload = _LONE.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()
    member = data_member(payload)
    if member is None:
        raise UsageError(f"the payload of a kickq job must be JSON: {show(payload, 60)!r}")
    return member.text


_LONE = re.compile("[\ud800-\udfff]")
