"""Passthrough: what ``extra["kue"]`` remembers of a kue job, so that writing it back gives the same bytes.

Only what differs from what the writer would write anyway (record.standard), as texts and numbers:

    state            the state word in which the job was read; always there for an active job
    fields           hash field -> its exact bytes, or None for a field that kue did not write
    members          "plain": the indexes name the job as kue did before 0.10.3
    scores           role of index -> score, where it is not the usual one
    search           search code -> occurrences (None: kept in a set, as by kue up to 0.7.0), from ``P:search:object:<id>``
    search_words     the same from ``P:search:word:<code>``, where it is not the same

Damage is not remembered: a job that an index has lost, or has twice, is written soundly. Called by the reader and the writer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import evolve, field

from ...schema.errors import MalformedValue
from ...schema.frozen import frozen
from ...schema.job import Job, State
from ...schema.text import to_bytes, to_text
from ..overflow import FIELD, Overflow, is_displaced
from ..passthrough import optional, plain_score
from .keys import WORDS, MemberFormat, is_borrowed
from .record import Record, is_readable, lost, readable, standard

NAME = "kue"

Counts = Mapping[str, float | None]
"""Search code -> how often it occurs in a job; None where only a set tells that it does."""


@frozen
class Passthrough:
    """The differences between a stored job and the standard record of the same job."""

    state: str | None = None
    fields: Mapping[bytes, bytes | None] = field(factory=dict)
    plain: bool = False
    scores: Mapping[str, float] = field(factory=dict)
    search: Counts = field(factory=dict)
    search_words: Counts = field(factory=dict)

    @classmethod
    def of(cls, job: Job) -> Passthrough:
        """What the job's extra remembers. Raises MalformedValue if that is not what ``to_extra`` makes."""
        if NAME not in job.extra:
            return NOTHING
        extra = job.extra[NAME]
        try:
            return cls(
                state=extra.get("state"),
                fields={to_bytes(name): optional(value, bytes) for name, value in extra.get("fields", {}).items()},
                plain=extra.get("members") == MemberFormat.PLAIN,
                scores={str(role): float(score) for role, score in extra.get("scores", {}).items()},
                search=_counts(extra.get("search", {})),
                search_words=_counts(extra.get("search_words", extra.get("search", {}))),
            )
        except (AttributeError, TypeError, ValueError) as error:
            raise MalformedValue(f"job {job.id}: extra[{NAME!r}] is not what the kue reader writes") from error

    @classmethod
    def of_difference(cls, job: Job, stored: Record, plain: bool, search: Counts, search_words: Counts) -> Passthrough:
        """What must be remembered of a job just read, for the writer to make ``stored`` of it again.

        ``plain`` and the counts are as in the class.
        """
        expected = standard(job)
        if FIELD in stored.fields:
            missing, as_of = lost(job, stored), stored.fields.get(b"updated_at")
            expected = with_overflow(job, readable(expected), missing, as_of, has_own_id=not _has_overflow_id(stored))
        fields: dict[bytes, bytes | None] = {
            name: value for name, value in stored.fields.items() if expected.fields.get(name) != value
        }
        fields.update((name, None) for name in expected.fields if name not in stored.fields)
        scores = {
            role: score for role, score in stored.scores.items() if role in expected.scores and expected.scores[role] != score
        }
        state = WORDS.get(job.state) if scores or job.state is State.ACTIVE else None
        return cls(state, fields, plain, scores, search, search_words)

    def to_extra(self) -> dict[str, Any]:
        """The mapping for ``Job.extra``; empty if there is nothing to remember."""
        extra: dict[str, Any] = {}
        if self.state:
            extra["state"] = self.state
        if self.fields:
            # Sorted: servers and commands tell the fields of a hash in different orders, which means nothing.
            extra["fields"] = {to_text(name): self.fields[name] for name in sorted(self.fields)}
        if self.plain:
            extra["members"] = str(MemberFormat.PLAIN)
        if self.scores:
            extra["scores"] = {role: plain_score(score) for role, score in self.scores.items()}
        if self.search:
            extra["search"] = _plain_counts(self.search)
        if self.search_words != self.search:
            extra["search_words"] = _plain_counts(self.search_words)
        return extra

    def record(self, job: Job) -> Record:
        """The record for the job as it is now: exactly what was stored, as far as that does not contradict the job."""
        plain = standard(job)
        if not (self.fields or self.scores):
            return plain
        passthrough = evolve(self, fields={name: raw for name, raw in self.fields.items() if is_readable(name, raw)})
        exact = passthrough.exact(job)
        contradicted = lost(job, exact).keys() - lost(job, plain).keys()
        return passthrough.loose(job) if contradicted else exact

    def exact(self, job: Job) -> Record:
        """The record that reproduces the stored job, provided that it has not changed since."""
        record = standard(job)
        if not (self.fields or self.scores):
            return record
        fields = {**record.fields, **self.fields}
        same_state = self.state == WORDS.get(job.state)
        return Record(
            {name: value for name, value in fields.items() if value is not None},
            {role: self.scores.get(role, score) if same_state else score for role, score in record.scores.items()},
        )

    def loose(self, job: Job) -> Record:
        """The record of a job that has changed since it was read: only what no canonical field speaks for still holds."""
        record = standard(job)
        others = {name: value for name, value in self.fields.items() if value is not None and name not in DERIVED}
        return evolve(record, fields={**others, **record.fields})


NOTHING = Passthrough()

DERIVED = frozenset(
    b"type data priority max_attempts created_at promote_at updated_at state ttl attempts progress started_at workerId result "
    b"error duration".split()
)
"""Hash fields that follow from canonical ones, whatever the state."""


# What kue has no field for (overflow.py)


def with_overflow(job: Job, record: Record, missing: Mapping[str, Any], as_of: bytes | None, *, has_own_id: bool) -> Record:
    """The record with one field more, for what it can't say of the job: ``missing`` fields and other families' extra.

    ``as_of``: the field ``updated_at`` as it is stored. ``has_own_id``: the number of the record is the job's id.
    """
    if not has_own_id:
        missing = {"id": job.id, **missing}
    overflow = Overflow.of(job, missing, NAME, as_of)
    if overflow is None or is_displaced(overflow, record.fields.get(FIELD)):
        return record
    return evolve(record, fields={**record.fields, FIELD: overflow.encode()})


def _has_overflow_id(stored: Record) -> bool:
    try:
        return "id" in Overflow.decode(stored.fields[FIELD]).fields
    except MalformedValue:
        return False


def decoded(raw: bytes) -> Overflow:
    """What ``with_overflow`` put into a record. Raises MalformedValue for any other text."""
    overflow = Overflow.decode(raw)
    if NAME in overflow.extra:
        raise MalformedValue(f"it has a part of {NAME} itself, which no record has")
    return overflow


def with_overflow_restored(job: Job, stored: Record) -> Job:
    """The job with what an earlier ``with_overflow`` put into its record. Any other text there is an application's own field.

    An id that kue could not hold comes back to a job that has a number instead.
    """
    try:
        overflow = decoded(stored.fields[FIELD])
    except MalformedValue:
        return job
    # kue touches updated_at with nearly everything it does.
    return overflow.restored(job, NAME, stored.fields.get(b"updated_at"), has_own_id=not is_borrowed(job.id))


def _counts(counts: Any) -> dict[str, float | None]:
    return {str(code): None if count is None else float(count) for code, count in counts.items()}


def _plain_counts(counts: Counts) -> dict[str, Any]:
    return {code: None if count is None else plain_score(count) for code, count in counts.items()}
