"""Job selection: some jobs of a snapshot that a second step looks at again. Called by comparison.py."""

from __future__ import annotations

from typing import NamedTuple

from attrs import frozen

from ...schema.jobnumber import number_of
from .groups import Grouping, Groups
from .shuffle import bucket_of
from .tables import Column, Table, text_column


class Mismatch(NamedTuple):
    """A job of one side whose digest is not that of the other side: it must be looked at again."""

    scope: str
    subject: str
    part: str
    """The partition of ``Snapshot.work`` to which it belongs."""
    expected: bool
    """On the source's side."""


MISMATCHES: Table[Mismatch] = Table(
    "mismatches",
    Mismatch,
    (
        text_column("scope"),
        text_column("subject"),
        text_column("part"),
        Column("expected", "boolean"),
    ),
)


def _part_of(mismatch: Mismatch) -> tuple[str, str]:
    return "", mismatch.part


BY_PART = Grouping(MISMATCHES, _part_of)


@frozen
class JobSelection:
    """The jobs of one side that are to be looked at. A plain value: it travels to executors."""

    mismatches: Groups[Mismatch]
    """By partition."""
    expected: bool

    def ids(self, partition: str) -> frozenset[tuple[str, str]]:
        """The scopes and ids of the jobs of a partition."""
        found = self.mismatches.rows(bucket_of(number_of("", partition), self.mismatches.buckets))
        return frozenset(
            (each.scope, each.subject) for each in found if each.part == partition and each.expected == self.expected
        )
