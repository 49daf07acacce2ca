"""ScriptedFamily: the transitions of another system's keyspace in use, each as a call of one Lua script.

A script's KEYS are the root of the side keys and what the system's own keys begin with. Its ARGV are ``now``, what the family
gives to all of its scripts, the queue, the consumer, and then what the transition needs: the same in every family, and so is
what the script replies. So the calls of the transitions that all systems have stand here once, and ``compat/<system>/live.py``
has what is the system's own: how jobs are put, failed, described, and what else it can do.

Called by the transport, by the clients in ``compat/<system>/client.py``, by ``compat/steering.py`` and by tests.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, ClassVar, Literal, TypeVar

from attrs import frozen

from ..schema.connection.call import Argument, Call, Command
from ..schema.errors import UsageError
from ..schema.live import Failure, ForeignDelivery, ForeignFamily, Outcome, Upcoming
from ..schema.memo import cached_property
from ..schema.native.scripts import results
from ..schema.native.scripts.publication import optional
from ..schema.native.scripts.queue_scripts import FETCH_BYTES, MAX_PER_CALL
from ..schema.native.scripts.results import Found, Purged, Removed, Renewed, Role, Size, Taken
from ..schema.steering import Action
from ..schema.steering import Outcome as SteeringOutcome
from ..schema.text import to_bytes, to_text
from . import side
from .numbers import parse_number

T = TypeVar("T")


@frozen
class Retry:
    """How a job goes on whose attempt is repeated. ``payload`` and ``extra`` replace those that it has, None leaves them."""

    delay_ms: int
    payload: bytes | None
    extra: bytes | None


class ScriptedFamily(ForeignFamily):
    """The calls that all six systems have in common."""

    side_prefix: str
    """What the native keyspace begins with, beside whose keys those of ``side.py`` stand."""
    separator: ClassVar[str] = ":"
    """What stands between the prefix and the rest of a key."""
    shortest_lease_ms: ClassVar[int] = 1
    """0 for a system that has a shortest lease itself, and so takes 0 for that."""

    # Calls of scripts

    @cached_property
    def keys(self) -> tuple[bytes, bytes]:
        """KEYS of every script."""
        return side.root(self.name, self.prefix, self.side_prefix), to_bytes(self.prefix + self.separator)

    @property
    def fixed(self) -> tuple[Argument, ...]:
        """What every script of the family gets behind ``now``."""
        return ()

    def call(self, script: str, what: str, now: int | None, args: Iterable[Argument], parse: Callable[[Any], T]) -> Call[T]:
        """A call of one of the family's scripts. Errors name the system and ``what`` the call is about."""
        package = type(self).__module__.rpartition(".")[0]
        return side.call(package, script, self.keys, now, (*self.fixed, *args), parse, f"{self.name} {what}")

    def on_keyspace(self, script: str, now: int | None, args: Iterable[Argument], parse: Callable[[Any], T]) -> Call[T]:
        """A call about the whole keyspace."""
        return self.call(script, f"keyspace {self.prefix!r}", now, args, parse)

    def on_queue(self, script: str, queue: str, now: int | None, args: Iterable[Argument], parse: Callable[[Any], T]) -> Call[T]:
        """A call about one queue."""
        return self.call(script, f"queue {queue!r}", now, (self._queue(queue), *args), parse)

    def by_consumer(
        self, script: str, queue: str, consumer: str, now: int | None, args: Iterable[Argument], parse: Callable[[Any], T]
    ) -> Call[T]:
        """A call of one consumer of a queue."""
        return self.on_queue(script, queue, now, (self._consumer(consumer), *args), parse)

    def _queue(self, queue: str) -> bytes:
        """A queue's name as scripts get it. Raises UsageError for one that the system can't have."""
        return to_bytes(queue)

    def _consumer(self, consumer: str) -> bytes:
        """A consumer's id as scripts get it. Raises UsageError for one that can't be."""
        return to_bytes(consumer)

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
        if n < 0 or lease_ms < self.shortest_lease_ms:
            raise UsageError(f"take from queue {queue!r}: n must not be negative and lease_ms must be above 0")
        chosen: tuple[Argument, ...] = ("",) if tasks is None else (1, *map(to_bytes, sorted(tasks)))
        args = (n, lease_ms, optional(delivery_limit), fetch_bytes, *self._take_words(), *chosen)
        return self.by_consumer("take", queue, consumer, now, args, lambda reply: self._taken(queue, reply))

    def _take_words(self) -> tuple[Argument, ...]:
        """What else the family's ``take`` wants, behind ``fetch_bytes``."""
        return ()

    def _taken(self, queue: str, reply: Any) -> Taken:
        now, next_event, unknown, *jobs = reply
        deliveries = tuple(self._delivery(queue, *job) for job in jobs)
        return Taken(True, int(now), int(next_event), deliveries, unknown=tuple(map(to_text, unknown)))

    @abstractmethod
    def _delivery(self, queue: str, *job: Any) -> ForeignDelivery:
        """A job, of what ``take`` and ``upcoming`` reply of one."""

    def complete(
        self, queue: str, consumer: str, results: Sequence[tuple[str, bytes | None]], *, now: int | None = None
    ) -> Call[tuple[Outcome, ...]]:
        args = [word for job_id, result in results for word in (to_bytes(job_id), *self._result(result))]
        return self.by_consumer("complete", queue, consumer, now, args, outcomes)

    def _result(self, result: bytes | None) -> tuple[Argument, ...]:
        """What a script is told of a job's result: nothing where the system keeps none."""
        return ()

    def fail(self, queue: str, consumer: str, job_id: str, failure: Failure, *, now: int | None = None) -> Call[Outcome]:
        return self._end_attempt(queue, consumer, job_id, failure, None, now)

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
        return self._end_attempt(queue, consumer, job_id, failure, Retry(max(delay_ms, 0), payload, extra), now)

    @abstractmethod
    def _end_attempt(
        self, queue: str, consumer: str, job_id: str, failure: Failure, retry: Retry | None, now: int | None
    ) -> Call[Outcome]:
        """Ends an attempt that has failed. ``retry``: what comes then; None: what the system makes of it."""

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
        words = self._progress(current, total, data)
        if words is None:
            return self.by_consumer("held", queue, consumer, now, (), lambda reply: to_bytes(job_id) in reply)
        return self.by_consumer("progress", queue, consumer, now, (to_bytes(job_id), *words), bool)

    def _progress(self, current: float, total: float, data: bytes | None) -> tuple[Argument, ...] | None:
        """What a script is told of a job's progress; None where the system has no place for it, and is only asked for the job."""
        return None

    def requeue(self, queue: str, consumer: str, ids: Sequence[str], *, now: int | None = None) -> Call[tuple[bool, ...]]:
        return self.by_consumer("release", queue, consumer, now, ("requeue", *map(to_bytes, ids)), results.flags)

    def release(self, queue: str, consumer: str, ids: Sequence[str] | None, *, now: int | None = None) -> Call[int]:
        which: tuple[Argument, ...] = ("all",) if ids is None else ("some", *map(to_bytes, ids))
        return self.by_consumer("release", queue, consumer, now, which, sum)

    def forget(self, queue: str, consumer: str, *, now: int | None = None) -> Call[int]:
        return self.by_consumer("release", queue, consumer, now, ("leave",), sum)

    def renew(self, queue: str, consumer: str, lease_ms: int, *, now: int | None = None) -> Call[Renewed]:
        return self.by_consumer("renew", queue, consumer, now, (lease_ms,), Renewed)

    def held(self, queue: str, consumer: str) -> Call[tuple[str, ...]] | Command[tuple[str, ...]]:
        return self.by_consumer("held", queue, consumer, None, (), texts)

    # What is not one's own job

    def size(self, queue: str, *, now: int | None = None) -> Call[Size]:
        return self.on_queue("size", queue, now, (), size)

    def purge(self, queue: str, *, limit: int = MAX_PER_CALL, now: int | None = None) -> Call[Purged]:
        return self.on_queue("purge", queue, now, (bounded(limit),), results.purged)

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
        start = to_bytes(f"{self.prefix}:") if self.prefix else b""
        args = (role, bounded(limit), seen, start, *map(to_bytes, task_ids))
        return self.on_queue("find", queue, now, args, results.found)

    def remove(self, queue: str, job_id: str, only: Role | None = None, *, now: int | None = None) -> Call[Removed | None]:
        return self.on_queue("remove", queue, now, (to_bytes(job_id), only or ""), results.removed)

    def steer(
        self, queue: str, job_id: str, action: Action, told: Argument = "", *, now: int | None = None
    ) -> Call[SteeringOutcome]:
        """What an operator does to a job that nobody runs (``compat/steering.py``)."""
        return self.on_queue("steer", queue, now, (to_bytes(job_id), str(action), told), steered)

    def upcoming(self, queue: str, limit: int, *, fetch_bytes: int = FETCH_BYTES) -> Call[tuple[Upcoming, ...]] | None:
        def parse(reply: Any) -> tuple[Upcoming, ...]:
            return tuple(Upcoming(int(due), self._delivery(queue, *job)) for due, *job in reply)

        return self.on_queue("upcoming", queue, None, (limit, fetch_bytes), parse)


