"""Overflow: what a foreign record has no field for, as JSON text that reads back exactly.

A writer puts it in one extra field of the job's own record, under ferryman's name, where the original software leaves it
alone; the reader of the same family takes it out again. So a job may pass through a poorer system and lose nothing.
The text is untrusted on the way back: only what Job's own fields could hold is accepted. One that was ours and can't be read any
more is a finding; one that never was ours is the application's own, and stays as it is.
Called by the readers, writers and rules of the foreign families.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from ..schema.errors import MalformedValue
from ..schema.family import Keyspace
from ..schema.frozen import frozen
from ..schema.job import Job, replaced
from ..schema.rule import Harm, Severity, Violation
from ..schema.tagged_json import decode_tagged, encode_tagged
from ..schema.text import load_json, to_bytes, to_text
from .numbers import int64_or_none
from .rulebook import Rulebook

FIELD = b"ferryman"
"""The field in the foreign record."""

NAMES = frozenset({"as_of", "fields", "extra"})
"""What the text says: always the first, and one of the others at least."""

TRACE = "migration"
"""The part of ``extra`` in which a migration notes the state that it found."""

LASTING = frozenset({"id", "name", "tags", "depends_on", "unique_key", "history"})
"""Canonical fields that stay true whatever a system does that has no notion of them."""


@frozen
class Overflow:
    """What one job has that its record in another family can't say."""

    fields: Mapping[str, Any]
    """Canonical fields with the job's values."""
    extra: Mapping[str, Any]
    """What the other families keep of the job."""
    as_of: bytes | None
    """A text that the original software changes whenever it touches the job. What overflowed holds only while it is the same."""

    @classmethod
    def of(
        cls, job: Job, lost: Mapping[str, Any], family: str, as_of: bytes | None, note: Mapping[str, Any] | None = None
    ) -> Overflow | None:
        """What overflows of a job; None if there is nothing. ``lost``: the fields that the record does not give back.

        ``note``: what the family itself has to say of the record. It stands in the place of the family's own extra.
        """
        fields = {name: value for name, value in lost.items() if name in _FIELDS}
        extra = {name: own for name, own in job.extra.items() if name != family}
        if note:
            extra[family] = note
        return cls(fields, extra, as_of) if fields or extra else None

    def encode(self) -> bytes:
        """The text for the record."""
        as_of = None if self.as_of is None else to_text(self.as_of)
        values = {"as_of": as_of, "fields": self.fields, "extra": self.extra}
        return encode_tagged({name: value for name, value in values.items() if value or name == "as_of"})

    @classmethod
    def decode(cls, raw: bytes) -> Overflow:
        """The value behind ``encode``. Raises MalformedValue for any other text."""
        values = decode_tagged(raw)
        if not _has_our_names(values):
            raise MalformedValue("it lacks a part, or has one that is not ours")
        as_of = _OPTIONAL_TEXT(values["as_of"])
        fields = {name: _field(name)(value) for name, value in _OBJECT(values.get("fields", {})).items()}
        extra = {name: _OBJECT(own) for name, own in _OBJECT(values.get("extra", {})).items()}
        return cls(fields, extra, None if as_of is None else to_bytes(as_of))

    @property
    def is_only_a_trace(self) -> bool:
        """Whether it says nothing of the job but in which state a migration found it."""
        return not self.fields and self.extra.keys() <= {TRACE}

    def note(self, family: str) -> Mapping[str, Any]:
        """What the family itself had to say of the record."""
        note: Mapping[str, Any] = self.extra.get(family, {})
        return note

    def logs(self, family: str) -> tuple[bytes, ...]:
        """The log lines in its note."""
        lines = self.note(family).get("logs")
        return tuple(line for line in lines if isinstance(line, bytes)) if isinstance(lines, list) else ()

    def restored(self, job: Job, family: str, as_of: bytes | None, *, has_own_id: bool = True) -> Job:
        """The job with what had overflowed; only with what lasts, when the original software has touched it since.

        ``has_own_id``: the record's id is the job's; whatever id has overflowed does not count.
        """
        fields = dict(self.fields)
        if as_of != self.as_of:
            fields = {name: value for name, value in fields.items() if name in LASTING}
        if has_own_id:
            fields.pop("id", None)
        extra = {name: own for name, own in self.extra.items() if name != family}
        return replaced(job, **fields, extra={**extra, **job.extra})


def is_ours(raw: bytes) -> bool:
    """Whether ``encode`` has written a text, be it damaged since: an object with our names alone, or what begins like one."""
    try:
        value = load_json(raw)
    except MalformedValue:
        return raw.startswith(b'{"as_of":')
    return isinstance(value, dict) and _has_our_names(value)


