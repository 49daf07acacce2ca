"""The base of the Python clients in ``compat/<system>/client.py``: jobs of a foreign keyspace without Celery.

A thin synchronous layer over the calls of a ``ForeignFamily``: it makes JSON of values, sends, and remembers from which queues
its consumer has taken. Whoever uses it decides when to wait and when to run the timers. Not thread-safe: one client, and so one
consumer, for each thread. What ends a wait is in ``wakeups.py``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from types import TracebackType
from typing import Any, Generic, Self, TypeVar
from uuid import uuid4

import redis

from ..schema.connection.address import Address
from ..schema.connection.call import Call, Command, run
from ..schema.connection.connect import connect
from ..schema.errors import UsageError
from ..schema.live import Failure, ForeignDelivery, ForeignFamily, NewJob, Outcome
from ..schema.native.scripts.queue_scripts import MAX_PER_CALL
from ..schema.native.scripts.results import Removed, Role, Size
from .wakeups import Wakeups

L = TypeVar("L", bound=ForeignFamily)
T = TypeVar("T")

LEASE = 30_000
"""ms for which a consumer holds what it has taken, from its last ``take`` or ``heartbeat`` of that queue."""


def to_json(value: Any) -> bytes:
    """A value as JSON text, as JavaScript would write it: no spaces, and no escapes but those that must be.

    Raises ValueError for NaN and infinity, TypeError for what JSON has no form for.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return _LONE_SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()


_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
"""What has no form in UTF-8."""


