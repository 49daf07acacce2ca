"""The rules of kombu keyspaces, KOMBU-1 to KOMBU-11: numbers, harms and meaning up to 8 are those of the family's specification.

Steps, timeouts and names are options of each process and stand in no key, so what only the usual values call wrong is a
warning. Jobs stay at the source (``refuses``) when nobody could run them (KOMBU-1), when they would run twice or one of two
would be lost (KOMBU-3), when nothing tells their queue (KOMBU-4), or when they are due (KOMBU-10), unless the user accepts what
follows. Messages that are moving while they are read may break KOMBU-2 and KOMBU-3 for a moment. Called by ``family.py``.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve

from ....schema.family import Keyspace
from ....schema.rule import Rule, Violation
from ...rulebook import in_order
from ..reader import is_foreign
from ..view import View
from . import keyspace, placement, record


def _of_own(rule: Rule[Keyspace]) -> Rule[Keyspace]:
    """The rule, silent about messages of a keyspace under another prefix: they are that one's affair."""
    check = rule.subject
    if check is None:
        return rule

    def of_own(view: View, keyspace: Keyspace) -> Iterator[Violation]:
        return iter(()) if is_foreign(view, keyspace.totals) else check(view, keyspace)

    return evolve(rule, subject=of_own)


RULES = tuple(map(_of_own, in_order(record.book, placement.book, keyspace.book)))
"""All rules in order. One number stands twice where a rule is about jobs and the keyspace, or keeps only some jobs back."""
