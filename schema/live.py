"""The contract of keyspaces in use: every transition of a job as one call, which somebody else sends.

``LiveFamily`` is what a broker needs of any keyspace; the native family's ``QueueScripts`` is its first instance.
``ForeignFamily`` is what it needs besides of a keyspace whose jobs another system makes and runs at the same time: to put jobs
in that system's form, to end them as its own workers do, and to run its timers. ``KeyFamily.live`` makes one for a prefix.

Rules for every implementation:

1. It builds calls and reads replies; it never opens a connection. A transition is one Lua script: it happens whole or not at all.
2. Times are Unix ms, durations ms. ``now`` is for tests; None is the server's clock.
3. It writes what the original writes, in every field and index, and publishes the original's events. A job that is not, or no
   longer, held by the consumer that a call names is left untouched: the outcome is ``lost``.
4. What Redis holds beside the original's own keys (``compat/side.py``) goes away with the job or the consumer that it is about.

Called by the transport, by the Python clients in ``compat/<system>/client.py``, and by tests.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol

from attrs import field, frozen

from .connection.call import Call, Command
from .native.scripts.queue_scripts import FETCH_BYTES, MAX_PER_CALL
from .native.scripts.results import Delivery, Found, Purged, Removed, Renewed, Role, Size, Taken, Verdict

Outcome = Literal["completed", "waiting", "scheduled", "failed", "removed", "lost"]
"""Where a job is after one of its transitions. ``removed``: its record is gone, as the system or the job's options want it.
``lost``: it was not the consumer's any more, and nothing was written."""


class LiveFamily(Protocol):
    """The transitions of all queues of one keyspace that any broker needs.

    ``consumer`` is an id that is used by one consumer and never again; it holds what it has taken until it ends it, gives it back
    or does not renew its lease in time.
    """

    @abstractmethod
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
        now: int | None = None,
    ) -> Call[Taken]:
        """Gives the consumer up to ``n`` jobs in the order of their runs and (re)starts its lease."""

    @abstractmethod
    def ack(self, queue: str, consumer: str, ids: Sequence[str], *, now: int | None = None) -> Call[tuple[Verdict, ...]]:
        """Ends jobs that are done and have no result."""

    @abstractmethod
    def reject(
        self, queue: str, consumer: str, job_id: str, reason: str, error: str = "", *, now: int | None = None
    ) -> Call[bool]:
        """Fails a job for good; ``reason`` is one word. False: it was lost."""

    @abstractmethod
    def requeue(self, queue: str, consumer: str, ids: Sequence[str], *, now: int | None = None) -> Call[tuple[bool, ...]]:
        """Puts held jobs back to be delivered again. False: it was lost."""

    @abstractmethod
    def release(self, queue: str, consumer: str, ids: Sequence[str] | None, *, now: int | None = None) -> Call[int]:
        """Puts held jobs back that were never begun, None: up to MAX_PER_CALL of all; attempts are as before."""

    @abstractmethod
    def forget(self, queue: str, consumer: str, *, now: int | None = None) -> Call[int]:
        """A consumer's clean end: releases up to MAX_PER_CALL jobs that it holds; call again while it gives so many."""

    @abstractmethod
    def renew(self, queue: str, consumer: str, lease_ms: int, *, now: int | None = None) -> Call[Renewed]:
        """Extends the consumer's lease on all that it holds of a queue."""

    @abstractmethod
    def held(self, queue: str, consumer: str) -> Call[tuple[str, ...]] | Command[tuple[str, ...]]:
        """The ids of the jobs that the consumer holds."""

    @abstractmethod
    def size(self, queue: str, *, now: int | None = None) -> Call[Size]:
        """How many jobs are where."""

    @abstractmethod
    def purge(self, queue: str, *, limit: int = MAX_PER_CALL, now: int | None = None) -> Call[Purged]:
        """Deletes up to ``limit`` jobs that wait. Call again while ``more``."""

    @abstractmethod
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
        """The jobs of Celery tasks that nobody has taken yet; looks at ``limit`` of them after ``seen``.

        A task's id is ``id`` of the job's ``extra``, else ``<prefix>:<id>``, or the id alone where the prefix is empty.
        """

    @abstractmethod
    def remove(self, queue: str, job_id: str, only: Role | None = None, *, now: int | None = None) -> Call[Removed | None]:
        """Deletes one job that nobody runs, as the system cancels it, and says where it was; None: there is none."""


