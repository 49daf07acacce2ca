"""The live queue of the native family: every transition of a job as one call, one atomic script each.

``Live`` builds calls and reads replies; it never opens a connection. Times are Unix milliseconds, durations milliseconds. ``now``
is for tests: None means the server's clock, which is the only one that production code may use. The theory (keys, places, rules)
stands in ``lua/_common.lua`` and ``lua/_queue.lua``. Called by the transport, the command line and the tests.

Every call may raise, when its reply is read: SchemaVersionError for a queue that a newer ferryman has written, MalformedValue
when a key of the queue holds a wrong type. Declaring and publishing raise PublishRefused at maxmemory; all else goes on there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeVar

from attrs import field, frozen

from ..call import Argument, Call
from ..errors import QueueArgumentsError, UsageError
from ..text import to_bytes, to_text
from . import keys
from .answers import result
from .keys import QueueKeys
from .place import ASCENDING, DESCENDING, PriorityOrder, check_order, check_priority, priority_of
from .scripts import script

T = TypeVar("T")

#: How long a producer's last publish is remembered, so that repeating it stores nothing twice even when its jobs are done.
REMEMBERED_MS = 600_000

#: How many jobs ``purge`` and ``delete`` remove in one call; each is a millisecond or two of the server's time.
CHUNK = 1000

Verdict = Literal["acked", "cancelled", "lost"]


class Publication(NamedTuple):
    """One job to publish.

    ``id``: text without control characters; ``<producer>-<n>`` with growing n, if a repeated publish is to be recognised after
    the job is done. ``priority``: -256 to 255. ``due_ms``: when it may be taken, None or past for at once. ``ttl_ms``: how
    long it may wait (from its due time) before it expires, None for ever.
    """

    id: str
    message: bytes
    priority: int = 0
    due_ms: int | None = None
    ttl_ms: int | None = None


@frozen
class Declared:
    """What ``declare`` found or made. ``consumers`` have a lease; ``routes`` is the version that ``publish`` can rely on."""

    created: bool
    waiting: int
    consumers: int
    routes: int


@frozen
class Published:
    """What became of a publish.

    ``status``: ``stored``; ``missing`` (there is no such queue) or ``stale`` (the queue's routes have changed since the caller
    read them), and then nothing was stored. ``fresh``: for each job in order, False for one that had been stored before.
    ``routes``: the version now.
    """

    status: Literal["stored", "missing", "stale"]
    fresh: tuple[bool, ...] = ()
    routes: int = 0


@frozen
class Delivery:
    """One job taken. ``fields`` is its hash before this delivery: ``message`` (see ``codec``), or ``payload`` and ``name``."""

    id: str
    place: int
    priority: int
    deliveries: int
    fields: dict[bytes, bytes] = field(repr=False)

    @property
    def redelivered(self) -> bool:
        """Whether the job was delivered before and may have been begun."""
        return self.deliveries > 1


@frozen
class Taken:
    """What ``take`` gave.

    ``next_event_ms``: when to take again if nothing wakes the consumer first: the next due time, the next lapse of another
    consumer's lease, or the end of the own lease, whichever comes first. It may have passed already: then there is more to
    do now. ``exists`` is False when there is no such queue (deleted or expired: declare it again); all else is empty then.
    """

    exists: bool
    now: int
    next_event_ms: int
    jobs: tuple[Delivery, ...]


@frozen
class Size:
    """A queue's counts. ``age_ms``: how long its first waiting job has waited. None where there is nothing to tell."""

    exists: bool
    waiting: int
    scheduled: int
    held: int
    dead: int
    done: int
    consumers: int
    routes: int
    age_ms: int | None
    next_due_ms: int | None


@frozen
class Advanced:
    """How many jobs ``advance`` promoted and reclaimed."""

    promoted: int
    reclaimed: int


