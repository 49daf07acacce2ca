"""Findings for people: thousands of them grouped by rule, the worst first, with a few cases of each."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import define, field

from ..schema.family import KeyFamily
from ..schema.rule import Finding, Severity
from .output import Output

EXAMPLES = 3
"""How many cases of one rule are shown."""

ORDER = {severity: rank for rank, severity in enumerate(Severity)}


@define
class Digest:
    """Findings grouped by rule, with the first examples of each."""

    keep: int = EXAMPLES
    """How many examples of each rule."""
    numbers: dict[tuple[str, Severity], int] = field(factory=dict)
    examples: dict[tuple[str, Severity], list[Finding]] = field(factory=dict)

    def add(self, finding: Finding) -> None:
        """Counts one finding."""
        group = (finding.rule, finding.severity)
        self.numbers[group] = self.numbers.get(group, 0) + 1
        examples = self.examples.setdefault(group, [])
        if len(examples) < self.keep:
            examples.append(finding)

    @property
    def serious(self) -> bool:
        """True when something should not be as it is."""
        return any(severity is not Severity.INFO for _, severity in self.numbers)

    def groups(self) -> Iterator[tuple[str, Severity, int, list[Finding]]]:
        """Rule, severity, number and examples, the worst first."""
        for group in sorted(self.numbers, key=lambda group: (ORDER[group[1]], -self.numbers[group], group[0])):
            yield *group, self.numbers[group], self.examples[group]


def show_findings(output: Output, digest: Digest, *families: KeyFamily) -> None:
    """One paragraph for each rule: what it says, the first cases, and what to do. ``families``: whose rules were checked."""
    titles = {rule.id: rule.title for family in families for rule in family.rules}
    for rule, severity, number, examples in digest.groups():
        lines = [f"{_place(finding)}: {finding.detail}" for finding in examples[:EXAMPLES]]
        if number > len(lines):
            lines.append(f"… and {number - len(lines)} more")
        if examples[0].repair:
            lines.append(f"repair: {examples[0].repair}")
        output.paragraph((rule, severity, f"{number}×", titles.get(rule, "")), severity, lines)


def _place(finding: Finding) -> str:
    return f"job {finding.job_id}" if finding.job_id is not None else finding.key or "keyspace"