@frozen
class NewJob:
    """A job to be put into a queue."""

    queue: str
    payload: bytes
    """JSON text: what the original's worker is given."""
    name: str | None = None
    """The job's own name, where the system has one beside the queue (qless klass, pjq command)."""
    extra: bytes | None = None
    """JSON text, an object: what Celery knows of it beyond. It has ``task``, the name by which ``take`` selects an envelope."""
    priority: float | None = None
    """The system's own number; None is its default."""
    delay_ms: int = 0
    id: str | None = None
    """Where the system's ids are free text: the id to give it. None: as the system makes them."""
    publication: str | None = None
    """``<producer>-<n>``: repeating a producer's last publication makes no second job, and gives the id of the first."""
    options: Mapping[str, Any] = field(factory=dict)
    """What the family's ``put`` documents: attempts, backoff, ttl, tags, depends …"""


@frozen
class ForeignDelivery(Delivery):
    """One job taken from another system's keyspace. ``id`` is the system's own; ``deliveries`` counts this one."""

    queue: str = ""
    name: str | None = None
    """The job's own name where the system has one."""
    payload: bytes = field(default=b"null", repr=False)
    """JSON text."""
    extra: bytes | None = field(default=None, repr=False)
    """As in ``NewJob``; None for a job that the original made, and for what is no JSON object."""
    attempts: int = 0
    """Attempts that have ended before this one, as the family counts."""
    max_attempts: int | None = None
    time_limit_ms: int | None = None
    """How long this run may take, where the system limits it (kue ttl, kickq processTimeout). No lease: nothing renews it."""

    @property
    def is_left_out(self) -> bool:
        """Never: messages of other systems come with their jobs."""
        return False


@frozen
class Upcoming:
    """A job that the system holds until its time."""

    due_ms: int
    job: ForeignDelivery
    """As ``take`` would give it."""


@frozen
class Failure:
    """Why a job has failed."""

    message: str
    """One line."""
    error: str = field(default="", repr=False)
    """The whole text, with the traceback; its first line is the message. Empty: the message alone."""
    exception: str = "Exception"
    """The name of the exception's class."""
    is_final: bool = False
    """Whether no attempt may follow, whatever the job's options say."""
    group: str | None = None
    """Where the system groups its failed jobs: the group; None: as the family makes it of queue and exception."""

    @property
    def text(self) -> str:
        """The whole text."""
        return self.error or self.message


