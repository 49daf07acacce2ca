"""Passthrough: what ``extra["pjq"]`` remembers of a job of pjq, so that writing it back gives the same bytes.

Only what differs from what the writer would write anyway (record.standard):

    state            the container in which the job was read; always there for an active job
    fields           hash field -> its exact bytes, or None for a field that the program did not write
    scores           role of container -> score in seconds; ``seen``: that its worker is among the busy ones, and its last sign
    found            for people, never acted on: ``layout`` "js-1", ``ttl`` of the hash in ms, and ``places``
                     [role, queue, score or index] where the job stood in others than the one that counts, or in none

Damage is not remembered: a job that stood in two containers, or in a list twice, is written soundly. Other families' extra, and
canonical fields that pjq has no place for, stand in a hash field of our own (overflow.py). Called by the reader and the writer.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from attrs import evolve, field

from ...schema.errors import MalformedValue
from ...schema.frozen import frozen
from ...schema.job import Job, State, replaced
from ...schema.text import to_bytes, to_text
from ..overflow import FIELD, Overflow
from ..passthrough import optional
from .payload import Text, payload_in
from .record import FINISHED, Record, canonical, lost, standard, text_of

NAME = "pjq"

WRITABLE = frozenset({"dispatched", "processing"})
"""Where the current program has an active job."""


@frozen
class Passthrough:
    """The differences between a stored job and the standard record of the same job."""

    role: str | None = None
    fields: Mapping[bytes, bytes | None] = field(factory=dict)
    scores: Mapping[str, float] = field(factory=dict)
    found: Mapping[str, Any] = field(factory=dict)

    @classmethod
    def of(cls, job: Job) -> Passthrough:
        """What the job's extra remembers. Raises MalformedValue if that is not what ``to_extra`` makes."""
        extra = job.extra.get(NAME, {})
        try:
            role = extra.get("state")
            if not isinstance(role, str | None):
                raise TypeError
            return cls(
                role=role,
                fields={to_bytes(name): optional(value, bytes) for name, value in extra.get("fields", {}).items()},
                scores={str(role): float(score) for role, score in extra.get("scores", {}).items()},
                found=dict(extra.get("found", {})),
            )
        except (AttributeError, TypeError, ValueError) as error:
            raise MalformedValue(f"job {job.id}: extra[{NAME!r}] is not what the pjq reader writes") from error

    @classmethod
    def of_difference(cls, job: Job, stored: Record, found: Mapping[str, Any]) -> Passthrough:
        """What must be remembered of a job just read, for the writer to make ``stored`` of it again."""
        expected = standard(job, role_of(job, stored.role), text_of(job))
        fields: dict[bytes, bytes | None] = {
            name: value for name, value in stored.fields.items() if expected.fields.get(name) != value
        }
        fields.update((name, None) for name in expected.fields if name not in stored.fields)
        scores = {role: score for role, score in stored.scores.items() if expected.scores.get(role) != score}
        bound = bool(scores) or job.state is State.ACTIVE
        return cls(stored.role if bound else None, fields, scores, found)

    def to_extra(self) -> dict[str, Any]:
        """The mapping for ``Job.extra``; empty if there is nothing to remember."""
        extra: dict[str, Any] = {}
        if self.role:
            extra["state"] = self.role
        if self.fields:
            extra["fields"] = {to_text(name): self.fields[name] for name in sorted(self.fields)}
        if self.scores:
            extra["scores"] = dict(self.scores)
        if self.found:
            extra["found"] = dict(self.found)
        return extra

    def record(self, job: Job, plain: Record) -> Record:
        """The record for the job as it is now: exactly what was stored, as far as that does not contradict the job.

        ``plain``: the job's standard record.
        """
        if not (self.fields or self.scores):
            return plain
        exact = self.exact(plain)
        return self.loose(plain) if lost(job, exact).keys() - lost(job, plain).keys() else exact

    def exact(self, record: Record) -> Record:
        """The record that reproduces the stored job, provided that it has not changed since; ``record``: its standard one."""
        fields = {**record.fields, **self.fields}
        scores = {**record.scores, **self.scores} if self.role == record.role else record.scores
        return Record(record.role, {name: value for name, value in fields.items() if value is not None}, scores)

    def loose(self, record: Record) -> Record:
        """The record of a job that has changed since it was read: only what no canonical field speaks for still holds."""
        others = {name: value for name, value in self.fields.items() if value is not None and name not in DERIVED}
        return evolve(record, fields={**others, **record.fields})


DERIVED = frozenset(b"json dispatched_at started_at worker_uuid finished_at leased_at".split())
"""Hash fields that follow from canonical ones."""


