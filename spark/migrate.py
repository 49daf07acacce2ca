"""Migrate: the tasks that decide about the jobs of a snapshot and write them to the target. Called by the engine.

Each part of the snapshot is one part of the migration's journal, so a task that is tried again, a second copy of it, or a later
run goes on where the part stands, and writers that were given up are refused (``migrations/writing.py``). Every attempt
decides about all jobs of its part, also of one that is done: findings and counts come from the attempt that Spark
keeps, whichever wrote the jobs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from ..migrations.engine import Report, Summary
from ..migrations.plan import Plan, carry
from ..migrations.store import Store, open_store
from ..migrations.writing import Run, identity, open_part
from ..schema.address import Address
from ..schema.rule import Finding
from ..schema.totals import Totals
from .snapshot import Jobs, Work
from .stage import Batches, Results, closing
from .tables import FINDINGS, batches


def counting(plan: Plan) -> Work:
    """The work of a dry run: decides about every job, and writes nothing."""

    def count(part: str, jobs: Jobs) -> Batches:
        summary = Summary()

        def findings() -> Iterator[Finding]:
            for subject, keyspace in jobs:
                carried = carry(subject, keyspace, plan)
                summary.count(carried, written=carried.job is not None)
                yield from carried.findings

        yield from closing(batches(FINDINGS, findings()), FINDINGS, lambda: _word(part, summary, Totals()))

    return count


def writing(plan: Plan, target: Address, run: Run) -> Work:
    """The work that writes the jobs of a part.

    Its counts tell what this run has written, whichever attempt of the task it was that sent it.
    """

    def write(name: str, jobs: Jobs) -> Batches:
        summary, written = Summary(), Totals()

        def findings() -> Iterator[Finding]:
            with open_store(target) as store, open_part(store, run, name) as part:
                for subject, keyspace in jobs:
                    carried = carry(subject, keyspace, plan)
                    is_new = False
                    if carried.job is not None:
                        plan.writer.tally_written(carried.job, written)
                        commands = plan.commands(carried.job, fresh=run.is_first and carried.is_alone)
                        is_new = part.put(identity(carried.job), commands)
                    summary.count(carried, written=is_new)
                    yield from carried.findings
                part.close()

        yield from closing(batches(FINDINGS, findings()), FINDINGS, lambda: _word(name, summary, written))

    return write


def close_rest(store: Store, run: Run, parts: Iterable[str], results: Results[Finding]) -> None:
    """Closes the parts that no task had, since they have no jobs. Raises MigrationRefused if they had some in an earlier run."""
    done = {json.loads(word)["part"] for word in results.tails()}
    for name in parts:
        if name not in done:
            with open_part(store, run, name) as part:
                part.close()


def outcome(results: Results[Finding], report: Report[Finding]) -> tuple[Summary, Totals]:
    """Reports the findings of all tasks, and adds up their closing words: what was done, and the totals of what was carried."""
    summary, written = Summary(), Totals()
    for word in map(json.loads, results.tails()):
        summary.merge(Summary.from_dict(word["summary"]))
        written.merge(Totals.from_json(word["written"]))
    if summary.findings:
        for finding in results.rows():
            report(finding)
    return summary, written


def _word(part: str, summary: Summary, written: Totals) -> str:
    return json.dumps({"part": part, "summary": summary.to_dict(), "written": written.to_json()})
