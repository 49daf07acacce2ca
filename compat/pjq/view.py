"""View: the facts about one job, sorted by what the reader and the rules ask for.

Says what stands where, and judges nothing. Called by ``reader.py`` and the rules, which share one view of a subject.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from attrs import define, field

from ...schema.fact import Fact, Subject
from ...schema.job import State
from ...schema.memo import remember_last
from ...schema.rule import Severity, Violation
from ...schema.totals import Totals
from .keys import LISTS, STATES
from .payload import Members, parsed
from .record import Record, state_of
from .workers import is_busy, last_seen

ROLES_BY_TRUST = ("dispatched", "queued", "processing", "finished", "js_leased", "js_queued", "progress", "js_progress")
"""Containers, first those whose queue is surest. The program itself puts a job into the first two; a worker's messages name the
queue of the next two, and may name a wrong one."""


@define
class View:
    """What all keys say about one job."""

    job_id: str
    record: Fact | None = None
    stranger: Fact | None = None
    """A key of the job's name that is no hash."""
    fields: dict[bytes, bytes] = field(factory=dict)
    """The hash; empty without a record."""
    places: dict[str, list[Fact]] = field(factory=dict)
    """By role, sorted by key; in a list what is popped first comes first."""

    # Derived when all facts are in
    members: Members | None = None
    """The members of its JSON; None without JSON that the program could read."""
    fault: str | None = None
    """Why the program can't read its JSON."""
    queue: str = ""
    role: str | None = None
    """The role of the container that tells its state; ``finished`` also for one that only its hash says to be."""

    @classmethod
    def of(cls, subject: Subject) -> View:
        """The view of a subject."""
        view = cls(subject.job_id)
        for fact in sorted(subject.facts, key=_order):
            match fact.role:
                case "record":
                    view.record = view.record or fact
                    view.fields.update(fact.fields)
                case "stranger":
                    view.stranger = fact
                case role:
                    view.places.setdefault(role, []).append(fact)
        if view.has_json:
            view.members, view.fault = parsed(view.fields[b"json"])
        view.role = view._role()
        view.queue = view._queue()
        return view

    def _role(self) -> str | None:
        if b"finished_at" in self.fields and "finished" not in self.places:
            return "finished"
        return next((role for role in STATES if role in self.places), None)

    def _queue(self) -> str:
        named = (self.members or {}).get("queue_name")
        for role in ROLES_BY_TRUST:
            queues = [fact.queue or "" for fact in self.places.get(role, ())]
            if queues:
                return named if named in queues else queues[0]
        return named if isinstance(named, str) else ""

    @property
    def has_json(self) -> bool:
        """Whether there is a hash with a payload in it, of whatever content."""
        return b"json" in self.fields

    @property
    def is_contained(self) -> bool:
        """Whether it stands in a container that tells its state."""
        return any(role in self.places for role in STATES)

    @property
    def key(self) -> bytes:
        """The key to name in findings: the hash, or where else the job shows up."""
        fact = self.record or self.stranger
        return fact.key if fact else next(iter(self.all_places())).key

    def all_places(self, roles: Iterable[str] = ROLES_BY_TRUST) -> list[Fact]:
        """Where it stands, in containers of these roles."""
        return [fact for role in roles for fact in self.places.get(role, ())]

    def at(self, role: str) -> Fact | None:
        """Where it stands in a container of this role: that of its queue if there are several."""
        facts = self.places.get(role, [])
        return next((fact for fact in facts if fact.queue == self.queue), facts[0] if facts else None)

    def text(self, name: bytes) -> str | None:
        """A hash field as text."""
        raw = self.fields.get(name)
        return None if raw is None else raw.decode("utf-8", "surrogateescape")

    def stored(self, totals: Totals) -> Record:
        """The job as it stands, in the place that counts."""
        scores: dict[str, float] = {}
        for role in (self.role, _PROGRESS_OF.get(self.role or "")):
            fact = None if role is None else self.at(role)
            if fact is not None and fact.score is not None:
                scores[fact.role] = fact.score
        accepted = self.at("processing") if self.role == "processing" else None
        worker = self.text(b"worker_uuid")
        if accepted is not None and worker and is_busy(worker, accepted.queue or "", totals):
            seen = last_seen(worker, accepted.queue or "", totals)
            if seen is not None:
                scores["seen"] = seen
        return Record(self.role, self.fields, scores)

    @property
    def state(self) -> State:
        """The canonical state."""
        return state_of(Record(self.role, self.fields, {}))

    def found(self) -> dict[str, Any]:
        """What a job is not written back with, for people: other containers, a time to live, an old layout."""
        found: dict[str, Any] = {}
        if self.role in ("js_queued", "js_leased"):
            found["layout"] = "js-1"
        if self.record is not None and self.record.ttl_ms is not None:
            found["ttl"] = self.record.ttl_ms
        places = self.all_places()
        usual = {self.role, _PROGRESS_OF.get(self.role or "")} - {None}
        if len(places) != len(usual) or {fact.role for fact in places} != usual or len({fact.queue for fact in places}) != 1:
            found["places"] = [[fact.role, fact.queue or "", fact.index if fact.score is None else fact.score] for fact in places]
        return found

    def violation(
        self, detail: str, *, key: bytes | None = None, queue: str | None = None, severity: Severity | None = None
    ) -> Violation:
        """What a rule says about this job; about its hash and its queue if no others are at fault."""
        return Violation(detail, self.key if key is None else key, (self.queue if queue is None else queue) or None, severity)


_PROGRESS_OF = {"processing": "progress", "js_leased": "js_progress"}
"""The second container of an active job."""


def _order(fact: Fact) -> tuple[bytes, int, tuple[bytes, ...]]:
    """The values settle it where a hash was read twice while it changed."""
    index = fact.index or 0
    return (fact.key, -index if fact.role in LISTS else index, fact.values)


view_of = remember_last(View.of)
"""The view of a subject, made once for the reader and all rules."""
