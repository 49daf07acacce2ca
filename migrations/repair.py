"""Repair: mends what an audit found, finding by finding, and nothing else.

What a repair does is decided by the family (``KeyFamily.repair``); here it is made sure that it is still right when it is done.
On a live keyspace that takes four steps: read everything and find the broken rule; note what stands in every place that speaks
of it or would be changed; read everything again, and go on only with what is still found and would be mended in the same
way; then one script a finding that compares the noted places once more and applies the commands, or changes nothing. So the
rule was judged while all that it was judged by stood still. Afterwards everything is read again to see what has come of it.

Works on one server: a repair whose keys stand on several nodes of a cluster is refused. What can't be mended says why, and stops
nothing else. Called by ``ferryman audit``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

import redis
from attrs import frozen

from ..schema.choices import NO_CHOICES, Choices, NotChosen
from ..schema.connection.address import Address
from ..schema.connection.call import Call, Script, run
from ..schema.connection.connect import open_client
from ..schema.connection.permission import Forbidden
from ..schema.connection.pipeline import open_pipeline
from ..schema.errors import ServerError, Unrepairable, UsageError
from ..schema.fact import FactKind, Subject
from ..schema.family import Command, KeyFamily, Keyspace
from ..schema.rule import Finding, check_job
from ..schema.totals import Totals
from .engine import Progress, silent
from .missing import not_found, other_prefixes
from .preconditions import Precondition, digest_of, keys_of, preconditions
from .source import open_source
from .subjects import SubjectBuilder
from .throttle import UNTHROTTLED, Throttle

LARGEST_REPAIR, LARGEST_COMMAND = 20_000, 5_000
"""Commands and looks that one repair may send, and words in one of them: more would hold the server for over 100 ms."""
MOST_ROUNDS = 5
"""A repair may uncover what another one mends; more rounds than this only happen where repairs undo each other."""


class Outcome(StrEnum):
    """What came of one finding."""

    PLANNED = "planned"
    """Nothing was sent: the commands are what would be."""
    MENDED = "mended"
    """The commands were applied, and the rule is silent."""
    CHANGED = "changed"
    """Somebody changed its keys before the commands could be applied, so nothing was done. It may be gone; audit again."""
    REMAINS = "remains"
    """The commands were applied, but the rule speaks again."""
    UNMENDABLE = "not mendable"
    """No command is safe here."""
    REFUSED = "refused"
    """The server refused the commands, or they can't be sent as one; nothing was done."""
    SPARED = "not chosen"
    """The user chose other jobs."""


@frozen
class Repair:
    """One finding, and what mends it."""

    finding: Finding
    commands: tuple[Command, ...]
    outcome: Outcome
    reason: str | None = None
    """Why nothing mends it, for people."""


def check_rules(family: KeyFamily, rules: Collection[str], choices: Choices = NO_CHOICES) -> None:
    """Raises UsageError for a rule that the family does not have, where no command can mend any, and for choices in vain.

    Each error names the rules that can be mended, or that ask for a choice.
    """
    known = dict.fromkeys(rule.id for rule in family.rules)
    mendable = ", ".join(rule for rule in known if rule in family.repairable) or "none"
    for rule in rules:
        if rule not in known:
            raise UsageError(f"{family.name} has no rule {rule!r}; rules that can be mended: {mendable}")
    if family.repairable.isdisjoint(rules):
        reasons = "; ".join(_not_repairable(family, rule) for rule in rules)
        raise UsageError(f"{reasons}; rules that can be mended: {mendable}")
    if choices != NO_CHOICES and family.choosable.isdisjoint(rules):
        choosable = ", ".join(rule for rule in known if rule in family.choosable) or "none"
        raise UsageError(f"none of these rules asks which jobs to choose; of {family.name}, these do: {choosable}")


def _not_repairable(family: KeyFamily, rule_id: str) -> str:
    """Why a rule has no repair."""
    advice = next((rule.repair for rule in family.rules if rule.id == rule_id and rule.repair), None)
    return f"no command mends {rule_id} safely" + (f" ({advice})" if advice else "")


def planned(
    address: Address,
    rules: Collection[str],
    now_ms: int,
    progress: Progress = silent,
    throttle: Throttle = UNTHROTTLED,
    choices: Choices = NO_CHOICES,
) -> list[Repair]:
    """What would mend every finding of the rules. Only reads. Raises UsageError as ``check_rules`` does."""
    fixes = _Search(address, rules, now_ms, progress, throttle, choices).fixes()
    return [
        Repair(fix.finding, fix.commands, Outcome.PLANNED if fix.commands else fix.outcome, fix.reason) for fix in fixes.values()
    ]