def role_of(job: Job, read_from: str | None) -> str:
    """The container in which the job is written; ``read_from``: where it was.

    An active job that no worker of pjq has waits: it would be active for ever.
    """
    if job.state in FINISHED:
        return "finished"
    return read_from if job.state is State.ACTIVE and read_from in WRITABLE else "queued"


def record_for(job: Job) -> Record:
    """The hash and the scores that a job gets. Raises MalformedValue if its extra is not the reader's."""
    passthrough = Passthrough.of(job)
    role = role_of(job, passthrough.role)
    if job.state is State.ACTIVE and role == "queued":
        job = replaced(job, state=State.WAITING)
    record = passthrough.record(job, standard(job, role, text_of(job)))
    # A field of our name that was kept is an application's own.
    return record if FIELD in record.fields else _with_overflow(job, record, passthrough)


def expressed(job: Job) -> Job:
    """The job without the note that a field was missing, where the program writes none for a job in its state either."""
    passthrough = Passthrough.of(job)
    if None not in passthrough.fields.values():
        return job
    usual = standard(job, role_of(job, passthrough.role), text_of(job)).fields
    fields = {name: raw for name, raw in passthrough.fields.items() if raw is not None or name in usual}
    own = evolve(passthrough, fields=fields).to_extra()
    others = {name: each for name, each in job.extra.items() if name != NAME}
    return replaced(job, extra={**others, NAME: own} if own else others)


def job_of(job_id: str, queue: str, stored: Record, found: Mapping[str, Any]) -> Job:
    """The job with everything: canonical fields, what overflowed, and what goes back byte for byte."""
    overflow = _overflow_in(stored)
    if overflow is None:
        job = canonical(job_id, queue, stored)
    else:
        stored = _bare(stored)
        job, found_once = _restored(overflow, canonical(job_id, queue, stored), stored)
        # What was found once is told on, until something else is found.
        found = found or found_once
    own = Passthrough.of_difference(job, stored, found).to_extra()
    return replaced(job, extra={**job.extra, NAME: own}) if own else job


# What pjq has no field for (overflow.py)


def _with_overflow(job: Job, record: Record, passthrough: Passthrough) -> Record:
    """The record with one field more, for what it can't say of the job; the same if there is nothing."""
    missing = lost(job, record)
    note: dict[str, Any] = {}
    text = text_of(job)
    if text.added and record.fields.get(b"json") == text.raw and payload_in(text) == job.payload:
        # Where the payload begins and ends says as much as the payload, in a few bytes.
        missing.pop("payload", None)
        note |= {"added": text.added, "wrapped": text.wrapped}
    if job.logs:
        note["logs"] = job.logs
    if passthrough.found:
        note["found"] = passthrough.found
    overflow = Overflow.of(job, missing, NAME, _digest(record), note)
    return record if overflow is None else evolve(record, fields={**record.fields, FIELD: overflow.encode()})


def _overflow_in(stored: Record) -> Overflow | None:
    """What an earlier ``_with_overflow`` put into a record; None where there is nothing, or a field of an application's own."""
    raw = stored.fields.get(FIELD)
    if raw is None:
        return None
    try:
        return decoded(raw)
    except MalformedValue:
        return None


def decoded(raw: bytes) -> Overflow:
    """What ``_with_overflow`` put into a record. Raises MalformedValue for any other text."""
    overflow = Overflow.decode(raw)
    if overflow.as_of is None or overflow.encode() != raw:
        raise MalformedValue("it is spelled in another way than ours")
    return overflow


def _restored(overflow: Overflow, job: Job, stored: Record) -> tuple[Job, Mapping[str, Any]]:
    """The job with what overflowed, and what was found of it once; only what lasts where the program has touched it since."""
    as_of = _digest(stored)
    note = overflow.note(NAME)
    job = evolve(overflow.restored(job, NAME, as_of), logs=overflow.logs(NAME))
    found, added = note.get("found"), note.get("added")
    if as_of != overflow.as_of:
        return job, {}
    if type(added) is int:
        payload = payload_in(Text(stored.fields.get(b"json", b""), added, note.get("wrapped") is True))
        job = job if payload is None else replaced(job, payload=payload)
    return job, found if isinstance(found, dict) else {}


def _bare(record: Record) -> Record:
    return evolve(record, fields={name: value for name, value in record.fields.items() if name != FIELD})


def _digest(record: Record) -> bytes:
    """Changes with every step of the program: each one writes a field."""
    digest = blake2b(digest_size=8)
    for name, value in sorted(record.fields.items()):
        digest.update(b"%d %d " % (len(name), len(value)) + name + value)
    return digest.hexdigest().encode("ascii")
