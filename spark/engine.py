"""SparkEngine: carries keyspaces of any size, with the same pure functions as the local engine.

Each method takes a snapshot of what it needs, lets tasks work on the subjects of one partition after the other, and reads
back only what it reports. A migration's tasks write the jobs of their own partition, as one part of the journal each, so
that a task that is tried again, or a second run, goes on where it stood. Called by the command line.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from functools import partial

from pyspark.sql import SparkSession

from ..migrations import journal, leftovers
from ..migrations.drift import Watch
from ..migrations.engine import Census, Difference, Progress, Report, Summary, Verification, silent
from ..migrations.plan import Plan
from ..migrations.prefiltering_reader import has_prefilter
from ..migrations.queues import QueueStatus
from ..migrations.source import open_source
from ..migrations.store import open_store
from ..migrations.throttle import UNTHROTTLED, Throttle
from ..schema.connection.address import Address
from ..schema.job import Job, State
from ..schema.rule import Finding
from . import audit, listing, migrate, preflight
from .comparison import SideDigests, compare_keyspaces, digest_side
from .job_digests import ActualView, ExpectedView, SideView
from .job_hasher import JobHasher
from .key_scan import DIGEST_FACTOR, round_to_cores, task_count
from .resume import find_snapshot, keep_on_error, reopen_snapshot, work_folder
from .session import local_tasks, session
from .snapshot import Snapshot, require_keyspace, take
from .step import in_background
from .tables import FINDINGS

BRIEF_KEYS = 200_000
BRIEF_PREFILTERED_KEYS = 5_000_000
"""Up to so many keys in the database, a new session is set up for a short life: more where Java has little to do
(key_rows.py)."""
LAYOUT = "spark/"
"""Before the number of partitions, in the journal: a resumed run must cut the work in the same way."""


class SparkEngine:
    """The engine of ``--engine spark``.

    ``spark``: the session to use instead of one of its own. ``work``: a folder that all executors can reach, for snapshots;
    needed unless Spark runs on this machine alone. ``tasks``: how many tasks a step has, instead of a number by size. ``master``:
    where a session of its own runs, instead of the cores of this machine. ``settings``: Spark's, for such a session.
    ``throttle``: how fast all tasks read a server, together.
    """

    name = "spark"

    def __init__(
        self,
        spark: SparkSession | None = None,
        work: str | None = None,
        tasks: int | None = None,
        master: str | None = None,
        throttle: Throttle = UNTHROTTLED,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._given = spark
        self._work = work
        self._tasks = tasks
        self._master = master
        self._throttle = throttle
        self._settings = settings

    def audit(self, source: Address, now_ms: int, report: Report[Finding], progress: Progress = silent) -> Census:
        """See Engine.audit."""
        with self._snapshot(source, now_ms, progress) as (snapshot, folder):
            found = audit.findings(snapshot, f"{folder}/findings", progress, self._throttle)
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
            tasks = (_tasks_of(earlier.layout) if earlier else None) or self._number(source)
            earlier = journal.check(store, plan, f"{LAYOUT}{tasks}", resume=resume)
        if earlier is not None:
            if earlier.summary is not None:
                return earlier.summary.again()
            plan = earlier.plan
        found = find_snapshot(self._work, earlier.reading) if earlier and not dry_run else None
        watch = Watch(source, target, self._throttle)
        before = watch.look() if found is None else None
        with self._snapshot(source, plan.now_ms, progress, tasks, found, for_transfer=True) as (snapshot, folder):
            path = f"{folder}/carried"
            if dry_run:
                counted = snapshot.work(migrate.dry_run_work(plan), FINDINGS, path, "counting jobs", progress)
                summary, _ = migrate.outcome(counted, report)
                summary.left_behind = leftovers.largest_groups(snapshot.left)
                summary.drift = watch.since(before)
            else:
                with open_store(target) as store:
                    reading = os.path.basename(folder) if self._work else None
                    writer = journal.begin(store, source, target, plan, f"{LAYOUT}{tasks}", earlier, reading)
                if reading:
                    keep_on_error(folder)
                work, path = migrate.write_work(plan, target, writer, folder), f"{path}-{writer.token}"
                done = snapshot.work(work, FINDINGS, path, "writing jobs", progress)
                summary, written = migrate.outcome(done, report)
                summary.left_behind = leftovers.largest_groups(snapshot.left)
                summary.drift = watch.since(before)
                summary.seconds = time.monotonic() - started
                with open_store(target) as store:
                    migrate.close_rest(store, writer, snapshot.partitions, done)
                    journal.finish(store, writer, plan, plan.writer.finish(plan.target, written), summary, snapshot.partitions)
        summary.seconds = time.monotonic() - started
        return summary

    def verify(
        self, source: Address, target: Address, plan: Plan, report: Report[Difference], progress: Progress = silent
    ) -> Verification:
        """See Engine.verify."""
        started = time.monotonic()
        with self._session(source, progress) as (spark, folder):
            hasher, buckets = JobHasher(plan.writer), self._number(source, DIGEST_FACTOR)
            throttle = self._throttle.shared(2)

            def digest(address: Address, tasks: int, view: SideView, name: str, progress: Progress) -> SideDigests:
                snapshot = take(spark, address, plan.now_ms, f"{folder}/{name}", tasks, progress, throttle, for_transfer=True)
                if address is source:
                    require_keyspace(snapshot)
                return digest_side(snapshot, view, name, hasher, folder, buckets, progress)

            digest_target = partial(digest, target, self._number(target, DIGEST_FACTOR), ActualView(), "target")
            with in_background(digest_target, progress) as (actual, block_progress):
                expected = digest(source, buckets, ExpectedView(plan), "source", block_progress)
            outcome = compare_keyspaces(expected, actual.result(), plan, folder, report, progress)
        outcome.seconds = time.monotonic() - started
        return outcome

    def jobs(self, source: Address, now_ms: int, queue: str | None = None, state: State | None = None) -> Iterator[Job]:
        """See Engine.jobs."""
        with self._snapshot(source, now_ms, silent) as (snapshot, folder):
            yield from listing.list_jobs(snapshot, f"{folder}/jobs", queue, state)

    def queues(self, source: Address, now_ms: int) -> list[QueueStatus]:
        """See Engine.queues."""
        with self._snapshot(source, now_ms, silent) as (snapshot, folder):
            return listing.queues(snapshot, f"{folder}/queues")

    def _number(self, address: Address, times: int = 1) -> int:
        return self._tasks or round_to_cores(task_count(address, times), self._cores())

    def _cores(self) -> int:
        """How many tasks work side by side; 1 where that is not known yet."""
        running = self._given or SparkSession.getActiveSession()
        if running is not None:
            return int(running.sparkContext.defaultParallelism)
        return local_tasks() if self._master is None else 1

    @contextlib.contextmanager
    def _snapshot(
        self,
        source: Address,
        now_ms: int,
        progress: Progress,
        tasks: int | None = None,
        found: str | None = None,
        *,
        for_transfer: bool = False,
    ) -> Iterator[tuple[Snapshot, str]]:
        """A snapshot of the source, and a folder for what is made of it; both are gone after the block.

        ``tasks``: into how many partitions its jobs are cut. ``found``: as for ``_session``, with the snapshot in the folder.
        ``for_transfer``: as for ``take``.
        """
        with self._session(source, progress, found) as (spark, folder):
            path, tasks = f"{folder}/source", tasks or self._number(source)
            if found is not None:
                snapshot = reopen_snapshot(spark, source, now_ms, path, tasks)
            else:
                snapshot = take(spark, source, now_ms, path, tasks, progress, self._throttle, for_transfer=for_transfer)
            require_keyspace(snapshot)
            yield snapshot, folder

    @contextlib.contextmanager
    def _session(self, source: Address, progress: Progress, found: str | None = None) -> Iterator[tuple[SparkSession, str]]:
        """A session for work on the source, and a folder that is gone after the block.

        ``found``: a folder that is there already. Such a one stays when an error ends the block.
        """
        brief = False
        if found is None:
            with open_source(source) as opened:
                # A server that is down, or a file that is not there, is known before Spark has taken its seconds to start.
                brief = opened.size() <= (BRIEF_PREFILTERED_KEYS if has_prefilter(source) else BRIEF_KEYS)
        with work_folder(self._work, found) as folder:
            progress("starting Spark", 0, None)
            spark = self._given or session(self._master, self._settings, brief=brief, tables=False)
            preflight.check(spark, folder, progress)
            yield spark, folder


def _tasks_of(layout: str) -> int | None:
    """The number of partitions that a journal's layout names; None for another engine's."""
    number = layout.removeprefix(LAYOUT)
    return int(number) if layout.startswith(LAYOUT) and number.isdigit() else None