@lru_cache(maxsize=4096)
def queue_keys(prefix: str, queue: str) -> QueueKeys:
    """The keys of a queue, remembered: names are encoded once."""
    return QueueKeys(prefix, queue)


@frozen
class Live:
    """The transitions of all queues under one prefix."""

    prefix: str = field(default=keys.DEFAULT_PREFIX)

    def __attrs_post_init__(self) -> None:
        keys.check_prefix(self.prefix)

    def keys(self, queue: str) -> QueueKeys:
        """The key names of a queue. Raises UsageError for an empty name."""
        return queue_keys(self.prefix, queue)

    # Declaring and publishing

    def declare(
        self, queue: str, arguments: Mapping[str, Any], priority_order: PriorityOrder | None = None, *, now: int | None = None
    ) -> Call[Declared]:
        """Creates the queue if there is none, and sets its arguments; empty ``arguments`` leave those that stand.

        Understood here: ``x-expires`` (ms after which an unused queue goes, with all its keys) and ``x-retention`` (ms for
        which acked jobs are kept in done). All arguments are stored for others to read. ``priority_order`` None takes the order
        that stands, ``ascending`` for a new queue. A queue that lasts also belongs in ``keys.queues(prefix)`` (another cluster
        slot): send ``SADD`` with its name first.
        Raises QueueArgumentsError for arguments that can't be stored, and from the reply for a contradicting priority order.
        """
        order = ASCENDING if priority_order is None else check_order(priority_order)
        text = _arguments_text(queue, arguments)
        expires = _duration(queue, arguments, "x-expires")
        retention = _duration(queue, arguments, "x-retention")
        args = (text, order, "" if priority_order is None else 1, expires, retention)
        return self._call("declare", queue, now, args, _declared)

    def publish(
        self,
        queue: str,
        producer: str,
        messages: Sequence[Publication],
        *,
        create: bool = False,
        routes: int | None = None,
        priority_order: PriorityOrder = ASCENDING,
        now: int | None = None,
    ) -> Call[Published]:
        """Stores the jobs, all or none, each once: repeating the call after a broken connection stores nothing twice.

        ``producer`` names one sequential publisher (a channel): it repeats only its last call, and the n of its ids
        ``<producer>-<n>`` grow. ``create`` makes an undeclared queue, with ``priority_order``. ``routes`` (from ``Declared``,
        ``Published`` or ``Size``) refuses the publish when a binding to the queue has been removed since.
        Raises UsageError for an id, priority, due time or ttl that can't be; PublishRefused from the reply.
        """
        numbers = [_number(producer, message.id) for message in messages]
        args: list[Argument] = [
            1 if create else "",
            check_order(priority_order),
            _optional(routes),
            _spans(number for number in numbers if number is not None),
            REMEMBERED_MS,
        ]
        for message, number in zip(messages, numbers, strict=True):
            args += (
                to_bytes(_check_name(message.id, "id")),
                _optional(number),
                check_priority(message.priority),
                _milliseconds(message.due_ms, "due_ms"),
                _milliseconds(message.ttl_ms, "ttl_ms"),
                message.message,
            )
        memory = self.keys(queue).publisher(_check_name(producer, "producer"))
        return self._call("publish", queue, now, args, _published, (memory,))

    def bump_routes(self, queue: str, *, now: int | None = None) -> Call[int]:
        """Changes the queue's routes version after a binding to it was removed; gives the new one, 0 if there is no queue.

        Unbind first, bump second. Who caches routes reads the bindings, then ``routes`` of each queue, then the exchange's
        version again: unchanged, the cache is sound, and from then on every removed binding makes ``publish`` say ``stale``.
        """
        return self._call("bump_routes", queue, now, (), int)

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
        now: int | None = None,
    ) -> Call[Taken]:
        """Gives the consumer up to ``n`` jobs in pop order and (re)starts its lease.

        ``n`` 0 gives none, but promotes, reclaims and looks. ``consumer`` is an id that is used by one channel and never again.
        ``no_ack``: the jobs are done by being taken. ``delivery_limit``: a job delivered that often already goes to dead instead.
        """
        if n < 0 or lease_ms <= 0:
            raise UsageError(f"take from queue {queue!r}: n must not be negative and lease_ms must be above 0")
        args = (_member(consumer), n, lease_ms, 1 if no_ack else "", _optional(delivery_limit))
        return self._call("take", queue, now, args, _taken)

    def ack(self, queue: str, consumer: str, ids: Sequence[str], *, now: int | None = None) -> Call[tuple[Verdict, ...]]:
        """Ends jobs that the consumer has finished. For each id:

        ``acked``; ``cancelled`` when the lease had lapsed and the job had gone back, but nobody has taken it since: it is ended
        as well; ``lost`` when somebody else has or had it: nothing is changed.
        """
        return self._call("ack", queue, now, (_member(consumer), *map(to_bytes, ids)), _verdicts)

    def reject(
        self, queue: str, consumer: str, job_id: str, reason: str, error: str = "", *, now: int | None = None
    ) -> Call[bool]:
        """Gives a held job up: it is kept in dead with ``reason`` (one word, groups the dead) and ``error`` (text).

        False if the consumer does not hold it any more: nothing is changed.
        """
        args = (_member(consumer), to_bytes(job_id), to_bytes(reason), to_bytes(error))
        return self._call("reject", queue, now, args, bool)

    def requeue(self, queue: str, consumer: str, ids: Sequence[str], *, now: int | None = None) -> Call[tuple[bool, ...]]:
        """Puts held jobs back to their old places, to be delivered again. For each id: False if it is not held any more."""
        return self._call("requeue", queue, now, (_member(consumer), *map(to_bytes, ids)), _flags)

    def release(self, queue: str, consumer: str, ids: Sequence[str] | None, *, now: int | None = None) -> Call[int]:
        """Like ``requeue`` for jobs that were never begun: the delivery does not count. None: all. Gives how many went back."""
        which: tuple[Argument, ...] = ("all",) if ids is None else ("some", *map(to_bytes, ids))
        return self._call("release", queue, now, (_member(consumer), *which), int)

    def forget(self, queue: str, consumer: str, *, now: int | None = None) -> Call[int]:
        """A consumer's clean end: releases all it holds and strikes it off. Gives how many jobs went back."""
        return self._call("release", queue, now, (_member(consumer), "leave"), int)

    def renew(self, queue: str, consumer: str, lease_ms: int, *, now: int | None = None) -> Call[bool]:
        """Extends the consumer's lease on everything it holds. False if it is not known any more: what it held went back."""
        return self._call("renew", queue, now, (_member(consumer), lease_ms), bool)

    # Housekeeping

    def advance(self, queue: str, *, limit: int = CHUNK, now: int | None = None) -> Call[Advanced]:
        """Promotes due jobs and reclaims what lapsed consumers held, at most ``limit`` of each."""
        return self._call("advance", queue, now, (limit, limit), _advanced)

    def promote(self, queue: str, *, limit: int = CHUNK, now: int | None = None) -> Call[int]:
        """Moves due jobs to waiting, at most ``limit``. Gives how many."""
        return self._call("advance", queue, now, (limit, 0), lambda reply: _advanced(reply).promoted)

    def reclaim(self, queue: str, *, limit: int = CHUNK, now: int | None = None) -> Call[int]:
        """Moves what lapsed consumers held back to its old places, at most ``limit``. Gives how many."""
        return self._call("advance", queue, now, (0, limit), lambda reply: _advanced(reply).reclaimed)

    def size(self, queue: str, *, now: int | None = None) -> Call[Size]:
        """Counts the queue's jobs and consumers. Changes nothing."""
        return self._call("size", queue, now, (), _size)

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
        return Call(script(name), all_keys, (_optional(now), *args), lambda reply: parse(result(reply, f"queue {queue!r}")))


