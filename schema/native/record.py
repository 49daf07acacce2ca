"""A job's hash and place, both ways: what stands in Redis to canonical fields, and canonical fields to what stands in Redis.

``canonical`` reads any bytes and never fails; ``standard`` writes what the scripts would have written. What the hash has no field
for goes into one more, ``job`` (see ``Aside``), so that a job of any family comes back exactly. Called by the reader and writer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from attrs import evolve, field, frozen

from ..errors import MalformedValue
from ..job import JOB_FIELDS, Job, State
from ..packed import pack, unpack
from ..text import to_bytes, to_text
from . import codec
from .place import ASCENDING, PriorityOrder, check_order, priority_of

NAME = "ferryman"
"""The family's name in URLs and in ``Job.extra``."""

LARGEST = 2**63 - 1

STATES = {
    "waiting": State.WAITING,
    "scheduled": State.SCHEDULED,
    "held": State.ACTIVE,
    "dead": State.FAILED,
    "done": State.COMPLETED,
    "blocked": State.BLOCKED,
}
"""The canonical state of each place. Dead with the reason ``cancelled`` is CANCELLED."""

PLACE_OF = {state: place for place, state in STATES.items()} | {State.CANCELLED: "dead"}
"""The place of each state that has one; an unknown state has none."""

CANCELLED = b"cancelled"
FAILED = b"failed"


@frozen
class Own:
    """What ``extra["ferryman"]`` keeps of a job that the native family itself stored, so that it goes back byte for byte.

    ``head``: the message's head, None for a job with a bare payload. ``score``: its place in waiting, made in the priority
    ``order``. ``fields``: hash fields that do not follow from canonical ones, None for one that is missing.
    """

    head: bytes | None = None
    score: float | None = None
    order: PriorityOrder = ASCENDING
    fields: Mapping[bytes, bytes | None] = field(factory=dict)

    @classmethod
    def of(cls, job: Job) -> Own:
        """What the job's extra says. Raises MalformedValue if that is not what ``to_extra`` makes."""
        extra = job.extra.get(NAME, {})
        try:
            head, score = extra.get("head"), extra.get("score")
            if not (head is None or isinstance(head, bytes)) or (score is not None and math.isnan(float(score))):
                raise TypeError
            fields = {to_bytes(name): value for name, value in extra.get("fields", {}).items()}
            if not all(value is None or isinstance(value, bytes) for value in fields.values()):
                raise TypeError
            order = check_order(extra.get("order", ASCENDING))
            return cls(head, None if score is None else float(score), order, fields)
        except (AttributeError, TypeError, ValueError) as error:
            raise MalformedValue(f"job {job.id}: extra[{NAME!r}] is not what the native reader writes") from error

    def to_extra(self) -> dict[str, Any]:
        """The mapping for ``Job.extra``; empty if there is nothing to keep."""
        extra: dict[str, Any] = {}
        if self.head is not None:
            extra["head"] = self.head
        if self.score is not None:
            extra["score"] = self.score
        if self.order != ASCENDING:
            extra["order"] = self.order
        if self.fields:
            extra["fields"] = {to_text(name): value for name, value in self.fields.items()}
        return extra


@frozen
class Stored:
    """A job as it stands in Redis: its hash, the place it is in with the score there, and who holds it until when."""

    fields: Mapping[bytes, bytes]
    place: str | None = None
    score: float | None = None
    holder: str | None = None
    lease: int | None = None
    needs: tuple[str, ...] = ()

    @property
    def waiting_score(self) -> float | None:
        """Its place in waiting: the score where it waits or is held, else what the hash remembers."""
        return self.score if self.place in ("waiting", "held") else number(self.fields.get(b"score"))

    @property
    def moment(self) -> list[Any]:
        """What tells whether a job has moved since: where it stands, and its score there."""
        return [self.place, self.score]


def whole(raw: bytes | None) -> int | None:
    """The integer of a decimal text; None for anything else, and for what 64 bits can't hold."""
    if raw is None or len(raw) > 20:
        return None
    digits = raw.removeprefix(b"-")
    value = int(raw) if digits.isdigit() else None
    return value if value is not None and abs(value) <= LARGEST else None


def number(raw: bytes | None) -> float | None:
    """A score as the hash remembers it; None for anything but a whole number."""
    value = whole(raw)
    return None if value is None else float(value)


