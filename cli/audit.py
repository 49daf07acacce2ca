"""``ferryman audit``: runs every rule of a family on a keyspace and shows what is broken. Only reads."""

from __future__ import annotations

import click
from attrs import asdict

from ..migrations.engine import Census
from ..schema.address import Address
from ..schema.family import get_family
from ..schema.rule import Finding
from .engines import get_engine
from .findings import Digest, show_findings
from .options import address_argument, engine_option, moment, now_option, output_option
from .output import Output
from .status import Status


@click.command()
@address_argument()
@engine_option
@now_option
@output_option
def command(url: Address, engine_name: str, now_ms: int | None, output: Output) -> Status:
    """Check every job of a keyspace against the rules of its family.

    Nothing is changed. Exit status 1 when a finding of severity error or warning stands; findings of severity info alone
    are fine.

    \b
    Examples:
      ferryman audit 'ferryman://localhost:6379/0?family=kue&prefix=q'
      ferryman audit ferryman://localhost:6379/0 --format json
    """
    digest = Digest()

    def report(finding: Finding) -> None:
        digest.add(finding)
        if output.json:
            output.line(asdict(finding))

    with output.progress() as progress:
        census = get_engine(engine_name).audit(url, moment(url, now_ms), report, progress)
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
