"""QlessClient: queues of qless and reqless from Python, without Celery.

    client = QlessClient("ferryman://localhost/0", consumer="web-1")
    client.put("mail", {"to": "ann@example.com"}, name="shop.SendMail", priority=5, tags=["welcome"])
    for job in client.take("mail", n=10):
        client.complete(job, next_queue="archive")

It has the API of qless's first document (SetConfig, GetConfig, Heartbeat, Put, Get, Pop, Peek, Complete, Fail, Stats), and what
came later. Jobs are qless's own: its workers run what is put here, its web page shows what is done here. Times are Unix ms where
an argument is called ``now``, durations ms where it ends in ``_ms``; all else is seconds, as in qless. Called by applications
and tests.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import uuid4

import redis

from ...schema.live import Failure, ForeignDelivery, Outcome
from ...schema.native.keys import DEFAULT_PREFIX
from ...schema.native.scripts.results import Removed, Role
from ..client import ForeignClient, as_failure, to_json
from .answers import QlessJob, QueueCounts, RecurringJob, Statistics, Throttle, WorkerCounts
from .commands import DEFAULTS, Listed, QlessCommands
from .core import Core
from .live import PREFIX, QlessLive


class QlessClient(ForeignClient[QlessLive]):
    """One worker, and a producer, of the qless keyspace of a database.

    ``consumer`` is the worker's name: nobody else may have it, as qless tells owners of jobs by that alone. ``core``: beside
    which software it works, ``unified`` (qless-py 0.10 to 0.11.4), ``final`` (qless-core since) or ``reqless``; '' is told from
    the jobs. ``put`` takes ``name`` (the klass), ``attempts`` or ``retries``, ``tags``, ``depends`` and ``throttles``; the
    highest ``priority`` runs first; a ``job_id`` that there is already is put anew.
    """

    def __init__(
        self,
        server: redis.Redis | str,
        *,
        consumer: str | None = None,
        core: Core = "",
        lease_ms: int = 0,
        side_prefix: str = DEFAULT_PREFIX,
    ) -> None:
        """``lease_ms``: how long locks last at least; 0: as the queue's ``heartbeat`` says."""
        super().__init__(QlessLive(PREFIX, side_prefix, core), server, consumer=consumer, lease_ms=lease_ms)
        self.commands = QlessCommands(self.live)
        """All other calls."""

    # One's own jobs

    def heartbeat(self, job: ForeignDelivery | str, *, data: Any = None, now: int | None = None) -> bool:
        """Renews the lock of a job, or of all of a queue (by its name). False: it is not this worker's any more.

        ``data``: any value of JSON, which the job has from now on.
        """
        if isinstance(job, str):
            return super().heartbeat(job, now=now)
        pair = (job.id, None if data is None else to_json(data))
        call = self.live.heartbeat(job.queue, self.consumer, [pair], lease_ms=self.lease_ms, now=now)
        return bool(self.send(call)[1])

    def complete(
        self,
        job: ForeignDelivery,
        result: Any = None,
        *,
        data: Any = None,
        next_queue: str = "",
        delay_ms: int = 0,
        depends: Collection[str] = (),
        now: int | None = None,
    ) -> Outcome:
        """Ends a job that is done, or sends it to its next queue: after a delay, or when other jobs are done.

        qless keeps no results. ``data``: any value of JSON, which the job has from now on.
        """
        pair = (job.id, None if data is None else to_json(data))
        call = self.live.advance(
            job.queue, self.consumer, [pair], next_queue=next_queue, delay_ms=delay_ms, depends=depends, now=now
        )
        return self.send(call)[0]

    def fail(
        self,
        job: ForeignDelivery,
        failure: Failure | BaseException | str,
        message: str | None = None,
        *,
        data: Any = None,
        now: int | None = None,
    ) -> Outcome:
        """Ends a job that has failed, for good. ``failure``: what happened; or a group, if there is a ``message``."""
        what = Failure(message, group=failure) if isinstance(failure, str) and message is not None else as_failure(failure)
        encoded = None if data is None else to_json(data)
        return self.send(self.live.fail(job.queue, self.consumer, job.id, what, data=encoded, now=now))

    # All jobs

    def get(self, job_id: str) -> QlessJob | None:
        """A job, whatever state it has; None: there is none."""
        return self.send(self.commands.get([job_id]))[0]

    def get_all(self, ids: Sequence[str]) -> tuple[QlessJob, ...]:
        """Those of some jobs that there are."""
        return tuple(job for job in self.send(self.commands.get(ids)) if job is not None)

    def peek(self, queue: str, n: int = 1, *, now: int | None = None) -> tuple[QlessJob, ...]:
        """The jobs that run next, which stay where they are."""
        ids = self.send(self.commands.peek(queue, n, now=now))
        return self.get_all(ids)

    def jobs(self, queue: str, state: Listed, first: int = 0, n: int = 25, *, now: int | None = None) -> tuple[QlessJob, ...]:
        """Jobs of a queue in a state, in qless's order. ``complete``: of all queues."""
        ids = self.send(self.commands.listed(queue, state, first, n, now=now))
        return self.get_all(ids)

    def cancel(self, queue: str, job_id: str, only: Role | None = None, *, now: int | None = None) -> Removed | None:
        """Cancels a job that nobody runs, and says where it was; None: there is none. Raises UsageError if others wait for it."""
        return self.send(self.commands.cancel([job_id], queue=queue, only=only, now=now))[0]

    def cancel_all(self, ids: Sequence[str], *, now: int | None = None) -> tuple[Removed | None, ...]:
        """Cancels jobs, running ones as well, and says where each was. Jobs that wait for one of them must be among them."""
        return self.send(self.commands.cancel(ids, now=now))

    def timeout(self, job_id: str, *, now: int | None = None) -> bool:
        """Takes a job from its worker: it waits in front of all others. False: nobody runs it."""
        return self.send(self.commands.timeout(job_id, now=now))

    def depend(self, job_id: str, others: Collection[str], *, now: int | None = None) -> bool:
        """More jobs to wait for. False: it waits for none, and so runs when it may."""
        return self.send(self.commands.depends(job_id, "on", others, now=now))

    def undepend(self, job_id: str, others: Collection[str] | None = None, *, now: int | None = None) -> bool:
        """Waits no more for some jobs, or for any."""
        return self.send(self.commands.depends(job_id, "none" if others is None else "off", others or (), now=now))

    def set_priority(self, job_id: str, priority: float) -> bool:
        """Gives a job another priority."""
        return self.send(self.commands.set_priority(job_id, priority))

    def tag(self, job_id: str, *tags: str, now: int | None = None) -> tuple[str, ...] | None:
        """Adds tags to a job: those that it has then; None: there is no such job."""
        return self.send(self.commands.change_tags(job_id, "add", tags, now=now))

    def untag(self, job_id: str, *tags: str, now: int | None = None) -> tuple[str, ...] | None:
        """Takes tags from a job: those that it has left; None: there is no such job."""
        return self.send(self.commands.change_tags(job_id, "remove", tags, now=now))

    def track(self, job_id: str, *, now: int | None = None) -> bool:
        """Has what happens to a job published in the channels ``ql:put``, ``ql:popped`` …"""
        return self.send(self.commands.track(job_id, now=now))

    def untrack(self, job_id: str) -> bool:
        """Ends that."""
        return self.send(self.commands.track(job_id, is_watched=False))

    def tracked(self) -> tuple[str, ...]:
        """The ids of the jobs that are watched."""
        return self.send(self.commands.tracked())

    def log(self, job_id: str, line: str, data: Mapping[str, Any] | None = None, *, now: int | None = None) -> bool:
        """Adds a line to a job's history."""
        return self.send(self.commands.log(job_id, line, None if data is None else to_json(data), now=now))

    def tagged(self, tag: str) -> tuple[str, ...]:
        """The ids of the jobs that have a tag."""
        return self.send(self.commands.tagged(tag))

    def top_tags(self, first: int = 0, n: int = 100) -> tuple[str, ...]:
        """The tags that most jobs have."""
        return self.send(self.commands.top_tags(first, n))

    # Failures

    def failed_groups(self) -> dict[str, int]:
        """How many jobs have failed, by group."""
        return self.send(self.commands.failed_groups())

    def failed(self, group: str, first: int = 0, n: int = 25) -> tuple[QlessJob, ...]:
        """The jobs that failed in a group, the last one first."""
        ids = self.send(self.commands.failed(group, first, n))
        return self.get_all(ids)

    def unfail(self, group: str, queue: str, n: int = 500, *, now: int | None = None) -> int:
        """Puts failed jobs of a group into a queue, the oldest first, and says how many."""
        return self.send(self.commands.unfail(group, queue, n, now=now))

    # Recurring jobs

    def recur(
        self, queue: str, payload: Any, interval: float, *, name: str | None = None, job_id: str | None = None, **options: Any
    ) -> str:
        """Makes a job every ``interval`` seconds, and gives the id of what makes them.

        ``options``: ``offset`` (seconds until the first), ``priority``, ``tags``, ``retries``, ``backlog``, ``throttles``.
        """
        made = uuid4().hex if job_id is None else job_id
        klass = queue if name is None else name
        return self.send(self.commands.recur(queue, made, klass, to_json(payload), interval, **options))

    def recurring(self, job_id: str) -> RecurringJob | None:
        """A recurring job; None: there is none."""
        return self.send(self.commands.recurring(job_id))

    def update_recurring(self, job_id: str, *, now: int | None = None, **changes: Any) -> bool:
        """Changes ``priority``, ``interval``, ``retries``, ``data`` (any value of JSON), ``klass``, ``queue`` or ``backlog``."""
        if "data" in changes:
            changes["data"] = to_json(changes["data"]).decode()
        return self.send(self.commands.update_recurring(job_id, changes, now=now))

    def unrecur(self, job_id: str) -> bool:
        """Ends a recurring job; what it has made stays."""
        return self.send(self.commands.unrecur(job_id))

    # Queues and workers

    def stats(self, queue: str, day: float | None = None) -> Statistics:
        """How a queue did on a day (UTC): how long jobs waited and ran, with histograms. ``day``: a moment of it, Unix s."""
        return self.send(self.commands.statistics(queue, time.time() if day is None else day))

    def counts(self, *queues: str, now: int | None = None) -> tuple[QueueCounts, ...]:
        """How many jobs queues have in each state; none named: all of them."""
        return self.send(self.commands.counts(queues, now=now))

    def pause(self, *queues: str) -> None:
        """No job of these queues begins any more."""
        self.send(self.commands.pause(queues))

    def unpause(self, *queues: str) -> None:
        """They begin again."""
        self.send(self.commands.unpause(queues))

    def forget_queues(self, *queues: str) -> None:
        """Strikes queues off the list, whatever is in them."""
        self.send(self.commands.forget_queues(queues))

    def workers(self, *, now: int | None = None) -> tuple[WorkerCounts, ...]:
        """Who has popped of late, and how many jobs each runs."""
        return self.send(self.commands.workers(now=now))

    def deregister(self, *workers: str) -> None:
        """Strikes workers off the list."""
        self.send(self.commands.deregister(workers))

    # Settings

    def config(self, option: str | None = None) -> Any:
        """All options with their values, as texts; or the value of one, None if it has none."""
        known = self.send(self.commands.config())
        options = {**DEFAULTS, **known}
        return options if option is None else options.get(option)

    def set_config(self, option: str, value: Any) -> None:
        """Sets an option: ``heartbeat``, ``grace-period``, ``<queue>-heartbeat`` …; None: back to its default."""
        self.send(self.commands.set_config(option, None if value is None else str(value)))

    def throttle(self, name: str) -> Throttle:
        """A throttle of reqless. Every queue has one, ``ql:q:<queue>``."""
        return self.send(self.commands.throttle(name))

    def set_throttle(self, name: str, maximum: int | None, ttl: int = 0) -> None:
        """How many jobs may hold a throttle at once, for ``ttl`` seconds (0: for ever). 0: any number; None: forgets it."""
        self.send(self.commands.set_throttle(name, maximum, ttl))
