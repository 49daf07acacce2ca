"""Passthrough: what ``extra["qless"]`` remembers of a qless job, so that writing it back gives the same bytes.

Only what differs from what the writer would write anyway (record.standard):

    state      the word in the hash when the job was read, and ``scores``: true as long as the job is in that state
    scores     role -> score where it is not the usual one; ``worker``: that of the worker's own set;
               ``slot:<throttle>`` and ``pending:<throttle>``: what it holds of reqless's throttles, or waits for
    fields     hash field -> its exact bytes, or None for a field that is not there
    state_fields   the same for fields that follow the state, true as long as that
    history    the entries of its list, where the canonical history would not give them; empty: there is no list
    tagged     tag -> time of tagging;  tracked   since when

Damage is not remembered: a job that an index has lost, or has twice, is written soundly. Called by the reader and the writer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from attrs import evolve, field

from ...schema.errors import MalformedValue
from ...schema.frozen import frozen
from ...schema.job import Job, State, rank_of, replaced
from ...schema.text import to_bytes, to_text
from ..overflow import FIELD, Overflow
from ..passthrough import optional
from .record import NAME, Record, canonical, is_position, lost, priority_of, standard

LASTING = frozenset({"unique_key"})
"""All of the overflow that stays true whatever qless does to the job; it has a notion of everything else."""


THROTTLED = "throttled"
"""The word, and the index, of a job that waits for a throttle of reqless: blocked, though it depends on no job."""


@frozen
class Passthrough:
    """The differences between a stored job and the standard record of the same job."""

    state: str | None = None
    scores: Mapping[str, float] = field(factory=dict)
    fields: Mapping[bytes, bytes | None] = field(factory=dict)
    history: tuple[bytes, ...] | None = None
    tagged: Mapping[str, float] = field(factory=dict)
    tracked: float | None = None

    @classmethod
    def of(cls, job: Job) -> Passthrough:
        """What the job's extra remembers. Raises MalformedValue if that is not what ``to_extra`` makes."""
        extra = job.extra.get(NAME, {})
        try:
            tracked, history = extra.get("tracked"), extra.get("history")
            return cls(
                state=extra.get("state"),
                scores=_scores(extra.get("scores", {})),
                fields={
                    to_bytes(name): optional(value, bytes)
                    for role in ("fields", "state_fields")
                    for name, value in extra.get(role, {}).items()
                },
                history=None if history is None else tuple(_bytes(entry) for entry in history),
                tagged=_scores(extra.get("tagged", {})),
                tracked=None if tracked is None else float(tracked),
            )
        except (AttributeError, TypeError, ValueError) as error:
            raise MalformedValue(f"job {job.id}: extra[{NAME!r}] is not what the qless reader writes") from error

    @classmethod
    def of_difference(cls, job: Job, stored: Record, memberships: Memberships) -> Passthrough:
        """What must be remembered of a job just read, for the writer to make ``stored`` of it again."""
        timeline = stored.timeline if job.history is stored.timeline.events else None
        expected = _of_layout(standard(job, timeline), stored.fields)
        if FIELD in stored.fields:
            expected = with_overflow(job, expected, lost(job, stored), touched(stored))
        both = zip(stored.fields.items(), map(expected.fields.get, stored.fields), strict=True)
        fields: dict[bytes, bytes | None] = {name: value for (name, value), written in both if value != written}
        if not expected.fields.keys() <= stored.fields.keys():
            fields.update((name, None) for name in expected.fields if name not in stored.fields)
        word = to_text(stored.fields.get(b"state", b""))
        role = THROTTLED if word == THROTTLED and job.state is State.BLOCKED else next(iter(expected.scores), "")
        history = stored.history or ()
        as_written = not fields and history == expected.history
        scores: dict[str, float] = {}
        if role in stored.scores and not _is_usual(job, role, stored.scores[role], expected, as_written):
            scores[role] = stored.scores[role]
        scores.update(memberships.held)
        bound = bool(scores or memberships.slots or b"state" in fields or job.state is State.ACTIVE)
        scores.update(memberships.slots)
        return cls(
            state=word if bound else None,
            scores=scores,
            fields=fields,
            history=None if history == expected.history else history,
            tagged=_unusual(memberships.tagged, tagged_at(job)) if memberships.tagged else memberships.tagged,
            tracked=memberships.tracked,
        )

    def to_extra(self) -> dict[str, Any]:
        """The mapping for ``Job.extra``; empty if there is nothing to remember."""
        extra: dict[str, Any] = {}
        if self.state is not None:
            extra["state"] = self.state
        if self.scores:
            extra["scores"] = {role: _plain(score) for role, score in self.scores.items()}
        # A server gives the fields of a hash in an order that changes while its table grows.
        for role, bound in (("fields", False), ("state_fields", True)) if self.fields else ():
            fields = {to_text(name): self.fields[name] for name in sorted(self.fields) if (name in STATE_FIELDS) is bound}
            if fields:
                extra[role] = fields
        if self.history is not None:
            extra["history"] = list(self.history)
        if self.tagged:
            extra["tagged"] = {tag: _plain(score) for tag, score in self.tagged.items()}
        if self.tracked is not None:
            extra["tracked"] = _plain(self.tracked)
        return extra

    def record(self, job: Job) -> Record:
        """The record for the job as it is now: exactly what was stored, as far as that does not contradict the job."""
        plain = standard(job)
        if NAME not in job.extra:
            return plain
        exact = self.exact(job)
        contradicted = lost(job, exact).keys() - lost(job, plain).keys()
        return self.loose(job) if contradicted else exact

    def exact(self, job: Job) -> Record:
        """The record that reproduces the stored job, provided that it has not changed since."""
        record = _of_layout(standard(job), self.fields)
        fields = {**record.fields, **self.fields}
        scores = {role: self.scores.get(role, score) for role, score in record.scores.items()}
        if job.state is State.BLOCKED and THROTTLED in self.scores:
            scores = {THROTTLED: self.scores[THROTTLED]}
        return evolve(
            record,
            fields={name: value for name, value in fields.items() if value is not None},
            history=record.history if self.history is None else self.history or None,
            scores=scores,
        )

    def loose(self, job: Job) -> Record:
        """The record of a job that has changed since it was read: only what no canonical field speaks for still holds."""
        record = standard(job)
        others = {name: value for name, value in self.fields.items() if value is not None and name not in DERIVED}
        return evolve(record, fields={**others, **record.fields})


