"""Unreadable values: what stands in a foreign record and says nothing any more, beside what decides how a job runs.

Of what decides that, rules of their own speak. Whoever reads the job takes such a value for none, which must be named before
the job is carried. Called by the rules of the foreign families.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol, TypeVar

from ..schema.family import Keyspace
from ..schema.rule import Harm, Severity, Violation
from ..schema.text import show
from .rulebook import Rulebook

ASSUMED = "without those"
"""What a job is carried with whose values are accepted as lost."""


class _View(Protocol):
    """What a family makes of a subject."""

    def violation(self, detail: str) -> Violation: ...


V = TypeVar("V", bound=_View)


def about_unreadable(book: Rulebook[V], rule_id: str, unreadable: Callable[[V], Mapping[str, bytes]]) -> None:
    """Adds the rule to a family's book. ``unreadable``: the values of a job that are there and can't be read, by their names."""

    @book.about_jobs(
        rule_id,
        "Times and other values that a record has can be read; otherwise the job is not carried",
        Severity.WARNING,
        Harm.COSMETIC,
        refuses=True,
        assumes=ASSUMED,
    )
    def can_be_read(view: V, _keyspace: Keyspace) -> Iterator[Violation]:
        wrong = unreadable(view)
        if wrong:
            yield view.violation(f"can't be read: {', '.join(f'{name} {show(raw, 40)!r}' for name, raw in wrong.items())}")
