"""``ferryman audit --repair``: shows the commands that mend findings, and with ``--apply`` sends them. Called by ``audit.py``."""

from __future__ import annotations

from collections.abc import Collection

from attrs import asdict

from ..migrations import repair
from ..migrations.repair import Outcome, Repair
from ..migrations.throttle import Throttle
from ..schema.choices import NO_CHOICES, Choices
from ..schema.connection.address import Address
from ..schema.family import Command
from ..schema.text import to_text
from .output import Output
from .status import Status

STYLES = {Outcome.MENDED: "green", Outcome.PLANNED: "bold", Outcome.UNMENDABLE: "yellow", Outcome.SPARED: "dim"}


def mend(
    output: Output,
    url: Address,
    rules: Collection[str],
    now_ms: int,
    throttle: Throttle,
    choices: Choices = NO_CHOICES,
    *,
    apply: bool,
) -> Status:
    """Shows or applies the repairs. Fine is a keyspace in which these rules are silent at the end but for jobs not chosen."""
    with output.progress() as progress:
        repairs = (repair.applied if apply else repair.planned)(url, rules, now_ms, progress, throttle, choices)
    for each in repairs:
        if output.json:
            commands = [[word if isinstance(word, bytes) else str(word) for word in command] for command in each.commands]
            output.line({**asdict(each.finding), "commands": commands, "outcome": each.outcome, "reason": each.reason})
        else:
            _show(output, each)
    if not output.json:
        _conclude(output, repairs, apply=apply)
    return Status.FINE if all(each.outcome in (Outcome.MENDED, Outcome.SPARED) for each in repairs) else Status.FINDINGS


def _show(output: Output, each: Repair) -> None:
    finding = each.finding
    place = f"job {finding.job_id}" if finding.job_id is not None else finding.key or "keyspace"
    output.say(f"{finding.rule}  {place}: {finding.detail}", STYLES.get(each.outcome, "red"))
    for command in each.commands:
        output.say(f"    {spelled(command)}")
    output.say(f"    -> {each.outcome}" + (f": {each.reason}" if each.reason else ""))


def _conclude(output: Output, repairs: list[Repair], *, apply: bool) -> None:
    if not repairs:
        output.say("No findings of these rules: nothing to mend.", "green")
        return
    numbers = {outcome: sum(each.outcome is outcome for each in repairs) for outcome in Outcome}
    output.say(", ".join(f"{number} {outcome}" for outcome, number in numbers.items() if number) + ".", "bold")
    if numbers[Outcome.PLANNED] and not apply:
        output.say("Nothing was sent. Each repair is applied as one script that first checks that nothing has changed: --apply")


def spelled(command: Command) -> str:
    """A command as redis-cli takes it."""
    return " ".join(_word(word) for word in command)


def _word(word: bytes | str | float) -> str:
    text = to_text(word) if isinstance(word, bytes) else str(word)
    if text and all(letter.isalnum() or letter in "_-.:{}|/+*" for letter in text) and text.isascii():
        return text
    return '"' + "".join(map(_letter, text)) + '"'


def _letter(letter: str) -> str:
    if letter in '"\\':
        return f"\\{letter}"
    if letter.isprintable():
        return letter
    return "".join(f"\\x{byte:02x}" for byte in letter.encode("utf-8", "surrogateescape"))
