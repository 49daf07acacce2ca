"""Rulebook: collects the numbered rules of one family from the functions that check them.

    book = Rulebook(view_of)

    @book.about_jobs("KUE-2", "Every job hash has a type", Severity.ERROR, Harm.LEAK)
    def has_type(view: View, keyspace: Keyspace) -> Iterator[Violation]: ...

A check about jobs gets the family's own view of a subject instead of loose facts; a check about the keyspace gets its
totals. Called by the modules of each family's package ``rules`` when they are imported.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Generic, TypeVar

from ..schema.fact import Fact, Subject
from ..schema.family import Keyspace
from ..schema.rule import Harm, KeyspaceCheck, Rule, Severity, Violation
from ..schema.text import show, to_bytes
from ..schema.totals import Totals

V = TypeVar("V")

JobCheck = Callable[[V, Keyspace], Iterator[Violation]]


def keys_of(facts: Iterable[Fact]) -> str:
    """The keys of some places, for a violation."""
    return ", ".join(sorted({show(fact.key) for fact in facts}))


def unnamed(totals: Totals, measure: str, role: str, what: str) -> Iterator[Violation]:
    """One violation for all that were counted beyond the samples that totals keep."""
    samples = totals.samples.get((measure, role), [])
    more = totals.sums[measure, role] - len(samples)
    if more > 0:
        yield Violation(f"and {more} more {what}, not named here", to_bytes(samples[-1]), severity=Severity.WARNING)


def expiring_keys(totals: Totals, *, but: Collection[str] = ()) -> Iterator[Violation]:
    """One violation for each key that has a time to live and should not; ``but``: roles of keys that are told of elsewhere."""
    for role in totals.labels("expiring"):
        if role not in but:
            for text in totals.samples["expiring", role]:
                yield Violation("has a time to live, and will vanish", to_bytes(text))


class Rulebook(Generic[V]):
    """The rules of one family, in the order in which they are written down."""

    def __init__(self, view_of: Callable[[Subject], V]) -> None:
        self._view_of = view_of
        self._rules: list[Rule[Keyspace]] = []

    def about_jobs(
        self,
        rule_id: str,
        title: str,
        severity: Severity,
        harm: Harm,
        *,
        repair: str | None = None,
        refuses: bool = False,
        record_only: bool = False,
        assumes: str | None = None,
    ) -> Callable[[JobCheck[V]], JobCheck[V]]:
        """Registers a check of one job. The arguments are those of Rule."""

        def register(check: JobCheck[V]) -> JobCheck[V]:
            rule = Rule(rule_id, title, severity, harm, repair, refuses, record_only, assumes, check, view_of=self._view_of)
            self._rules.append(rule)
            return check

        return register

    def about_keyspace(
        self, rule_id: str, title: str, severity: Severity, harm: Harm, *, repair: str | None = None
    ) -> Callable[[KeyspaceCheck[Keyspace]], KeyspaceCheck[Keyspace]]:
        """Registers a check of the totals."""

        def register(check: KeyspaceCheck[Keyspace]) -> KeyspaceCheck[Keyspace]:
            self._rules.append(Rule(rule_id, title, severity, harm, repair, keyspace=check))
            return check

        return register

    @property
    def rules(self) -> tuple[Rule[Keyspace], ...]:
        """All rules registered so far."""
        return tuple(self._rules)


def in_order(*books: Rulebook[Any]) -> tuple[Rule[Keyspace], ...]:
    """The rules of all books by their numbers; those of one number in the order of the books."""
    return tuple(sorted((rule for book in books for rule in book.rules), key=_number))


def _number(rule: Rule[Keyspace]) -> tuple[bool, int, str]:
    number = rule.id.rpartition("-")[2]
    return (not number.isdigit(), int(number) if number.isdigit() else 0, number)
