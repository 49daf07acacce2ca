"""MemoryEngine: carries small keyspaces in this process, without files, processes or a compiler. Called by local.py."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterator

from ...schema.connection.address import Address
from ...schema.job import Job, State
from .. import journal
from ..compare import compare_all
from ..gc_paused import gc_paused
from ..order import listing_order, order_difference, pop_orders
from ..plan import Decision, Plan, decide
from . import Difference, Progress, Report, Verification, listing, silent
from .carrier import Carrier
from .memory_snapshot import PARTITION, MemorySnapshot, read
from .snapshot import Snapshot

FOLDER = ""
"""Nothing is kept in files."""


class MemoryEngine(Carrier):
    """The source is in memory before the first job is written: one that fails while it is read leaves an untouched target."""

    name = "local"

    def verify(
        self, source: Address, target: Address, plan: Plan, report: Report[Difference], progress: Progress = silent
    ) -> Verification:
        """See Engine.verify."""
        started = time.monotonic()
        with gc_paused():
            wanted, found = (read(address, plan.now_ms, progress, self.throttle) for address in (source, target))
            wanted.require_content()
            outcome = _compare(wanted, found, plan, report)
        outcome.seconds = time.monotonic() - started
        return outcome

    def jobs(self, source: Address, now_ms: int, queue: str | None = None, state: State | None = None) -> Iterator[Job]:
        """See Engine.jobs."""
        with self._snapshot(source, now_ms, silent) as (snapshot, _):
            wanted = listing.jobs(snapshot, FOLDER).rows()
            found = sorted(
                (job for job in wanted if queue in (None, job.queue) and state in (None, job.state)), key=listing_order
            )
        yield from found

    def _layout(self, tasks: int) -> str:
        return PARTITION

    def _tasks_of(self, earlier: journal.Record) -> int | None:
        return 1

    def _number(self, address: Address, times: int = 1) -> int:
        return 1

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
        checking: bool = False,
    ) -> Iterator[tuple[Snapshot, str]]:
        with gc_paused():
            snapshot = read(source, now_ms, progress, self.throttle, prefiltered=checking)
            snapshot.require_content()
            yield snapshot, FOLDER


def _compare(wanted: MemorySnapshot, found: MemorySnapshot, plan: Plan, report: Report[Difference]) -> Verification:
    """Reports every difference, and counts."""
    outcome = Verification()

    def tell(difference: Difference) -> None:
        outcome.count(difference)
        report(difference)

    expected: defaultdict[tuple[str, str], list[Decision]] = defaultdict(list)
    for decision in (decide(subject, wanted.keyspace, plan) for subject in wanted.subjects):
        if decision.original is not None:
            outcome.source_jobs += 1
            outcome.refused += decision.refused
            expected[decision.original.queue, decision.original.id].append(decision)
    actual = {(job.queue, job.id): job for job in listing.jobs(found, FOLDER).rows()}
    outcome.target_jobs = len(actual)
    for place in dict.fromkeys((*expected, *actual)):
        expectations = [(decision.job, decision.refused_by) for decision in expected.get(place, ())]
        matched, differences = compare_all(expectations, actual.get(place), plan.writer)
        outcome.matched += matched
        for difference in differences:
            tell(difference)
    orders = pop_orders(actual.values())
    carried = (decision.job for each in expected.values() for decision in each if decision.job is not None)
    for queue, ids in pop_orders(carried).items():
        elsewhere = order_difference(queue, ids, orders.get(queue, []))
        if elsewhere is not None:
            tell(elsewhere)
    return outcome
