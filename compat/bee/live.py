"""bee in use: every transition of its jobs as one call, as bee's own clients and workers make them.

The calls stand in ``lua/``, one script each; this file builds them and reads their replies. What a job and its keys look like is
written in ``lua/_common.lua``, after the scripts of bee's head, which those of 0.0.4 and 0.0.5 get on with.

- A consumer is a hive, and its worker in a queue is ``<hive>:<queue>``. Its lease is bee's own: the lock of each job, 45 s from
  the last heartbeat, whatever ``lease_ms`` says. A job whose worker is silent waits three locks more, and runs again after 180 s,
  one retry less; ``delivery_limit`` has no say.
- A job's payload is the list of its arguments. What is put as anything else is its only argument.
- A job that bee's client has made gets its hash when it is taken, as bees give it; one that has the hash of another becomes that
  one's duplicate, and nobody runs it. A job that Celery has made is never a duplicate for us.

Called by ``family.py``, ``client.py``, the transport and tests.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Literal, TypeVar
from uuid import uuid1

from attrs import field, frozen

from ...schema.connection.call import Argument, Call, Command
from ...schema.errors import UsageError
from ...schema.keys import glob_escape
from ...schema.live import Failure, ForeignDelivery, ForeignFamily, NewJob, Outcome, Upcoming
from ...schema.native.keys import DEFAULT_PREFIX
from ...schema.native.scripts.queue_scripts import FETCH_BYTES, MAX_PER_CALL
from ...schema.native.scripts.results import Found, Purged, Removed, Renewed, Role, Size, Taken, Task
from ...schema.steering import Action
from ...schema.steering import Outcome as SteeringOutcome
from ...schema.text import to_bytes, to_text
from .. import side
from ..numbers import parse_int, parse_number
from ..steering import outcome_of
from . import lua_json
from .keys import LOCK_MS, layout
from .look import KEYS_TO_SEE, refuse_others
from .new_job import checked_id, data_of, options_of, tags_of

T = TypeVar("T")

_PACKAGE = __name__.rpartition(".")[0]
_HIVE = re.compile(r"[^:]+:[^:]+:[^:]+")


def new_hive() -> str:
    """An id for a process that speaks to bee's keyspace, as bee makes them."""
    return f"{socket.gethostname().replace(':', '-') or 'localhost'}:{os.getpid()}:{uuid1()}"


def hive_of(consumer: str) -> str:
    """The hive that a consumer is for bee, which finds a worker's parts by the colons: the consumer itself, if it has two."""
    return consumer if _HIVE.fullmatch(consumer) else f"ferryman:0:{consumer.replace(':', '-')}"


