"""Note: what kickq has no field for, in one hash field of ours, which kickq leaves alone until it deletes the job.

An Aside with canonical fields and other families' extra, and in the place of our own extra what concerns the record itself.
The field is untrusted: any other text there is an application's own. Called by the reader and the writer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import evolve, frozen

from ...schema.errors import MalformedValue
from ...schema.job import Job, State
from ..members import Member
from ..overflow import FIELD, Aside
from .keys import FINISHED
from .passthrough import NAME
from .record import PURGE_MS, Record

AHEAD_MS = 60_000
"""What was due in the past is written so far ahead of now: time for a migration to end, and for a scheduler to start."""

TOLD_BY_RUNS = "history"
"""The canonical field that lasts in other systems, while kickq adds to it."""


@frozen
class Moved:
    """A time that was written later than it was meant, because no scheduler of kickq looks back: past the end, jobs are lost."""

    to: float
    score: float | None
    """What was meant."""
    member: bytes | None
    """The exact text of ``scheduledFor`` that went with it."""
    text: bytes | None
    """The document's text, if it was not the usual one."""

    def undone(self, record: Record) -> Record:
        """The record as it was meant; unchanged where kickq has given it another time since."""
        role = time_role(record.state)
        written = record.item.get("scheduledFor")
        if role is None or record.scores.get(role) != self.to or written is None or written.value != self.to:
            return record
        scores = {name: score for name, score in record.scores.items() if name != role}
        if self.score is not None:
            scores[role] = self.score
        item = {name: member for name, member in record.item.items() if name != "scheduledFor" or self.member is not None}
        if self.member is not None:
            item["scheduledFor"] = Member.parse(self.member)
        return evolve(record, item=item, scores=scores, text=self.text)


def time_role(state: State) -> str | None:
    """The sorted set in which a job of this state waits for a time."""
    if state is State.SCHEDULED:
        return "scheduled"
    return "purge" if state in FINISHED else None


def ahead(record: Record, now_ms: int) -> tuple[Record, Moved | None]:
    """The record with a time that a scheduler will still see, and what was changed for it."""
    role = time_role(record.state)
    if role is None or record.scores.get(role, float("-inf")) >= now_ms:
        return record, None
    to = now_ms + (AHEAD_MS if role == "scheduled" else PURGE_MS)
    was = record.item.get("scheduledFor")
    moved = Moved(float(to), record.scores.get(role), None if was is None else was.text, record.text)
    item = {**record.item, "scheduledFor": Member.of(to)}
    return evolve(record, item=item, scores={**record.scores, role: float(to)}, text=None), moved


@frozen
class Note:
    """What we put aside about the record itself."""

    logs: tuple[bytes, ...] = ()
    moved: Moved | None = None
    own: bytes | None = None
    """What an application keeps in the field whose name we use."""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Note:
        """The note behind ``to_extra``. Raises MalformedValue for anything else."""
        match values:
            case {"logs": list(logs), "own": bytes() | None as own, "moved": None, **rest} if not rest:
                moved = None
            case {
                "logs": list(logs),
                "own": bytes() | None as own,
                "moved": [
                    float() | int() as to,
                    float() | int() | None as score,
                    bytes() | None as member,
                    bytes() | None as text,
                ],
                **rest,
            } if not rest:
                moved = Moved(to, score, member, text)
                if member is not None:
                    Member.parse(member)
            case _:
                raise MalformedValue("a note that the kickq writer did not make")
        if not all(isinstance(line, bytes) for line in logs):
            raise MalformedValue("a note with logs that are no bytes")
        return cls(tuple(logs), moved, own)

    def to_extra(self) -> dict[str, Any]:
        """The note as plain values; empty if it says nothing."""
        if self == Note():
            return {}
        moved = self.moved
        times = None if moved is None else [moved.to, moved.score, moved.member, moved.text]
        return {"logs": list(self.logs), "own": self.own, "moved": times}


def as_of(record: Record) -> bytes:
    """What kickq changes whenever it touches a job: the state with each move, the time with each save."""
    return b"%b/%b" % (record.fields.get(b"state", b""), record.fields.get(b"updateTime", b""))


def with_note(job: Job, record: Record, missing: Mapping[str, Any], moved: Moved | None) -> Record:
    """The record with one field more, for ``missing`` fields, other families' extra, logs and a moved time, if there are any."""
    extra = {name: kept for name, kept in job.extra.items() if name != NAME}
    if not (missing or extra or job.logs or moved):
        return record
    told = Note(job.logs, moved, record.fields.get(FIELD)).to_extra()
    if told:
        extra[NAME] = told
    # No family is left out of extra: what stands there under the own name is the note.
    aside = Aside.of(evolve(job, extra=extra), missing, "", as_of(record))
    return record if aside is None else evolve(record, fields={**record.fields, FIELD: aside.pack()})


def take_note(record: Record) -> tuple[Record, Aside | None, Note]:
    """The record as it was before ``with_note``, and what that added."""
    raw = record.fields.get(FIELD)
    if raw is None:
        return record, None, Note()
    try:
        aside = Aside.unpack(raw)
        note = Note.of(aside.extra[NAME]) if NAME in aside.extra else Note()
        if aside.pack() != raw:
            return record, None, Note()
    except MalformedValue:
        return record, None, Note()
    fields = {name: value for name, value in record.fields.items() if name != FIELD}
    if note.own is not None:
        fields[FIELD] = note.own
    bare = evolve(record, fields=fields)
    return bare if note.moved is None else note.moved.undone(bare), aside, note


def restored(job: Job, aside: Aside, note: Note, stored: Record) -> Job:
    """The job with what was aside; only with what lasts, when kickq has touched it since."""
    now = as_of(stored)
    extra = {name: kept for name, kept in aside.extra.items() if name != NAME}
    fields = {name: value for name, value in aside.fields.items() if now == aside.as_of or name != TOLD_BY_RUNS}
    return evolve(evolve(aside, fields=fields, extra=extra).restored(job, now), logs=note.logs)