def applied(
    address: Address,
    rules: Collection[str],
    now_ms: int,
    progress: Progress = silent,
    throttle: Throttle = UNTHROTTLED,
    choices: Choices = NO_CHOICES,
) -> list[Repair]:
    """Mends the findings of the rules and says what came of each. Raises UsageError as ``check_rules`` does.

    What can't be mended, or is refused by the server, stops none of the others. Raises ServerError, with all earlier repairs
    done, when the user may not send any.
    """
    search = _Search(address, rules, now_ms, progress, throttle, choices)
    repairs: dict[_Name, Repair] = {}
    with open_client(address) as client:
        fixes = search.fixes()
        for _ in range(MOST_ROUNDS):
            noted = {name: note(client, fix) for name, fix in fixes.items()}
            confirmed = search.fixes() if any(noted.values()) else {}
            sent = _apply(client, fixes, noted, confirmed, repairs)
            if not sent:
                break
            left = search.fixes()
            _look_back(fixes, left, sent, repairs)
            fixes = left
            if not any(fix.commands for fix in fixes.values()):
                break
    return list(repairs.values())


def _apply(
    client: redis.Redis,
    fixes: Mapping[_Name, PlannedRepair],
    noted: Mapping[_Name, list[bytes]],
    confirmed: Mapping[_Name, PlannedRepair],
    repairs: dict[_Name, Repair],
) -> set[tuple[Command, ...]]:
    """Sends what is confirmed, and says of each fix in ``repairs`` what came of it. Returns what was applied."""
    sent: set[tuple[Command, ...]] = set()
    for name, fix in fixes.items():
        digests, outcome, reason = noted[name], fix.outcome, fix.reason
        if digests:
            again = confirmed.get(name)
            same = again is not None and again.commands == fix.commands
            try:
                # Several jobs may need the very same: one that is sent mends them all.
                holds = same and (fix.commands in sent or send(client, fix, digests))
            except RefusedRepair as error:
                repairs[name] = Repair(fix.finding, fix.commands, Outcome.REFUSED, str(error))
                continue
            outcome = Outcome.MENDED if holds else Outcome.CHANGED
            if holds:
                sent.add(fix.commands)
        elif fix.commands:
            reason = "a key has another Redis type than the commands need"
        repairs[name] = Repair(fix.finding, fix.commands, outcome, reason)
    return sent


def _look_back(
    tried: Mapping[_Name, PlannedRepair],
    left: Mapping[_Name, PlannedRepair],
    sent: set[tuple[Command, ...]],
    repairs: dict[_Name, Repair],
) -> None:
    """Corrects what was said of the fixes of a round by what is left after it."""
    written = {key for commands in sent for command in commands for key in keys_of(command)}
    for name, fix in tried.items():
        outcome = repairs[name].outcome
        if outcome is Outcome.MENDED and name in left:
            repairs[name] = Repair(left[name].finding, fix.commands, Outcome.REMAINS)
        elif (
            outcome is Outcome.CHANGED
            and name not in left
            and any(written.intersection(keys_of(precondition)) for precondition in fix.preconditions)
        ):
            # Another repair of the same round was what changed it, and it is gone.
            repairs[name] = Repair(fix.finding, fix.commands, Outcome.MENDED)


# Reading

_Name = tuple[str, str | None, str | None, str, str | None, str]
"""What makes two findings of two readings the same: rule, advice, job, key, queue and scope. Details may tell the time."""


@frozen
class PlannedRepair:
    """A finding with what mends it and what must not change meanwhile."""

    finding: Finding
    commands: tuple[Command, ...]
    preconditions: tuple[Precondition, ...]
    outcome: Outcome = Outcome.UNMENDABLE
    """Where there are no commands."""
    reason: str | None = None
    """Why there are none."""


