"""What the transitions of ``queue_scripts.py`` give back, and how it is read from the scripts' replies.

Values and pure functions; nothing here raises for a reply of our scripts, whatever scores stand in the keyspace. Called by
``queue_scripts.py``; the classes are what the transport and the command line see.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from enum import IntEnum
from typing import Any, Literal, NamedTuple

from attrs import field, frozen

from ...errors import MalformedValue
from ...text import load_json, show, to_text
from .. import codec
from ..numbers import parse_int
from .waiting_score import ASCENDING, DESCENDING, PriorityOrder, priority_of

Verdict = Literal["acked", "cancelled", "lost"]
Role = Literal["waiting", "scheduled", "held", "dead", "done", "blocked"]
Removed = Role | Literal["more"]
"""Where a job was that has been removed; ``more`` for one of which a part has gone."""

COUNTERS = (
    "published",
    "deduplicated",
    "delivered",
    "redelivered",
    "acked",
    "cancelled",
    "requeued",
    "released",
    "reclaimed",
    "expired",
    "maxlen",
    "broken",
    "dead",
    "forwarded",
    "revived",
    "removed",
    "purged",
    "moved",
    "dropped",
)
"""The fields of a queue's meta that count its jobs since it was made, as the scripts write them."""


@frozen
class Declared:
    """What ``declare`` found or made. ``consumers`` have a lease; ``routes`` is the version that ``publish`` can rely on.

    ``more``: jobs of a queue that is to last from now on may still expire; declare it again, until they don't.
    """

    created: bool
    waiting: int
    consumers: int
    routes: int
    more: bool = False


@frozen
class Published:
    """What became of a publish.

    ``status``: ``stored``; or nothing was stored: ``missing`` (there is no such queue), ``stale`` (the queue's routes have
    changed since the caller read them), ``overflow`` (x-max-length reached, x-overflow is reject-publish), ``other`` (it takes
    another script, see ``QueueScripts.publish_one``). ``fresh``: for each job in order, False for one that had been stored
    before. ``routes``: the version now. ``has_dead_letters``: dead jobs of the queue wait to be forwarded to its dead letter
    exchange (``outbox``). ``created``: there was no such queue before; list it. ``more``: not all jobs of a temporary queue are
    renewed; call ``advance``, until they are. ``standing``: for each job of a batch, whether somebody else has stored one of this
    id that has not died, so that this one was not stored.
    """

    status: Literal["stored", "missing", "stale", "overflow", "other"]
    fresh: tuple[bool, ...] = ()
    routes: int = 0
    has_dead_letters: bool = False
    created: bool = False
    more: bool = False
    standing: tuple[bool, ...] = ()


@frozen
class Delivery:
    """One job taken. ``score``: that in waiting. ``fields``: its hash before this delivery.

    That has a ``message`` (see ``codec``), or ``payload`` and ``name``.
    """

    id: str
    score: int
    priority: int
    deliveries: int
    fields: dict[bytes, bytes] = field(repr=False)

    @property
    def redelivered(self) -> bool:
        """Whether the job was delivered before and may have been begun."""
        return self.deliveries > 1

    @property
    def is_left_out(self) -> bool:
        """Whether its message was too long to come with it."""
        return b"message" not in self.fields and b"payload" not in self.fields


