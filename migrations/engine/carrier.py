"""Carrier: what an engine does, whoever runs its parts: the order of reading, deciding, writing and comparing.

Each method takes a snapshot of what it needs, lets tasks work on one partition after the other, and reads back only what it
reports. A migration's tasks write the jobs of their own partition, as one part of the journal each, so that a task that is tried
again, or a second run, goes on where it stood. Subclasses: MemoryEngine, and FileCarrier with
ProcessEngine and SparkEngine.
"""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator

from ...schema.connection.address import Address
from ...schema.job import Job, State
from ...schema.rule import Finding
from .. import journal, leftovers
from ..drift import Watch
from ..plan import Plan
from ..queues import QueueStatus
from ..store import open_store
from ..throttle import UNTHROTTLED, Throttle
from . import Census, Difference, Progress, Report, Summary, Verification, audit, listing, migrate, silent, storage
from .resume import find_snapshot, keep_on_error
from .snapshot import Snapshot
from .tables import FINDINGS


class Carrier(ABC):
    """``work``: a folder for snapshots that all who run parts can reach, instead of a temporary one. ``tasks``: how many parts a
    step has, instead of a number by size. ``throttle``: how fast all tasks read a server, together.
    """

    name: str
    """The word for ``--engine``, and for the journal."""

    def __init__(self, work: str | None = None, tasks: int | None = None, throttle: Throttle = UNTHROTTLED) -> None:
        self._work = work
        self._tasks = tasks
        self.throttle = throttle

    def audit(self, source: Address, now_ms: int, report: Report[Finding], progress: Progress = silent) -> Census:
        """See Engine.audit."""
        with self._snapshot(source, now_ms, progress, checking=True) as (snapshot, folder):
            found = audit.findings(snapshot, storage.join(folder, "findings"), progress, self.throttle)
            accepted = Census()
            accepted.merge(snapshot.accepted)
            for finding in audit.of_keyspace(snapshot, accepted):
                report(finding)
            for finding in found.rows():
                report(finding)
            return audit.census(found, accepted)

    def migrate(
        self,
        source: Address,
        target: Address,
        plan: Plan,
        report: Report[Finding],
        progress: Progress = silent,
        *,
        dry_run: bool = False,
        resume: bool = False,
    ) -> Summary:
        """See Engine.migrate."""
        started = time.monotonic()
        with open_store(target) as store:
            earlier = journal.find(store, plan)
            tasks = (self._tasks_of(earlier) if earlier else None) or self._number(source)
            layout = self._layout(tasks)
            earlier = journal.check(store, plan, layout, resume=resume)
        if earlier is not None:
            if earlier.summary is not None:
                return earlier.summary.again()
            plan = earlier.plan
        found = find_snapshot(self._work, earlier.reading) if earlier and not dry_run else None
        watch = Watch(source, target, self.throttle)
        before = watch.look() if found is None else None
        with self._snapshot(source, plan.now_ms, progress, tasks, found, for_transfer=True) as (snapshot, folder):
            if dry_run:
                counted = snapshot.work(
                    migrate.dry_run_work(plan), FINDINGS, storage.join(folder, "carried"), "counting jobs", progress
                )
                summary, _ = migrate.outcome(counted, report)
                _tell_of_source(summary, snapshot)
                summary.drift = watch.since(before)
            else:
                with open_store(target) as store:
                    reading = storage.base_name(folder) if self._work else None
                    writer = journal.begin(store, source, target, plan, layout, earlier, reading)
                if reading:
                    keep_on_error(folder)
                work, path = migrate.write_work(plan, target, writer, folder), storage.join(folder, f"carried-{writer.token}")
                done = snapshot.work(work, FINDINGS, path, "writing jobs", progress)
                summary, written = migrate.outcome(done, report)
                _tell_of_source(summary, snapshot)
                summary.drift = watch.since(before)
                summary.seconds = time.monotonic() - started
                with open_store(target) as store:
                    migrate.close_rest(store, writer, snapshot.partitions, done)
                    journal.finish(store, writer, plan, plan.writer.finish(plan.target, written), summary, snapshot.partitions)
        summary.seconds = time.monotonic() - started
        return summary

    @abstractmethod
    def verify(
        self, source: Address, target: Address, plan: Plan, report: Report[Difference], progress: Progress = silent
    ) -> Verification:
        """See Engine.verify."""

    @abstractmethod
    def jobs(self, source: Address, now_ms: int, queue: str | None = None, state: State | None = None) -> Iterator[Job]:
        """See Engine.jobs."""

    def queues(self, source: Address, now_ms: int) -> list[QueueStatus]:
        """See Engine.queues."""
        with self._snapshot(source, now_ms, silent) as (snapshot, folder):
            return listing.queues(snapshot, storage.join(folder, "queues"))

    @abstractmethod
    def _number(self, address: Address, times: int = 1) -> int:
        """Into how many partitions the jobs of a keyspace are cut. ``times``: so many times as large."""

    @abstractmethod
    def _layout(self, tasks: int) -> str:
        """What the journal remembers of how the work is cut: a resumed run must cut it in the same way."""

    @abstractmethod
    def _tasks_of(self, earlier: journal.Record) -> int | None:
        """The number of partitions that a journal's layout names; None for another engine's. Raises MigrationRefused."""

    @abstractmethod
    def _snapshot(
        self,
        source: Address,
        now_ms: int,
        progress: Progress,
        tasks: int | None = None,
        found: str | None = None,
        *,
        for_transfer: bool = False,
        checking: bool = False,
    ) -> contextlib.AbstractContextManager[tuple[Snapshot, str]]:
        """A snapshot of the source, and a folder for what is made of it; both are gone after the block.

        ``tasks``: into how many partitions its jobs are cut. ``found``: a folder that has the snapshot already; it stays when an
        error ends the block. ``for_transfer``: as for ``file_snapshot.take``. ``checking``: nobody looks at more than ``check``
        does. Raises KeyspaceNotFound.
        """


def _tell_of_source(summary: Summary, snapshot: Snapshot) -> None:
    """What stays behind at the source beside jobs: keys that belong to none, and pauses."""
    summary.left_behind = leftovers.largest_groups(snapshot.left)
    summary.paused = sorted(snapshot.keyspace.totals.names.get("paused", ()))
