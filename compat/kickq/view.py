"""View: the facts about one job, sorted by what the reader and the rules ask for.

Says what stands where, and judges nothing. Called by the reader, the rules and the repairs, which share one view of a subject.
"""

from __future__ import annotations

from attrs import define, field

from ...schema.fact import Fact, Subject
from ...schema.job import State
from ...schema.memo import remember_last
from ...schema.rule import Severity, Violation
from ...schema.text import to_bytes
from .record import Record


@define
class View:
    """What all keys say about one job. Lists are sorted by key, so that findings read the same on every engine."""

    job_id: str
    fact: Fact | None = None
    """The hash; its first part, where it is too large for one."""
    lists: list[Fact] = field(factory=list)
    sets: list[Fact] = field(factory=list)
    times: dict[str, Fact] = field(factory=dict)
    """By role: scheduled, purge and time_index."""

    stored: Record = field(factory=Record.nothing)
    """The record, derived from the hash and the times when all facts are in; so are the following."""
    word: str = ""
    state: State = State.UNKNOWN
    queue: str = ""
    readable: bool = False
    """Whether a worker of kickq could use the document: an object with the job's own id and a name."""

    @classmethod
    def of(cls, subject: Subject) -> View:
        """The view of a subject."""
        view, fields = cls(subject.job_id), dict[bytes, bytes]()
        for fact in sorted(subject.facts, key=lambda fact: (fact.key, fact.index or 0)):
            match fact.role:
                case "record":
                    view.fact = view.fact or fact
                    fields |= fact.fields
                case "queue":
                    view.lists.append(fact)
                case "state":
                    view.sets.append(fact)
                case "scheduled" | "purge" | "time_index":
                    view.times[fact.role] = fact
        if view.fact is not None:
            scores = {role: fact.score for role, fact in view.times.items() if fact.score is not None}
            view.stored = stored = Record.of(fields, scores)
            view.word, view.state, view.queue = stored.word, stored.state, stored.queue
            own_id = "id" in stored.item and stored.item["id"].value == view.job_id
            view.readable = own_id and isinstance(stored.value("name"), str)
        return view

    @property
    def key(self) -> bytes:
        """The key to name in findings: the hash, or where else the job shows up."""
        return (self.fact or [*self.lists, *self.sets, *self.times.values()][0]).key

    @property
    def known(self) -> bool:
        """Whether there is a record that says in which state the job is."""
        return self.fact is not None and self.state is not State.UNKNOWN

    @property
    def queue_lists(self) -> list[Fact]:
        """Where the job stands in the list of its queue, the next to run first."""
        return [fact for fact in self.lists if fact.queue == self.queue]

    def violation(self, detail: str, *, key: bytes | None = None, severity: Severity | None = None) -> Violation:
        """What a rule says about this job; about its hash if no other key is at fault."""
        queue = self.queue if self.fact is not None else self.lists[0].queue if self.lists else None
        return Violation(detail, self.key if key is None else key, queue, severity)

    @property
    def member(self) -> bytes:
        """The job's id as lists and sets have it."""
        return to_bytes(self.job_id)


view_of = remember_last(View.of)
"""The view of a subject, made once for the reader and all rules."""
