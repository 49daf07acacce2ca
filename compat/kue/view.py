"""View: the facts about one job, sorted by what the reader and the rules ask for.

Says what stands where, and judges nothing. Called by ``reader.py`` and the rules, which share one view of a subject.
"""

from __future__ import annotations

from attrs import define, field

from ...schema.fact import Fact, Subject
from ...schema.job import State
from ...schema.memo import remember_last
from ...schema.rule import Severity, Violation
from ...schema.text import to_text
from ..numbers import parse_int
from .passthrough import Counts
from .record import due_of, state_of


@define
class View:
    """What all keys say about one job. Lists are sorted by key, so that findings read the same on every engine."""

    job_id: str
    record: Fact | None = None
    fields: dict[bytes, bytes] = field(factory=dict)
    """The hash; empty without a record."""
    places: list[Fact] = field(factory=list)
    log_facts: list[Fact] = field(factory=list)
    search_facts: list[Fact] = field(factory=list)

    # Derived from the hash when all facts are in
    queue: str = ""
    """The type; empty if the hash has none."""
    word: str | None = None
    """The state word in the hash, whatever it is."""
    state: State = State.UNKNOWN
    by_role: dict[str, Fact] = field(factory=dict)
    """By role, where the index for the job's own type and state holds it; the first place, should it stand there twice."""

    @classmethod
    def of(cls, subject: Subject) -> View:
        """The view of a subject."""
        view = cls(subject.job_id)
        for fact in sorted(subject.facts, key=lambda fact: (fact.key, fact.index or 0)):
            match fact.role:
                case "record":
                    view.record = fact
                    view.fields.update(fact.fields)
                case "all" | "by_state" | "by_type":
                    view.places.append(fact)
                case "log":
                    view.log_facts.append(fact)
                case "search_word" | "search_object":
                    view.search_facts.append(fact)
        view.queue = to_text(view.fields.get(b"type", b""))
        view.word = to_text(view.fields[b"state"]) if b"state" in view.fields else None
        view.state = state_of(view.fields)
        for fact in view.places:
            if (fact.role == "all" or fact.label == view.word) and (fact.role != "by_type" or fact.queue == view.queue):
                view.by_role.setdefault(fact.role, fact)
        return view

    @property
    def is_job(self) -> bool:
        """Whether kue would call this a job: it has a type."""
        return self.queue != ""

    @property
    def has_ttl(self) -> bool:
        """Whether kue gives up on the job when a worker takes too long."""
        return (self.int_field(b"ttl") or 0) > 0

    @property
    def due_at(self) -> int | None:
        """When a delayed job is due, Unix ms; None where nothing tells."""
        fact = self.by_role.get("by_state")
        return due_of(self.fields, None if fact is None else fact.score)

    @property
    def key(self) -> bytes:
        """The key to name in findings: the hash, or where else the job shows up."""
        fact = self.record or (self.places + self.log_facts + self.search_facts)[0]
        return fact.key

    @property
    def logs(self) -> tuple[bytes, ...]:
        """All log lines, oldest first."""
        return tuple(line for fact in self.log_facts for line in fact.values)

    @property
    def is_plain(self) -> bool:
        """Whether the job's own indexes name it as kue did before 0.10.3."""
        plain = self.job_id.encode()
        return bool(self.by_role) and all(fact.member == plain for fact in self.by_role.values())

    def int_field(self, name: bytes) -> int | None:
        """The integer in a field of the hash."""
        return parse_int(self.fields.get(name))

    def search_counts(self) -> tuple[Counts, Counts]:
        """What the search index says of the job: from its own key, and from the keys of the words."""
        if not self.search_facts:
            return {}, {}
        objects = {to_text(fact.member or b""): fact.score for fact in self.search_facts if fact.role == "search_object"}
        return objects, {fact.label or "": fact.score for fact in self.search_facts if fact.role == "search_word"}

    def violation(self, detail: str, *, key: bytes | None = None, severity: Severity | None = None) -> Violation:
        """What a rule says about this job; about its hash if no other key is at fault."""
        return Violation(detail, self.key if key is None else key, self.queue or None, severity)


view_of = remember_last(View.of)
"""The view of a subject, made once for the reader and all rules."""