@frozen
class _Search:
    """Looks for what the rules find at an address, as often as it is asked."""

    address: Address
    rules: Collection[str]
    now_ms: int
    progress: Progress
    throttle: Throttle
    choices: Choices

    def __attrs_post_init__(self) -> None:
        check_rules(self.address.key_family, self.rules, self.choices)

    def fixes(self) -> dict[_Name, PlannedRepair]:
        """Everything that is found now. Raises KeyspaceNotFound if there is no keyspace."""
        family, prefix = self.address.key_family, self.address.prefix
        totals, shared, keys, found = Totals(), set[bytes](), 0, False
        builder = SubjectBuilder(family)
        with open_source(self.address, self.throttle) as source:
            for batch in source.entries(self.now_ms):
                for entry in batch:
                    jobs = set()
                    for fact in family.facts(entry, prefix):
                        family.tally(fact, totals)
                        found = found or fact.kind is not FactKind.TOKEN
                        jobs.add((fact.scope, fact.job_id))
                        builder.add(fact)
                    if len(jobs) > 1:
                        shared.add(entry.key)
                keys += len(batch)
                self.progress(f"reading {family.name} keys", keys, source.expected(keys))
            keyspace = Keyspace(family, prefix, self.now_ms, totals)
            others = other_prefixes(keyspace, has_content=found)
            if others is not None:
                raise not_found(source, others)
        fixes: dict[_Name, PlannedRepair] = {}
        for finding, subject in self._found(builder, keyspace):
            commands, outcome, reason = self._repair_for(finding, subject, keyspace)
            scope = subject.scope if subject else ""
            name = (finding.rule, finding.repair, finding.job_id, finding.key, finding.queue, scope)
            fixes[name] = PlannedRepair(
                finding, commands, preconditions(commands, subject, shared) if commands else (), outcome, reason
            )
        return fixes

    def _repair_for(
        self, finding: Finding, subject: Subject | None, keyspace: Keyspace
    ) -> tuple[tuple[Command, ...], Outcome, str | None]:
        """What mends a finding; or why nothing does."""
        family = keyspace.family
        if finding.rule not in family.repairable:
            return (), Outcome.UNMENDABLE, _not_repairable(family, finding.rule)
        try:
            commands = tuple(family.repair(finding, subject, keyspace, self.choices))
        except NotChosen as reason:
            return (), Outcome.SPARED, str(reason)
        except Unrepairable as reason:
            return (), Outcome.UNMENDABLE, str(reason)
        return commands, Outcome.UNMENDABLE, None if commands else "no command is safe here: it is for people to decide"

    def _found(self, builder: SubjectBuilder, keyspace: Keyspace) -> Iterator[tuple[Finding, Subject | None]]:
        """The findings of the rules, by job in the order of their ids, then those about the keyspace."""
        wanted = [rule for rule in keyspace.family.rules if rule.id in self.rules]
        for subject in builder.subjects():
            for finding in check_job(wanted, subject, keyspace):
                yield finding, subject
        for rule in wanted:
            for finding in rule.check_totals(keyspace):
                yield finding, None


# Sending


class RefusedRepair(ServerError):
    """The server refused one repair, or can't apply it as one. Others may go on."""


def note(client: redis.Redis, fix: PlannedRepair) -> list[bytes]:
    """The digests of the answers to everything that must not change; none where a key has a type that the commands can't have."""
    with open_pipeline(client) as pipe:
        replies = pipe.call(fix.preconditions)
    for reply in replies:
        if isinstance(reply, Forbidden):
            raise reply
        if isinstance(reply, Exception):
            return []
    return [digest_of(precondition, reply) for precondition, reply in zip(fix.preconditions, replies, strict=True)]


@cache
def _script() -> Script:
    return Script("repair", files(__package__).joinpath("lua", "repair.lua").read_text("utf-8"))


def send(client: redis.Redis, fix: PlannedRepair, digests: list[bytes]) -> bool:
    """Applies the commands at once. False: something has changed, and nothing was applied. Raises ServerError."""
    _check_size(fix)
    keys = dict.fromkeys(key for command in (*fix.preconditions, *fix.commands) for key in keys_of(command))
    words: list[Any] = [len(fix.preconditions)]
    for precondition, digest in zip(fix.preconditions, digests, strict=True):
        words += [len(precondition), *precondition, digest]
    words.append(len(fix.commands))
    for command in fix.commands:
        words += [len(command), *command]
    finding = fix.finding
    try:
        return run(client, Call(_script(), tuple(keys), tuple(words), _is_applied))
    except Forbidden as error:
        raise ServerError(f"{finding.rule} of {finding.key or 'the keyspace'} was not mended: {error}") from error
    except redis.exceptions.ResponseError as error:
        if isinstance(error.__cause__ or error, (redis.exceptions.ClusterCrossSlotError, redis.exceptions.MovedError)):
            raise RefusedRepair(f"{finding.rule} can't be mended here: its keys stand on several nodes of a cluster") from error
        raise RefusedRepair(f"{finding.rule} of {finding.key or 'the keyspace'} was not mended: {error}") from error


def _check_size(fix: PlannedRepair) -> None:
    """Raises RefusedRepair for one that would hold the server too long."""
    number, longest = len(fix.preconditions) + len(fix.commands), max(map(len, (*fix.preconditions, *fix.commands)), default=0)
    if number > LARGEST_REPAIR or longest > LARGEST_COMMAND:
        raise RefusedRepair(
            f"{fix.finding.rule} of {fix.finding.key or 'the keyspace'} was not mended: it takes {number} commands and looks at "
            f"once, with up to {longest} words ({LARGEST_REPAIR} and {LARGEST_COMMAND} are the most), and would hold the server: "
            "mend it by hand"
        )


def _is_applied(reply: Any) -> bool:
    return bool(reply == 0)  # otherwise it is the number of the first look that has another answer by now