@frozen
class BeeLive(ForeignFamily):
    """The transitions of all queues of a keyspace of bee.

    ``prefix``: bee itself knows no other than ``bee``; others serve tests, and copies. ``hashes``: whether jobs are hashed, where
    bees of their queue seem to do so, or none has run in it; False where the bees' own code turns it off.
    """

    name: ClassVar[str] = "bee"
    priority_direction: ClassVar[Literal[-1, 0, 1]] = -1
    arguments: ClassVar[Literal["one", "list", "object"]] = "list"
    longest_lease_ms: ClassVar[int | None] = LOCK_MS

    prefix: str = "bee"
    side_prefix: str = DEFAULT_PREFIX
    hashes: bool = True
    hive: str = field(factory=new_hive)
    """Who puts jobs and runs the timers, in histories."""
    _keys: tuple[bytes, bytes] = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        if not self.prefix:
            raise UsageError("the prefix of bee's keys is empty: leave it out, it is always 'bee'")
        keys = (side.root(self.name, self.prefix, self.side_prefix), to_bytes(f"{self.prefix}:"))
        object.__setattr__(self, "_keys", keys)

    # Before the first write

    def look(self) -> Call[None]:
        args = (to_bytes(glob_escape(self.prefix) + ":*"), KEYS_TO_SEE)
        return self._call("look", None, self.hive, args, partial(refuse_others, self.prefix))

    # Jobs in

    def put(self, job: NewJob, *, now: int | None = None) -> Call[str]:
        """As in ForeignFamily. ``options``, all with bee's own defaults:

        ``attempts`` or ``retries`` (one less); ``backoff``, ms, or ``{"type": …, "delay": ms}``, which all types but ``fixed``
        multiply by the number of the retry; or ``retryDelay`` and ``progressiveDelay``; ``ttl``, ms for which the job stays valid
        after its end; ``tags``; ``parent``, an id; ``depends`` or ``dependencies``, ids; ``dependenciesOnTags``;
        ``preferredHostname``. bee's own clients can't set those of retries, nor ``ttl``.
        """
        job_id = str(uuid1()) if job.id is None else checked_id(job.id)
        args = (
            to_bytes(job_id),
            data_of(job.payload),
            options_of(job),
            tags_of(job.options),
            to_bytes(str(job.options.get("parent") or "")),
            job.extra or b"",
            job.publication or "",
        )
        return self._call("put", now, self.hive, args, to_text, job.queue)

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
        wanted = () if tasks is None else tuple(map(to_bytes, sorted(tasks)))
        args = (n, lease_ms, fetch_bytes, "" if tasks is None else len(wanted), int(self.hashes), *wanted)
        return self._call("take", now, hive_of(consumer), args, partial(_taken, queue), queue)

    def complete(
        self, queue: str, consumer: str, results: Sequence[tuple[str, bytes | None]], *, now: int | None = None
    ) -> Call[tuple[Outcome, ...]]:
        """As in ForeignFamily. A result that JavaScript could not read either is stored as null."""
        args = [each for job_id, result in results for each in (to_bytes(job_id), result or b"")]
        return self._call("complete", now, hive_of(consumer), args, _outcomes, queue)

    def fail(self, queue: str, consumer: str, job_id: str, failure: Failure, *, now: int | None = None) -> Call[Outcome]:
        args = (to_bytes(job_id), text_for(failure), int(failure.is_final), "", b"", b"")
        return self._call("fail", now, hive_of(consumer), args, _outcome, queue)

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
        data = b"" if payload is None else data_of(payload)
        args = (to_bytes(job_id), text_for(failure), int(failure.is_final), max(0, delay_ms), data, extra or b"")
        return self._call("fail", now, hive_of(consumer), args, _outcome, queue)

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
        """As in ForeignFamily. Clients hear of a percentage; nothing is stored, and ``data`` has no place."""
        percentage = current / total * 100 if total else current
        return self._call("progress", now, hive_of(consumer), (to_bytes(job_id), percentage), bool, queue)

    def requeue(self, queue: str, consumer: str, ids: Sequence[str], *, now: int | None = None) -> Call[tuple[bool, ...]]:
        args: list[Argument] = ["", "some", *map(to_bytes, ids)]
        return self._call("give_back", now, hive_of(consumer), args, lambda reply: tuple(map(bool, reply)), queue)

    def release(self, queue: str, consumer: str, ids: Sequence[str] | None, *, now: int | None = None) -> Call[int]:
        args: list[Argument] = ["1", "all"] if ids is None else ["1", "some", *map(to_bytes, ids)]
        return self._call("give_back", now, hive_of(consumer), args, sum, queue)

    def forget(self, queue: str, consumer: str, *, now: int | None = None) -> Call[int]:
        return self._call("give_back", now, hive_of(consumer), ("1", "end"), sum, queue)

    def renew(self, queue: str, consumer: str, lease_ms: int, *, now: int | None = None) -> Call[Renewed]:
        """As in ForeignFamily: bee's heartbeat. ``lease_ms`` only says when others may see that the consumer has gone."""
        return self._call("renew", now, hive_of(consumer), (lease_ms,), Renewed, queue)

    def held(self, queue: str, consumer: str) -> Command[tuple[str, ...]]:
        key = layout(self.prefix).key("held", worker=f"{hive_of(consumer)}:{queue}")
        return Command(("SMEMBERS", key), lambda reply: tuple(sorted(map(to_text, reply))))

    # What is where

    def size(self, queue: str, *, now: int | None = None) -> Call[Size]:
        """As in ForeignFamily. ``done`` counts failed jobs too: bee keeps both in one set."""
        return self._call("size", now, self.hive, (), _size, queue)

    def purge(self, queue: str, *, limit: int = MAX_PER_CALL, now: int | None = None) -> Call[Purged]:
        return self._call("purge", now, self.hive, (limit,), lambda reply: Purged(reply[0], bool(reply[1])), queue)

    def upcoming(self, queue: str, limit: int, *, fetch_bytes: int = FETCH_BYTES) -> Call[tuple[Upcoming, ...]]:
        return self._call("upcoming", None, self.hive, (limit, fetch_bytes), partial(_upcoming, queue), queue)

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
        place = "queue" if role == "waiting" else "delayed"
        key = to_bytes(f"ss:{place}:{queue}")
        args: list[Argument] = [key, seen, limit, to_bytes(f"{self.prefix}:"), *map(to_bytes, task_ids)]
        return self._call("find", now, self.hive, args, _found)

    def remove(self, queue: str, job_id: str, only: Role | None = None, *, now: int | None = None) -> Call[Removed | None]:
        return self._call("remove", now, self.hive, (to_bytes(job_id), only or ""), _removed, queue)

    def steer(
        self, queue: str, job_id: str, action: Action, told: Argument = "", *, now: int | None = None
    ) -> Call[SteeringOutcome]:
        """What an operator does to a job that nobody runs (``steering.py``)."""
        return self._call("steer", now, self.hive, (to_bytes(job_id), str(action)), outcome_of, queue)

    def cancel(self, job_id: str, *, now: int | None = None) -> Call[Removed | None]:
        """Cancels a job of any queue in any state, one that runs too: its worker is not stopped, and not heard any more."""
        return self._call("remove", now, self.hive, ("*", to_bytes(job_id), "*"), _removed)

    def get(self, ids: Iterable[str], *, now: int | None = None) -> Call[tuple[Mapping[str, Any] | None, ...]]:
        """Jobs as bee's own clients get them; with ``due``, ms, for one that waits for its time. None: there is none."""
        return self._call("get", now, self.hive, ("", 0, *map(to_bytes, ids)), _jobs)

    def peek(self, queue: str, n: int, *, now: int | None = None) -> Call[tuple[Mapping[str, Any] | None, ...]]:
        """The first of those that wait, as ``get`` gives them."""
        return self._call("get", now, self.hive, (to_bytes(queue), n), _jobs)

    def tagged(self, tags: Iterable[str | float]) -> Command[tuple[str, ...]]:
        """The ids of the jobs that have all of these tags, of which there must be one, sorted."""
        names = layout(self.prefix)
        keys = [names.key("tag", tag=text) for text in map(lua_json.tag_text, tags) if text is not None]
        return Command(("SINTER", *keys), lambda reply: tuple(sorted(map(to_text, reply))))

    def set_tags(self, job_id: str, tags: Sequence[str | float], *, now: int | None = None) -> Call[bool]:
        """Gives a job these tags and no others. False: there is no such job."""
        return self._call("set_tags", now, self.hive, (to_bytes(job_id), tags_of({"tags": tags})), bool)

    # The system's own clockwork

    def timers(self, *, delivery_limit: int | None = None, now: int | None = None) -> Sequence[Call[Any]]:
        """As in ForeignFamily: of the queues that have consumers of ours, until those who have gone hold nothing any more."""
        return (self._call("timers", now, self.hive, (), bool),)

    def signals(self, queue: str) -> tuple[bytes, ...]:
        """As in ForeignFamily; bee itself tells its workers by a message on a channel of the queue, ``<prefix>:ch:q:<queue>``."""
        names = layout(self.prefix)
        return names.key("queue", queue=queue), names.key("delayed", queue=queue)

    def schedules(self, queue: str) -> tuple[bytes, ...]:
        return (layout(self.prefix).key("delayed", queue=queue),)

    def _call(
        self,
        name: str,
        now: int | None,
        hive: str,
        args: Sequence[Argument],
        parse: Callable[[Any], T],
        queue: str | None = None,
    ) -> Call[T]:
        what = f"bee keyspace {self.prefix!r}" if queue is None else f"bee queue {queue!r}"
        named: tuple[Argument, ...] = () if queue is None else (to_bytes(queue),)
        return side.call(_PACKAGE, name, self._keys, now, (to_bytes(hive), *named, *args), parse, what)


