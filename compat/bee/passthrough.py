"""Passthrough: what ``extra["bee"]`` remembers of a bee job, so that writing it back gives the same bytes.

Only what differs from what the writer would write anyway (record.standard):

    state            the status word, where the canonical state does not tell it or what follows holds for this status alone
    scores           role of a sorted set -> exact score, where it is not the usual one
    fields           hash field -> its exact bytes, or None for a field that bee did not write
    needs            the members of the dependency set of a job that is not blocked (cancelled while it was)
    dying            whether the record has a time to live, where that is not as usual. How long is of the moment, and not kept

Damage is not remembered: a job that its queue has lost, or has twice, is written soundly. Called by the reader and the writer.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any

from attrs import evolve, field

from ...schema.errors import MalformedValue
from ...schema.frozen import frozen
from ...schema.job import Job, replaced
from ...schema.text import to_bytes, to_text
from ..overflow import FIELD, Overflow
from ..passthrough import optional, plain_score
from .history import event_names, fitting
from .keys import SETS, UNFINISHED
from .record import Record, canonical, is_readable, lost, standard, word_for

NAME = "bee"


@frozen
class Passthrough:
    """The differences between a stored job and the standard record of the same job."""

    status: str | None = None
    scores: Mapping[str, float] = field(factory=dict)
    fields: Mapping[bytes, bytes | None] = field(factory=dict)
    needs: tuple[str, ...] | None = None
    dying: bool | None = None

    @classmethod
    def of(cls, job: Job) -> Passthrough:
        """What the job's extra remembers. Raises MalformedValue if that is not what ``to_extra`` makes."""
        extra = job.extra.get(NAME, {})
        try:
            needs = extra.get("needs")
            return cls(
                status=optional(extra.get("state"), str),
                scores={role: _score(extra["scores"][role]) for role in SETS if role in extra.get("scores", {})},
                fields={to_bytes(name): optional(value, bytes) for name, value in extra.get("fields", {}).items()},
                needs=None if needs is None else tuple(str(need) for need in needs),
                dying=None if extra.get("dying") is None else bool(extra["dying"]),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise MalformedValue(f"job {job.id}: extra[{NAME!r}] is not what the bee reader writes") from error

    @classmethod
    def of_difference(cls, job: Job, stored: Record) -> Passthrough:
        """What must be remembered of a job just read, for the writer to make ``stored`` of it again."""
        status = stored.status or None
        expected = standard(job, word_for(job, status))
        fields: dict[bytes, bytes | None] = {
            name: raw for name, raw in stored.fields.items() if expected.fields.get(name) != raw and name != b"status"
        }
        fields.update((name, None) for name in expected.fields if name not in stored.fields and name != b"status")
        scores = {
            role: score for role, score in stored.scores.items() if role == stored.role and expected.scores.get(role) != score
        }
        needs = None if stored.needs == expected.needs else stored.needs
        # A job that has yet to end and is to vanish is damage.
        dying = None if stored.dying == expected.dying or status in UNFINISHED else stored.dying
        bound = scores or needs is not None or dying is not None or b"history" in fields
        keeps_status = bound or status != word_for(job, None) or status == "running"
        return cls(status if keeps_status else None, scores, fields, needs, dying)

    def to_extra(self) -> dict[str, Any]:
        """The mapping for ``Job.extra``; empty if there is nothing to remember."""
        extra: dict[str, Any] = {}
        if self.status is not None:
            extra["state"] = self.status
        if self.scores:
            extra["scores"] = {role: plain_score(score) for role, score in self.scores.items()}
        if self.fields:
            extra["fields"] = {to_text(name): self.fields[name] for name in sorted(self.fields)}
        if self.needs is not None:
            extra["needs"] = list(self.needs)
        if self.dying is not None:
            extra["dying"] = self.dying
        return extra

    def record(self, job: Job) -> Record:
        """The record for the job as it is now: exactly what was stored, as far as that does not contradict the job."""
        word = word_for(job, self.status)
        stored = standard(job, word)
        fields = {name: raw for name, raw in self.fields.items() if is_readable(name, raw)}
        exact = self._changed(stored, fields, word)
        contradicted = lost(job, exact)
        if contradicted and contradicted.keys() - lost(job, stored).keys():
            others = {name: raw for name, raw in fields.items() if raw is not None and name not in DERIVED}
            exact = self._changed(stored, {name: raw for name, raw in others.items() if name not in stored.fields}, word)
        last = event_names(exact.history)[-1:]
        if word != self.status and last and last[0] not in fitting(word, job.state):
            # The job has left the status in which it was read; its story must go on.
            exact = evolve(exact, fields={**exact.fields, b"history": stored.fields[b"history"]})
        return exact

    def _changed(self, stored: Record, fields: Mapping[bytes, bytes | None], word: str | None) -> Record:
        changed = {name: raw for name, raw in {**stored.fields, **fields}.items() if raw is not None}
        stored = evolve(stored, fields=changed)
        if self.status is None or word != self.status:
            return stored
        return evolve(
            stored,
            scores={**stored.scores, **self.scores},
            needs=stored.needs if self.needs is None else self.needs,
            dying=stored.dying if self.dying is None else self.dying,
        )


DERIVED = frozenset(b"jid queue data options worker status submitted retries tags history hash result failedReason".split())
"""Hash fields that follow from canonical ones, whatever the state."""


# A job's record, with what bee has no field for (overflow.py)


def job_of(job_id: str, stored: Record) -> Job:
    """The job with everything: canonical fields, what overflowed, and what goes back byte for byte."""
    bare, overflow = _take_overflow(stored)
    job = canonical(job_id, bare)
    own: Mapping[str, Any] | None = None
    if overflow is not None:
        job = overflow.restored(job, NAME, _as_of(bare))
        if overflow.as_of == _as_of(bare):
            extra = overflow.note(NAME).get("extra")
            own = extra if isinstance(extra, dict) else None
            job = replaced(job, logs=overflow.logs(NAME))
    if own is None:
        known = Passthrough.of_difference(job, bare)
        if overflow is not None and b"dependants" in known.fields:
            # Who waits for a job that was carried here was written last, and follows from what those jobs say.
            known = evolve(known, fields={name: raw for name, raw in known.fields.items() if name != b"dependants"})
        own = known.to_extra()
    return replaced(job, extra={**job.extra, NAME: own}) if own else job


def with_overflow(job: Job, stored: Record) -> Record:
    """The record with one field more, for all that reading it would not give back of the job; the same if that is nothing."""
    bare, _ = _take_overflow(stored)
    own = job.extra.get(NAME, {})
    note: dict[str, Any] = {}
    # A reader knows no rank but bee's own.
    if Passthrough.of_difference(replaced(job, rank=None), bare).to_extra() != own:
        note["extra"] = own
    if job.logs:
        note["logs"] = job.logs
    overflow = Overflow.of(job, lost(job, bare), NAME, _as_of(bare), note)
    return stored if overflow is None else evolve(bare, fields={**bare.fields, FIELD: overflow.encode()})


def _take_overflow(stored: Record) -> tuple[Record, Overflow | None]:
    """The record without the field of ours, and what stood in it. Any other text there is an application's own field."""
    raw = stored.fields.get(FIELD)
    if raw is None:
        return stored, None
    try:
        overflow = Overflow.decode(raw)
    except MalformedValue:
        return stored, None
    return evolve(stored, fields={name: value for name, value in stored.fields.items() if name != FIELD}), overflow


def _as_of(stored: Record) -> bytes:
    """bee adds to the history with everything it does to a job but setting its tags."""
    return hashlib.sha1(stored.fields.get(b"history", b""), usedforsecurity=False).hexdigest().encode()


def _score(value: Any) -> float:
    score = float(value)
    if math.isnan(score):
        raise ValueError("a score is no NaN")
    return score
