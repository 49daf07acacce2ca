"""FactReader: what whoever reads a keyspace does with the entries that it gets, from a server or from a file.

A FactReader makes facts of them, and totals; a PrefilteringReader (prefiltering_reader.py) leaves sound jobs out. Each Spark task
has one of its own, and the summaries of all tasks together tell what the keyspace is like. Called by the local engine and by
Spark's readers.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from attrs import define, field

from ..schema.connection.address import Address
from ..schema.fact import Entry, Fact, FactKind
from ..schema.totals import Totals
from . import leftovers


class FactReader:
    """Makes facts of all entries."""

    def __init__(self, address: Address) -> None:
        self._family = address.key_family
        self._prefix = address.prefix
        self._summary = ReadSummary()
        self._last_left = b""
        self._left_behind = self._family.left_behind_roles | self._family.ambiguous_roles

    def facts(self, entry: Entry) -> Iterator[Fact]:
        """What an entry states, as far as it must be known job by job."""
        summary, roles = self._summary, self._family.reference_roles
        left_behind = self._left_behind
        is_carried = isinstance(entry.value, list | dict) and not entry.value  # the key has gone
        for fact in self._family.facts(entry, self._prefix):
            self._family.tally(fact, summary.totals)
            is_odd = fact.kind is FactKind.ODD and fact.member is None
            is_carried = is_carried or not (is_odd or fact.role in left_behind)
            if fact.role in roles:
                summary.references += 1
            summary.about_jobs += fact.job_id is not None
            summary.has_content = summary.has_content or fact.kind is not FactKind.TOKEN
            yield fact
        if not (is_carried or entry.offset or entry.key == self._last_left):
            self._last_left = entry.key  # a large key comes in parts
            leftovers.count(entry.key, self._prefix, summary.left)

    def row(self, key: bytes, redis_type: str, value: Any, ttl_ms: int | None) -> Iterator[Fact]:
        """The same for a key in a snapshot file, whole."""
        return self.facts(Entry(key, redis_type, value, ttl_ms))

    def rest(self) -> Iterator[Fact]:
        """The facts that are still to come when the last entry has been given."""
        return iter(())

    def close(self) -> ReadSummary:
        """What all entries together have told, after the last one and the rest of the facts."""
        return self._summary

    def is_record(self, key: bytes) -> bool:
        """Whether a key of this name is the record of a job, in all likelihood: a hash of a few fields."""
        return False

    def is_list(self, key: bytes) -> bool:
        """Whether a key of this name is a short list, in all likelihood."""
        return False


NewFactReader = Callable[[], FactReader]
"""Makes the FactReader of one task, in the task."""


@define
class ReadSummary:
    """What tasks say at their end. A monoid."""

    totals: Totals = field(factory=Totals)
    has_content: bool = False
    """There was a key that is more than a wake-up token or lock."""
    references: int = 0
    """Facts by which jobs refer to others (``KeyFamily.reference_roles``)."""
    about_jobs: int = 0
    """Facts about a job."""
    left: Counter[str] = field(factory=Counter)
    """Keys that no migration carries (leftovers.py)."""
    groups: dict[int, tuple[str, str]] = field(factory=dict)
    """Queue and state by ``JobGroup.hash``, of the jobs that no facts speak of."""
    field_sets: dict[int, tuple[bytes, ...]] = field(factory=dict)
    """The fields of their records by the hash of these (engine/key_rows.py)."""
    files: list[str] = field(factory=list)
    """The files with their key rows (engine/key_rows.py)."""
    facts: list[str] = field(factory=list)
    """The files with the facts (engine/snapshot.py)."""

    def to_json(self) -> dict[str, Any]:
        """For the summary row of a task."""
        return {
            "totals": self.totals.to_json(),
            "speaks": self.has_content,
            "asked": self.references,
            "about_jobs": self.about_jobs,
            "left": self.left,
            "homes": [[key, *group] for key, group in self.groups.items()],
            "shapes": [[key, *(name.hex() for name in names)] for key, names in self.field_sets.items()],
            "files": self.files,
            "facts": self.facts,
        }

    @classmethod
    def of(cls, rows: Iterable[str]) -> ReadSummary:
        """What all tasks have read, by their summaries."""
        summary = cls()
        for row in map(json.loads, rows):
            summary.totals.merge(Totals.from_json(row["totals"]))
            summary.has_content = summary.has_content or row["speaks"]
            summary.references += row["asked"]
            summary.about_jobs += row["about_jobs"]
            summary.left.update(row.get("left", {}))
            summary.groups.update((key, (queue, state)) for key, queue, state in row["homes"])
            summary.field_sets.update((key, tuple(map(bytes.fromhex, names))) for key, *names in row["shapes"])
            summary.files += row["files"]
            summary.facts += row["facts"]
        return summary
