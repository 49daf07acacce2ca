"""View: the facts about one job, sorted by what the reader and the rules ask for.

Says what stands where, and judges nothing. What other jobs must tell of themselves (whether a duplicate's original has ended,
whether what a job waits for is lost) arrives as ``Original`` and ``Dependency``. Called by ``reader.py`` and the rules, which
share one view of a subject.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attrs import define, field

from ...schema.fact import Fact, Subject
from ...schema.frozen import frozen
from ...schema.job import State
from ...schema.memo import cached_property, remember_last
from ...schema.rule import Severity, Violation
from ...schema.text import to_bytes, to_text
from .. import lua_json
from ..numbers import parse_int
from .history import Event, event_names
from .keys import DYING, UNFINISHED, hashed
from .record import Record, dependants_of, tag_names

REFERENCE_ROLES = frozenset({"claimed", "needed"})
"""The roles of facts in which other jobs name this one."""


@frozen
class Original:
    """What a duplicate is told of its original."""

    status: str
    """Its status word; empty if there is no record of it."""
    state: State
    """The state that it gives its duplicates."""


@frozen
class Dependency:
    """What a job is told of one that it waits for."""

    job_id: str
    status: str
    """Its status word; empty if there is no record of it."""
    lists: bool
    """Whether it knows who waits for it."""
    lost: bool
    """Whether it stands where nobody will run it."""


@define(slots=False)
class View:
    """What all keys say about one job. Lists are sorted by key, so that findings read the same on every engine."""

    job_id: str
    facts: tuple[Fact, ...]
    record: Fact | None = None
    fields: dict[bytes, bytes] = field(factory=dict)
    """The hash; empty without a record."""
    places: list[Fact] = field(factory=list)
    """In the sorted sets, of all queues."""
    held: list[Fact] = field(factory=list)
    """In the sets of what workers hold."""
    lists: list[Fact] = field(factory=list)
    """In the lists of jobs with one hash."""
    tagged: list[Fact] = field(factory=list)
    child_of: list[Fact] = field(factory=list)
    waits: list[Fact] = field(factory=list)
    """Counters of expired locks."""
    dependencies: list[Fact] = field(factory=list)
    """Members of its own dependency set."""
    claims: list[Fact] = field(factory=list)
    """Jobs that name this one as their original, or as what they wait for."""
    expected: list[str] = field(factory=list)
    """Jobs that have yet to end, and have this one among those that wait for them."""
    original: Original | None = None
    awaited: list[Dependency] = field(factory=list)
    """What it knows of the jobs that it waits for."""

    @classmethod
    def of(cls, subject: Subject) -> View:
        """The view of a subject."""
        view = cls(subject.job_id, tuple(sorted(subject.facts, key=_order)))
        for fact in view.facts:
            match fact.role:
                case "record":
                    view.record = fact
                    view.fields.update(fact.fields)
                case "queue" | "delayed" | "locks" | "expires":
                    view.places.append(fact)
                case "held":
                    view.held.append(fact)
                case "hashes":
                    view.lists.append(fact)
                case "tag":
                    view.tagged.append(fact)
                case "children":
                    view.child_of.append(fact)
                case "lock_waits":
                    view.waits.append(fact)
                case "dependencies":
                    view.dependencies.append(fact)
                case role if role in REFERENCE_ROLES:
                    view.claims.append(fact)
                case "expected":
                    view.expected.append(to_text(fact.member or b""))
                case "original":
                    status, state = map(to_text, fact.values)
                    view.original = Original(status, State(state))
                case "dependency":
                    status, lists, lost = map(to_text, fact.values)
                    view.awaited.append(Dependency(fact.label or "", status, bool(lists), bool(lost)))
        return view

    # The record

    @cached_property
    def is_job(self) -> bool:
        """Whether bee would call this a job: the record names itself."""
        return b"jid" in self.fields

    @cached_property
    def queue(self) -> str:
        return to_text(self.fields.get(b"queue", b""))

    @cached_property
    def status(self) -> str:
        """The status word, whatever it is; empty if there is none, and for a record that is no job."""
        return to_text(self.fields.get(b"status", b"")) if self.is_job else ""

    @cached_property
    def worker(self) -> str:
        return to_text(self.fields.get(b"worker", b""))

    @cached_property
    def is_dying(self) -> bool:
        """Whether Redis will remove the record by itself."""
        return self.record is not None and self.record.ttl_ms is not None

    @cached_property
    def options(self) -> dict[str, Any] | None:
        """None where bee could not read them."""
        return lua_json.as_object(self.fields.get(b"options"))

    @cached_property
    def tags(self) -> tuple[str, ...]:
        return tag_names(self.fields.get(b"tags"))

    @property
    def history(self) -> tuple[Event, ...]:
        return self.stored.history

    @cached_property
    def events(self) -> list[str]:
        """What happened, in order."""
        return event_names(self.history)

    @cached_property
    def dependants(self) -> tuple[str, ...]:
        """The jobs that wait, or have waited, for this one."""
        return dependants_of(self.fields.get(b"dependants"))

    @cached_property
    def unique_list(self) -> str | None:
        """What the name of the list with its hash ends in; None for a job without a hash."""
        unique_key = self.fields.get(b"hash")
        return None if unique_key is None else hashed(self.queue, to_text(unique_key))

    # Where it stands

    @cached_property
    def by_role(self) -> dict[str, Fact]:
        """By role, where the sets of the job's own queue hold it."""
        return {fact.role: fact for fact in self.places if fact.queue == self.queue}

    @cached_property
    def needs(self) -> tuple[str, ...]:
        """The jobs that this one waits for, sorted."""
        return tuple(sorted(to_text(fact.member or b"") for fact in self.dependencies))

    @cached_property
    def is_lost(self) -> bool:
        """Whether the job has yet to run and stands where nobody will ever find it."""
        match self.status:
            case "queued":
                return "queue" not in self.by_role
            case "new":
                return "delayed" not in self.by_role and not self.needs
            case "retried":
                return "delayed" not in self.by_role
            case "running":
                return "locks" not in self.by_role
        return False

    @cached_property
    def is_unfinished(self) -> bool:
        return self.status in UNFINISHED

    @cached_property
    def is_ended_early(self) -> bool:
        """Canceled or expired: it is to stand nowhere."""
        return self.status in DYING

    @cached_property
    def stored(self) -> Record:
        """The record as the reader takes it."""
        scores = {role: fact.score for role, fact in self.by_role.items() if fact.score is not None}
        original = None if self.original is None else self.original.state
        return Record(self.fields, scores, self.needs, self.is_dying, original)

    @cached_property
    def state(self) -> State:
        """The canonical state."""
        return self.stored.state if self.is_job else State.UNKNOWN

    @property
    def key(self) -> bytes:
        """The key to name in findings: the record, or where else the job shows up."""
        return (self.record or self.facts[0]).key

    def int_field(self, name: bytes) -> int | None:
        """The integer in a field of the hash."""
        return parse_int(self.fields.get(name))

    def in_set(self, role: str) -> Iterator[Fact]:
        """Where sets of this role hold the job, whatever the queue."""
        return (fact for fact in self.places if fact.role == role)

    def violation(self, detail: str, *, key: bytes | None = None, severity: Severity | None = None) -> Violation:
        """What a rule says about this job; about its record if no other key is at fault."""
        return Violation(detail, self.key if key is None else key, self.queue or None, severity)


def _order(fact: Fact) -> tuple[bytes, str, int, bytes]:
    return fact.key, fact.role, fact.index or 0, fact.member or to_bytes(fact.label or "")


view_of = remember_last(View.of)
"""The view of a subject, made once for the reader and all rules."""
