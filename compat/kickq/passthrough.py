"""Passthrough: what ``extra["kickq"]`` remembers of a kickq job, so that writing it back gives the same bytes.

Only what differs from what the writer would write anyway (record.standard_item), as texts and numbers:

    state            the state word; always there for an active job, else only where the document doesn't imply it
    read_as          the canonical state of the document, where something kept is true in that state only
    item             member of the document -> its exact JSON text, or None for a member that is not there
    text             the exact text of the document, where JavaScript would write the same members differently
    fields           hash field -> its exact bytes, or None for a field that is not there
    scores           scheduled, purge or time_index -> score, where it is not the usual one

Damage of the places is not remembered: a job that a list or set has lost, or has twice, is written soundly. Called by
the reader and the writer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import evolve, field

from ...schema.errors import MalformedValue
from ...schema.frozen import frozen
from ...schema.job import Job, State
from ...schema.text import to_bytes, to_text
from ..members import Member, Members, split
from ..overflow import FIELD, Overflow
from ..passthrough import optional, plain_score
from .keys import FINISHED, WORDS
from .record import PURGE_MS, Record, lost, standard, standard_item, word_for

NAME = "kickq"

OF_STATE = frozenset({"complete", "success", "finishTime", "totalProcessTime", "scheduledFor", "state"})
"""Members that say something of one state only."""

DERIVED = OF_STATE | {
    *("id", "name", "createTime", "updateTime", "processTimeout", "retry", "retryTimes", "ghostRetry", "ghostTimes"),
    *("data", "lastError", "runs"),
}
"""Members that follow from canonical fields."""

MIRRORED = frozenset({b"id", b"name", b"createTime", b"updateTime", b"state"})
"""Hash fields that follow from canonical ones."""


@frozen
class Passthrough:
    """The differences between a stored job and the standard record of the same job."""

    state: str | None = None
    read_as: str | None = None
    item: Mapping[str, Member | None] = field(factory=dict)
    text: bytes | None = None
    fields: Mapping[bytes, bytes | None] = field(factory=dict)
    scores: Mapping[str, float] = field(factory=dict)

    @classmethod
    def of(cls, job: Job) -> Passthrough:
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
    def of_difference(cls, job: Job, stored: Record) -> Passthrough:
        """What must be remembered of a job just read, for the writer to make ``stored`` of it again."""
        base = standard_item(job, stored.item.get("data"))
        item: dict[str, Member | None] = {}
        if stored.item:
            for name, member in stored.item.items():
                usual = base.get(name)
                if usual is not member and (usual is None or usual.text != member.text):
                    item[name] = member
            item |= {name: None for name in base if name not in stored.item}
        meant = _merged(base, item)
        word, read_as = _word_to_restore(job, stored, meant), _document_state(job)
        expected = cls(word, read_as)._exact(job, meant, same=True)
        fields = _changed(expected.fields, stored.fields)
        scores = {role: score for role, score in stored.scores.items() if expected.scores.get(role, score) != score}
        # The members are the same now; their order may not be.
        text = None if stored.text is None and list(expected.item) == list(stored.item) else stored.document
        bound = scores or text is not None or not OF_STATE.isdisjoint(item)
        return cls(word, read_as if bound else None, item, text, fields, scores)

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
            extra["fields"] = {to_text(name): self.fields[name] for name in sorted(self.fields)}
        if self.scores:
            extra["scores"] = {role: plain_score(score) for role, score in self.scores.items()}
        return extra

    @property
    def held(self) -> bool:
        """Whether a worker of kickq had the job."""
        return WORDS.get(self.state or "") is State.ACTIVE

    def exact(self, job: Job, base: Members) -> Record:
        """The record that reproduces the stored job, provided that it has not changed since. ``base``: its standard document."""
        same = self.read_as == _document_state(job)
        item = _merged(base, {name: m for name, m in self.item.items() if same or name not in OF_STATE})
        return self._exact(job, item, same=same)

    def _exact(self, job: Job, item: Members, *, same: bool) -> Record:
        """The same for a document. ``same``: the job is in the state of which the document speaks."""
        record = standard(job, item)
        fields = {**record.fields, **self.fields}
        if self.state is not None and WORDS.get(self.state) is job.state:
            fields[b"state"] = to_bytes(self.state)
        scores = {role: self.scores.get(role, score) if same else score for role, score in record.scores.items()}
        text = self.text if self.text is not None and same and _means(self.text, item) else None
        return Record({name: value for name, value in fields.items() if value is not None}, item, scores, text)

    def loose(self, job: Job, base: Members) -> Record:
        """The record of a job that has changed since it was read: only what no canonical field speaks for still holds."""
        others = {name: member for name, member in self.item.items() if name not in DERIVED}
        record = standard(job, _merged(base, others))
        fields = {name: value for name, value in self.fields.items() if value is not None and name not in MIRRORED}
        return evolve(record, fields={**fields, **record.fields})

    def record(self, job: Job) -> tuple[Record, dict[str, Any]]:
        """The record for the job as it is now, and what of the job it can't say.

        It is exactly what was stored, as far as that does not contradict the job.
        """
        base = standard_item(job)
        exact = self.exact(job, base)
        missing = lost(job, exact)
        if not missing or missing.keys() <= lost(job, standard(job, base)).keys():
            return exact, missing
        loose = self.loose(job, base)
        return loose, lost(job, loose)


def _document_state(job: Job) -> str:
    """The state of which the document speaks: kickq does not touch it when a worker takes the job."""
    return str(State.WAITING if job.state is State.ACTIVE else job.state)


def _word_to_restore(job: Job, stored: Record, item: Members) -> str | None:
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


# What kickq has no field for (overflow.py): in one hash field of ours, which it leaves alone until it deletes the job

AHEAD_MS = 60_000
"""What was due in the past is written so far ahead of now: time for a migration to end, and for a scheduler to start."""

FIELD_OF_RUNS = "history"
"""The canonical field that lasts in other systems, while kickq adds to it."""


@frozen
class Postponed:
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


def postponed(record: Record, now_ms: int) -> tuple[Record, Postponed | None]:
    """The record with a time that a scheduler will still see, and what was changed for it."""
    role = time_role(record.state)
    if role is None or record.scores.get(role, float("-inf")) >= now_ms:
        return record, None
    to = now_ms + (AHEAD_MS if role == "scheduled" else PURGE_MS)
    was = record.item.get("scheduledFor")
    moved = Postponed(float(to), record.scores.get(role), None if was is None else was.text, record.text)
    item = {**record.item, "scheduledFor": Member.of(to)}
    return evolve(record, item=item, scores={**record.scores, role: float(to)}, text=None), moved


@frozen
class Note:
    """What overflows of the record itself: it stands in the place of our own extra, beside that of other families."""

    logs: tuple[bytes, ...] = ()
    moved: Postponed | None = None
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
                moved = Postponed(to, score, member, text)
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


def with_overflow(job: Job, record: Record, missing: Mapping[str, Any], moved: Postponed | None) -> Record:
    """The record with one field more, for ``missing`` fields, other families' extra, logs and a moved time, if there are any."""
    extra = {name: own for name, own in job.extra.items() if name != NAME}
    if not (missing or extra or job.logs or moved):
        return record
    note = Note(job.logs, moved, record.fields.get(FIELD)).to_extra()
    overflow = Overflow.of(job, missing, NAME, as_of(record), note)
    return record if overflow is None else evolve(record, fields={**record.fields, FIELD: overflow.encode()})