def _of_layout(record: Record, fields: Mapping[bytes, bytes | None]) -> Record:
    """A standard record without what jobs whose history is a field of the hash never had: a reader tells their age by it."""
    if fields.get(b"history") is None:
        return record
    return evolve(record, fields={name: value for name, value in record.fields.items() if name != b"time"})


@frozen
class Memberships:
    """What stands of a job outside of its record."""

    held: Mapping[str, float] = field(factory=dict)
    """``worker``: its score in the set of its worker, if that is not its lock's, or if it was timed out by hand."""
    slots: Mapping[str, float] = field(factory=dict)
    tagged: Mapping[str, float] = field(factory=dict)
    tracked: float | None = None


NONE = Memberships()
"""Those of most jobs."""

DERIVED = frozenset(
    b"jid id klass data priority tags state worker expires queue retries remaining time failure grace scheduled history".split()
)
"""Hash fields that follow from canonical ones, or that belong to one state only."""


STATE_FIELDS = frozenset(b"state worker expires time grace scheduled".split())
"""Those that are another story in another state."""


def tagged_at(job: Job) -> float:
    """The time at which a job counts as tagged, if nothing else is known: when it was put."""
    return (job.created_at or 0) / 1000


def _unusual(scores: Mapping[str, float], usual: float) -> dict[str, float]:
    """Those that are not what the writer gives."""
    return {name: score for name, score in scores.items() if score != usual}


def _is_usual(job: Job, role: str, score: float, expected: Record, as_written: bool) -> bool:
    """Whether a score is the one that the writer gives. A priority alone may also be what qless itself set it to."""
    if role != "work":
        return expected.scores.get(role) == score
    return is_position(job, score) and (as_written or score != priority_of(job))


# What qless has no field for (overflow.py)


def touched(record: Record) -> bytes:
    """A text that changes with everything that qless does to a job."""
    names = (b"state", b"queue", b"worker", b"expires", b"remaining", b"time", b"priority", b"tags")
    return b"|".join(record.fields.get(name, b"") for name in names)


def with_overflow(job: Job, record: Record, missing: Mapping[str, Any], as_of: bytes | None = None) -> Record:
    """The record with one field more, for what it can't say of the job: ``missing`` fields and other families' extra.

    ``as_of``: what ``touched`` tells of the record as it is stored, where that is not this one.
    """
    overflow = Overflow.of(job, missing, NAME, touched(record) if as_of is None else as_of)
    return record if overflow is None else evolve(record, fields={**record.fields, FIELD: overflow.encode()})


def decoded(raw: bytes) -> Overflow:
    """What ``with_overflow`` put into a record. Raises MalformedValue for any other text."""
    overflow = Overflow.decode(raw)
    if NAME in overflow.extra:
        raise MalformedValue(f"it has a part of {NAME} itself, which no record has")
    return overflow


def with_overflow_restored(job: Job, stored: Record) -> Job:
    """The job with what an earlier ``with_overflow`` put into its record. Any other text there is an application's own field."""
    try:
        overflow = decoded(stored.fields[FIELD])
    except MalformedValue:
        return job
    now = touched(stored)
    if now != overflow.as_of:
        overflow = evolve(overflow, fields={name: value for name, value in overflow.fields.items() if name in LASTING}, as_of=now)
    return overflow.restored(job, NAME, now)


def job_of(job_id: str, stored: Record, memberships: Memberships) -> Job:
    """The job with everything but its place among others: canonical fields, what overflowed, and what goes back byte for byte."""
    job = canonical(job_id, stored)
    if FIELD in stored.fields:
        # A priority in the overflow may have been turned round, to run at the same rank.
        turned = None if job.priority is None else rank_of(-job.priority)
        job = replaced(with_overflow_restored(job, stored), rank=turned)
    own = Passthrough.of_difference(job, stored, memberships).to_extra()
    return replaced(job, extra={**job.extra, NAME: own}) if own else job


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    raise TypeError("a hash field's value, and an entry of a list, are bytes")


def _scores(scores: Any) -> dict[str, float]:
    return {str(role): float(score) for role, score in scores.items()}


def _plain(score: float) -> float | str:
    """A score as JSON can hold it: infinity as text."""
    return score if math.isfinite(score) else str(score)
