"""bee in use: every transition of its jobs as one call, as bee's own clients and workers make them.

The calls stand in ``lua/``, one script each; this file builds them and reads their replies. What a job and its keys look like is
written in ``lua/_common.lua``, after the scripts of bee's head, which those of 0.0.4 and 0.0.5 get on with.

- A consumer is a hive, and its worker in a queue is ``<hive>:<queue>``. Its lease is bee's own: the lock of each job, 45 s from
  the last heartbeat, whatever ``lease_ms`` says. A job whose worker is silent waits three locks more, and runs again after 180 s,
  one retry less; ``delivery_limit`` has no say.
- A job's payload is the list of its arguments. What is put as anything else is its only argument.
- A job that bee's client has made gets its hash when it is taken, as bees give it; one that has the hash of another becomes that
  one's duplicate, and nobody runs it. A job that Celery has made is never a duplicate for us.
- ``size`` counts failed jobs as done too: bee keeps both in one set.

Called by ``family.py``, ``client.py``, the transport and tests.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Literal, TypeVar
from uuid import uuid1

from attrs import field, frozen

from ...schema.connection.call import Argument, Call, Command
from ...schema.errors import UsageError
from ...schema.keys import glob_escape
from ...schema.live import Failure, ForeignDelivery, NewJob, Outcome
from ...schema.native.keys import DEFAULT_PREFIX
from ...schema.native.scripts import results
from ...schema.native.scripts.results import Removed
from ...schema.text import to_bytes, to_text
from .. import lua_json, side
from ..live import Retry, ScriptedFamily, outcome
from ..numbers import parse_int, parse_number
from .keys import LOCK_MS, layout
from .look import KEYS_TO_SEE, refuse_others
from .new_job import checked_id, data_of, options_of, tags_of
from .record import tag_name

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
class BeeLive(ScriptedFamily):
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

    def __attrs_post_init__(self) -> None:
        if not self.prefix:
            raise UsageError("the prefix of bee's keys is empty: leave it out, it is always 'bee'")

    @property
    def fixed(self) -> tuple[Argument, ...]:
        return (to_bytes(self.hive),)

    def by_consumer(
        self, script: str, queue: str, consumer: str, now: int | None, args: Iterable[Argument], parse: Callable[[Any], T]
    ) -> Call[T]:
        """As in ScriptedFamily; the consumer is the hive that speaks."""
        words = (to_bytes(hive_of(consumer)), to_bytes(queue), *args)
        return side.call(_PACKAGE, script, self.keys, now, words, parse, f"bee queue {queue!r}")

    # Before the first write

    def look(self) -> Call[None]:
        args = (to_bytes(glob_escape(self.prefix) + ":*"), KEYS_TO_SEE)
        return self.on_keyspace("look", None, args, partial(refuse_others, self.prefix))

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
        return self.on_queue("put", job.queue, now, args, to_text)

    # Consuming

    def _take_words(self) -> tuple[Argument, ...]:
        return (int(self.hashes),)

    def _delivery(self, queue: str, *job: Any) -> ForeignDelivery:
        return _delivery(queue, *job)

    def _result(self, result: bytes | None) -> tuple[Argument, ...]:
        """A result that JavaScript could not read either is stored as null."""
        return (result or b"",)

    def _end_attempt(
        self, queue: str, consumer: str, job_id: str, failure: Failure, retry: Retry | None, now: int | None
    ) -> Call[Outcome]:
        args: tuple[Argument, ...] = (
            to_bytes(job_id),
            text_for(failure),
            int(failure.is_final),
            "" if retry is None else retry.delay_ms,
            b"" if retry is None or retry.payload is None else data_of(retry.payload),
            b"" if retry is None else retry.extra or b"",
        )
        return self.by_consumer("fail", queue, consumer, now, args, outcome)

    def _progress(self, current: float, total: float, data: bytes | None) -> tuple[Argument, ...]:
        """Clients hear of a percentage; nothing is stored, and ``data`` has no place."""
        return (current / total * 100 if total else current,)

    def held(self, queue: str, consumer: str) -> Command[tuple[str, ...]]:
        key = layout(self.prefix).key("held", worker=f"{hive_of(consumer)}:{queue}")
        return Command(("SMEMBERS", key), lambda reply: tuple(sorted(map(to_text, reply))))

    # What is where

    def cancel(self, job_id: str, *, now: int | None = None) -> Call[Removed | None]:
        """Cancels a job of any queue in any state, one that runs too: its worker is not stopped, and not heard any more."""
        return self.on_keyspace("remove", now, ("*", to_bytes(job_id), "*"), results.removed)

    def get(self, ids: Iterable[str], *, now: int | None = None) -> Call[tuple[Mapping[str, Any] | None, ...]]:
        """Jobs as bee's own clients get them; with ``due``, ms, for one that waits for its time. None: there is none."""
        return self.on_keyspace("get", now, ("", 0, *map(to_bytes, ids)), _jobs)

    def peek(self, queue: str, n: int, *, now: int | None = None) -> Call[tuple[Mapping[str, Any] | None, ...]]:
        """The first of those that wait, as ``get`` gives them."""
        return self.on_queue("get", queue, now, (n,), _jobs)

    def tagged(self, tags: Iterable[str | float]) -> Command[tuple[str, ...]]:
        """The ids of the jobs that have all of these tags, of which there must be one, sorted."""
        names = layout(self.prefix)
        keys = [names.key("tag", tag=text) for text in map(tag_name, tags) if text is not None]
        return Command(("SINTER", *keys), lambda reply: tuple(sorted(map(to_text, reply))))

    def set_tags(self, job_id: str, tags: Sequence[str | float], *, now: int | None = None) -> Call[bool]:
        """Gives a job these tags and no others. False: there is no such job."""
        return self.on_keyspace("set_tags", now, (to_bytes(job_id), tags_of({"tags": tags})), bool)

    # The system's own clockwork

    def timers(self, *, delivery_limit: int | None = None, now: int | None = None) -> Sequence[Call[Any]]:
        """As in ForeignFamily: of the queues that have consumers of ours, until those who have gone hold nothing any more."""
        return (self.on_keyspace("timers", now, (), bool),)

    def signals(self, queue: str) -> tuple[bytes, ...]:
        """As in ForeignFamily; bee itself tells its workers by a message on a channel of the queue, ``<prefix>:ch:q:<queue>``."""
        names = layout(self.prefix)
        return names.key("queue", queue=queue), names.key("delayed", queue=queue)

    def schedules(self, queue: str) -> tuple[bytes, ...]:
        return (layout(self.prefix).key("delayed", queue=queue),)


def text_for(failure: Failure) -> bytes:
    """What bee stores of an error: ``Name: message``, without the stack. Celery's ``Reject`` is the reason alone."""
    message = failure.message
    if failure.exception not in ("", "Exception", "Reject") and not message.startswith(failure.exception):
        message = f"{failure.exception}: {message}"
    return to_bytes(message)


# Replies


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


def _jobs(reply: Any) -> tuple[Mapping[str, Any] | None, ...]:
    return tuple(_job(each) if each else None for each in reply)


def _job(reply: Any) -> Mapping[str, Any]:
    text, due = reply
    job: dict[str, Any] = json.loads(to_text(text))
    due_ms = parse_number(due)
    return job if due_ms is None else {**job, "due": int(due_ms)}
