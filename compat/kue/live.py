"""A kue keyspace in use: every transition of a job, made as kue's own processes make it, as one call.

Theory. kue moves a job between indexes by blind transactions and never asks whose it is; each window between two of them loses or
doubles jobs. Here a transition is one script, which first asks: is the job active, and does its ``workerId`` say that this
consumer took it? If not, the outcome is ``lost``. kue has no leases: those of our consumers stand in side keys
(``compat/side.py``), and a job whose consumer has lapsed waits again. A job's ttl is the limit of a run, which kue's own checks
enforce as well: no lease renews it. Wake tokens, which kue's workers wait for, are taken inside ``lua/take.lua`` only.

kue's versions write differently; the scripts see in the keys which they have before them. ``lua/_common.lua`` has the keys and
what all scripts share. Called by ``family.py``, ``client.py`` and the transport.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from functools import cache
from typing import Any

from ...schema.connection.call import Argument, Call
from ...schema.errors import KeyspaceRefused, UsageError
from ...schema.job import Job
from ...schema.keys import glob_escape
from ...schema.live import Failure, ForeignDelivery, NewJob, Outcome
from ...schema.native.keys import DEFAULT_PREFIX
from ...schema.native.scripts.publication import optional
from ...schema.native.scripts.queue_scripts import MAX_PER_CALL
from ...schema.text import is_json, is_unicode, show, to_bytes, to_text
from ..live import Retry, ScriptedFamily, outcome
from . import replies
from .keys import Era
from .options import hash_fields, is_truthy, percent, priority_text


class KueLive(ScriptedFamily):
    """The transitions of the kue keyspace under ``prefix``; that of an ioredis installation has the braces in it.

    ``era``: whose form new jobs get in a keyspace where no other job tells; None: that of 0.11.

    Options of ``put``: ``attempts``, how often it is tried (1); ``backoff``, True for the job's own delay between attempts, or
    ``{"type": "fixed" or "exponential", "delay": ms, "maxDelay": ms}``; ``ttl``, how many ms a run may take;
    ``removeOnComplete``.
    """

    name = "kue"
    time_limit_option = "ttl"
    priority_direction = 1
    can_delay = True

    def __init__(self, prefix: str = "q", side_prefix: str = DEFAULT_PREFIX, *, era: Era | None = None) -> None:
        if not prefix:
            raise UsageError("a kue keyspace has a prefix; kue's own default is q")
        self.prefix = prefix
        self.side_prefix = side_prefix
        self._era = era

    # Before the first write

    def look(self) -> Call[None]:
        return self.on_keyspace("look", None, (to_bytes(glob_escape(self.prefix)) + b":*",), self._looked)

    def _looked(self, reply: Any) -> None:
        word, detail = to_text(reply[0]), show(reply[1])
        match word:
            case "fine" if reply[2] and self._era is not None and Era(int(detail)).is_padded is not self._era.is_padded:
                raise KeyspaceRefused(
                    f"the jobs under prefix {self.prefix!r} are of kue {Era(int(detail)).versions}, and the URL's version says "
                    f"{self._era.versions}: leave it out, or correct it"
                )
            case "other":
                raise KeyspaceRefused(
                    f"prefix {self.prefix!r} is not kue's: key {detail!r} is none of it; give the prefix of the kue installation"
                )
            case "mixed":
                raise KeyspaceRefused(
                    f"the kue keyspace {self.prefix!r} was upgraded across 0.10.3 (member {detail!r}): kue runs its old jobs "
                    "again and again; migrate them, or audit with --repair, first"
                )
            case "forbidden":
                raise KeyspaceRefused(
                    f"the user may not do {detail}: a user beside kue needs +pttl +publish ~promotion:lock "
                    f"~activeJobsTTL:lock &{self.prefix}:events"
                )
            case "replica":
                raise KeyspaceRefused("this server is a read-only replica: give the address of the master")
            case "literal":
                raise KeyspaceRefused(
                    f"kue before 0.8 has the prefix 'q' and no other, not {self.prefix!r}: set max_attempts, or move it"
                )

    # Jobs in

    def put(self, job: NewJob, *, now: int | None = None) -> Call[str]:
        if not job.queue or not is_unicode(job.queue):
            raise UsageError("a kue job needs a queue whose name has UTF-8 bytes")
        if not is_json(job.payload):
            raise UsageError("the payload of a kue job is JSON")
        if job.delay_ms < 0:
            raise UsageError("a delay is a number of ms, 0 for none")
        fields = hash_fields(job.options)
        attempts = fields.pop("max_attempts", b"")
        args: list[Argument] = [
            job.publication or "",
            priority_text(job.priority),
            job.delay_ms,
            attempts,
            job.payload,
            job.extra or b"",
            "" if self._era is None else int(self._era),
        ]
        for name, value in fields.items():
            args += (name, value)
        return self.on_queue("put", job.queue, now, args, to_text)

    # Consuming

    def _take_words(self) -> tuple[Argument, ...]:
        return (f"kue:{_host()}:{os.getpid()}",)

    def _delivery(self, queue: str, *job: Any) -> ForeignDelivery:
        return replies.delivery(queue, *job)

    def _result(self, result: bytes | None) -> tuple[Argument, ...]:
        return result or b"", int(is_truthy(result))

    def _end_attempt(
        self, queue: str, consumer: str, job_id: str, failure: Failure, retry: Retry | None, now: int | None
    ) -> Call[Outcome]:
        texts = to_bytes(failure.message), to_bytes(failure.text), int(failure.is_final)
        again = (retry.delay_ms, retry.payload or b"", retry.extra or b"") if retry else ("", b"", b"")
        return self.by_consumer("fail", queue, consumer, now, (job_id, *texts, *again), outcome)

    def _progress(self, current: float, total: float, data: bytes | None) -> tuple[Argument, ...]:
        return percent(current, total), data or b"", int(is_truthy(data))

    # Queues

    def jobs(self, ids: Sequence[str]) -> Call[tuple[Job, ...]]:
        """Those of these jobs that there are, up to MAX_PER_CALL."""
        return self.on_keyspace("jobs", None, ("ids", *ids), replies.jobs)

    def listed(self, state: str, queue: str | None = None, first: int = 0, n: int = MAX_PER_CALL) -> Call[tuple[Job, ...]]:
        """Jobs of a state, in kue's words, as kue lists them: ``n`` of them from the ``first`` on. None: of all queues."""
        return self.on_keyspace("jobs", None, (state, to_bytes(queue or ""), first, n), replies.jobs)

    def stats(self) -> Call[replies.KueStats]:
        """kue's own statistics."""
        return self.on_keyspace("stats", None, (), replies.stats)

    # kue's clockwork

    def timers(self, *, delivery_limit: int | None = None, now: int | None = None) -> Sequence[Call[int]]:
        return (self.on_keyspace("timers", now, (optional(delivery_limit),), int),)

    def signals(self, queue: str) -> tuple[bytes, ...]:
        return (self.keys[1] + b"jobs:" + to_bytes(queue) + b":inactive",)

    def schedules(self, queue: str) -> tuple[bytes, ...]:
        return (self.keys[1] + b"jobs:delayed",)


@cache
def _host() -> str:
    return socket.gethostname()
