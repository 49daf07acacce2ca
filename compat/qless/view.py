"""View: the facts about one job sorted out once, for the reader and for all rules.

Holds what the keys say and where they disagree, and decides nothing. A subject that is no job (a tag, a worker …) gives an
empty view. Called by reader, rules and repairs.
"""

from __future__ import annotations

from itertools import chain

from attrs import define, field

from ...schema.fact import Fact, Subject
from ...schema.job import State
from ...schema.memo import cached_property, remember_last
from ...schema.rule import Severity, Violation
from ...schema.text import to_text
from ..numbers import parse_int
from .keys import INDEXES, Scope
from .record import Record

EXCLUSIVE = frozenset({*INDEXES, "completed", "failed"})
"""The roles of keys of which a job stands in one at most."""


GONE = b"\0gone"
"""Stands for the state of a job that does not exist."""


NOTHING = Record({})
"""What is stored of no job."""


@define(slots=False)
class View:
    """What all keys say about one job. Lists are sorted by key, so that findings read the same on every engine."""

    job_id: str
    record: Fact | None = None
    fields: dict[bytes, bytes] = field(factory=dict)
    """The hash; empty without a record."""
    places: list[Fact] = field(factory=list)
    """In keys of EXCLUSIVE roles."""
    beats: list[Fact] = field(factory=list)
    history_facts: list[Fact] = field(factory=list)
    tracked: Fact | None = None
    tagged: dict[str, Fact] = field(factory=dict)
    held: dict[str, Fact] = field(factory=dict)
    """By worker in whose set it is."""
    slots: dict[str, Fact] = field(factory=dict)
    pending: dict[str, Fact] = field(factory=dict)
    """By throttle."""
    dependencies: dict[str, Fact] = field(factory=dict)
    """Whom the job waits for, by its own set."""
    dependents: dict[str, Fact] = field(factory=dict)
    """Who waits for the job, by its own set."""
    waiting_for_it: dict[str, Fact] = field(factory=dict)
    """Whose sets say that they wait for the job."""
    releasing_it: dict[str, Fact] = field(factory=dict)
    """Whose sets name the job as one that waits for them."""
    replies: dict[str, Fact] = field(factory=dict)
    """What the jobs that it waits for say: their state word (or GONE), 1 if they will release it, and whom they wait for."""

    # Derived when all facts are in
    word: str = ""
    """The state word in the hash, whatever it is."""
    by_role: dict[str, Fact] = field(factory=dict)
    """By role, where the index of the job's own queue holds it."""
    stored: Record = NOTHING

    @classmethod
    def of(cls, subject: Subject) -> View:
        """The view of a subject."""
        view = cls(subject.job_id)
        if subject.scope != Scope.JOB:
            return view
        for fact in sorted(subject.facts, key=lambda fact: (fact.key, fact.index or 0, fact.member or b"", fact.label or "")):
            if fact.role in EXCLUSIVE:
                view.places.append(fact)
            else:
                view._add(fact)
        view.word = to_text(view.fields.get(b"state", b""))
        queue = to_text(view.fields.get(b"queue", b""))
        for fact in view.places:
            if fact.role != "failed" and fact.queue in (queue, None):
                view.by_role.setdefault(fact.role, fact)
        scores = {role: fact.score for role, fact in view.by_role.items() if fact.score is not None}
        if view.word == "scheduled" and "scheduled" not in scores:
            # Where it strayed, its score is still the time when it is due.
            scores |= {fact.role: fact.score for fact in view.where("scheduled")[:1] if fact.score is not None}
        lists = [fact.values for fact in view.history_facts]
        history = tuple(chain.from_iterable(lists)) if lists else None
        view.stored = Record(view.fields, history, scores, tuple(sorted(view.dependencies)))
        return view

    def _add(self, fact: Fact) -> None:
        label = fact.label or ""
        match fact.role:
            case "record":
                self.record = fact
                self.fields = {**self.fields, **fact.fields} if self.fields else fact.fields
            case "history":
                self.history_facts.append(fact)
            case "tracked":
                self.tracked = fact
            case "tagged":
                self.tagged[label] = fact
            case "held":
                self.held[label] = fact
            case "slots":
                self.slots[label] = fact
            case "pending":
                self.pending[label] = fact
            case "dependencies":
                self.dependencies[to_text(fact.member or b"")] = fact
            case "dependents":
                self.dependents[to_text(fact.member or b"")] = fact
            case "waits":
                self.waiting_for_it[label] = fact
            case "releases":
                self.releasing_it[label] = fact
            case "answer":
                self.replies[label] = fact
            case "beats":
                self.beats.append(fact)

    @property
    def is_job(self) -> bool:
        """Whether qless would call this a job: its hash has an id."""
        return b"jid" in self.fields or b"id" in self.fields

    @property
    def state(self) -> State:
        return self.stored.state

    @cached_property
    def is_early(self) -> bool:
        """Whether qless of the first weeks wrote the job, which left much behind as a matter of course."""
        return b"jid" not in self.fields and b"id" in self.fields

    @property
    def queue(self) -> str:
        return self.stored.queue

    @property
    def has_grace(self) -> bool:
        """Whether its worker was told that the lock is lost, and it is about to be handed on."""
        return self.fields.get(b"grace") == b"1"

    @property
    def key(self) -> bytes:
        """The key to name in findings: the hash, or where else the job shows up."""
        if self.record is not None:
            return self.record.key
        named = (self.dependencies, self.dependents, self.releasing_it, self.waiting_for_it, self.tagged, self.held)
        facts = [*self.places, *self.history_facts, *(fact for group in named for fact in group.values())]
        return facts[0].key if facts else b""

    def where(self, role: str) -> list[Fact]:
        """Every place of one role, in whatever queue."""
        return [fact for fact in self.places if fact.role == role]

    def int_field(self, name: bytes) -> int | None:
        """The integer in a field of the hash."""
        return parse_int(self.fields.get(name))

    def violation(
        self, detail: str, *, key: bytes | None = None, severity: Severity | None = None, queue: str | None = None
    ) -> Violation:
        """What a rule says about this job; about its hash if no other key is at fault."""
        found = self.queue or None if queue is None else queue
        return Violation(detail, self.key if key is None else key, found, severity)


view_of = remember_last(View.of)
"""The view of a subject, made once for the reader and all rules."""
