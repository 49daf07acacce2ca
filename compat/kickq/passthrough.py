"""Kept: what ``extra["kickq"]`` remembers of a kickq job, so that writing it back gives the same bytes.

Only what differs from what the writer would write anyway (record.standard_item), as texts and numbers:

    state            the state word; always there for an active job, else only where the document doesn't imply it
    read_as          the canonical state of the document, where something kept is true in that state only
    item             member of the document -> its exact JSON text, or None for a member that is not there
    text             the exact text of the document, where JavaScript would write the same members differently
    fields           hash field -> its exact bytes, or None for a field that is not there
    scores           scheduled, purge or time_index -> score, where it is not the usual one

Damage of the places is not kept: a job that a list or set has lost, or has twice, is written soundly. Called by the reader and
the writer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import evolve, field, frozen

from ...schema.errors import MalformedValue
from ...schema.job import Job, State
from ...schema.text import to_bytes, to_text
from ..extra import optional, plain_score
from ..members import Member, Members, split
from .keys import WORDS
from .record import Record, lost, record_of, standard_item, word_for

NAME = "kickq"

OF_STATE = frozenset({"complete", "success", "finishTime", "totalProcessTime", "scheduledFor", "state"})
"""Members that say something of one state only."""

SPOKEN_FOR = OF_STATE | {
    *("id", "name", "createTime", "updateTime", "processTimeout", "retry", "retryTimes", "ghostRetry", "ghostTimes"),
    *("data", "lastError", "runs"),
}
"""Members that follow from canonical fields."""

MIRRORED = frozenset({b"id", b"name", b"createTime", b"updateTime", b"state"})
"""Hash fields that follow from canonical ones."""


@frozen
class Kept:
    """The differences between a stored job and the standard record of the same job."""

    state: str | None = None
    read_as: str | None = None
    item: Mapping[str, Member | None] = field(factory=dict)
    text: bytes | None = None
    fields: Mapping[bytes, bytes | None] = field(factory=dict)
    scores: Mapping[str, float] = field(factory=dict)

    @classmethod
    def of(cls, job: Job) -> Kept:
        """What the job's extra remembers. Raises MalformedValue if that is not what ``to_extra`` makes."""
        extra = job.extra.get(NAME, {})
        try:
            return cls(
                state=optional(extra.get("state"), str),
                read_as=optional(extra.get("read_as"), str),
                item={str(name): _member(text) for name, text in extra.get("item", {}).items()},
                text=optional(extra.get("text"), bytes),
                fields={to_bytes(name): optional(value, bytes) for name, value in extra.get("fields", {}).items()},
                scores={str(role): float(score) for role, score in extra.get("scores", {}).items()},
            )
        except (AttributeError, TypeError, ValueError, MalformedValue) as error:
            raise MalformedValue(f"job {job.id}: extra[{NAME!r}] is not what the kickq reader writes") from error

    @classmethod
    def of_difference(cls, job: Job, stored: Record) -> Kept:
        """What must be remembered of a job just read, for the writer to make ``stored`` of it again."""
        base = standard_item(job, stored.item.get("data"))
        item: dict[str, Member | None] = {}
        if stored.item:
            item = {name: member for name, member in stored.item.items() if base.get(name) != member}
            item |= {name: None for name in base if name not in stored.item}
        word = _word_kept(job, stored, _merged(base, item))
        kept = cls(state=word, read_as=_document_state(job), item=item)
        expected = kept.applied(job, base)
        fields = _changed(expected.fields, stored.fields)
        scores = {role: score for role, score in stored.scores.items() if expected.scores.get(role, score) != score}
        # The members are the same now; their order may not be.
        text = None if stored.text is None and list(expected.item) == list(stored.item) else stored.document
        bound = scores or text is not None or not OF_STATE.isdisjoint(item)
        return evolve(kept, read_as=kept.read_as if bound else None, fields=fields, scores=scores, text=text)

    def to_extra(self) -> dict[str, Any]:
        """The mapping for ``Job.extra``; empty if there is nothing to remember."""
        extra: dict[str, Any] = {}
        if self.state is not None:
            extra["state"] = self.state
        if self.read_as is not None:
            extra["read_as"] = self.read_as
        if self.item:
            extra["item"] = {name: None if member is None else member.text for name, member in self.item.items()}
        if self.text is not None:
            extra["text"] = self.text
        if self.fields:
            extra["fields"] = {to_text(name): value for name, value in self.fields.items()}
        if self.scores:
            extra["scores"] = {role: plain_score(score) for role, score in self.scores.items()}
        return extra

    @property
    def held(self) -> bool:
        """Whether a worker of kickq had the job."""
        return WORDS.get(self.state or "") is State.ACTIVE

    def applied(self, job: Job, base: Members) -> Record:
        """The record that reproduces the stored job, provided that it has not changed since. ``base``: its standard document."""
        same = self.read_as == _document_state(job)
        item = _merged(base, {name: m for name, m in self.item.items() if same or name not in OF_STATE})
        record = record_of(job, item)
        fields = {**record.fields, **self.fields}
        if self.state is not None and WORDS.get(self.state) is job.state:
            fields[b"state"] = to_bytes(self.state)
        scores = {role: self.scores.get(role, score) if same else score for role, score in record.scores.items()}
        text = self.text if self.text is not None and same and _means(self.text, item) else None
        return Record({name: value for name, value in fields.items() if value is not None}, item, scores, text)

    def applied_loosely(self, job: Job, base: Members) -> Record:
        """The record of a job that has changed since it was read: only what no canonical field speaks for still holds."""
        beside = {name: member for name, member in self.item.items() if name not in SPOKEN_FOR}
        record = record_of(job, _merged(base, beside))
        fields = {name: value for name, value in self.fields.items() if value is not None and name not in MIRRORED}
        return evolve(record, fields={**fields, **record.fields})

    def record(self, job: Job) -> tuple[Record, dict[str, Any]]:
        """The record for the job as it is now, and what of the job it can't say.

        It is exactly what was stored, as far as that does not contradict the job.
        """
        base = standard_item(job)
        exact = self.applied(job, base)
        missing = lost(job, exact)
        if not missing or missing.keys() <= lost(job, record_of(job, base)).keys():
            return exact, missing
        loose = self.applied_loosely(job, base)
        return loose, lost(job, loose)


