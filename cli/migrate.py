"""``ferryman migrate``: carries all jobs of one keyspace to another. The source is only read."""

from __future__ import annotations

import click
from attrs import asdict

from ..migrations.drift import Drift
from ..migrations.engine import Engine, Summary
from ..migrations.plan import Active, Plan
from ..migrations.run import journal_glob
from ..schema.connection.address import Address
from ..schema.family import get_family
from ..schema.rule import Finding
from ..schema.text import plural
from .engines import engine_options
from .findings import Digest, show_findings
from .options import address_argument, checksum_option, moment, now_option, output_option
from .output import Output
from .status import Status

PAUSED_SHOWN = 10
"""Paused queues that are named for people."""


@click.command()
@address_argument("source")
@address_argument("target", is_read=False)
@engine_options
@click.option("--dry-run", is_flag=True, help="Read, decide and count everything, and write nothing at all.")
@click.option("--resume", is_flag=True, help="Go on with a migration that was interrupted. Jobs already written are left alone.")
@click.option(
    "--active",
    type=click.Choice([str(each) for each in Active]),
    default=str(Active.REQUEUE),
    show_default=True,
    help="Jobs that a worker of the source holds: let them wait again at the target, or leave them where they are.",
)
@click.option("--lossy", is_flag=True, help="Carry also jobs that the target can't keep whole. What is lost is reported.")
@click.option(
    "--accept",
    "accepted",
    metavar="RULE",
    multiple=True,
    help="Carry also jobs that this rule leaves at the source for a lost value, with what its findings say instead. Repeatable.",
)
@click.option("--strict", is_flag=True, help="Exit with status 1 when jobs stay at the source, or it changes meanwhile.")
@checksum_option
@now_option
@output_option
def command(
    source: Address,
    target: Address,
    engine: Engine,
    dry_run: bool,
    resume: bool,
    active: str,
    lossy: bool,
    accepted: tuple[str, ...],
    strict: bool,
    now_ms: int | None,
    output: Output,
) -> Status:
    """Carry all jobs of one keyspace to another.

    The source is only read; stop its producers and workers first, and start the target's workers when the migration is
    finished. A source that changes meanwhile is named, with the numbers of two looks at it: it has jobs that are not carried as
    they stand. A job that can't be carried stays at the source and is reported with the rule it breaks. No value is made up: a
    job that has lost one (when it is due, its priority) stays too, and is carried with --accept and the rule's name, with
    the value that the finding tells. The target remembers the migration, so a second run changes nothing.

    \b
    Examples:
      ferryman migrate 'ferryman://old:6379/0?family=kue&prefix=q' ferryman://new:6379/0 --dry-run
      ferryman migrate 'ferryman://old:6379/0?family=kue&prefix=q' ferryman://new:6379/0
      ferryman migrate 'ferryman://old:6379/0?family=kue&prefix=q' ferryman://new:6379/0 --resume
    """
    digest = Digest()

    def report(finding: Finding) -> None:
        digest.add(finding)
        if output.json:
            output.line(asdict(finding))

    plan = Plan.between(source, target, moment(source, now_ms), Active(active), lossy, accepted)
    with output.progress() as progress:
        summary = engine.migrate(source, target, plan, report, progress, dry_run=dry_run, resume=resume)
    if output.json:
        output.line({**summary.to_dict(), "dry_run": dry_run})
    else:
        show_summary(output, plan, summary, digest, dry_run=dry_run)
    if summary.repeated:
        output.note("This migration was finished before: nothing was done. `ferryman verify` compares both sides.")
    has_drifted = summary.drift is not None and summary.drift.is_changed
    return Status.FINDINGS if strict and (summary.refused or has_drifted) else Status.FINE


def show_summary(output: Output, plan: Plan, summary: Summary, digest: Digest, *, dry_run: bool) -> None:
    """The result for people."""
    if digest.numbers:
        show_findings(output, digest, get_family(plan.source_family), plan.writer)
    if summary.by_queue:
        rows = sorted(summary.by_queue.items(), key=lambda item: (-item[1], item[0]))
        output.table("Would be carried" if dry_run else "Carried", ("queue", "jobs"), rows, right=("jobs",), whole=("queue",))
    states = ", ".join(f"{number} {state}" for state, number in sorted(summary.by_state.items()))
    verb = "would be written" if dry_run else "written"
    output.say(
        f"{summary.read} {plural(summary.read, 'job')} read, {summary.written} {verb}"
        + (f" ({states})" if states else "")
        + f", {summary.skipped} skipped, in {summary.seconds:.1f} s.",
        "bold",
    )
    if summary.requeued:
        jobs, wait = plural(summary.requeued, "job"), "waits" if summary.requeued == 1 else "wait"
        output.say(f"{summary.requeued} {jobs} that workers held {wait} again at the target, before others of their priority.")
    if summary.left_behind:
        output.say("These keys under the prefix belong to no job and stay at the source:")
        output.table("", ("keys", "number"), list(summary.left_behind.items()), right=("number",))
    if summary.paused:
        names = ", ".join(summary.paused[:PAUSED_SHOWN]) + (" …" if len(summary.paused) > PAUSED_SHOWN else "")
        steering = plan.writer.steering(plan.target.prefix)
        hint = " `ferryman pause` pauses them there." if steering is not None and steering.can_pause else ""
        output.say(f"Paused at the source, and not at the target, because a migration carries no pause: {names}.{hint}", "yellow")
    for rule, ids in summary.refused.items():
        output.say(f"Left at the source by {rule}: " + ", ".join(ids[:10]) + (" …" if len(ids) > 10 else ""), "yellow")
    if summary.drift is not None:
        show_drift(output, plan, summary.drift, dry_run=dry_run)


def show_drift(output: Output, plan: Plan, drift: Drift, *, dry_run: bool) -> None:
    """That the source has changed meanwhile, if it has, and what to do about it."""
    if drift.unseen is not None:
        output.say(f"Whether the source changed while it was read is not known: {drift.unseen}", "yellow")
    if not drift.is_changed:
        return
    message = f"The source changed while it was read: {drift}"
    if dry_run:
        output.say(f"{message}. Stop its producers and workers before you migrate.", "bold yellow")
    else:
        output.say(
            f"{message}: `ferryman verify` will differ. To carry it as it stands when it rests, stop its producers and workers, "
            f"delete the target's keys and the keys {journal_glob(plan.epoch)}, and migrate again.",
            "bold yellow",
        )
