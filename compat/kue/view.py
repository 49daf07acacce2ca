"""View: the facts about one job, sorted by what the reader and the rules ask for.

Says what stands where, and judges nothing. Called by ``reader.py`` and the rules, which share one view of a subject.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define, field

from ...schema.fact import Fact, Subject
from ...schema.job import State
from ...schema.rule import Complaint, Severity
from ...schema.text import to_text
from ..memo import remember_last
from ..numbers import whole
from .kept import Counts
from .record import state_of


@define
class View:
    """The facts about one job, sorted by what readers and rules ask for."""

    job_id: str
    record: Fact | None = None
    fields: dict[bytes, bytes] = field(factory=dict)
    """The hash; empty without a record."""
    places: list[Fact] = field(factory=list)
    log_facts: list[Fact] = field(factory=list)
    search_facts: list[Fact] = field(factory=list)

    @property
    def queue(self) -> str:
        """The type; empty if the hash has none."""
        return to_text(self.fields.get(b"type", b""))

    @property
    def word(self) -> str | None:
        """The state word in the hash, whatever it is."""
        raw = self.fields.get(b"state")
        return None if raw is None else to_text(raw)

    @property
    def state(self) -> State:
        """The canonical state."""
        return state_of(self.fields)

    @property
    def is_job(self) -> bool:
        """Whether kue would call this a job: it has a type."""
        return bool(self.fields.get(b"type"))

    @property
    def has_ttl(self) -> bool:
        """Whether kue gives up on the job when a worker takes too long."""
        return (self.whole(b"ttl") or 0) > 0

    @property
    def key(self) -> bytes:
        """The key to name in findings: the hash, or where else the job shows up."""
        fact = self.record or (self.places + self.log_facts + self.search_facts)[0]
        return fact.key

    @property
    def logs(self) -> tuple[bytes, ...]:
        """All log lines, oldest first."""
        return tuple(line for fact in sorted(self.log_facts, key=lambda fact: fact.index or 0) for line in fact.values)

    def own_places(self) -> dict[str, Fact]:
        """By role, where the index for the job's own type and state holds it; the first place, should it stand there twice."""
        own: dict[str, Fact] = {}
        word, queue = self.word, self.queue
        for fact in self.places:
            if (fact.role == "all" or fact.place == word) and (fact.role != "by_type" or fact.queue == queue):
                known = own.get(fact.role)
                if known is None or (fact.index or 0) < (known.index or 0):
                    own[fact.role] = fact
        return own

    def own_place(self, role: str) -> Fact | None:
        """Where the right index of this role holds the job, if it does."""
        return self.own_places().get(role)

    def whole(self, name: bytes) -> int | None:
        """The integer in a field of the hash."""
        return whole(self.fields.get(name))

    def complaint(self, detail: str, *, key: bytes | None = None, severity: Severity | None = None) -> Complaint:
        """What a rule says about this job; about its hash if no other key is at fault."""
        return Complaint(detail, self.key if key is None else key, self.queue or None, severity)

    def is_plain(self, own: Mapping[str, Fact]) -> bool:
        """Whether every index of ``own`` names the job as kue did before 0.10.3."""
        plain = self.job_id.encode()
        return bool(own) and all(fact.member == plain for fact in own.values())

    def search_counts(self) -> tuple[Counts, Counts]:
        """What the search index says of the job: from its own key, and from the keys of the words."""
        if not self.search_facts:
            return {}, {}
        objects = {to_text(fact.member or b""): fact.score for fact in self.search_facts if fact.role == "search_object"}
        return objects, {fact.place or "": fact.score for fact in self.search_facts if fact.role == "search_word"}


@remember_last
def view_of(subject: Subject) -> View:
    """The subject's facts, sorted once for the reader and all rules."""
    view = View(subject.job_id)
    for fact in subject.facts:
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
    return view