def decoded(raw: bytes) -> tuple[Overflow, Note]:
    """What ``with_overflow`` put into a record. Raises MalformedValue for any other text."""
    overflow = Overflow.decode(raw)
    note = Note.of(overflow.extra[NAME]) if NAME in overflow.extra else Note()
    if overflow.encode() != raw:
        raise MalformedValue("it is spelled in another way than ours")
    return overflow, note


def take_overflow(record: Record) -> tuple[Record, Overflow | None, Note]:
    """The record as it was before ``with_overflow``, and what that added."""
    raw = record.fields.get(FIELD)
    if raw is None:
        return record, None, Note()
    try:
        overflow, note = decoded(raw)
    except MalformedValue:
        return record, None, Note()
    fields = {name: value for name, value in record.fields.items() if name != FIELD}
    if note.own is not None:
        fields[FIELD] = note.own
    bare = evolve(record, fields=fields)
    return bare if note.moved is None else note.moved.undone(bare), overflow, note


def with_overflow_restored(job: Job, overflow: Overflow, note: Note, stored: Record) -> Job:
    """The job with what overflowed; only with what lasts, when kickq has touched it since."""
    now = as_of(stored)
    fields = {name: value for name, value in overflow.fields.items() if now == overflow.as_of or name != FIELD_OF_RUNS}
    return evolve(evolve(overflow, fields=fields).restored(job, NAME, now), logs=note.logs)
