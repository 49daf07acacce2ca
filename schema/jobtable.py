"""JobTable: many jobs at once, where they have so much in common that nobody need look at each.

Nearly all jobs of a keyspace are sound and of a few kinds, and to treat each by itself is most of what a migration costs. So
who reads sound jobs may give those of one kind as a table, and who writes jobs may take one. What comes out is what
``Voucher.subject``, ``KeyFamily.read`` and ``KeyFamily.write`` make of each job; where a table can't say that, these are asked.
Made by a family's Voucher, used by Spark's tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

from attrs import fields, frozen

from .job import Job

ATTRIBUTES = tuple(each.name for each in fields(Job))


@frozen
class JobTable:
    """Jobs of one queue in one state, whose ids are those of their keys."""

    like: Job
    """One of them. What has no column is the same in all."""
    columns: Mapping[str, Sequence[Any]]
    """Attributes of Job in which they differ: the values of one job after the other. ``id`` at least is one of them."""
    scope: str = ""
    """As in Subject."""

    @classmethod
    def of(cls, same: Mapping[str, Any], columns: Mapping[str, Sequence[Any]], scope: str = "") -> JobTable:
        """The table of jobs that have the values of ``same`` in common."""
        return cls(Job(**same, **{name: column[0] for name, column in columns.items()}), columns, scope)

    def __len__(self) -> int:
        return len(self.columns["id"])

    def column(self, name: str) -> Iterator[Any]:
        """An attribute of one job after the other; without end where it is the same in all."""
        return iter(self.columns[name]) if name in self.columns else repeat(getattr(self.like, name))

    def told(self) -> dict[str, Sequence[Any]]:
        """A column for each attribute that is not None or empty in all of them."""
        rows, same = len(self), self.like
        others = ((name, getattr(same, name)) for name in ATTRIBUTES if name not in self.columns)
        return {**self.columns, **{name: [value] * rows for name, value in others if value not in (None, (), {})}}