def text_for(failure: Failure) -> bytes:
    """What bee stores of an error: ``Name: message``, without the stack."""
    message = failure.message
    if failure.exception not in ("", "Exception") and not message.startswith(failure.exception):
        message = f"{failure.exception}: {message}"
    return to_bytes(message)


# Replies


def _taken(queue: str, reply: Any) -> Taken:
    now, event, unknown, *jobs = reply
    deliveries = tuple(_delivery(queue, *job) for job in jobs)
    return Taken(True, now, event, deliveries, unknown=tuple(map(to_text, unknown)))


def _upcoming(queue: str, reply: Any) -> tuple[Upcoming, ...]:
    return tuple(Upcoming(int(due), _delivery(queue, *job)) for due, *job in reply)


def _delivery(
    queue: str, job_id: bytes, score: bytes, data: bytes, extra: bytes, popped: int, retries: bytes, most: bytes, priority: bytes
) -> ForeignDelivery:
    limit = parse_number(most)
    return ForeignDelivery(
        id=to_text(job_id),
        score=int(parse_number(score) or 0),
        priority=int(parse_number(priority) or 0),
        deliveries=popped,
        fields={},
        queue=queue,
        payload=arguments_of(data),
        extra=extra or None,
        attempts=parse_int(retries) or 0,
        max_attempts=None if limit is None else int(limit) + 1,
    )


