"""PjqLive: a keyspace of pjq in use, every transition of a job as one call. The theory stands in ``lua/_common.lua``.

It serves the keys that every program from js-2 on has in common; those of the first JavaScript program are refused. Programs of
pjq are not woken by keys: they look at their next message. Called by the transport, by ``client.py`` and by tests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from uuid import uuid4

from attrs import frozen

from ...schema.connection.call import Argument, Call
from ...schema.errors import UsageError
from ...schema.job import Job
from ...schema.keys import glob_escape
from ...schema.live import Failure, ForeignDelivery, NewJob, Outcome
from ...schema.native.keys import DEFAULT_PREFIX
from ...schema.native.scripts.publication import check_name, optional
from ...schema.native.scripts.queue_scripts import FETCH_BYTES
from ...schema.text import is_unicode, show, to_bytes, to_text
from ..live import Retry, ScriptedFamily, outcome
from . import replies
from .keys import LEASE_MS, can_be_id, layout
from .payload import Members, key_texts, members_of


@frozen
class PjqLive(ScriptedFamily):
    """The transitions of all queues under one prefix, beside programs and workers of pjq.

    ``put`` has no options. A job is a JSON object; its ``command`` is its name. A lease longer than 9 s holds as well: its job's
    dispatch is dated so that it ends with the lease. What is damaged, or nobody here knows, stays in its place. ``size`` counts
    retries that are delayed as scheduled, and what has failed as done. pjq keeps the progress of accepted jobs, and one of ours
    is accepted when it ends: no progress is written.
    """

    name = "pjq"
    priority_direction = 0
    can_delay = False
    has_names = True
    arguments = "object"
    longest_lease_ms = LEASE_MS
    separator = ""

    prefix: str = ""
    side_prefix: str = DEFAULT_PREFIX

    def __attrs_post_init__(self) -> None:
        if not is_unicode(self.prefix):
            raise UsageError(f"the prefix {show(self.prefix)!r} is not UTF-8, which pjq's keys are")

    def _queue(self, queue: str) -> bytes:
        return to_bytes(checked_queue(queue))

    def _consumer(self, consumer: str) -> bytes:
        return to_bytes(check_name(consumer, "consumer"))

    # Before the first write

    def look(self) -> Call[None]:
        pattern = to_bytes(glob_escape(self.prefix))
        return self.on_keyspace("look", None, (pattern,), partial(replies.check, self.prefix))

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
        for name, value in (("uuid", job_id), ("queue_name", checked_queue(job.queue))):
            if value not in key_texts(text, name) and name in text:
                raise UsageError(f"the payload has {name} {text[name]!r}, but is to be job {job_id!r} of queue {job.queue!r}")
            text.setdefault(name, value)
        if job.name is not None:
            text.setdefault("command", job.name)
        stamp = "" if "created_at" in text else 1
        args = (to_bytes(job_id), _dump(text), job.extra or b"", job.publication or "", stamp)
        return self.on_queue("put", job.queue, now, args, partial(replies.stored, job_id))

    # Consuming

    def _delivery(self, queue: str, *job: Any) -> ForeignDelivery:
        return replies.delivery(queue, *job)

    def _result(self, result: bytes | None) -> tuple[Argument, ...]:
        """The result, as JSON text, is the ``stdout`` of a job that ends with exit code 0."""
        return (_string(to_text(result or b"")),)

    def _end_attempt(
        self, queue: str, consumer: str, job_id: str, failure: Failure, retry: Retry | None, now: int | None
    ) -> Call[Outcome]:
        """A failed job ends with exit code 1; ``stderr`` is the failure's text. The same job again: at once behind all others, or
        after a delay before them, where taken back leases go.

        pjq counts no attempts and knows no most of them, so ours are counted in a field of the job's hash. A delayed retry stands
        in ``jobs_dispatched`` with a lease that ends with the delay.
        """
        if retry is None:
            return self.by_consumer("fail", queue, consumer, now, (to_bytes(job_id), _string(failure.text)), outcome)
        text = b""
        if retry.payload is not None:
            text = _dump({**_members(retry.payload), "uuid": job_id, "queue_name": checked_queue(queue)})
        args = (to_bytes(job_id), retry.delay_ms, text, retry.extra or b"")
        return self.by_consumer("retry", queue, consumer, now, args, outcome)

    def upcoming(self, queue: str, limit: int, *, fetch_bytes: int = FETCH_BYTES) -> None:
        """None: pjq holds no job until its time."""

    # Looking at jobs

    def get(self, job_id: str) -> Call[Job | None]:
        """A job as it stands in the queue that its payload names; None: there is none."""
        return self.call("get", f"job {job_id!r}", None, (to_bytes(job_id),), partial(replies.job, job_id))

    def peek(self, queue: str, n: int) -> Call[tuple[Job, ...]]:
        """The jobs of a queue that run next, at most MAX_PER_CALL."""
        return self.on_queue("peek", queue, None, (n,), lambda found: tuple(replies.queued(queue, *each) for each in found))

    # The system's own clockwork

    def timers(self, *, delivery_limit: int | None = None, now: int | None = None) -> Sequence[Call[Any]]:
        """Takes back leases that are over, and forgets silent workers, in the queues that have consumers of ours."""
        return (self.on_keyspace("timers", now, (optional(delivery_limit),), bool),)

    def signals(self, queue: str) -> tuple[bytes, ...]:
        return (layout(self.prefix).key("queued", queue=queue),)

    def schedules(self, queue: str) -> tuple[bytes, ...]:
        """Where a retried job is held until its time."""
        return (layout(self.prefix).key("dispatched", queue=queue),)


# Arguments


def checked_queue(queue: str) -> str:
    if not is_unicode(queue):
        raise UsageError(f"a queue of pjq has a name in UTF-8; this one is {show(queue)!r}")
    return queue


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
