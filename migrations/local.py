"""LocalEngine: carries a keyspace in this process.

The source is read whole into memory before the first job is written: rules and pop order need the whole, and a source that
fails while it is read leaves an untouched target. For keyspaces that don't fit, there is the Spark engine, which calls the
same pure functions. Called by the command line.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator

from attrs import field, frozen

from ..schema.connection.address import Address
from ..schema.fact import Subject
from ..schema.family import Command, Keyspace
from ..schema.job import Job, State
from ..schema.rule import Finding
from ..schema.totals import Totals
from . import journal, leftovers
from .compare import compare_all
from .drift import Watch
from .engine import Census, Difference, Progress, Report, Summary, Verification, silent
from .fact_reader import FactReader
from .gc_paused import gc_paused
from .order import listing_order, order_difference, pop_orders
from .packed_jobs import identity
from .partition_writer import open_partition
from .plan import Decision, Plan, decide
from .prefiltering_reader import InMemoryPrefilterReader, has_prefilter
from .queues import QueueStatus, counted, statuses
from .recheck import Found, open_recheck
from .run import Run
from .source import open_source
from .store import Store, open_store
from .subjects import SubjectBuilder
from .throttle import UNTHROTTLED, Throttle

PART = "local"
"""The only part of a local migration, and its layout."""

STEP = 1000
"""Subjects between two reports of progress."""


@frozen
class LoadedKeyspace:
    """A keyspace in memory."""

    keyspace: Keyspace
    subjects: tuple[Subject, ...]
    """In an order that depends on nothing but their ids, so that a second reading of the same keys gives the same."""
    remarks: tuple[Finding, ...] = ()
    """About the source itself."""
    accepted: Census = field(factory=Census)
    """The jobs that are left out, because no rule can find anything in them."""
    left: Counter[str] = field(factory=Counter)
    """Keys that no migration carries (leftovers.py)."""

    def jobs(self) -> Iterator[Job]:
        """Every job that has a record."""
        for subject in self.subjects:
            job = self.keyspace.family.read(subject, self.keyspace)
            if job is not None:
                yield job


class LocalEngine:
    """The engine of ``--engine local``. ``throttle``: how fast it reads a server."""

    name = "local"

    def __init__(self, throttle: Throttle = UNTHROTTLED) -> None:
        self.throttle = throttle

    @gc_paused()
    def audit(self, source: Address, now_ms: int, report: Report[Finding], progress: Progress = silent) -> Census:
        """See Engine.audit."""
        loaded = self._read(source, now_ms, progress, prefiltered=True)
        census = Census()
        census.merge(loaded.accepted)
        family = loaded.keyspace.family

        def checked() -> Iterator[Found]:
            for subject in _counted(loaded.subjects, "checking jobs", progress):
                job = family.describe(subject, loaded.keyspace)
                if job is not None:
                    census.count(job, now_ms)
                yield subject, family.findings(subject, loaded.keyspace)

        with open_recheck(source, loaded.keyspace, self.throttle) as recheck:
            of_keyspace = recheck.still_holding_of_keyspace(family.keyspace_findings(loaded.keyspace))
            for finding in (*loaded.remarks, *of_keyspace):
                report(finding)
            for finding in recheck.still_holding(checked()):
                report(finding)
        census.passing, census.unconfirmed = recheck.passing, recheck.unconfirmed
        return census

    @gc_paused()
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
            earlier = journal.check(store, plan, PART, resume=resume)
        if earlier is not None:
            if earlier.summary is not None:
                return earlier.summary.again()
            plan = earlier.plan
        watch = Watch(source, target, self.throttle)
        before = watch.look()
        loaded = self._read(source, plan.now_ms, progress)
        summary = Summary(left_behind=leftovers.largest_groups(loaded.left))
        decisions = _decisions(loaded, plan, progress, "counting jobs" if dry_run else "writing jobs")
        if dry_run:
            for decision in decisions:
                _note(decision, summary, report, written=decision.job is not None)
            summary.drift = watch.since(before)
        else:
            with open_store(target) as store:
                run = journal.begin(store, source, target, plan, PART, earlier)
                last_commands = _write(store, run, plan, decisions, summary, report)
                summary.drift = watch.since(before)
                summary.seconds = time.monotonic() - started
                journal.finish(store, run, plan, last_commands, summary, [PART])
        summary.seconds = time.monotonic() - started
        return summary

    @gc_paused()
    def verify(
        self, source: Address, target: Address, plan: Plan, report: Report[Difference], progress: Progress = silent
    ) -> Verification:
        """See Engine.verify."""
        started = time.monotonic()
        outcome = Verification()

        def tell(difference: Difference) -> None:
            outcome.count(difference)
            report(difference)

        expected: defaultdict[tuple[str, str], list[Decision]] = defaultdict(list)
        for decision in _decisions(self._read(source, plan.now_ms, progress), plan, progress, "reading jobs"):
            if decision.original is not None:
                outcome.source_jobs += 1
                outcome.refused += decision.refused
                expected[decision.original.queue, decision.original.id].append(decision)
        actual = {(job.queue, job.id): job for job in self._read(target, plan.now_ms, progress, may_be_empty=True).jobs()}
        outcome.target_jobs = len(actual)
        for place in dict.fromkeys((*expected, *actual)):
            expectations = [(decision.job, decision.refused_by) for decision in expected.get(place, ())]
            matched, found = compare_all(expectations, actual.get(place), plan.writer)
            outcome.matched += matched
            for difference in found:
                tell(difference)
        orders = pop_orders(actual.values())
        for queue, ids in pop_orders(
            decision.job for each in expected.values() for decision in each if decision.job is not None
        ).items():
            elsewhere = order_difference(queue, ids, orders.get(queue, []))
            if elsewhere is not None:
                tell(elsewhere)
        outcome.seconds = time.monotonic() - started
        return outcome

    def jobs(self, source: Address, now_ms: int, queue: str | None = None, state: State | None = None) -> Iterator[Job]:
        """See Engine.jobs."""
        with gc_paused():
            loaded = self._read(source, now_ms, silent)
            wanted = (job for job in loaded.jobs() if queue in (None, job.queue) and state in (None, job.state))
            found = sorted(wanted, key=listing_order)
        yield from found

    @gc_paused()
    def queues(self, source: Address, now_ms: int) -> list[QueueStatus]:
        """See Engine.queues."""
        loaded = self._read(source, now_ms, silent)
        keyspace = loaded.keyspace
        jobs = (keyspace.family.describe(subject, keyspace) for subject in loaded.subjects)
        return statuses(counted(filter(None, jobs), now_ms), keyspace)

    def _read(
        self, address: Address, now_ms: int, progress: Progress, *, may_be_empty: bool = False, prefiltered: bool = False
    ) -> LoadedKeyspace:
        """Reads a keyspace. Raises KeyspaceNotFound if there is none.

        ``prefiltered``: jobs in which no rule can find anything may be left out (prefiltering_reader.py); they are counted.
        """
        family = address.key_family
        prefiltering = InMemoryPrefilterReader(address, now_ms) if prefiltered and has_prefilter(address) else None
        reader = prefiltering or FactReader(address)
        builder = SubjectBuilder(family)
        keys = 0
        phase = f"reading {address.family} keys"
        progress(phase, 0, None)
        with open_source(address, self.throttle) as source:
            for batch in source.entries(now_ms, reader.is_record):
                for entry in batch:
                    for fact in reader.facts(entry):
                        builder.add(fact)
                keys += len(batch)
                progress(phase, keys, source.expected(keys))
            for fact in reader.rest():
                builder.add(fact)
            progress(phase, keys, keys)
            if not (reader.close().has_content or may_be_empty):
                raise source.nothing_found()
            remarks = tuple(source.remarks())
        accepted = Census()
        if prefiltering is not None:
            remembered, accepted = prefiltering.settle()
            for fact in remembered:
                builder.add(fact)
        keyspace = Keyspace(family, address.prefix, now_ms, reader.close().totals)
        return LoadedKeyspace(keyspace, tuple(builder.subjects()), remarks, accepted, reader.close().left)


def _write(
    store: Store, run: Run, plan: Plan, decisions: Iterator[Decision], summary: Summary, report: Report[Finding]
) -> list[Command]:
    """Writes every job that is carried; returns the commands that finish the keyspace."""
    family, totals = plan.writer, Totals()
    with open_partition(store, run, PART) as writer:
        for decision in decisions:
            written = False
            if decision.job is not None:
                family.tally_written(decision.job, totals)
                commands = plan.commands(decision.job, fresh=run.is_first and decision.is_alone)
                written = writer.put(identity(decision.job), commands)
            _note(decision, summary, report, written=written)
        writer.close()
    return family.finish(plan.target, totals)


def _decisions(loaded: LoadedKeyspace, plan: Plan, progress: Progress, phase: str) -> Iterator[Decision]:
    """What becomes of every subject, in the order of the subjects."""
    for subject in _counted(loaded.subjects, phase, progress):
        yield decide(subject, loaded.keyspace, plan)


def _counted(subjects: tuple[Subject, ...], phase: str, progress: Progress) -> Iterator[Subject]:
    for done, subject in enumerate(subjects):
        if done % STEP == 0:
            progress(phase, done, len(subjects))
        yield subject
    progress(phase, len(subjects), len(subjects))


def _note(decision: Decision, summary: Summary, report: Report[Finding], *, written: bool) -> None:
    summary.count(decision, written=written)
    for finding in decision.findings:
        report(finding)