def _check_name(name: str, what: str) -> str:
    if not name or any(character < " " or character == "\x7f" for character in name):
        raise UsageError(f"{what} {name!r} must be text without control characters, and not empty")
    return name


def _member(consumer: str) -> bytes:
    return to_bytes(_check_name(consumer, "consumer"))


def _optional(value: int | None) -> Argument:
    return "" if value is None else value


def _milliseconds(value: int | None, what: str) -> Argument:
    if value is None:
        return ""
    if not isinstance(value, int) or abs(value) > 2**53:
        raise UsageError(f"{what} {value!r} is not a whole number of milliseconds")
    return value


def _arguments_text(queue: str, arguments: Mapping[str, Any]) -> str:
    try:
        return json.dumps(arguments, sort_keys=True, separators=(",", ":")) if arguments else ""
    except (TypeError, ValueError) as error:
        raise QueueArgumentsError(f"queue {queue!r}: its arguments are no plain JSON data: {error}") from error


def _duration(queue: str, arguments: Mapping[str, Any], name: str) -> Argument:
    value = arguments.get(name)
    if value is None:
        return ""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 2**53:
        raise QueueArgumentsError(f"queue {queue!r}: {name} is {value!r}, not a number of milliseconds above 0")
    return value


def _number(producer: str, job_id: str) -> int | None:
    """The n of an id ``<producer>-<n>``, None for ids of another form."""
    digits = job_id.removeprefix(f"{producer}-")
    if digits != job_id and digits.isascii() and digits.isdecimal() and len(digits) < 16:
        return int(digits)
    return None


