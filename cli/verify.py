"""``ferryman verify``: compares a migrated keyspace with its source, job by job. Only reads."""

from __future__ import annotations

from pathlib import Path

import click
from attrs import asdict, evolve

from ..migrations import journal
from ..migrations.engine import Difference, Engine, Verification
from ..migrations.plan import Plan
from ..migrations.store import open_store
from ..schema.connection.address import Address
from ..schema.text import plural
from .engines import engine_options
from .options import address_argument, checksum_option, moment, now_option, output_option
from .output import Output
from .report import Outcome, open_reports, report_option
from .status import Status
from .verify_page import verify_page

SHOWN = 50
"""Differences in a table or on a page; JSON gives all of them."""
TOTALS = {**dict.fromkeys(("source_jobs", "target_jobs", "matched", "refused", "differences"), int), "seconds": float}
"""The columns of the table of totals in a report."""


@click.command()
@address_argument("source")
@address_argument("target")
@report_option
@engine_options
@checksum_option
@now_option
@output_option
def command(
    source: Address, target: Address, reports: tuple[Path, ...], engine: Engine, now_ms: int | None, output: Output
) -> Status:
    """Compare a migrated keyspace with its source, job by job.

    Every field of every job is compared, and the order in which each queue's waiting jobs will run. Run it after `migrate` and
    before workers change either side. It expects what the migration was asked for (--active, --lossy): the target
    remembers. Jobs that stayed at the source by a rule must not stand at the target. Exit status 1 when there are differences.

    \b
    Example:
      ferryman verify 'ferryman://old:6379/0?family=kue&prefix=q' ferryman://new:6379/0 --format json
    """
    shown: list[Difference] = []
    plan = remembered(Plan.between(source, target, moment(source, now_ms)), target, now_ms, output)
    with open_reports(reports, "differences") as files:

        def report(difference: Difference) -> None:
            files.add(difference)
            if output.json:
                output.line(asdict(difference))
            if len(shown) < SHOWN:
                shown.append(difference)

        with output.progress() as progress:
            outcome = engine.verify(source, target, plan, report, progress)
        summary = {**asdict(outcome), "seconds": round(outcome.seconds, 3)}
        files.finish(Outcome(summary, TOTALS, [summary], lambda: verify_page(source, target, outcome, shown)))
    if output.json:
        output.line(summary)
    else:
        show_outcome(output, shown, outcome)
    return Status.FINDINGS if outcome.differences else Status.FINE


def remembered(plan: Plan, target: Address, now_ms: int | None, output: Output) -> Plan:
    """The plan with the choices of the migration that filled the target, if its journal is there."""
    with open_store(target) as store:
        record = journal.find(store, plan)
    if record is None:
        return plan
    if not record.finished:
        output.note("The migration is unfinished, so jobs are missing. Go on with `ferryman migrate … --resume`.")
    return record.plan if now_ms is None else evolve(record.plan, now_ms=now_ms)


def show_outcome(output: Output, shown: list[Difference], outcome: Verification) -> None:
    """The result for people."""
    if shown:
        rows = [(each.job_id, each.queue, each.field, each.source, each.target) for each in shown]
        output.table(
            "Differences", ("job", "queue", "field", "source", "target"), rows, fold=("source", "target"), whole=("job", "field")
        )
    if outcome.differences > len(shown):
        output.say(f"… and {outcome.differences - len(shown)} more; --format json lists all.")
    refused = f", {outcome.refused} left at the source by rules" if outcome.refused else ""
    jobs, differences = plural(outcome.source_jobs, "job"), plural(outcome.differences, "difference")
    output.say(
        f"{outcome.source_jobs} {jobs} at the source, {outcome.target_jobs} at the target, {outcome.matched} equal{refused}; "
        f"{outcome.differences or 'no'} {differences}, in {outcome.seconds:.1f} s.",
        "bold red" if outcome.differences else "bold green",
    )
