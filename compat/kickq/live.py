"""kickq in use: every transition of a job as one call, so that ferryman's consumers work beside kickq's own, or without them.

Where jobs stand and what each move writes is in ``lua/_common.lua``. Facts of kickq that shape this:

- Whoever pops an id from a list runs it, whatever its state; nothing tells who that was. Here a job is held in side keys, and
  goes back to the head of its list, in the state that it had, when its consumer lapses.
- A run that takes longer than ``processTimeout`` is a *ghost*: the worker's own timer ends it. Here ``renew`` does, and ``fail``
  with one of TIME_LIMITS. A ghost run is repeated ``ghostTimes`` times, a failed one if ``retry`` is set.
- There are no priorities, names, progress, results, logs, pause and cancelling. A job is removed by taking it out of all keys.
- ``renew`` also ends the consumer's runs that have taken longer than their ``processTimeout``, as ghosts. ``size`` knows as held
  what ferryman's consumers hold: what kickq's own run, and what has ended, no key tells by queue.
- Documents are written at the end of a run, with ``errorMessage`` instead of ``error`` where the last run before was of 0.2.4 or
  earlier, and without sets by state where there are none (up to 0.0.11).

Called by the transport, by ``client.py`` and by tests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal

from attrs import field, frozen

from ...schema.connection.call import Argument, Call, Command
from ...schema.errors import UsageError
from ...schema.keys import glob_escape
from ...schema.live import Failure, ForeignDelivery, NewJob, Outcome
from ...schema.native.keys import DEFAULT_PREFIX
from ...schema.native.scripts.publication import optional
from ...schema.text import is_unicode, show, to_bytes, to_text
from ..live import Retry, ScriptedFamily, outcome
from ..members import stringify
from . import replies
from .job_options import option_members
from .keys import counted
from .process_options import ProcessOptions
from .record import data_member
from .replies import KickqJob

TIME_LIMITS = frozenset({"TimeLimitExceeded", "SoftTimeLimitExceeded"})
"""The exceptions of Celery that say that a run took too long."""


@frozen
class KickqLive(ScriptedFamily):
    """The transitions of the jobs under one namespace, which is the ``prefix``."""

    prefix: str
    side_prefix: str = DEFAULT_PREFIX
    options: ProcessOptions = field(factory=ProcessOptions)

    name: ClassVar[str] = "kickq"
    time_limit_option = "processTimeout"
    priority_direction: ClassVar[Literal[-1, 0, 1]] = 0

    def __attrs_post_init__(self) -> None:
        if not self.prefix or not is_unicode(self.prefix):
            raise UsageError(f"a namespace of kickq must be text, and not empty; {show(self.prefix)!r} can't be one")
        self.options.channels(self.prefix)  # raises UsageError where they don't fit

    @cached_property
    def fixed(self) -> tuple[Argument, ...]:
        return self.options.channels(self.prefix), self.options.purge_timeout

    # Before the first write

    def look(self) -> Call[None]:
        pattern = to_bytes(glob_escape(self.prefix)) + b":*"
        return self.on_keyspace("look", None, (pattern,), lambda reply: replies.judge(reply, self.prefix))

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
        return self.on_queue("put", job.queue, now, args, to_text)

    # Consuming

    def _delivery(self, queue: str, *job: Any) -> ForeignDelivery:
        return replies.delivery(queue, *job)

    def _end_attempt(
        self, queue: str, consumer: str, job_id: str, failure: Failure, retry: Retry | None, now: int | None
    ) -> Call[Outcome]:
        """One of TIME_LIMITS makes a ghost of the run, whose error is kickq's own; any other has failed."""
        is_ghost = failure.exception in TIME_LIMITS and retry is None
        args: tuple[Argument, ...] = (
            to_bytes(job_id),
            b"" if is_ghost else stringify(failure.text),
            1 if failure.is_final else "",
            "" if retry is None else retry.delay_ms,
            b"" if retry is None or retry.payload is None else _payload_text(retry.payload),
            b"" if retry is None else retry.extra or b"",
        )
        return self.by_consumer("fail", queue, consumer, now, args, outcome)

    # Everything that is not one's own job

    def get(self, job_id: str) -> Command[KickqJob | None]:
        """A job as its record tells; None if there is none."""
        key = self.keys[1] + b"job:" + to_bytes(job_id)
        return Command(("HMGET", key, *replies.JOB_FIELDS), lambda reply: replies.job(job_id, reply))

    def stats(self) -> Call[Mapping[str, int]]:
        """How many jobs of all queues are in each of kickq's eight states."""
        return self.on_keyspace("stats", None, (), replies.stats)

    # kickq's own clockwork

    def timers(self, *, delivery_limit: int | None = None, now: int | None = None) -> Sequence[Call[bool]]:
        args = (optional(delivery_limit), 1 if self.options.purge_jobs else "")
        return (self.on_keyspace("timers", now, args, bool),)

    def signals(self, queue: str) -> tuple[bytes, ...]:
        return (self.keys[1] + b"queue:" + to_bytes(queue),)

    def schedules(self, queue: str) -> tuple[bytes, ...]:
        return (self.keys[1] + b"scheduled",)


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