class ForeignClient(Generic[L]):
    """Puts jobs into another system's queues, and takes and ends them as one consumer, beside that system's own processes.

    ``server`` is a redis-py client with ``decode_responses=False``, or a ``ferryman://`` URL. ``consumer`` is an id that nobody
    has used before; None makes one. Methods that compare with a clock take ``now``, Unix ms; None is the server's clock.

    Before its first call it looks whether the keyspace is one that it can serve: raises KeyspaceRefused, having written nothing.
    """

    def __init__(
        self, live: L, server: redis.Redis | str, *, consumer: str | None = None, lease_ms: int = LEASE, delivery_limit: int = 5
    ) -> None:
        self.live = live
        """The calls of the family, for what has no method here."""
        self.server = connect(Address.parse(server)) if isinstance(server, str) else server
        self.consumer = consumer or uuid4().hex
        self.lease_ms = lease_ms
        self.delivery_limit = delivery_limit
        """How often a job whose consumer has died is given out again, where the system itself sets no limit."""
        self._owns_server = isinstance(server, str)
        self._is_known = False
        self._queues: set[str] = set()
        self._wakeups = Wakeups(live, self.server, self.send)

    def send(self, call: Call[T] | Command[T]) -> T:
        """Sends a call of ``live`` and gives its result."""
        if not self._is_known:
            run(self.server, self.live.look())
            self._is_known = True
        return run(self.server, call)

    # Jobs in

    def put(
        self,
        queue: str,
        payload: Any = None,
        *,
        name: str | None = None,
        priority: float | None = None,
        delay_ms: int = 0,
        job_id: str | None = None,
        extra: Mapping[str, Any] | None = None,
        publication: str | None = None,
        now: int | None = None,
        **options: Any,
    ) -> str:
        """Puts a job into a queue and gives its id. ``payload``: any value of JSON; ``options``: see the family's ``put``."""
        encoded = None if extra is None else to_json(extra)
        job = NewJob(queue, to_json(payload), name, encoded, priority, delay_ms, job_id, publication, options)
        return self.send(self.live.put(job, now=now))

    # Consuming

    def take(
        self, queue: str, n: int = 1, *, tasks: Collection[str] | None = None, now: int | None = None
    ) -> tuple[ForeignDelivery, ...]:
        """Up to ``n`` jobs, in the order of their runs. ``tasks``: only jobs of these names."""
        self._queues.add(queue)
        call = self.live.take(queue, self.consumer, n, self.lease_ms, delivery_limit=self.delivery_limit, tasks=tasks, now=now)
        taken = self.send(call)
        self._wakeups.taken(queue, n, taken)
        return tuple(job for job in taken.jobs if isinstance(job, ForeignDelivery))

    def wait(self, queues: str | Collection[str], seconds: float) -> bool:
        """Waits until a job may be in one of the queues, at most for so many seconds. False: nothing has come in that time.

        True says that ``take`` is worth a try, and comes at once where the last one left something. A delayed job wakes when it
        is due; what others take wakes too, and so does the end of this consumer's lease, which a take begins anew. Nothing asks
        the server meanwhile: it announces what changes, on a connection of its own that the first call opens. Nothing that comes
        between a take and its wait is missed.

        Raises Forbidden where the user may not listen, Incapable where the server can't tell, and redis-py's connection errors:
        after those, wait again.
        """
        names = {queues} if isinstance(queues, str) else set(queues)
        if not names or not seconds >= 0:
            raise UsageError(f"wait for one queue at least, and no less than 0 s, not for {sorted(names)} and {seconds} s")
        return self._wakeups.wait(names, seconds)

    def heartbeat(self, queue: str, *, now: int | None = None) -> bool:
        """Holds what was taken from a queue for another ``lease_ms``. False: the lease has lapsed, others may have it all."""
        return bool(self.send(self.live.renew(queue, self.consumer, self.lease_ms, now=now)))

    def held(self, queue: str) -> tuple[str, ...]:
        """The ids of the jobs of a queue that this consumer holds."""
        return self.send(self.live.held(queue, self.consumer))

    def complete(self, job: ForeignDelivery, result: Any = None, *, now: int | None = None) -> Outcome:
        """Ends a job that is done. ``result``: any value of JSON, kept where the system would keep it."""
        encoded = None if result is None else to_json(result)
        return self.send(self.live.complete(job.queue, self.consumer, [(job.id, encoded)], now=now))[0]

    def fail(self, job: ForeignDelivery, failure: Failure | BaseException | str, *, now: int | None = None) -> Outcome:
        """Ends an attempt that has failed: what comes then is the system's to decide."""
        return self.send(self.live.fail(job.queue, self.consumer, job.id, as_failure(failure), now=now))

    def retry(
        self,
        job: ForeignDelivery,
        delay_ms: int = 0,
        failure: Failure | BaseException | str = "retried",
        *,
        now: int | None = None,
    ) -> Outcome:
        """The same job again after so long, the attempt counted; failed if that was the last one."""
        call = self.live.retry(job.queue, self.consumer, job.id, delay_ms, failure=as_failure(failure), now=now)
        return self.send(call)

    def progress(self, job: ForeignDelivery, current: float, total: float, data: Any = None, *, now: int | None = None) -> bool:
        """Notes how far a job is. False: it is not this consumer's any more."""
        encoded = None if data is None else to_json(data)
        return self.send(self.live.progress(job.queue, self.consumer, job.id, current, total, encoded, now=now))

    def requeue(self, job: ForeignDelivery, *, now: int | None = None) -> bool:
        """Gives a job back, to be taken again, its attempts as before. False: it was not this consumer's any more."""
        return self.send(self.live.requeue(job.queue, self.consumer, [job.id], now=now))[0]

    # Everything that is not one's own job

    def cancel(self, queue: str, job_id: str, only: Role | None = None, *, now: int | None = None) -> Removed | None:
        """Deletes a job that nobody runs, and says where it was; None: there is none. ``only``: if it is there."""
        return self.send(self.live.remove(queue, job_id, only, now=now))

    def purge(self, queue: str, *, now: int | None = None) -> int:
        """Deletes all jobs that wait now, and says how many."""
        total = 0
        for _ in range(_MOST_CALLS):
            purged = self.send(self.live.purge(queue, now=now))
            total += purged.jobs
            if not purged.more:
                break
        return total

    def size(self, queue: str, *, now: int | None = None) -> Size:
        """How many jobs are where."""
        return self.send(self.live.size(queue, now=now))

    def run_timers(self, *, now: int | None = None) -> None:
        """What somebody must do every second: promotes delayed jobs, gives up on lost workers. ``take`` does so for its queue."""
        for call in self._timers(now):
            for _ in range(_MOST_CALLS):
                if not self.send(call):
                    break

    def _timers(self, now: int | None) -> Iterator[Call[Any]]:
        return iter(self.live.timers(delivery_limit=self.delivery_limit, now=now))

    # The end

    def close(self, *, now: int | None = None) -> None:
        """Gives back what this consumer holds. Closes the connection if it was opened here."""
        for queue in sorted(self._queues):
            for _ in range(_MOST_CALLS):
                if self.send(self.live.forget(queue, self.consumer, now=now)) < MAX_PER_CALL:
                    break
        self._queues.clear()
        self._wakeups.close()
        if self._owns_server:
            self.server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()


_MOST_CALLS = 10_000
"""So often a bounded call is repeated, each on up to MAX_PER_CALL jobs, before something must be wrong."""


def as_failure(reason: Failure | BaseException | str) -> Failure:
    """A failure as the family wants it, of an exception or a text."""
    if isinstance(reason, Failure):
        return reason
    if isinstance(reason, BaseException):
        name = type(reason).__name__
        text = str(reason)
        return Failure(f"{name}: {text}".splitlines()[0] if text else name, f"{name}: {text}" if text else name, name)
    return Failure(reason.splitlines()[0] if reason else "", reason)