@frozen
class Taken:
    """What ``take`` gave.

    ``next_event_ms``: when to take again if nothing wakes the consumer first: the next due time, the next lapse of another
    consumer's lease, or the end of the own lease, whichever comes first. It may have passed already: then there is more to
    do now. ``exists`` is False when there is no such queue (deleted or expired: declare it again); all else is empty then.
    ``forwards``: the queue has a dead letter exchange; ``has_dead_letters``: dead jobs wait to be forwarded there (``outbox``).
    ``has_unreported``: dead tasks perhaps wait for a worker that reports their end (``claim_unreported``).
    ``unknown``: tasks of some jobs that were left for others, because the consumer does not know them (``live.ForeignFamily``).
    ``verdicts``: on the jobs that the call was to ack.
    """

    exists: bool
    now: int
    next_event_ms: int
    jobs: tuple[Delivery, ...]
    forwards: bool = False
    has_dead_letters: bool = False
    unknown: tuple[str, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    has_unreported: bool = False

    @property
    def more(self) -> bool:
        """Whether there is more to take or to do at once."""
        return self.exists and self.next_event_ms <= self.now


@frozen
class DeadLetter:
    """A dead job. ``number``: 0, or if it is to go to an exchange, higher than that of any earlier one of its queue."""

    number: int
    died_at: int
    job: Delivery


@frozen
class DeadLetterOutbox:
    """The oldest dead letters of a queue that are still to go, and where to; ``routing_key`` None: each under its own.

    ``next_poll_ms``: when there may be more, if nobody consumes the queue; it may be now.
    """

    exchange: str
    routing_key: str | None
    now: int
    next_poll_ms: int
    dead_letters: tuple[DeadLetter, ...]


@frozen
class UnreportedTasks:
    """Dead tasks that a worker has claimed to report their end.

    ``again``: the ids of those that an earlier claim had, which has run out: perhaps they were reported. ``next_claim_ms``: when
    there may be more to claim; None if none is left.
    """

    now: int
    next_claim_ms: int | None
    tasks: tuple[Delivery, ...]
    again: frozenset[str]


@frozen
class Size:
    """A queue's counts. ``waiting``: what a consumer could take now. ``scheduled``: what may be taken later.

    ``due``: those of ``waiting`` that were scheduled and that nobody has moved since their time came. ``next_due_ms``: when the
    first scheduled or due one may be taken. ``outbox``: dead jobs that are still to go to the dead letter exchange.
    ``priorities`` and ``ages``: how many wait with each priority, and how long the first of them has, ms, from its due time if
    it was delayed, if that was asked for, the first to run first; those that are ``due`` are no part of them.
    """

    exists: bool
    waiting: int
    due: int
    scheduled: int
    held: int
    dead: int
    done: int
    consumers: int
    routes: int
    next_due_ms: int | None
    blocked: int
    outbox: int
    now: int
    paused: bool = False
    """Whether nothing is to be taken (``pause``)."""
    priorities: Mapping[int, int] = field(factory=dict)
    ages: Mapping[int, int] = field(factory=dict)

    @property
    def due_age_ms(self) -> int | None:
        """For how long the first of those that are ``due`` has been; None where none is, or its due time is lost (0)."""
        return self.now - self.next_due_ms if self.due and self.next_due_ms else None


class Renewed(IntEnum):
    """What became of a lease."""

    LAPSED = 0
    """The consumer is not known any more: what it held went back."""
    DONE = 1
    UNFINISHED = 2
    """Its lease is renewed, and so are some of the jobs of a temporary queue: call again, or others may expire."""

    @property
    def more(self) -> bool:
        """Whether to call again at once."""
        return self is Renewed.UNFINISHED


@frozen
class Advanced:
    """How many jobs ``advance`` promoted and reclaimed. ``more``: not all jobs of a temporary queue are renewed; call again."""

    promoted: int
    reclaimed: int
    more: bool = False


@frozen
class Purged:
    """How many jobs ``purge`` deleted, and whether there may be more."""

    jobs: int
    more: bool


class Task(NamedTuple):
    """A job of a task, as ``find`` has found it. ``message`` is empty where it came from another system."""

    id: str
    task: str
    message: bytes


@frozen
class Found:
    """The jobs that ``find`` has found in its chunk, how many it has scanned, and whether there may be more behind it."""

    jobs: tuple[Task, ...]
    scanned: int
    more: bool
    unread: tuple[str, ...] = ()
    """Jobs whose messages are too long for a script: they may be among those wanted."""


@frozen
class Deleted:
    """What ``delete`` did: ``used`` and ``filled`` are the refusals of ``if_unused`` and ``if_empty``."""

    status: Literal["deleted", "missing", "used", "filled"]
    jobs: int
    more: bool


def declared(reply: Any) -> Declared:
    created, waiting, consumers, routes, more = reply
    return Declared(bool(created), waiting, consumers, int(routes), bool(more))


def published(reply: Any) -> Published:
    match reply:
        case [b"missing"]:
            return Published("missing")
        case [b"other"]:
            return Published("other")
        case [b"stale", routes]:
            return Published("stale", routes=int(routes))
        case [b"overflow", routes]:
            return Published("overflow", routes=int(routes))
        case _:
            _, routes, fresh, has_dead_letters, created, more = reply
            verdicts = [int(each) for each in fresh]
            return Published(
                "stored",
                tuple(each == 1 for each in verdicts),
                int(routes),
                bool(has_dead_letters),
                bool(created),
                bool(more),
                tuple(each < 0 for each in verdicts),
            )


def taken(reply: Any) -> Taken:
    status, acked, *found = reply
    if status == b"missing":
        return Taken(exists=False, now=0, next_event_ms=0, jobs=(), verdicts=verdicts(acked))
    now, next_event, descending, notes, *jobs = found
    order = DESCENDING if descending else ASCENDING
    deliveries = tuple(_delivery(job, order) for job in jobs)
    forwards = notes & 3
    return Taken(
        True, now, next_event, deliveries, forwards > 0, forwards > 1, verdicts=verdicts(acked), has_unreported=bool(notes & 4)
    )


def outbox(reply: Any) -> DeadLetterOutbox | None:
    if reply == [b"missing"]:
        return None
    _, exchange, routing_key, now, next_poll, descending, *dead_letters = reply
    order = DESCENDING if descending else ASCENDING
    key = _name(routing_key) if routing_key else None
    return DeadLetterOutbox(_name(exchange), key, now, next_poll, tuple(_dead_letter(each, order) for each in dead_letters))


def dead_letters(reply: Any) -> tuple[DeadLetter, ...]:
    descending, *found = reply
    order = DESCENDING if descending else ASCENDING
    return tuple(_dead_letter(each, order) for each in found)


def unreported(reply: Any) -> UnreportedTasks:
    now, next_claim, descending, *found = reply
    letters = [_dead_letter(each, DESCENDING if descending else ASCENDING) for each in found]
    again = frozenset(letter.job.id for letter in letters if letter.number)
    return UnreportedTasks(now, None if next_claim < 0 else next_claim, tuple(letter.job for letter in letters), again)


def _name(raw: bytes) -> str:
    """A name as ``arguments.py`` stores it."""
    name = load_json(raw)
    if not isinstance(name, str):
        raise MalformedValue(f"the queue's dead letter exchange or routing key is {show(raw)!r}, not a JSON text")
    return name


def _dead_letter(raw: Any, order: PriorityOrder) -> DeadLetter:
    job_id, number, score, died_at, deliveries, fields = raw
    return DeadLetter(_whole(number), _whole(died_at), _delivery((job_id, score, deliveries, fields), order))


def _delivery(job: Any, order: PriorityOrder) -> Delivery:
    raw_id, raw_score, deliveries, fields = job
    score = _whole(raw_score)
    pairs = dict(zip(fields[::2], fields[1::2], strict=True))
    return Delivery(to_text(raw_id), score, priority_of(score, order), deliveries, pairs)


def _whole(score: bytes) -> int:
    """A score as an integer; 0 for one that is none (infinite, written by somebody else)."""
    number = float(score)
    return int(number) if abs(number) <= 2**53 else 0


def verdicts(reply: Any) -> tuple[Verdict, ...]:
    return tuple(verdict.decode() for verdict in reply)


def deleted(reply: Any) -> Deleted:
    status, jobs, more = reply
    return Deleted(status.decode(), jobs, bool(more))


def flags(reply: Any) -> tuple[bool, ...]:
    return tuple(map(bool, reply))


def advanced(reply: Any) -> Advanced:
    promoted, reclaimed, more = reply
    return Advanced(promoted, reclaimed, bool(more))


def size(reply: Any) -> Size:
    exists, ready, due, scheduled, held, dead, done, consumers, routes, next_due, blocked, outbox, *rest = reply
    descending, now, paused, *rest = rest
    order = DESCENDING if descending else ASCENDING
    priorities = [(priority_of(int(float(score)), order), number, waited) for score, number, waited in rest]
    return Size(
        exists=bool(exists),
        waiting=ready + due,
        due=due,
        scheduled=scheduled,
        held=held,
        dead=dead,
        done=done,
        consumers=consumers,
        routes=int(routes),
        next_due_ms=None if next_due < 0 else next_due,
        blocked=blocked,
        outbox=outbox,
        now=now,
        paused=bool(paused),
        priorities={priority: number for priority, number, _ in priorities},
        ages={priority: waited for priority, _, waited in priorities if waited >= 0},
    )


def counters(reply: Any) -> dict[str, int]:
    """What stands in meta under ``COUNTERS``; 0 for what is no number."""
    return {name: parse_int(raw) or 0 for name, raw in zip(COUNTERS, reply, strict=True)}


MESSAGE = (b"message", b"name", b"payload")
"""The fields of a job of which its message is made, whichever system it came from."""


def message(reply: Any) -> dict[bytes, bytes]:
    """Those of ``MESSAGE`` that there are."""
    return {name: value for name, value in zip(MESSAGE, reply, strict=True) if value is not None}


def upcoming(reply: Any) -> list[tuple[str, int]]:
    """Ids with their scores. redis-py makes pairs of them, a bare connection does not."""
    pairs = reply if reply and isinstance(reply[0], tuple) else zip(reply[::2], reply[1::2], strict=True)
    return [(to_text(job_id), int(float(score))) for job_id, score in pairs]


def purged(reply: Any) -> Purged:
    jobs, more = reply
    return Purged(jobs, bool(more))


def removed(reply: Any) -> Removed | None:
    word: Removed | Literal[""] = reply.decode()
    return word or None


def wanted_task(job_id: str, message: bytes | None, task_ids: Container[str]) -> Task | None:
    """A job with this message, if it is of one of these tasks."""
    try:
        head, _ = codec.decode(message or b"")
    except MalformedValue:
        return None
    headers = head.get("headers")
    task = headers.get("id") if isinstance(headers, dict) else None
    return Task(job_id, task, message or b"") if isinstance(task, str) and task in task_ids else None


def found(reply: Any) -> Found:
    more, scanned, found = reply
    triples = zip(found[::3], found[1::3], found[2::3], strict=True)
    jobs = [Task(to_text(job_id), to_text(task), message) for job_id, task, message in triples]
    unread = tuple(job.id for job in jobs if not job.task)
    return Found(tuple(job for job in jobs if job.task), scanned, bool(more), unread)
