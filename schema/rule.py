"""Rules and findings: what can be wrong in a keyspace, said as values.

A rule is a pure function of a subject (one job) or of the keyspace's totals. Families own their rules; engines run all of
them in one pass; reports only show findings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Any, Generic, TypeVar

from attrs import field, frozen

from .fact import Subject

K = TypeVar("K")
"""What a rule may know beside its subject: ``schema.family.Keyspace``, of which this file needs to know nothing."""


class Severity(StrEnum):
    """How much a finding matters. ``error``: a healthy keyspace never shows it."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Harm(StrEnum):
    """What a broken rule does to the users of the queue."""

    LOST = "lost"
    DUPLICATE = "duplicate"
    LATE = "late"
    POISON = "poison"
    LEAK = "leak"
    COSMETIC = "cosmetic"


@frozen
class Violation:
    """What a rule's check says: the rule itself is added by the caller."""

    detail: str
    key: bytes
    queue: str | None = None
    severity: Severity | None = None
    """Only where this one case weighs differently from the rule's own severity."""


SubjectCheck = Callable[[Any, K], Iterator[Violation]]
"""Of what ``Rule.view_of`` makes of a subject."""
KeyspaceCheck = Callable[[K], Iterator[Violation]]


@frozen
class Finding:
    """One broken rule at one place."""

    rule: str
    severity: Severity
    job_id: str | None
    key: str
    queue: str | None
    detail: str
    repair: str | None = None


def _itself(subject: Subject) -> Subject:
    return subject


@frozen
class Rule(Generic[K]):
    """One numbered rule of a family's specification.

    Exactly one of ``subject`` and ``keyspace`` is given. ``refuses``: a job that breaks this rule is not carried to another
    keyspace; the migration names the rule and leaves the job where it is. ``assumes``: it refuses because a value is lost, and
    a user who accepts the rule has the job carried with this one instead: then it does not refuse any more. ``record_only``: the
    check looks at nothing but the job's own record and the time, so it finds the same for as long as the record is the same.
    """

    id: str
    title: str
    severity: Severity
    harm: Harm
    repair: str | None = None
    refuses: bool = False
    record_only: bool = False
    assumes: str | None = None
    """What the job is carried with, for people, as in "due at once"."""
    subject: SubjectCheck[K] | None = field(default=None, repr=False)
    keyspace: KeyspaceCheck[K] | None = field(default=None, repr=False)
    view_of: Callable[[Subject], Any] = field(default=_itself, repr=False)
    """What the check about jobs looks at; the same function for rules that look at the same thing."""

    def check_totals(self, keyspace: K) -> Sequence[Finding]:
        """The findings of this rule about the keyspace as a whole."""
        if self.keyspace is None:
            return ()
        return [self.finding(violation, None) for violation in self.keyspace(keyspace)]

    def finding(self, violation: Violation, job_id: str | None) -> Finding:
        """What a check has said, as this rule's finding."""
        severity = violation.severity or self.severity
        key = violation.key.decode("utf-8", "surrogateescape")
        detail = violation.detail
        if self.assumes is not None and self.refuses:
            detail += f" (not carried; migrate --accept {self.id} carries it {self.assumes})"
        elif self.assumes is not None:
            detail += f" (carried {self.assumes})"
        return Finding(self.id, severity, job_id, key, violation.queue, detail, self.repair)


def check_job(rules: Iterable[Rule[K]], subject: Subject, keyspace: K) -> list[Finding]:
    """The findings of these rules about one job.

    Nearly all find nothing, and there are dozens: what is done for each beside its check is what an audit waits for.
    """
    found: list[Finding] = []
    view_of, view = None, None
    for rule in rules:
        if rule.subject is None:
            continue
        if rule.view_of is not view_of:
            view_of = rule.view_of
            view = view_of(subject)
        for violation in rule.subject(view, keyspace):
            found.append(rule.finding(violation, subject.job_id))
    return found
