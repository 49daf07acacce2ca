"""SparkEngine: carries keyspaces of any size, with the same pure functions as the local engine.

Each method takes a snapshot of what it needs, lets tasks work on the subjects of one partition after the other, and reads
back only what it reports. A migration's tasks write the jobs of their own partition, as one part of the journal each, so
that a task that is tried again, or a second run, goes on where it stood. Called by the command line.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping

from pyspark import TaskContext
from pyspark.sql import SparkSession

from ..migrations import journal
from ..migrations.engine import Census, Difference, Progress, Report, Summary, Verification, silent
from ..migrations.plan import Plan, carry
from ..migrations.queues import QueueStatus
from ..migrations.source import open_source
from ..migrations.throttle import UNTHROTTLED, Throttle
from ..migrations.writing import Run, identity, open_part
from ..schema.address import Address
from ..schema.connect import open_client
from ..schema.job import Job, State
from ..schema.rule import Finding
from ..schema.totals import Totals
from . import audit, listing, preflight
from .comparison import compare_keyspaces
from .session import session
from .snapshot import Snapshot, must_speak, take, tasks_for
from .stage import Batches, Results, closing, run
from .tables import FINDINGS, batches

BRIEF_KEYS = 200_000
"""Up to so many keys in the database, a new session is set up for a short life."""
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
            found = audit.findings(snapshot, self._number(source), f"{folder}/findings", progress, self._throttle)
            beside = Census()
            for finding in audit.of_keyspace(snapshot, beside):
                report(finding)
            for finding in found.rows():
                report(finding)
            return audit.census(found, beside)

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
        with open_client(target) as client:
            earlier = journal.find(client, plan)
            tasks = (_tasks_of(earlier.layout) if earlier else None) or self._number(source)
            earlier = journal.check(client, plan, f"{LAYOUT}{tasks}", resume=resume)
        if earlier is not None:
            if earlier.summary is not None:
                return earlier.summary.again()
            plan = earlier.plan
        with self._snapshot(source, plan.now_ms, progress) as (snapshot, folder):
            frame, path = snapshot.subjects(tasks), f"{folder}/carried"
            if dry_run:
                counted = run(frame, _counting(snapshot, plan), FINDINGS, path, "counting jobs", progress)
                summary, _ = _collect(counted, report)
            else:
                parts = [str(index) for index in range(tasks)]
                with open_client(target) as client:
                    writer = journal.begin(client, source, target, plan, f"{LAYOUT}{tasks}", earlier)
                    stood = {part: int(client.hget(writer.part_key(part), "count") or 0) for part in parts}
                task = _writing(snapshot, plan, target, writer, stood)
                summary, written = _collect(run(frame, task, FINDINGS, path, "writing jobs", progress), report)
                summary.seconds = time.monotonic() - started
                with open_client(target) as client:
                    journal.finish(client, writer, plan, plan.writer.finish(plan.target, written), summary, parts)
        summary.seconds = time.monotonic() - started
        return summary

    def verify(
        self, source: Address, target: Address, plan: Plan, report: Report[Difference], progress: Progress = silent
    ) -> Verification:
        """See Engine.verify."""
        started = time.monotonic()
        with self._snapshot(source, plan.now_ms, progress) as (promised, folder):
            standing = take(promised.facts.spark, target, plan.now_ms, f"{folder}/target", progress, self._throttle)
            tasks = max(self._number(source), self._number(target))
            outcome = compare_keyspaces(promised, standing, plan, tasks, folder, report, progress)
        outcome.seconds = time.monotonic() - started
        return outcome

    def jobs(self, source: Address, now_ms: int, queue: str | None = None, state: State | None = None) -> Iterator[Job]:
        """See Engine.jobs."""
        with self._snapshot(source, now_ms, silent) as (snapshot, folder):
            yield from listing.listed(snapshot, self._number(source), f"{folder}/jobs", queue, state)

    def queues(self, source: Address, now_ms: int) -> list[QueueStatus]:
        """See Engine.queues."""
        with self._snapshot(source, now_ms, silent) as (snapshot, folder):
            return listing.queues(snapshot, self._number(source), f"{folder}/queues")

    def _number(self, address: Address) -> int:
        return self._tasks or tasks_for(address)

    @contextlib.contextmanager
    def _snapshot(self, source: Address, now_ms: int, progress: Progress) -> Iterator[tuple[Snapshot, str]]:
        """A snapshot of the source, and a folder for what is made of it; both are gone after the block."""
        with open_source(source) as opened:
            # A server that is down, or a file that is not there, is known before Spark has taken its seconds to start.
            brief = opened.size() <= BRIEF_KEYS
        folder = tempfile.mkdtemp(prefix="ferryman-", dir=self._work)
        try:
            progress("starting Spark", 0, None)
            spark = self._given or session(self._master, self._settings, brief=brief)
            preflight.check(spark, folder, progress)
            snapshot = take(spark, source, now_ms, f"{folder}/source", progress, self._throttle)
            must_speak(snapshot)
            yield snapshot, folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _counting(snapshot: Snapshot, plan: Plan) -> Callable[[Batches], Batches]:
    """The task of a dry run: decides about every job, and writes nothing."""
    read = snapshot.reader()

    def count(rows: Batches) -> Batches:
        summary = Summary()

        def findings() -> Iterator[Finding]:
            for subject, keyspace in read(rows):
                carried = carry(subject, keyspace, plan)
                summary.count(carried, written=carried.job is not None)
                yield from carried.findings

        yield from closing(batches(FINDINGS, findings()), FINDINGS, lambda: _word(summary, Totals()))

    return count


def _writing(
    snapshot: Snapshot, plan: Plan, target: Address, writer: Run, stood: Mapping[str, int]
) -> Callable[[Batches], Batches]:
    """The task that writes the jobs of its partition. ``stood``: how many of each part's jobs stood before this run.

    Its counts tell what this run has written, whichever attempt of the task it was that sent it.
    """
    read = snapshot.reader()

    def write(rows: Batches) -> Batches:
        name = str(TaskContext.get().partitionId())
        summary, written = Summary(), Totals()

        def findings() -> Iterator[Finding]:
            carried_jobs = 0
            with open_client(target) as client, open_part(client, writer, name) as part:
                for subject, keyspace in read(rows):
                    carried = carry(subject, keyspace, plan)
                    if carried.job is not None:
                        carried_jobs += 1
                        plan.writer.tally_written(carried.job, written)
                        if part.record is None:
                            part.put(identity(carried.job), plan.writer.write(carried.job, plan.target))
                    summary.count(carried, written=carried.job is not None and carried_jobs > stood[name])
                    yield from carried.findings
                if part.record is None:
                    part.close({})

        yield from closing(batches(FINDINGS, findings()), FINDINGS, lambda: _word(summary, written))

    return write


def _word(summary: Summary, written: Totals) -> str:
    return json.dumps({"summary": summary.to_dict(), "written": written.to_json()})


def _collect(results: Results[Finding], report: Report[Finding]) -> tuple[Summary, Totals]:
    """Reports the findings of all tasks, and adds up their closing words."""
    summary, written = Summary(), Totals()
    for word in map(json.loads, results.tails()):
        summary.merge(Summary.from_dict(word["summary"]))
        written.merge(Totals.from_json(word["written"]))
    if summary.findings:
        for finding in results.rows():
            report(finding)
    return summary, written


def _tasks_of(layout: str) -> int | None:
    """The number of partitions that a journal's layout names; None for another engine's."""
    number = layout.removeprefix(LAYOUT)
    return int(number) if layout.startswith(LAYOUT) and number.isdigit() else None