class ForeignFamily(LiveFamily):
    """A running keyspace of another system."""

    name: ClassVar[str]
    """As in ``family=``."""
    priority_direction: ClassVar[Literal[-1, 0, 1]] = 0
    """1: lower numbers run first, -1: higher ones do, 0: the system knows no priorities."""
    can_delay: ClassVar[bool] = True
    """Whether the system can hold a job until its time."""
    has_names: ClassVar[bool] = False
    """Whether jobs have a name of their own beside the queue's."""
    takes_ids: ClassVar[bool] = False
    """Whether a job is given the id of its task (``NewJob.id``); ``put`` makes another of it where a job has that already."""
    arguments: ClassVar[Literal["one", "list", "object"]] = "one"
    """What a payload is to a task: its one positional argument; the list of them (bee); one, which must be an object (pjq)."""
    longest_lease_ms: ClassVar[int | None] = None
    """After how many ms the system itself takes a job back from a silent worker, where that is fixed (pjq). Whoever holds jobs
    should ask for no longer leases, so that jobs of a lost consumer come back as fast as those of the system's own workers."""
    time_limit_option: ClassVar[str | None] = None
    """The option of ``put`` that says how many ms a run may take, where the system has such a limit."""
    carries_messages: ClassVar[bool] = False
    """Whether payloads are whole AMQP messages, with headers and properties (kombu), and no arguments of a task.

    Such a payload is a JSON object with ``body``, ``content-type``, ``content-encoding``, ``headers`` and ``properties``.
    """

    prefix: str
    """The foreign prefix, as in the URL."""

    # Before the first write

    @abstractmethod
    def look(self) -> Call[None] | Command[None]:
        """A bounded look, which writes nothing. Its reply raises KeyspaceRefused for what can't be served, with the reason: keys
        of another system under the prefix, two eras in one keyspace, a version that is not served."""

    # Jobs in

    @abstractmethod
    def put(self, job: NewJob, *, now: int | None = None) -> Call[str]:
        """Stores a job as the original's producers do, wakes a worker, and gives its id. Raises UsageError for options that can't
        be."""

    # Consuming: LiveFamily, and

    @abstractmethod
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
        """As in ``LiveFamily``; the jobs are ForeignDelivery. ``no_ack`` is the caller's to see to: it acks them.

        ``tasks``: only jobs that the consumer knows: by the ``task`` of their ``extra``, or their own name, or else that of the
        queue. All others stay where they are, and ``Taken.unknown`` may name some. What is damaged so that no worker can run it
        is failed in the family's way or left, and is never in the way of others. Runs the timers of this queue first. Gives what
        lapsed consumers held back, at most ``delivery_limit`` times a job, then it fails.
        """

    def ack(self, queue: str, consumer: str, ids: Sequence[str], *, now: int | None = None) -> Call[tuple[Verdict, ...]]:
        call = self.complete(queue, consumer, [(job_id, None) for job_id in ids], now=now)
        return Call(call.script, call.keys, call.args, lambda reply: _verdicts(call.parse(reply)))

    @abstractmethod
    def complete(
        self, queue: str, consumer: str, results: Sequence[tuple[str, bytes | None]], *, now: int | None = None
    ) -> Call[tuple[Outcome, ...]]:
        """Ends jobs that are done, each with its result as JSON text, which is stored where the original would store it."""

    @abstractmethod
    def fail(self, queue: str, consumer: str, job_id: str, failure: Failure, *, now: int | None = None) -> Call[Outcome]:
        """Ends an attempt that has failed; the family's own attempts and backoff decide what comes then."""

    def reject(
        self, queue: str, consumer: str, job_id: str, reason: str, error: str = "", *, now: int | None = None
    ) -> Call[bool]:
        failure = Failure(error or reason, exception=reason, is_final=True)
        call = self.fail(queue, consumer, job_id, failure, now=now)
        return Call(call.script, call.keys, call.args, lambda reply: call.parse(reply) != "lost")

    @abstractmethod
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
        """The same job again after so many ms, the attempt counted as the family counts; failed if none is left.

        ``payload`` and ``extra`` replace those that it has, None leaves them.
        """

    @abstractmethod
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
        """Notes how far a held job is, where the system has a place for it. False: it was lost."""

    @abstractmethod
    def held(self, queue: str, consumer: str) -> Call[tuple[str, ...]] | Command[tuple[str, ...]]:
        """The ids of the jobs that the consumer holds: not those that the original has cancelled, failed or given to others."""

    def upcoming(self, queue: str, limit: int, *, fetch_bytes: int = FETCH_BYTES) -> Call[tuple[Upcoming, ...]] | None:
        """Up to ``limit`` of the next delayed jobs of a queue, the next one first, without changing anything.

        No more than have so many bytes of payloads, but one at least. Bounded: where jobs of all queues stand in one index, it
        looks at MAX_PER_CALL of them. What is damaged is left out. None: the system holds no job until its time.
        """
        return None

    # Routing, where the system itself knows exchanges (kombu)

    def bind(
        self,
        queue: str,
        exchange: str,
        routing_key: str,
        *,
        topic: bool = False,
        expires_ms: int | None = None,
        now: int | None = None,
    ) -> Call[bool] | None:
        """Binds a queue to an exchange. ``topic``: the routing key has wildcards; ``expires_ms``: the queue's ``x-expires``.
        None: the system knows no exchanges."""
        return None

    def unbind(
        self, queue: str, exchange: str, routing_key: str, *, topic: bool = False, now: int | None = None
    ) -> Call[bool] | None:
        """Takes a binding away. None: the system knows no exchanges."""
        return None

    def queues_bound(self, exchange: str, routing_key: str, *, now: int | None = None) -> Call[tuple[str, ...]] | None:
        """The queues to which an exchange sends messages with this routing key. None: the system knows no exchanges."""
        return None

    # The system's own clockwork

    @abstractmethod
    def timers(self, *, delivery_limit: int | None = None, now: int | None = None) -> Sequence[Call[Any]]:
        """What somebody must send every second, for all queues: promotion, ttl, lost locks, recurring jobs, lapsed consumers.

        Bounded; a call whose result is truthy wants to be sent again at once. The originals may all be gone, or all do the same.
        """

    @abstractmethod
    def signals(self, queue: str) -> tuple[bytes, ...]:
        """The keys that change when there may be something to take from a queue."""

    @abstractmethod
    def schedules(self, queue: str) -> tuple[bytes, ...]:
        """The keys that change when jobs of a queue are put off, or when it is paused or goes on: ``size`` says what that means.

        Some stand in ``signals`` too; those that all queues share do not. Empty: there is nothing of the kind."""


def _verdicts(outcomes: Iterable[Outcome]) -> tuple[Verdict, ...]:
    return tuple("lost" if outcome == "lost" else "acked" for outcome in outcomes)