def _has_our_names(values: Mapping[str, Any]) -> bool:
    return "as_of" in values and len(values) > 1 and values.keys() <= NAMES


def is_displaced(overflow: Overflow, own: bytes | None) -> bool:
    """Whether an overflow gives way to the application's own field of this name, because it says nothing of the job itself."""
    return own is not None and not is_ours(own) and overflow.is_only_a_trace


def without_displaced_trace(job: Job, family: str, own_field: Callable[[Job], tuple[bytes | None, bytes | None]]) -> Job:
    """The job without the trace of a migration, where the application's own field has displaced it in the record.

    ``own_field``: what the job says of the field FIELD, and what its record has there.
    """
    if TRACE not in job.extra or family not in job.extra:
        return job
    own, written = own_field(job)
    if own is None or own != written or is_ours(own):
        return job
    return replaced(job, extra={name: each for name, each in job.extra.items() if name != TRACE})


def why_unreadable(raw: bytes | None, read: Callable[[bytes], object] = Overflow.decode) -> str | None:
    """Why what an earlier migration kept can't be read; None where it can, and for an application's own text.

    ``read``: how the family reads it; raises MalformedValue.
    """
    if raw is None:
        return None
    try:
        read(raw)
    except MalformedValue as error:
        return str(error) if is_ours(raw) else None
    return None


class _View(Protocol):
    """What a family makes of a subject."""

    def violation(self, detail: str) -> Violation: ...


V = TypeVar("V", bound=_View)


def about_overflow(
    book: Rulebook[V], rule_id: str, text_of: Callable[[V], bytes | None], read: Callable[[bytes], object] = Overflow.decode
) -> None:
    """Adds the rule about the overflow to a family's book. ``text_of``: the text in FIELD; ``read``: as above."""

    @book.about_jobs(
        rule_id,
        "What an earlier migration kept in the field ferryman can be read; otherwise the job is not carried",
        Severity.WARNING,
        Harm.COSMETIC,
        refuses=True,
        assumes="as the rest of its record tells",
    )
    def can_be_read(view: V, _keyspace: Keyspace) -> Iterator[Violation]:
        reason = why_unreadable(text_of(view), read)
        if reason is not None:
            yield view.violation(f"what an earlier migration kept of it can't be read: {reason}")


TRUNCATED = b'{"as_of":"cut short'
"""What breaks that rule."""


def _one_of(*types: type) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        # The exact type: a bool is an int to isinstance, but no time.
        if type(value) not in types or (type(value) is int and int64_or_none(value) is None):
            raise MalformedValue("an overflowed value has a type that its field can't hold")
        return value

    return convert


def _many(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def convert_all(value: Any) -> Any:
        return tuple(convert(each) for each in _one_of(list)(value))

    return convert_all


def _field(name: str) -> Callable[[Any], Any]:
    if name not in _FIELDS:
        raise MalformedValue("a field has overflowed that can't")
    return _FIELDS[name]


_TEXT = _one_of(str)
_OBJECT = _one_of(dict)
_OPTIONAL_TEXT = _one_of(str, type(None))
_OPTIONAL_WHOLE = _one_of(int, type(None))
_OPTIONAL_BYTES = _one_of(bytes, type(None))

_FIELDS: Mapping[str, Callable[[Any], Any]] = {
    "id": _TEXT,
    "name": _TEXT,
    "priority": _one_of(int, float, type(None)),
    "payload": _OPTIONAL_BYTES,
    "created_at": _OPTIONAL_WHOLE,
    "updated_at": _OPTIONAL_WHOLE,
    "due_at": _OPTIONAL_WHOLE,
    "started_at": _OPTIONAL_WHOLE,
    "finished_at": _OPTIONAL_WHOLE,
    "attempts": _OPTIONAL_WHOLE,
    "max_attempts": _OPTIONAL_WHOLE,
    "progress": _one_of(float, int, type(None)),
    "result": _OPTIONAL_BYTES,
    "error": _OPTIONAL_TEXT,
    "worker": _OPTIONAL_TEXT,
    "lease_expires_at": _OPTIONAL_WHOLE,
    "tags": _many(_TEXT),
    "depends_on": _many(_TEXT),
    "unique_key": _OPTIONAL_TEXT,
    "ttl": _OPTIONAL_WHOLE,
    "history": _many(_OBJECT),
}
"""The fields that may be kept overflow. A record always speaks for itself about queue, state and logs, and about its id where the
system can hold that."""