def whole_score(score: float | None) -> int | None:
    """The integer part of a score; None for an infinite one."""
    return None if score is None or not abs(score) <= LARGEST else int(score)


def message_of(fields: Mapping[bytes, bytes]) -> tuple[dict[str, Any], bytes, bytes] | None:
    """The head as value and as bytes, and the body, of a job with a message; None where it has none or a malformed one."""
    message = fields.get(b"message")
    if message is None:
        return None
    try:
        head, body = codec.decode(message)
    except MalformedValue:
        return None
    return head, message[: len(message) - len(body) - 1], body


def task_name(head: Mapping[str, Any]) -> str:
    """The task that a message is for, as Celery's protocol 2 names it; empty for other messages."""
    headers = head.get("headers")
    task = headers.get("task") if isinstance(headers, dict) else None
    return task if isinstance(task, str) else ""


def canonical(job_id: str, queue: str, stored: Stored, order: PriorityOrder = ASCENDING) -> Job:
    """The job that a hash and a place describe, without its ``extra`` and without what is aside."""
    get = stored.fields.get
    found = message_of(stored.fields)
    state = STATES.get(stored.place or "", State.UNKNOWN)
    if state is State.FAILED and get(b"reason") == CANCELLED:
        state = State.CANCELLED
    name, worker, error = get(b"name", b""), get(b"consumer"), get(b"error")
    score = whole_score(stored.waiting_score)
    return Job(
        id=job_id,
        queue=queue,
        name=to_text(name) if found is None else task_name(found[0]),
        state=state,
        priority=None if score is None else priority_of(score, order),
        payload=get(b"payload") if found is None else found[2],
        created_at=whole(get(b"published_at")),
        due_at=whole_score(stored.score) if stored.place == "scheduled" else whole(get(b"due_at")),
        started_at=whole(get(b"delivered_at")),
        finished_at=whole_score(stored.score) if stored.place in ("dead", "done") else None,
        attempts=whole(get(b"deliveries")),
        error=None if error is None else to_text(error),
        worker=stored.holder if stored.holder is not None else None if worker is None else to_text(worker),
        lease_expires_at=stored.lease if stored.place == "held" else None,
        depends_on=stored.needs,
    )


def standard(job: Job, own: Own) -> Stored:
    """What the scripts would have stored for this job. Only for a job in a state that has a place."""
    place = PLACE_OF[job.state]
    waiting_score = own.score
    if waiting_score is None and job.state is State.WAITING:
        # The source's pop order, whatever its priorities mean: ahead of all that is published from now on.
        waiting_score = 0.0 if job.position is None else float(job.position + 1)
    fields: dict[bytes, bytes] = {}
    if own.head is None:
        fields[b"payload"] = job.payload or b""
        fields[b"name"] = to_bytes(job.name)
    else:
        fields[b"message"] = own.head + b"\n" + (job.payload or b"")
    numbers = {
        b"published_at": job.created_at,
        b"due_at": job.due_at,
        b"delivered_at": job.started_at,
        b"deliveries": job.attempts,
        b"score": whole_score(waiting_score) if place in ("scheduled", "dead", "blocked") else None,
    }
    fields.update((name, b"%d" % value) for name, value in numbers.items() if value is not None)
    if job.worker is not None:
        fields[b"consumer"] = to_bytes(job.worker)
    if job.error is not None:
        fields[b"error"] = to_bytes(job.error)
    if place == "dead":
        fields[b"reason"] = CANCELLED if job.state is State.CANCELLED else FAILED
    fields.update((name, value) for name, value in own.fields.items() if value is not None)
    for name, value in own.fields.items():
        if value is None:
            fields.pop(name, None)
    return Stored(
        fields,
        place,
        _score(job, place, waiting_score),
        job.worker if place == "held" else None,
        job.lease_expires_at if place == "held" else None,
        tuple(sorted(set(job.depends_on))) if place == "blocked" else (),
    )


def _score(job: Job, place: str, waiting_score: float | None) -> float | None:
    match place:
        case "waiting" | "held":
            return waiting_score or 0.0
        case "scheduled":
            return float(job.due_at or 0)
        case "dead" | "done":
            return float(next((time for time in (job.finished_at, job.updated_at, job.created_at) if time is not None), 0))
    return None


# What the hash has no field for

MOVING = frozenset({"due_at", "started_at", "finished_at", "attempts", "error", "worker", "lease_expires_at"})
"""Fields that transitions change. What is aside about them holds only while the job stands where it stood."""


