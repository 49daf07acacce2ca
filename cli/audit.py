"""``ferryman audit``: runs every rule of a family on a keyspace and shows what is broken; with ``--repair``, what mends it.

Changes nothing without ``--apply``.
"""

from __future__ import annotations

import click
from attrs import asdict

from ..migrations.engine import Census, Engine
from ..migrations.local import LocalEngine
from ..schema.address import Address
from ..schema.errors import UsageError
from ..schema.family import get_family
from ..schema.rule import Finding
from .engines import engine_options
from .findings import Digest, show_findings
from .options import address_argument, moment, now_option, output_option
from .output import Output
from .repair import mend
from .status import Status


@click.command()
@address_argument()
@click.option(
    "--repair", "rules", metavar="RULE", multiple=True, help="Show what would mend the findings of this rule. Repeatable."
)
@click.option("--apply", is_flag=True, help="With --repair: mend them.")
@engine_options
@now_option
@output_option
def command(url: Address, rules: tuple[str, ...], apply: bool, engine: Engine, now_ms: int | None, output: Output) -> Status:
    """Check every job of a keyspace against the rules of its family.

    Nothing is changed. Exit status 1 when a finding of severity error or warning stands; findings of severity info alone
    are fine.

    With --repair, only the findings of these rules are shown, each with the exact commands that mend it; with --apply as well,
    they are sent. Each repair is one script that first compares everything it was planned by, and changes nothing if that is
    different by now. Where no command is safe, the finding says so. With --format json each is an object with the fields
    of a finding, and commands (lists of words; reading ones only name what must stand still) and outcome: planned, mended,
    changed (by somebody else, so nothing was done), remains, or not mendable. Exit status 1 unless all is mended.

    \b
    Examples:
      ferryman audit 'ferryman://localhost:6379/0?family=kue&prefix=q'
      ferryman audit ferryman://localhost:6379/0 --format json
      ferryman audit 'ferryman://localhost:6379/0?family=kue' --repair KUE-5 --repair KUE-6 --apply
    """
    if rules:
        if not isinstance(engine, LocalEngine):
            raise UsageError("--repair reads with the local engine; leave --engine out")
        return mend(output, url, rules, moment(url, now_ms), engine.throttle, apply=apply)
    if apply:
        raise UsageError("--apply needs --repair with the rules whose findings shall be mended")
    digest = Digest()

    def report(finding: Finding) -> None:
        digest.add(finding)
        if output.json:
            output.line(asdict(finding))

    with output.progress() as progress:
        census = engine.audit(url, moment(url, now_ms), report, progress)
    if not output.json:
        show_digest(output, url, census, digest)
    return Status.FINDINGS if digest.serious else Status.FINE


def show_digest(output: Output, url: Address, census: Census, digest: Digest) -> None:
    """The result for people."""
    states = ", ".join(f"{number} {state}" for state, number in sorted(census.by_state.items()))
    output.say(f"{url.display()}: {census.jobs} jobs in {len(census.by_queue)} queues" + (f" ({states})" if states else ""))
    output.say("")
    if not digest.numbers:
        output.say("No findings.", "green")
        return
    show_findings(output, digest, get_family(url.family))
