"""The page of an audit: what was looked at, how many jobs stand where, how old they are, and each broken rule with its harm.

Everything that came from Redis is escaped by ``html.py``. Pure. Called by ``audit.py``.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from attrs import frozen

from ..migrations.engine import AGES, OLDER, UNDATED, Census
from ..schema.connection.address import Address
from ..schema.family import KeyFamily, Keyspace
from ..schema.rule import Finding, Harm, Rule, Severity
from .duration import largest_units
from .findings import Digest
from .html import Content, Html, bar, document, element, table, terms

QUEUES = 200
"""Queues that are shown; the rest is added up."""

HARMS: Mapping[Harm, str] = {
    Harm.LOST: "Jobs are lost, or stand where nobody will ever take them.",
    Harm.DUPLICATE: "Jobs run more than once.",
    Harm.LATE: "Jobs run too late, or out of their turn.",
    Harm.POISON: "A job stops, or harms, the worker that takes it.",
    Harm.LEAK: "Memory is held for what is no job any more.",
    Harm.COSMETIC: "Numbers and listings are wrong; no job suffers.",
}


@frozen
class Audit:
    """All that the page tells."""

    url: Address
    family: KeyFamily
    now_ms: int
    census: Census
    digest: Digest


def audit_page(audit: Audit) -> str:
    """The page as text."""
    title = f"Audit of {audit.url.display()}"
    return document(
        title,
        element("h1", title),
        _verdict(audit.digest),
        _facts(audit),
        element("h2", "Jobs"),
        *(_jobs(audit.census, audit.now_ms) if audit.census.jobs else [element("p", "There is no job.")]),
        element("h2", "Findings"),
        *(_rules(audit) if audit.digest.numbers else [element("p", "No rule is broken.")]),
        *_doubts(audit.census),
    )


def _verdict(digest: Digest) -> Html:
    numbers = {severity: sum(number for (_, of), number in digest.numbers.items() if of is severity) for severity in Severity}
    if not any(numbers.values()):
        return element("p", element("span", "no findings", class_="badge fine"))
    badges = [
        element("span", f"{number:,} of severity {severity}", class_=f"badge {severity}")
        for severity, number in numbers.items()
        if number
    ]
    return element("p", *(piece for badge in badges for piece in (badge, " ")))


def _facts(audit: Audit) -> Html:
    rows: list[tuple[str, Content]] = [
        ("Keyspace", element("code", audit.url.display())),
        ("Family", audit.family.title),
        ("Moment", f"{calendar(audit.now_ms)} ({audit.now_ms} ms)"),
        ("Jobs", audit.census.jobs),
        ("Queues", len(audit.census.by_queue)),
        ("Rules", f"{len({rule.id for rule in audit.family.rules})}, {len({rule for rule, _ in audit.digest.numbers})} broken"),
    ]
    return terms(rows)


def _jobs(census: Census, now_ms: int) -> Iterator[Html]:
    states = sorted(census.by_state)
    queues = sorted(census.by_queue, key=lambda queue: (-census.by_queue[queue], queue))
    rows = [_queue(census, queue, states, now_ms) for queue in queues[:QUEUES]]
    if len(queues) > QUEUES:
        rest = queues[QUEUES:]
        counts = [sum(census.by_place[queue, state] for queue in rest) for state in states]
        rows.append([f"… and {len(rest):,} more queues", *counts, sum(counts), ""])
    total: list[Content] = ["All", *(census.by_state[state] for state in states), census.jobs, ""]
    yield table(["queue", *states, "all", "oldest"], rows, right=[*states, "all"], total=total)
    steps = [step for step in (*AGES, OLDER, UNDATED) if any(census.by_age[state, step] for state in states)]
    if steps:
        yield element("h3", "Ages")
        yield element("p", "Since their creation, as far as the jobs tell.", class_="faint")
        yield table(["age", *states, "all", ""], [_age(census, step, states) for step in steps], right=[*states, "all"])


def _queue(census: Census, queue: str, states: Sequence[str], now_ms: int) -> list[Content]:
    created = [census.oldest[queue, state] for state in states if (queue, state) in census.oldest]
    oldest = duration(now_ms - min(created)) if created else None
    name = element("code", queue) if queue else element("span", "(no name)", class_="faint")
    return [name, *(census.by_place[queue, state] for state in states), census.by_queue[queue], oldest]


def _age(census: Census, step: str, states: Sequence[str]) -> list[Content]:
    counts = [census.by_age[state, step] for state in states]
    name = f"under {step}" if step in AGES else step
    return [name, *counts, sum(counts), bar(sum(counts) / census.jobs)]


def _rules(audit: Audit) -> Iterator[Html]:
    for name, severity, number, examples in audit.digest.groups():
        rules = [rule for rule in audit.family.rules if rule.id == name]
        own = [rule for rule in rules if rule.repair == examples[0].repair] or rules
        yield _rule(audit, own, name, severity, number, examples)


def _rule(
    audit: Audit, rules: Sequence[Rule[Keyspace]], name: str, severity: Severity, number: int, examples: Sequence[Finding]
) -> Html:
    titles = " / ".join(dict.fromkeys(rule.title for rule in rules))
    harms = " ".join(HARMS[harm] for harm in dict.fromkeys(rule.harm for rule in rules))
    rows: list[list[Content]] = [
        [element("code", each.job_id), element("code", each.key), each.queue, each.detail] for each in examples
    ]
    more = element("p", f"… and {number - len(examples):,} more.", class_="faint") if number > len(examples) else None
    advice = examples[0].repair
    return element(
        "section",
        element("h3", name, " ", element("span", severity, class_=f"badge {severity}"), f" {number:,} × {titles}"),
        element("p", harms),
        table(["job", "key", "queue", "finding"], rows),
        more,
        element("p", f"Repair: {advice}.") if advice else None,
        element("code", repair_command(audit.url, name), class_="command") if name in audit.family.repairable else None,
    )


def repair_command(url: Address, rule: str) -> str:
    """What shows the commands that mend a rule's findings; with ``--apply``, they are sent."""
    return f"ferryman audit {shlex.quote(url.display())} --repair {rule}"


def _doubts(census: Census) -> Iterator[Html]:
    if census.passing or census.unconfirmed:
        yield element("h2", "How sure this is")
    for sentence in doubts(census):
        yield element("p", sentence)


def doubts(census: Census) -> Iterator[str]:
    """What is to be said of findings of a live source, in sentences for people."""
    if census.passing:
        yield f"{census.passing:,} findings are left out: jobs had moved while they were read, and a second look found nothing."
    if census.unconfirmed:
        yield (
            f"{census.unconfirmed:,} findings were not looked at again: there were too many, or what speaks of the job can't be "
            "read at one moment. If jobs moved meanwhile, some of these may be none."
        )


def calendar(ms: int) -> str:
    """A moment for people, in UTC; what no calendar holds as it is."""
    try:
        return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"


def duration(ms: int) -> str:
    """A time span for people, in its two largest units."""
    (number, unit), *rest = largest_units(ms)
    return " ".join([f"{number:,} {unit}", *(f"{number} {unit}" for number, unit in rest if number)])