def _document_state(job: Job) -> str:
    """The state of which the document speaks: kickq does not touch it when a worker takes the job."""
    return str(State.WAITING if job.state is State.ACTIVE else job.state)


def _word_kept(job: Job, stored: Record, item: Members) -> str | None:
    """The state word, where writing the job would not give it anyway, or where it tells who holds the job."""
    if job.state is State.ACTIVE:
        return stored.word
    implied = word_for(job.state, item)
    return stored.word if job.state is not State.UNKNOWN and stored.word != implied else None


def _merged(base: Members, changes: Mapping[str, Member | None]) -> Members:
    merged = {**base, **changes}
    return {name: member for name, member in merged.items() if member is not None}


def _changed(expected: Mapping[bytes, bytes], found: Mapping[bytes, bytes]) -> dict[bytes, bytes | None]:
    """The fields that must be set to get from what is expected to what was found; None for those that must go."""
    changed: dict[bytes, bytes | None] = {name: value for name, value in found.items() if expected.get(name) != value}
    return changed | {name: None for name in expected if name not in found}


def _means(text: bytes, item: Members) -> bool:
    """Whether a text has exactly these members."""
    try:
        return split(text) == item
    except MalformedValue:
        return False


def _member(text: Any) -> Member | None:
    if text is None:
        return None
    if not isinstance(text, bytes):
        raise TypeError("a member's text is bytes")
    return Member.parse(text)
