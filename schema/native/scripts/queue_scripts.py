"""The queue scripts of the native family: every transition of a job as one call, one atomic script each.

``QueueScripts`` builds calls and reads replies; it never opens a connection. Times are Unix milliseconds, durations milliseconds.
``now`` is for tests: None means the server's clock, which is the only one that production code may use. The theory (keys, places,
rules) stands in ``lua/_common.lua`` and ``lua/_queue.lua``. Called by the transport, the command line and the tests.

Every call may raise, when its reply is read: SchemaVersionError for a queue that a newer ferryman has written, MalformedValue
when a key of the queue holds a wrong type. At maxmemory ``publish`` raises PublishRefused, and nothing else does.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Literal, TypeVar

from attrs import field, frozen

from ...connection.call import Argument, Call, Command
from ...errors import UsageError
from ...histogram import Times
from ...text import to_bytes, to_text
from .. import keys
from ..keys import QueueKeys
from . import history, results
from .arguments import stored as arguments_for_meta
from .history import OpenSlot, Slot
from .loader import script
from .publication import Publication, check_name, number_of, optional, ranges
from .results import (
    Advanced,
    DeadLetter,
    DeadLetterOutbox,
    Declared,
    Deleted,
    Found,
    Published,
    Purged,
    Removed,
    Renewed,
    Role,
    Size,
    Taken,
    Task,
    UnreportedTasks,
    Verdict,
)
from .script_replies import result
from .waiting_score import ASCENDING, PriorityOrder, check_order, check_priority

T = TypeVar("T")

#: How long a producer's last publish is remembered, so that repeating it stores nothing twice even when its jobs are done.
REMEMBERED_MS = 600_000


#: How many jobs, or bindings, one call works on: some milliseconds of the server's time (``lua/_common.lua``).
MAX_PER_CALL = 1000

#: Bytes of messages that one ``take`` gives.
FETCH_BYTES = 4 << 20


@frozen
class DeadLetterLimits:
    """How many dead letters a queue keeps, of how many bytes together, and for how long, ms.

    0 is without limit. None leaves what the queue has: at first 10,000, 64 MiB and 30 days (``lua/_queue.lua``).
    """

    number: int | None = None
    bytes: int | None = None
    ttl_ms: int | None = None


DEFAULT_DEAD_LETTER_LIMITS = DeadLetterLimits()


@lru_cache(maxsize=4096)
def queue_keys(prefix: str, queue: str) -> QueueKeys:
    """The keys of a queue, remembered: names are encoded once."""
    return QueueKeys(prefix, queue)


@frozen
class QueueScripts:
    """The transitions of all queues under one prefix."""

    prefix: str = field(default=keys.DEFAULT_PREFIX)

    def __attrs_post_init__(self) -> None:
        keys.check_prefix(self.prefix)

    def keys(self, queue: str) -> QueueKeys:
        """The key names of a queue. Raises UsageError for an empty name."""
        return queue_keys(self.prefix, queue)

    # Declaring and publishing

    def declare(
        self,
        queue: str,
        arguments: Mapping[str, Any],
        priority_order: PriorityOrder | None = None,
        *,
        history: bool | None = None,
        dead_letter_limits: DeadLetterLimits = DEFAULT_DEAD_LETTER_LIMITS,
        now: int | None = None,
    ) -> Call[Declared]:
        """Creates the queue if there is none, and sets its arguments; empty ``arguments`` leave those that stand.

        The scripts honour those in ``arguments.SETTINGS``, also for publishers that never declare; all are stored as JSON in
        ``meta``. ``priority_order`` None takes the order that stands, ``ascending`` for a new queue. A queue that lasts (one
        without ``x-expires``) also belongs in the set ``keys.queues(prefix)``, in another cluster slot: ``SADD`` it first.
        ``history``: whether rates, depths and times are kept from now on (False also forgets them); None: as it stands.
        ``dead_letter_limits``: what the queue keeps of its dead letters from now on.
        Raises QueueArgumentsError for arguments that can't be honoured; and from the reply for a contradicting priority order,
        and for ``x-expires`` of a queue with jobs that was declared without.
        """
        order = ASCENDING if priority_order is None else check_order(priority_order)
        text, *settings = arguments_for_meta(queue, arguments)
        kept = "" if history is None else "on" if history else "off"
        limits = map(optional, (dead_letter_limits.number, dead_letter_limits.bytes, dead_letter_limits.ttl_ms))
        args = (order, "" if priority_order is None else 1, text, kept, *limits, *settings)
        return self._call("declare", queue, now, args, results.declared)

    def publish(
        self,
        queue: str,
        producer: str,
        messages: Sequence[Publication],
        *,
        create: bool = False,
        routes: int | None = None,
        priority_order: PriorityOrder = ASCENDING,
        ordered: bool = False,
        now: int | None = None,
    ) -> Call[Published]:
        """Stores the jobs, all or none, each once: repeating the call after a broken connection stores nothing twice.

        ``producer`` names one sequential publisher (a channel): it repeats only its last call, and the n of its ids
        ``<producer>-<n>`` grow. ``create`` makes an undeclared queue, with ``priority_order``. ``routes`` (from ``Declared``,
        ``Published`` or ``Size``) refuses the publish when a binding to the queue has been removed since.
        ``ordered``: the producer publishes in the order of its numbers, and may be several who say the same: what has a number
        below any that came before has been stored before.
        Raises UsageError for an id, priority, due time or ttl that can't be; PublishRefused from the reply.
        """
        numbers = [number_of(producer, message.id) for message in messages]
        numbered = [number for number in numbers if number is not None]
        has_keys = any(message.unique is not None for message in messages)
        args: list[Argument] = [
            1 if create else "",
            check_order(priority_order),
            optional(routes),
            f"0-{max(numbered)}" if ordered and numbered else ranges(numbered),
            REMEMBERED_MS,
            8 if has_keys else 6,
        ]
        for message, number in zip(messages, numbers, strict=True):
            args += message.arguments(number, has_keys)
        memory = self.keys(queue).publisher(check_name(producer, "producer"))
        return self._call("publish", queue, now, args, results.published, (memory,))

    def publish_one(
        self, queue: str, producer: str, message: Publication, *, routes: int | None = None, now: int | None = None
    ) -> Call[Published] | None:
        """``publish`` for nearly every message, for half of what that costs the server: one plain job for a queue without limits.

        None for a message that is not plain or has no number. Status ``other``: nothing was stored, and it takes ``publish``,
        because there is no such queue, it has limits of any kind, or the job may have been stored before.
        """
        number = number_of(producer, message.id)
        if number is None or not message.is_plain:
            return None
        names = self.keys(queue)
        job_id = check_name(message.id, "id")
        return Call(
            script("publish_one"),
            (names.meta, names.waiting, names.wake, names.job(job_id), names.publisher(check_name(producer, "producer"))),
            (
                optional(now),
                optional(routes),
                to_bytes(job_id),
                number,
                check_priority(message.priority),
                message.message,
                REMEMBERED_MS,
            ),
            lambda reply: results.published(result(reply, f"queue {queue!r}")),
        )

    def publish_batch(
        self, queue: str, batch: str, messages: Sequence[Publication], remember_ms: int, *, now: int | None = None
    ) -> Call[Published]:
        """``publish`` of jobs of a batch, each of which it stores once, whoever says so, how often and in which order.

        What a batch has stored is remembered for ``remember_ms`` after it last stored something. A dead job of the queue makes
        room for one of the same id; one that stands elsewhere is not stored.
        """
        has_keys = any(message.unique is not None for message in messages)
        args: list[Argument] = ["", ASCENDING, "", "", _positive(remember_ms), 8 if has_keys else 6]
        for message in messages:
            args += message.arguments(None, has_keys)
        keys_of_batch = (self.keys(queue).publisher("batch"), self.keys(queue).batch(check_name(batch, "batch")))
        return self._call("publish", queue, now, args, results.published, keys_of_batch)

    def complete_batch(self, queue: str, batch: str, remember_ms: int) -> Command[bool]:
        """From here on the batch stores nothing more in this queue. Takes less room than the ids that it has stored."""
        words = ("SET", self.keys(queue).batch(check_name(batch, "batch")), "complete", "PX", _positive(remember_ms))
        return Command(words, bool)

    def bump_routes(self, queue: str, *, now: int | None = None) -> Call[int]:
        """Changes the queue's routes version after a binding to it was removed; gives the new one, 0 if there is no queue.

        Unbind first, bump second. Who caches routes reads the bindings, then ``routes`` of each queue, then the exchange's
        version again: unchanged, the cache is right, and from then on every removed binding makes ``publish`` say ``stale``.
        """
        return self._call("bump_routes", queue, now, (), int)

    def bound(self, queue: str, exchange: str, *, now: int | None = None) -> Call[bool]:
        """Remembers where the queue is bound, for whoever deletes it (meta ``bound-to:<exchange>``). False: no such queue."""
        return self._call("bound", queue, now, (to_bytes(exchange),), bool)

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
        acked: Sequence[str] = (),
        now: int | None = None,
    ) -> Call[Taken]:
        """Gives the consumer up to ``n`` jobs in pop order and (re)starts its lease; one that holds nothing has two.

        No more come than MAX_PER_CALL, or than have ``fetch_bytes`` of messages together, but one at least. A longer message
        comes alone, and is left out (``Delivery.is_left_out``): ``message`` reads it, and with ``no_ack`` the job is held until
        it is acked.
        ``n`` 0 gives none, but promotes and reclaims. ``consumer`` is an id that is used by one channel and never again.
        ``no_ack``: the jobs are done by being taken. ``delivery_limit``: a job delivered that often already goes to dead
        instead; the queue's own ``x-delivery-limit`` comes before it. Expired and damaged jobs go to dead too.
        ``acked``: ids of jobs that the consumer has finished; they are acked first, as by ``ack`` (``Taken.verdicts``).
        """
        if n < 0 or lease_ms <= 0:
            raise UsageError(f"take from queue {queue!r}: n must not be negative and lease_ms must be above 0")
        terms = (n, lease_ms, 1 if no_ack else "", optional(delivery_limit), fetch_bytes)
        args = (_member(consumer), *terms, *map(to_bytes, acked))
        return self._call("take", queue, now, args, results.taken)

    def poll(
        self, queues: Sequence[str], consumer: str, lease_ms: int, *, now: int | None = None
    ) -> Call[tuple[int | None, ...]]:
        """For each queue, in how many ms to poll it again; None where there is something to ``take``, or to be done by it.

        Keeps the consumer registered with the others. Not for clusters, where queues are on different nodes, nor for more than
        MAX_PER_CALL queues at once.
        """
        keys = [self.keys(queue) for queue in queues]
        all_keys = [key for k in keys for key in (k.meta, k.waiting, k.scheduled, k.consumers, k.held(consumer))]
        args = (optional(now), _member(consumer), lease_ms)
        return Call(script("poll"), tuple(all_keys), args, lambda reply: tuple(ms or None for ms in result(reply, "some queue")))

    def ack(self, queue: str, consumer: str, ids: Sequence[str], *, now: int | None = None) -> Call[tuple[Verdict, ...]]:
        """Ends jobs that the consumer has finished. For each id:

        ``acked``; ``cancelled`` when the lease had lapsed and the job had gone back, but nobody has taken it since: it is ended
        as well; ``lost`` when somebody else has or had it: nothing is changed.
        """
        return self._call("ack", queue, now, (_member(consumer), *map(to_bytes, ids)), results.verdicts)

    def reject(
        self, queue: str, consumer: str, job_id: str, reason: str, error: str = "", *, now: int | None = None
    ) -> Call[bool]:
        """Gives a held job up: it is kept in dead with ``reason`` (one word, groups the dead) and ``error`` (text).

        False if the consumer does not hold it any more: nothing is changed.
        """
        args = (_member(consumer), to_bytes(job_id), to_bytes(reason), to_bytes(error))
        return self._call("reject", queue, now, args, bool)

    def requeue(self, queue: str, consumer: str, ids: Sequence[str], *, now: int | None = None) -> Call[tuple[bool, ...]]:
        """Puts held jobs back where they waited, to be delivered again. For each id: False if it is not held any more."""
        return self._call("requeue", queue, now, (_member(consumer), *map(to_bytes, ids)), results.flags)

    def release(self, queue: str, consumer: str, ids: Sequence[str] | None, *, now: int | None = None) -> Call[int]:
        """Like ``requeue`` for jobs that were never begun: the delivery does not count. Gives how many went back.

        None: all, up to MAX_PER_CALL of them; call again while it gives MAX_PER_CALL.
        """
        which: tuple[Argument, ...] = ("all",) if ids is None else ("some", *map(to_bytes, ids))
        return self._call("release", queue, now, (_member(consumer), *which), int)

    def forget(self, queue: str, consumer: str, *, now: int | None = None) -> Call[int]:
        """A consumer's clean end: releases all it holds and unregisters it. Gives how many jobs went back.

        Up to MAX_PER_CALL of them; call again while it gives MAX_PER_CALL.
        """
        return self._call("release", queue, now, (_member(consumer), "leave"), int)

    def renew(self, queue: str, consumer: str, lease_ms: int, *, now: int | None = None) -> Call[Renewed]:
        """Extends the consumer's lease on everything it holds, to two leases if that is nothing."""
        return self._call("renew", queue, now, (_member(consumer), lease_ms), Renewed)

    def held(self, queue: str, consumer: str) -> Command[tuple[str, ...]]:
        """The ids of the jobs that the consumer holds."""
        return Command(("ZRANGE", self.keys(queue).held(consumer), 0, -1), lambda ids: tuple(map(to_text, ids)))

    # Dead letters

    def outbox(self, queue: str, *, limit: int = 100, now: int | None = None) -> Call[DeadLetterOutbox | None]:
        """The oldest dead jobs that are to go to the queue's ``x-dead-letter-exchange``; None without a queue or an exchange.

        Up to ``limit``; of large ones fewer, one at least, and ``next_poll_ms`` is now.
        Promotes and expires first, for a queue that nobody consumes. Publish them ``ordered``, in the order given and under
        their numbers, stop at the first that can't be stored now, and then say ``forwarded``: whoever else does the same at the
        same time, and however often it is repeated, each is stored once.
        """
        return self._call("outbox", queue, now, (_positive(limit),), results.outbox)

    def dead_letters(
        self, queue: str, *, seen: int = 0, limit: int = 100, now: int | None = None
    ) -> Call[tuple[DeadLetter, ...]]:
        """Up to ``limit`` dead jobs after the first ``seen``, in the order in which they died; of large ones fewer."""
        return self._call("dead_letters", queue, now, (seen, _positive(limit)), results.dead_letters)

    def forwarded(self, queue: str, dead_letters: Iterable[tuple[DeadLetter, bool]], *, now: int | None = None) -> Call[int]:
        """Takes dead letters out of the outbox: those with True have arrived and end here, the others stay dead.

        Gives how many have ended.
        """
        args: list[Argument] = []
        for dead_letter, has_arrived in dead_letters:
            args += (to_bytes(dead_letter.job.id), dead_letter.number, 1 if has_arrived else "")
        return self._call("forwarded", queue, now, args, int)

    def claim_unreported(self, queue: str, claim_ms: int, *, limit: int = 100, now: int | None = None) -> Call[UnreportedTasks]:
        """Claims dead tasks whose end no worker has reported, for ``claim_ms``; of large ones fewer. Then say ``reported``."""
        return self._call("claim_unreported", queue, now, (_positive(limit), _positive(claim_ms)), results.unreported)

    def reported(self, queue: str, ids: Iterable[str], *, now: int | None = None) -> Call[int]:
        """Notes that the end of these dead tasks was reported. Gives how many of them were still to be reported."""
        return self._call("reported", queue, now, tuple(map(to_bytes, ids)), int)

    # Housekeeping

    def advance(self, queue: str, *, limit: int = MAX_PER_CALL, now: int | None = None) -> Call[Advanced]:
        """Promotes due jobs and reclaims what lapsed consumers held, at most ``limit`` of each."""
        return self._call("advance", queue, now, (_positive(limit), limit), results.advanced)

    def promote(self, queue: str, *, limit: int = MAX_PER_CALL, now: int | None = None) -> Call[int]:
        """Moves due jobs to waiting, at most ``limit``. Gives how many."""
        return self._call("advance", queue, now, (_positive(limit), 0), lambda reply: results.advanced(reply).promoted)

    def reclaim(self, queue: str, *, limit: int = MAX_PER_CALL, now: int | None = None) -> Call[int]:
        """Moves what lapsed consumers held back where it waited, at most ``limit``. Gives how many."""
        return self._call("advance", queue, now, (0, _positive(limit)), lambda reply: results.advanced(reply).reclaimed)

    def size(self, queue: str, *, by_priority: bool = False, now: int | None = None) -> Call[Size]:
        """Counts the queue's jobs and consumers, waiting jobs also by priority if asked to. Changes nothing."""
        return self._call("size", queue, now, (1 if by_priority else "",), results.size)

    def counters(self, queue: str) -> Command[dict[str, int]]:
        """What has happened to the queue's jobs since it was made, by the names in ``results.COUNTERS``."""
        return Command(("HMGET", self.keys(queue).meta, *results.COUNTERS), results.counters)

    def times(self, queue: str) -> Command[Times]:
        """How long the queue's jobs have waited and run since it was made."""
        return Command(("GET", self.keys(queue).times), history.times)

    def open_slots(self, queue: str) -> Command[dict[int, OpenSlot]]:
        """When the slots that are not closed yet began, by their minutes, and the totals at that time."""
        return Command(("HMGET", self.keys(queue).history, *history.STEPS), history.open_slots)

    def slots(self, queue: str, minutes: int, limit: int = MAX_PER_CALL) -> Command[list[Slot]]:
        """The last ``limit`` closed slots of so many minutes, the oldest first."""
        return Command(
            ("LRANGE", self.keys(queue).slots(minutes), -_positive(limit), -1), partial(history.slots, minutes=minutes)
        )

    def routes(self, queue: str) -> Command[int]:
        """The version of a queue's routes, as ``Size.routes``."""
        return Command(("HGET", self.keys(queue).meta, "routes"), lambda reply: int(reply or 0))

    def upcoming(self, queue: str, limit: int) -> Command[list[tuple[str, int]]]:
        """The next scheduled jobs with their due times, ms, the next one first."""
        return Command(("ZRANGE", self.keys(queue).scheduled, 0, _positive(limit) - 1, "WITHSCORES"), results.upcoming)

    def message_size(self, queue: str, job_id: str) -> Command[int]:
        """How long a job's message is, bytes; 0 for a job that has none."""
        return Command(("HSTRLEN", self.keys(queue).job(job_id), "message"), int)

    def message(self, queue: str, job_id: str) -> Command[dict[bytes, bytes]]:
        """Those fields of a job that hold its message, as ``Delivery.fields``; none for one that has gone.

        A plain command, which copies a large message once where a script copies it three times.
        """
        return Command(("HMGET", self.keys(queue).job(job_id), *results.MESSAGE), results.message)

    def purge(self, queue: str, *, limit: int = MAX_PER_CALL, now: int | None = None) -> Call[Purged]:
        """Deletes up to ``limit`` jobs that wait or are scheduled, fewer large ones. Call again while ``more``."""
        return self._call("purge", queue, now, (_positive(limit),), results.purged)

    def delete(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, *, limit: int = MAX_PER_CALL, now: int | None = None
    ) -> Call[Deleted]:
        """Deletes the queue with every job in it, held and dead ones too, up to ``limit`` in one call, fewer large ones.

        Call again without conditions while ``more``; the queue exists until the last call. Its bindings and its name in
        ``keys.queues(prefix)`` are the caller's to remove. ``if_empty`` counts waiting, scheduled, blocked and held jobs.
        """
        args = (1 if if_unused else "", 1 if if_empty else "", _positive(limit))
        return self._call("delete", queue, now, args, results.deleted)

    def remove(self, queue: str, job_id: str, only: Role | None = None, *, now: int | None = None) -> Call[Removed | None]:
        """Deletes one job and gives the role of its place; None if there is none, ``held`` if it is running: it stays then.

        ``only``: the role of the place from which it is to be deleted, if it stands nowhere else by now. ``more``, for a job that
        waits for more than MAX_PER_CALL others: call again, until it has gone.
        """
        return self._call("remove", queue, now, (to_bytes(job_id), only or ""), results.removed)

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
        """The jobs of Celery tasks (``headers.id`` of their messages) that nobody has taken yet, for ``remove``.

        Scans up to ``limit`` jobs, after ``seen`` that earlier calls have scanned. Call again while ``more``. Jobs with
        messages of more than 4 MB are ``unread``: ask about each of them with ``wanted_task``.
        """
        wanted = (to_bytes(check_name(task_id, "task id")) for task_id in task_ids)
        args = (role, _positive(limit), seen, *wanted)
        return self._call("find", queue, now, args, results.found)

    def wanted_task(self, queue: str, job_id: str, task_ids: Container[str]) -> Command[Task | None]:
        """A job of ``Found.unread`` if it is of one of these tasks, else None. A plain command, as ``message`` is."""
        return Command(
            ("HGET", self.keys(queue).job(job_id), "message"), lambda message: results.wanted_task(job_id, message, task_ids)
        )

    def revive(self, queue: str, ids: Sequence[str], *, now: int | None = None) -> Call[tuple[bool, ...]]:
        """Puts dead jobs back where they waited, with no deliveries and no expiry, as far as the queue has room.

        False: not dead, no message left, or the queue is at its greatest length and refuses more. One that drops its first jobs
        instead drops them now, which makes them dead.
        """
        return self._call("revive", queue, now, tuple(map(to_bytes, ids)), results.flags)

    def _call(
        self,
        name: str,
        queue: str,
        now: int | None,
        args: Sequence[Argument],
        parse: Callable[[Any], T],
        more_keys: tuple[bytes, ...] = (),
    ) -> Call[T]:
        all_keys = self.keys(queue).fixed + more_keys
        return Call(script(name), all_keys, (optional(now), *args), lambda reply: parse(result(reply, f"queue {queue!r}")))


def _member(consumer: str) -> bytes:
    return to_bytes(check_name(consumer, "consumer"))


def _positive(limit: int) -> int:
    if limit <= 0:
        raise UsageError(f"limit {limit!r} must be above 0")
    return limit
