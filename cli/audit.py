"""``ferryman audit``: runs every rule of a family on a keyspace and shows what is broken. Only reads."""

from __future__ import annotations

from collections.abc import Iterator

import click
from attrs import asdict, define, field

from ..migrations.engine import Census
from ..schema.address import Address
from ..schema.family import get_family
from ..schema.rule import Finding, Severity
from .engines import get_engine
from .options import address_argument, engine_option, moment, now_option, output_option
from .output import Output
from .status import Status

EXAMPLES = 3
"""How many cases of one rule a table shows."""

ORDER = {severity: rank for rank, severity in enumerate(Severity)}


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


@define
class Digest:
    """Findings grouped by rule, with the first examples of each."""

    numbers: dict[tuple[str, Severity], int] = field(factory=dict)
    examples: dict[tuple[str, Severity], list[Finding]] = field(factory=dict)

    def add(self, finding: Finding) -> None:
        """Counts one finding."""
        group = (finding.rule, finding.severity)
        self.numbers[group] = self.numbers.get(group, 0) + 1
        kept = self.examples.setdefault(group, [])
        if len(kept) < EXAMPLES:
            kept.append(finding)

    @property
    def serious(self) -> bool:
        """True when something should not be as it is."""
        return any(severity is not Severity.INFO for _, severity in self.numbers)

    def groups(self) -> Iterator[tuple[str, Severity, int, list[Finding]]]:
        """Rule, severity, number and examples, the worst first."""
        for group in sorted(self.numbers, key=lambda group: (ORDER[group[1]], -self.numbers[group], group[0])):
            yield *group, self.numbers[group], self.examples[group]


def show_digest(output: Output, url: Address, census: Census, digest: Digest) -> None:
    """The result for people."""
    titles = {rule.id: rule.title for rule in get_family(url.family).rules}
    states = ", ".join(f"{number} {state}" for state, number in sorted(census.by_state.items()))
    output.say(f"{url.display()}: {census.jobs} jobs in {len(census.by_queue)} queues" + (f" ({states})" if states else ""))
    output.say("")
    if not digest.numbers:
        output.say("No findings.", "green")
        return
    show_findings(output, digest, titles)


def show_findings(output: Output, digest: Digest, titles: dict[str, str]) -> None:
    """One paragraph for each rule: what it says, the first cases, and what to do."""
    for rule, severity, number, examples in digest.groups():
        lines = [f"{_place(finding)}: {finding.detail}" for finding in examples]
        if number > len(lines):
            lines.append(f"… and {number - len(lines)} more")
        if examples[0].repair:
            lines.append(f"repair: {examples[0].repair}")
        output.paragraph((rule, severity, f"{number}×", titles.get(rule, "")), severity, lines)


def _place(finding: Finding) -> str:
    return f"job {finding.job_id}" if finding.job_id is not None else finding.key or "keyspace"