def bounded(limit: int) -> int:
    """How many jobs one call may look at. Raises UsageError for none."""
    if limit <= 0:
        raise UsageError(f"limit {limit!r} must be above 0")
    return min(limit, MAX_PER_CALL)


# Replies


def texts(reply: Any) -> tuple[str, ...]:
    return tuple(map(to_text, reply))


def outcome(reply: Any) -> Outcome:
    word: Outcome = reply.decode()
    return word


def outcomes(reply: Any) -> tuple[Outcome, ...]:
    return tuple(map(outcome, reply))


def steered(reply: Any) -> SteeringOutcome:
    word: SteeringOutcome = reply.decode()
    return word


def size(reply: Any) -> Size:
    """``waiting`` has the due ones in it; the next due time is below 0 or empty where nothing is delayed."""
    exists, waiting, due, scheduled, held, blocked, dead, done, consumers, next_due, now = reply
    first = next_due if isinstance(next_due, int) else parse_number(next_due)
    return Size(
        exists=bool(exists),
        waiting=waiting,
        due=due,
        scheduled=scheduled,
        held=held,
        dead=dead,
        done=done,
        consumers=consumers,
        routes=0,
        next_due_ms=None if first is None or first < 0 else math.ceil(first),
        blocked=blocked,
        outbox=0,
        now=int(now),
    )