def _spans(numbers: Iterable[int]) -> str:
    """Numbers as text for the publisher's memory: ``1-40,42-50``, ascending."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number <= spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(f"{first}-{last}" for first, last in spans)


def _declared(reply: Any) -> Declared:
    created, waiting, consumers, routes = reply
    return Declared(bool(created), waiting, consumers, int(routes))


def _published(reply: Any) -> Published:
    match reply:
        case [b"missing"]:
            return Published("missing")
        case [b"stale", routes]:
            return Published("stale", routes=int(routes))
        case _:
            _, routes, fresh = reply
            return Published("stored", tuple(map(bool, fresh)), int(routes))


def _taken(reply: Any) -> Taken:
    if reply == [b"missing"]:
        return Taken(exists=False, now=0, next_event_ms=0, jobs=())
    _, now, next_event, descending, *jobs = reply
    order = DESCENDING if descending else ASCENDING
    return Taken(True, now, next_event, tuple(_delivery(job, order) for job in jobs))


def _delivery(job: Any, order: PriorityOrder) -> Delivery:
    raw_id, score, deliveries, fields = job
    place = _whole(score)
    pairs = dict(zip(fields[::2], fields[1::2], strict=True))
    return Delivery(to_text(raw_id), place, priority_of(place, order), deliveries, pairs)


def _whole(score: bytes) -> int:
    """A score as an integer; 0 for one that is none (infinite, written by somebody else)."""
    number = float(score)
    return int(number) if abs(number) <= 2**53 else 0


def _verdicts(reply: Any) -> tuple[Verdict, ...]:
    return tuple(verdict.decode() for verdict in reply)


def _flags(reply: Any) -> tuple[bool, ...]:
    return tuple(map(bool, reply))


def _advanced(reply: Any) -> Advanced:
    return Advanced(*reply)


def _size(reply: Any) -> Size:
    exists, waiting, scheduled, held, dead, done, consumers, routes, age, next_due = reply
    return Size(
        exists=bool(exists),
        waiting=waiting,
        scheduled=scheduled,
        held=held,
        dead=dead,
        done=done,
        consumers=consumers,
        routes=int(routes),
        age_ms=None if age < 0 else age,
        next_due_ms=None if next_due < 0 else next_due,
    )
