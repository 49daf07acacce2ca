"""Overflow: what of a job its hash has no field for, stored in one field more, so that a job of any family comes back exactly.

The text is untrusted on the way back: only what Job's own fields could hold is accepted. Jobs that the transport published have
no overflow. Called by the reader, the writer and the rules.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from attrs import evolve, field

from ..errors import MalformedValue
from ..frozen import frozen
from ..job import Job, differences, replaced
from ..tagged_json import decode_tagged, encode_tagged
from .numbers import MAX_INT64, score_to_int
from .record import (
    NAME,
    ROLE_OF,
    Passthrough,
    Stored,
    canonical,
    decoded_message,
    standard,
    standard_at,
    waiting_score_of,
)
from .scripts.waiting_score import ASCENDING, RANK_STEP, PriorityOrder

CHANGING = frozenset({"due_at", "started_at", "finished_at", "attempts", "error", "worker", "lease_expires_at"})
"""Fields that transitions change. What the overflow has of them holds only while the job stands where it stood."""


@frozen
class Overflow:
    """The hash field ``job``: canonical fields that the rest of the hash does not give back, and the extra of other families."""

    FIELD = b"job"

    fields: Mapping[str, Any] = field(factory=dict)
    extra: Mapping[str, Any] = field(factory=dict)
    location: list[Any] = field(factory=list)
    native: bool = False
    """Whether the job came from a native keyspace, with its score in waiting. Other jobs get one, but never had it."""

    @classmethod
    def of(cls, job: Job, passthrough: Passthrough, stored: Stored) -> Overflow:
        """What of the job ``stored`` has no field for."""
        fields = differences(job, canonical(job.id, job.queue, stored, passthrough.order))
        fields.pop("extra", None)
        extra = {name: value for name, value in job.extra.items() if name != NAME}
        native = NAME in job.extra and (passthrough.score is not None or stored.waiting_score is None)
        return cls(fields, extra, stored.location, native)

    @property
    def is_needed(self) -> bool:
        """False for a job that says everything in its own fields, as every published one does."""
        return bool(self.fields or self.extra or not self.native)

    def encode(self) -> bytes:
        """The text for the hash."""
        return encode_tagged({"fields": self.fields, "extra": self.extra, "at": self.location, "native": self.native})

    @classmethod
    def decode(cls, raw: bytes) -> Overflow:
        """The value behind ``encode``. Raises MalformedValue for any other text."""
        match decode_tagged(raw):
            case {"fields": dict(fields), "extra": dict(extra), "at": list(location), "native": bool(native)}:
                checked = {name: _checked(name, value) for name, value in fields.items()}
                if all(isinstance(value, dict) for value in extra.values()):
                    return cls(checked, extra, location, native)
        raise MalformedValue("the job field does not have the form that the writer gives it")

    def fields_for(self, stored: Stored) -> dict[str, Any]:
        """The fields of Job that overflowed; without what transitions change, where the job has moved."""
        has_moved = stored.location != self.location
        fields = {name: value for name, value in self.fields.items() if not (has_moved and name in CHANGING)}
        return {**fields, "extra": self.extra}


_WHOLE = "(?:0|[1-9][0-9]{0,15})"
_BYTES = r'\{"b64":"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"\}'
_PLAIN_FIELDS = {
    "priority": f"(?:null|-?{_WHOLE})",
    "updated_at": _WHOLE,
    "max_attempts": _WHOLE,
    "progress": r"[0-9]\.[0-9]{1,17}",
    "result": _BYTES,
    "ttl": _WHOLE,
    "logs": rf"\[{_BYTES}(?:,{_BYTES})*\]",
}
_PLAIN = re.compile(
    (
        r'\{"fields":\{'
        + "".join(rf'(?:"{name}":{value}(?:,(?=")|(?=\}})))?' for name, value in _PLAIN_FIELDS.items())
        + r'\},"extra":(\{.*\}),"at":\["[a-z]+",-?'
        + _WHOLE
        + r'\.0\],"native":false\}'
    ).encode()
)
SHORT = 1_000
"""Bytes. A pattern is slower than a parser with long texts."""


def is_plain(overflow: bytes) -> bool:
    """Whether a text is such an overflow as most migrated jobs have. False also for others that ``Overflow.decode`` reads."""
    match = _PLAIN.fullmatch(overflow) if len(overflow) <= SHORT else None
    return match is not None and extra_of(match[1]) is not None


@lru_cache(maxsize=1024)
def extra_of(encoded: bytes) -> Mapping[str, Any] | None:
    """The extra of other families, by their names; None if the text holds anything else. That is the same for many jobs."""
    try:
        extra = decode_tagged(encoded)
    except MalformedValue:
        return None
    return extra if all(isinstance(each, dict) for each in extra.values()) else None


def _checked(name: str, value: Any) -> Any:
    """A value that this field of Job may have; raises MalformedValue for any other."""
    types = _TYPES.get(name)
    if types is None or type(value) not in types:
        raise MalformedValue("the overflow has a field that can't be there, or a value that its field can't have")
    if type(value) is int and abs(value) > MAX_INT64:
        raise MalformedValue("the overflow has a number that 64 bits can't hold")
    if isinstance(value, list):
        item = _ITEMS[name]
        if not all(type(each) is item for each in value):
            raise MalformedValue("the overflow has a list with items that its field can't have")
        return tuple(value)
    return value


_TYPES: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("name",), (str,)),
    **dict.fromkeys(("priority", "progress"), (int, float, type(None))),
    **dict.fromkeys(("payload", "result"), (bytes, type(None))),
    **dict.fromkeys(("error", "worker", "unique_key"), (str, type(None))),
    **dict.fromkeys(("tags", "depends_on", "logs", "history"), (list,)),
    **dict.fromkeys(("created_at", "updated_at", "due_at", "started_at", "finished_at"), (int, type(None))),
    **dict.fromkeys(("attempts", "max_attempts", "lease_expires_at", "ttl"), (int, type(None))),
}
_ITEMS: Mapping[str, type] = {"tags": str, "depends_on": str, "logs": bytes, "history": dict}


def stored_with_overflow(job: Job, passthrough: Passthrough) -> Stored:
    """What the writer stores: the standard form and, where it is needed, the overflow."""
    stored = standard(job, passthrough)
    overflow = Overflow.of(job, passthrough, stored)
    if not overflow.is_needed:
        return stored
    fields = {**stored.fields, Overflow.FIELD: overflow.encode()}
    return Stored(fields, stored.role, stored.score, stored.holder, stored.lease, stored.needs)


def job_of(job_id: str, queue: str, stored: Stored, order: PriorityOrder = ASCENDING, position: int | None = None) -> Job:
    """The job with everything: canonical fields, overflow, and what goes back byte for byte. ``position``: as in Job."""
    native, fields, restored = True, dict(stored.fields), {}
    raw = fields.pop(Overflow.FIELD, None)
    if raw is not None:
        try:
            overflow = Overflow.decode(raw)
        except MalformedValue:
            fields[Overflow.FIELD] = raw
        else:
            native, restored = overflow.native, overflow.fields_for(stored)
    score = score_to_int(stored.waiting_score)
    rank = None if score is None else score // RANK_STEP
    # A migration made the sequence of a position (``standard``), also for jobs that were not due yet.
    written = None if native or score is None else score % RANK_STEP - 1
    job = replaced(canonical(job_id, queue, stored, order), **restored, rank=rank, position=position)
    found = decoded_message(fields)
    passthrough = Passthrough(
        None if found is None else found[1], stored.waiting_score if native else None, order if native else ASCENDING
    )
    differences = _differences(fields, job, passthrough, waiting_score_of(job.state, rank, written, passthrough))
    extra = (evolve(passthrough, fields=differences) if differences else passthrough).to_extra()
    return replaced(job, extra={**job.extra, NAME: extra}) if extra else job


def _differences(
    fields: Mapping[bytes, bytes], job: Job, passthrough: Passthrough, waiting_score: float | None
) -> dict[bytes, bytes | None]:
    """The hash fields that writing the job would not give, with their bytes; None for those that it would add."""
    if job.state not in ROLE_OF:
        return dict(fields)
    expected = standard_at(job, passthrough, waiting_score).fields
    differences: dict[bytes, bytes | None] = {name: raw for name, raw in fields.items() if expected.get(name) != raw}
    differences.update((name, None) for name in expected if name not in fields)
    return differences
