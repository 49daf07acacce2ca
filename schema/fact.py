"""Facts: what single keys state about jobs, and subjects: all facts about one job, joined.

A family turns each key's raw value into facts; engines (local, Spark) only carry and group them; readers and rules see
subjects. Everything here is a plain value, so all engines run the same code on the same data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import chain
from typing import Any

from attrs import field

from .frozen import frozen


@frozen
class Entry:
    """One key as it stands in Redis.

    ``value`` by ``redis_type``: string -> bytes; list -> list of bytes, head first; set -> list of bytes; zset -> list of
    (member, score) in ascending order; hash -> dict; any other type (stream, module) -> None.
    A large key may arrive as several entries; ``offset`` is then the index of the first item of this one.
    """

    key: bytes
    redis_type: str
    value: Any
    ttl_ms: int | None = None
    """Milliseconds left to live; None = the key stays."""
    offset: int = 0

    @property
    def values(self) -> tuple[bytes, ...]:
        """The value as ``Fact.values``: field, value, field, value … of a hash, the members of a zset, else all items."""
        match self.redis_type:
            case "hash":
                return tuple(chain.from_iterable(self.value.items()))
            case "string":
                return (self.value,)
            case "zset":
                return tuple(member for member, _ in self.value)
        return tuple(self.value or ())


class FactKind(StrEnum):
    """What a fact is about."""

    RECORD = "record"
    """The fields of a job."""
    PLACE = "place"
    """The job stands in this list, zset or set."""
    NOTE = "note"
    """More about a job: log lines, tags, dependencies, history."""
    COUNTER = "counter"
    """A number of the whole keyspace."""
    REGISTRY = "registry"
    """Names or settings of the whole keyspace."""
    TOKEN = "token"
    """Wake-up tokens and locks: state of running processes, not data."""
    ODD = "odd"
    """A key under the family's prefix with the wrong Redis type, or a name no pattern knows."""


@frozen
class Fact:
    """One statement of one key. ``job_id`` None: about the keyspace as a whole."""

    kind: FactKind
    role: str
    """Name of the key pattern that matched, for example ``record``, ``by_state``, ``log``."""
    key: bytes
    redis_type: str
    job_id: str | None = None
    scope: str = ""
    """The queue in families whose ids are unique only within a queue; empty elsewhere."""
    queue: str | None = None
    """The queue that the key's name tells, if it does."""
    label: str | None = None
    """What else the key's name tells, if it does: a state word, a tag, a worker."""
    member: bytes | None = None
    score: float | None = None
    index: int | None = None
    """Rank from the head of the list or the low end of the zset, 0 first."""
    values: tuple[bytes, ...] = ()
    """Record: field, value, field, value …; note, counter, registry: the items."""
    ttl_ms: int | None = None

    @property
    def fields(self) -> dict[bytes, bytes]:
        """The hash behind a record (or a registry hash) as a dict."""
        return dict(zip(self.values[::2], self.values[1::2], strict=False))


@frozen
class Subject:
    """All facts about one job id. The order of facts carries no meaning."""

    job_id: str
    scope: str
    facts: tuple[Fact, ...]
    prefiltered: bool = field(default=False, eq=False)
    """No rule can find anything in the job, so none need look: schema/prefilter.py."""

    def of_kind(self, kind: FactKind) -> Iterator[Fact]:
        """The facts of one kind."""
        return (fact for fact in self.facts if fact.kind is kind)

    def in_role(self, role: str) -> Iterator[Fact]:
        """The facts that keys of one pattern state."""
        return (fact for fact in self.facts if fact.role == role)

    @property
    def record(self) -> Fact | None:
        """The job's own record, or None when only indexes speak of it."""
        return next(self.of_kind(FactKind.RECORD), None)


def join(facts: Sequence[Fact]) -> Subject:
    """The subject that ``facts``, all about one job, make. At least one fact is needed."""
    first = facts[0]
    if first.job_id is None:
        raise ValueError("keyspace facts belong to no subject")
    return Subject(first.job_id, first.scope, tuple(facts))