@frozen
class Aside:
    """The hash field ``job``: canonical fields that the rest of the hash does not give back, and what other families keep."""

    FIELD = b"job"

    fields: Mapping[str, Any] = field(factory=dict)
    extra: Mapping[str, Any] = field(factory=dict)
    moment: list[Any] = field(factory=list)
    native: bool = False
    """Whether the job came from a native keyspace, with its place in waiting. Other jobs get one, but never had it."""

    @classmethod
    def of(cls, job: Job, own: Own, stored: Stored) -> Aside:
        """What must be kept beside ``stored``."""
        again = canonical(job.id, job.queue, stored, own.order)
        fields = {
            name: getattr(job, name) for name in JOB_FIELDS if name != "extra" and getattr(again, name) != getattr(job, name)
        }
        extra = {name: kept for name, kept in job.extra.items() if name != NAME}
        native = NAME in job.extra and (own.score is not None or stored.waiting_score is None)
        return cls(fields, extra, stored.moment, native)

    @property
    def is_needed(self) -> bool:
        """False for a job that says everything in its own fields, as every published one does."""
        return bool(self.fields or self.extra or not self.native)

    def pack(self) -> bytes:
        """The text for the hash."""
        return pack({"fields": self.fields, "extra": self.extra, "at": self.moment, "native": self.native})

    @classmethod
    def unpack(cls, raw: bytes) -> Aside:
        """The value behind ``pack``. Raises MalformedValue for any other text."""
        match unpack(raw):
            case {"fields": dict(fields), "extra": dict(extra), "at": list(moment), "native": bool(native)}:
                checked = {name: _checked(name, value) for name, value in fields.items()}
                if all(isinstance(kept, dict) for kept in extra.values()):
                    return cls(checked, extra, moment, native)
        raise MalformedValue("the job field does not have the form that the writer gives it")

    def restored(self, job: Job, stored: Stored) -> Job:
        """The job with what was aside; without what transitions change, where it has moved."""
        fields = self.fields
        if stored.moment != self.moment:
            fields = {name: value for name, value in fields.items() if name not in MOVING}
        return evolve(job, **fields, extra=self.extra)


def _checked(name: str, value: Any) -> Any:
    """A value that this field of Job may have; raises MalformedValue for any other."""
    types = _TYPES.get(name)
    if types is None or type(value) not in types:
        raise MalformedValue("a field is aside that can't be, or with a value that it can't have")
    if type(value) is int and abs(value) > LARGEST:
        raise MalformedValue("a number is aside that 64 bits can't hold")
    if isinstance(value, list):
        item = _ITEMS[name]
        if not all(type(each) is item for each in value):
            raise MalformedValue("a list is aside with items that its field can't have")
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


def stored_with_aside(job: Job, own: Own) -> Stored:
    """What the writer stores: the standard form and, where it is needed, what is aside."""
    stored = standard(job, own)
    aside = Aside.of(job, own, stored)
    if not aside.is_needed:
        return stored
    return evolve(stored, fields={**stored.fields, Aside.FIELD: aside.pack()})


def job_of(job_id: str, queue: str, stored: Stored, order: PriorityOrder = ASCENDING) -> Job:
    """The job with everything: canonical fields, what was aside, and what goes back byte for byte."""
    job = canonical(job_id, queue, stored, order)
    native = True
    fields = dict(stored.fields)
    raw = fields.pop(Aside.FIELD, None)
    if raw is not None:
        try:
            aside = Aside.unpack(raw)
        except MalformedValue:
            fields[Aside.FIELD] = raw
        else:
            job = aside.restored(job, stored)
            native = aside.native
    found = message_of(fields)
    own = Own(None if found is None else found[1], stored.waiting_score if native else None, order if native else ASCENDING)
    own = evolve(own, fields=_differences(fields, job, own))
    kept = own.to_extra()
    return evolve(job, extra={**job.extra, NAME: kept}) if kept else job


def _differences(fields: Mapping[bytes, bytes], job: Job, own: Own) -> dict[bytes, bytes | None]:
    """The hash fields that writing the job would not give, with their bytes; None for those that it would add."""
    if job.state not in PLACE_OF:
        return dict(fields)
    expected = standard(job, own).fields
    differences: dict[bytes, bytes | None] = {name: raw for name, raw in fields.items() if expected.get(name) != raw}
    differences.update((name, None) for name in expected if name not in fields)
    return differences
