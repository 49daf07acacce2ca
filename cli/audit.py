"""``ferryman audit``: runs every rule of a family on a keyspace and shows what is broken; with ``--repair``, what mends it.

Changes nothing without ``--apply``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from attrs import asdict

from ..migrations.engine import Census, Engine
from ..migrations.local import LocalEngine
from ..schema.choices import NO_CHOICES, Choices
from ..schema.connection.address import Address
from ..schema.errors import UsageError
from ..schema.rule import Finding
from ..schema.text import plural
from .audit_page import Audit, audit_page, doubts
from .duration import DURATION
from .engines import engine_options
from .findings import Digest, show_findings
from .options import address_argument, checksum_option, moment, now_option, output_option
from .output import Output
from .repair import mend
from .report import Outcome, open_reports, report_option
from .status import Status

EXAMPLES = 10
"""How many cases of one rule a page shows."""
TOTALS = {"queue": str, "state": str, "jobs": int, "oldest_created_at": int}
"""The columns of the table of totals in a report."""


@click.command()
@address_argument()
@click.option(
    "--repair", "rules", metavar="RULE", multiple=True, help="Show what would mend the findings of this rule. Repeatable."
)
@click.option(
    "--older-than",
    "older_than",
    type=DURATION,
    help="With --repair: of the jobs that workers have, those that have given no sign for longer (90s, 30m, 2h, 7d) wait again.",
)
@click.option("--worker", "workers", metavar="NAME", multiple=True, help="The same for the jobs of this worker. Repeatable.")
@click.option("--requeue", is_flag=True, help="With --repair: a job of which no key tells the state waits.")
@click.option("--apply", is_flag=True, help="With --repair: mend them.")
@report_option
@engine_options
@checksum_option
@now_option
@output_option
def command(
    url: Address,
    rules: tuple[str, ...],
    older_than: int | None,
    workers: tuple[str, ...],
    requeue: bool,
    apply: bool,
    reports: tuple[Path, ...],
    engine: Engine,
    now_ms: int | None,
    output: Output,
) -> Status:
    """Check every job of a keyspace against the rules of its family.

    Nothing is changed. Exit status 1 when a finding of severity error or warning stands; findings of severity info alone
    are fine. On a live server each job with findings is looked at again, all that speaks of it at one moment, and only
    what still holds is reported.

    With --repair, only the findings of these rules are shown, each with the exact commands that mend it; with --apply as well,
    they are sent. Each repair is one script that first compares everything it was planned by, and changes nothing if that is
    different by now. Where no command is safe, the finding says why, and the others are mended all the same. Whether the
    worker of a job is gone, keys can't tell: --older-than and --worker choose the jobs that are taken away from workers and
    wait again; with both, a job must fit both. With --format json each is an object with the fields of a finding, and
    commands (lists of words; reading ones only name what must stand still), reason, and outcome: planned, mended, changed (by
    somebody else, so nothing was done), remains, refused (by the server), not mendable, or not chosen. Exit status 0 when all
    is mended but what was not chosen, else 1; 2 when no rule of the call can be mended at all.

    \b
    Examples:
      ferryman audit 'ferryman://localhost:6379/0?family=kue&prefix=q'
      ferryman audit ferryman://localhost:6379/0 --format json
      ferryman audit ferryman://localhost:6379/0 --report audit.html --report audit.parquet
      ferryman audit 'ferryman://localhost:6379/0?family=kue' --repair KUE-5 --repair KUE-6 --apply
      ferryman audit 'ferryman://localhost:6379/0?family=kue' --repair KUE-15 --older-than 2h --apply
    """
    choices = Choices(older_than, frozenset(workers), requeue)
    if rules:
        if not isinstance(engine, LocalEngine):
            raise UsageError("--repair reads with the local engine; leave --engine out")
        if reports:
            raise UsageError("--report tells what an audit finds; leave --repair out")
        return mend(output, url, rules, moment(url, now_ms), engine.throttle, choices, apply=apply)
    if apply or choices != NO_CHOICES:
        options = "--apply needs" if apply else "--older-than, --worker and --requeue need"
        raise UsageError(f"{options} --repair with the rules whose findings shall be mended")
    digest = Digest(EXAMPLES)
    with open_reports(reports, "findings") as files:

        def report(finding: Finding) -> None:
            digest.add(finding)
            files.add(finding)
            if output.json:
                output.line(asdict(finding))

        now = moment(url, now_ms)
        with output.progress() as progress:
            census = engine.audit(url, now, report, progress)
        found = Audit(url, url.key_family, now, census, digest)
        files.finish(Outcome(_summary(found), TOTALS, _totals(census), lambda: audit_page(found)))
    if output.json:
        for sentence in doubts(census):
            output.note(sentence)
    else:
        show_digest(output, url, census, digest)
    return Status.FINDINGS if digest.serious else Status.FINE


def _summary(audit: Audit) -> dict[str, Any]:
    """The last line of a report in JSON."""
    census = audit.census
    return {
        "url": audit.url.display(),
        "family": audit.family.name,
        "now": audit.now_ms,
        "jobs": census.jobs,
        "by_state": dict(sorted(census.by_state.items())),
        "by_queue": dict(sorted(census.by_queue.items())),
        "findings": {f"{rule} {severity}": number for rule, severity, number, _ in audit.digest.groups()},
        "passing": census.passing,
        "unconfirmed": census.unconfirmed,
    }


def _totals(census: Census) -> Iterator[dict[str, Any]]:
    """The rows of the table of totals: one for each queue and state in which there are jobs."""
    for queue, state in sorted(census.by_place):
        place = (queue, state)
        yield {
            "queue": queue,
            "state": state,
            "jobs": census.by_place[place],
            "oldest_created_at": census.oldest.get(place),
        }


def show_digest(output: Output, url: Address, census: Census, digest: Digest) -> None:
    """The result for people."""
    states = ", ".join(f"{number} {state}" for state, number in sorted(census.by_state.items()))
    jobs, queues = plural(census.jobs, "job"), plural(len(census.by_queue), "queue")
    output.say(f"{url.display()}: {census.jobs} {jobs} in {len(census.by_queue)} {queues}" + (f" ({states})" if states else ""))
    output.say("")
    if digest.numbers:
        show_findings(output, digest, url.key_family)
    else:
        output.say("No findings.", "green")
    for sentence in doubts(census):
        output.say(sentence)
