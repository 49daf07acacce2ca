"""Migrate: the tasks that decide about the jobs of a snapshot and write them to the target. Called by the engine.

Each partition of the snapshot is one of the migration's journal, so a task that is tried again, a second copy of it, or a later
run goes on at its count, and writers that were given up are refused (``migrations/partition_writer.py``). Every attempt decides
about all jobs of its partition, also of one that is done: findings and counts come from the attempt that counts, whichever
wrote the jobs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING

from ...schema.connection.address import Address
from ...schema.fact import Subject
from ...schema.rule import Finding
from ...schema.totals import Totals
from ..packed_jobs import identity
from ..partition_writer import PartitionWriter, open_partition
from ..plan import Decision, Plan, decide, decide_table
from ..run import Run
from ..store import Store, open_store
from . import Report, Summary
from .jobs import JobBatch, Jobs
from .machine_semaphore import MachineSemaphore
from .outgoing import OutgoingJob, OutgoingTable
from .output import Output, Results
from .snapshot import Work

if TYPE_CHECKING:
    from ...schema.columnar.jobtable import JobTable

SENDERS = 2
"""Tasks of a machine that send batches at the same time: one for which the server works, and one that is ready when it has."""


def dry_run_work(plan: Plan) -> Work[Finding]:
    """The work of a dry run: decides about every job, and writes nothing."""

    def count(partition: str, jobs: Jobs) -> Output[Finding]:
        summary = Summary()

        def one(subject: Subject) -> tuple[Decision, int]:
            return decide(subject, jobs.keyspace, plan), 1

        def many(table: JobTable) -> Sequence[tuple[Decision, int]] | None:
            found = decide_table(table, plan)
            return None if found is None else [(found[0], len(table))]

        def findings() -> Iterator[Finding]:
            for decision, number in jobs.in_any_order(one, many):
                summary.count(decision, written=decision.job is not None, jobs=number)
                yield from decision.findings

        return Output(findings(), lambda: _summary(partition, summary, Totals()))

    return count


def write_work(plan: Plan, target: Address, run: Run, folder: str) -> Work[Finding]:
    """The work that writes the jobs of a partition. ``folder``: of this run alone, shared by all executors.

    Its counts tell what this run has written, whichever attempt of the task it was that sent it.
    """

    semaphore = MachineSemaphore(folder, "sending", SENDERS)

    def write(name: str, jobs: Jobs) -> Output[Finding]:
        summary, written = Summary(), Totals()

        def one(subject: Subject) -> Decision:
            return decide(subject, jobs.keyspace, plan)

        def many(table: JobTable) -> OutgoingTable | None:
            found = decide_table(table, plan)
            return None if found is None else outgoing_table(*found)

        def outgoing_table(decision: Decision, table: JobTable) -> OutgoingTable | None:
            commands = plan.commands_of_table(table, written, fresh=run.is_first)
            return None if commands is None else OutgoingTable(decision, table.ids, commands)

        def outgoing_job(decision: Decision) -> OutgoingJob:
            if decision.job is None:
                return OutgoingJob(decision)
            plan.writer.tally_written(decision.job, written)
            return OutgoingJob(
                decision, identity(decision.job), plan.commands(decision.job, fresh=run.is_first and decision.is_alone)
            )

        def outgoing(batch: JobBatch[Decision, OutgoingTable]) -> JobBatch[OutgoingJob, OutgoingTable]:
            decisions, tables = batch
            if len(decisions) > 1 and run.is_first and plan.writer.writes_tables:
                from .decision_tables import in_tables  # needs what only the extra columnar has

                more, decisions = in_tables(decisions, plan.writer, outgoing_table)
                tables = [*tables, *more]
            return JobBatch([(row, outgoing_job(decision)) for row, decision in decisions], tables)

        def findings() -> Iterator[Finding]:
            with open_store(target) as store, open_partition(store, run, name) as writer:
                for batch in map(outgoing, jobs.batches(one, many)):
                    with semaphore.acquired() if batch.tables else nullcontext():
                        write_batch(writer, store, batch, summary)
                    yield from chain.from_iterable(job.decision.findings for _, job in batch.singly)
                writer.close()

        return Output(findings(), lambda: _summary(name, summary, written))

    return write


def write_batch(writer: PartitionWriter, store: Store, batch: JobBatch[OutgoingJob, OutgoingTable], summary: Summary) -> None:
    """Writes the jobs of a batch, and counts them. Raises as ``PartitionWriter.put``."""
    if batch.tables:
        from .batch_writer import write_tables  # needs what only the extra columnar has

        write_tables(writer, store, batch, summary)
        return
    for _, job in sorted(batch.singly, key=itemgetter(0)):
        summary.count(job.decision, written=bool(job.commands) and writer.put(job.identity, job.commands))


def close_rest(store: Store, run: Run, partitions: Iterable[str], results: Results[Finding]) -> None:
    """Closes the partitions that no task had. Raises MigrationRefused if they had jobs in an earlier run."""
    done = {json.loads(row)["part"] for row in results.summaries}
    for name in partitions:
        if name not in done:
            with open_partition(store, run, name) as writer:
                writer.close()


def outcome(results: Results[Finding], report: Report[Finding]) -> tuple[Summary, Totals]:
    """Reports the findings of all tasks, and adds up their summaries: what was done, and the totals of what was carried."""
    summary, written = Summary(), Totals()
    for row in map(json.loads, results.summaries):
        summary.merge(Summary.from_dict(row["summary"]))
        written.merge(Totals.from_json(row["written"]))
    if summary.findings:
        for finding in results.rows():
            report(finding)
    return summary, written


def _summary(partition: str, summary: Summary, written: Totals) -> str:
    return json.dumps({"part": partition, "summary": summary.to_dict(), "written": written.to_json()})