def arguments_of(data: bytes) -> bytes:
    """The list of a job's arguments, as JSON text, of its data: none if that is empty, itself if it is no list."""
    if data.lstrip().startswith(b"["):
        return data
    return b"[]" if lua_json.as_object(data) == {} else b"[%s]" % data


def _outcome(reply: bytes) -> Outcome:
    outcome: Outcome = reply.decode()  # type: ignore[assignment]
    return outcome


def _outcomes(reply: Sequence[bytes]) -> tuple[Outcome, ...]:
    return tuple(map(_outcome, reply))


def _size(reply: Any) -> Size:
    now, queued, due, delayed, running, ended, consumers, next_due = reply
    first = parse_number(next_due)
    return Size(
        exists=True,
        waiting=queued + due,
        due=due,
        scheduled=delayed,
        held=running,
        dead=0,
        done=ended,
        consumers=consumers,
        routes=0,
        next_due_ms=None if first is None else int(first),
        blocked=0,
        outbox=0,
        now=now,
    )


def _found(reply: Any) -> Found:
    more, scanned, found = reply
    pairs = zip(found[::2], found[1::2], strict=True)
    return Found(tuple(Task(to_text(job_id), to_text(task), b"") for job_id, task in pairs), scanned, bool(more))


def _removed(reply: bytes) -> Removed | None:
    removed: Removed | None = reply.decode() or None  # type: ignore[assignment]
    return removed


def _jobs(reply: Any) -> tuple[Mapping[str, Any] | None, ...]:
    return tuple(_job(each) if each else None for each in reply)


def _job(reply: Any) -> Mapping[str, Any]:
    text, due = reply
    job: dict[str, Any] = json.loads(to_text(text))
    due_ms = parse_number(due)
    return job if due_ms is None else {**job, "due": int(due_ms)}
