"""A job's hash and place, both ways: what stands in Redis to canonical fields, and canonical fields to what stands in Redis.

``canonical`` reads any bytes and never fails; ``standard`` writes what the scripts would have written. What the hash has no field
for is the business of ``overflow.py``. Called by that, the reader and the writer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from attrs import field

from ..errors import MalformedValue
from ..frozen import frozen
from ..job import Job, State
from ..text import to_bytes, to_text
from . import codec
from .numbers import parse_int, parse_number, score_to_int
from .scripts.waiting_score import ASCENDING, IMPORTED, RANK_STEP, PriorityOrder, check_order, priority_of

NAME = "ferryman"
"""The family's name in URLs and in ``Job.extra``."""

STATES = {
    "waiting": State.WAITING,
    "scheduled": State.SCHEDULED,
    "held": State.ACTIVE,
    "dead": State.FAILED,
    "done": State.COMPLETED,
    "blocked": State.BLOCKED,
}
"""The canonical state of the jobs in a place, by its role. Dead with the reason ``cancelled`` is CANCELLED."""

ROLE_OF = {state: role for role, state in STATES.items()} | {State.CANCELLED: "dead"}
"""The role of the place where jobs of a state stand; an unknown state has none."""

CANCELLED = b"cancelled"
FAILED = b"failed"


@frozen
class Passthrough:
    """What ``extra["ferryman"]`` has of a job that the native family itself stored, so that it goes back byte for byte.

    ``head``: the message's head, None for a job with a bare payload. ``score``: its score in waiting, made in the priority
    ``order``. ``fields``: hash fields that do not follow from canonical ones, None for one that is missing.
    """

    head: bytes | None = None
    score: float | None = None
    order: PriorityOrder = ASCENDING
    fields: Mapping[bytes, bytes | None] = field(factory=dict)

    @classmethod
    def of(cls, job: Job) -> Passthrough:
        """What the job's extra says. Raises MalformedValue if that is not what ``to_extra`` makes."""
        if NAME not in job.extra:
            return NOTHING
        extra = job.extra[NAME]
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
        """The mapping for ``Job.extra``; empty if there is nothing in it."""
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


NOTHING = Passthrough()


@frozen
class Stored:
    """A job as it stands in Redis: its hash, the role of its place, the score there, and who holds it until when."""

    fields: Mapping[bytes, bytes]
    role: str | None = None
    score: float | None = None
    holder: str | None = None
    lease: int | None = None
    needs: tuple[str, ...] = ()

    @property
    def waiting_score(self) -> float | None:
        """Its score in waiting: the one it has where it waits or is held, else what the hash remembers."""
        return self.score if self.role in ("waiting", "held") else parse_number(self.fields.get(b"score"))

    @property
    def location(self) -> list[Any]:
        """The role and the score of its place, by which it is known whether a job has moved since."""
        return [self.role, self.score]


def decoded_message(fields: Mapping[bytes, bytes]) -> tuple[dict[str, Any], bytes, bytes] | None:
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
    """The job that a hash and a place describe, without its ``extra`` and its overflow."""
    get = stored.fields.get
    found = decoded_message(stored.fields)
    state = STATES.get(stored.role or "", State.UNKNOWN)
    if state is State.FAILED and get(b"reason") == CANCELLED:
        state = State.CANCELLED
    name, worker, error, unique = get(b"name", b""), get(b"consumer"), get(b"error"), get(b"unique")
    score = score_to_int(stored.waiting_score)
    return Job(
        id=job_id,
        queue=queue,
        name=to_text(name) if found is None else task_name(found[0]),
        state=state,
        priority=None if score is None else priority_of(score, order),
        payload=get(b"payload") if found is None else found[2],
        created_at=parse_int(get(b"published_at")),
        due_at=score_to_int(stored.score) if stored.role == "scheduled" else parse_int(get(b"due_at")),
        started_at=parse_int(get(b"delivered_at")),
        finished_at=score_to_int(stored.score) if stored.role in ("dead", "done") else None,
        attempts=parse_int(get(b"deliveries")),
        unique_key=None if unique is None else to_text(unique),
        error=None if error is None else to_text(error),
        worker=stored.holder if stored.holder is not None else None if worker is None else to_text(worker),
        lease_expires_at=stored.lease if stored.role == "held" else None,
        depends_on=stored.needs,
    )


def waiting_score(job: Job, passthrough: Passthrough) -> float | None:
    """The score in waiting that the job gets, now or when its time has come; None for a job that never had one."""
    return waiting_score_of(job.state, job.rank, job.position, passthrough)


def waiting_score_of(state: State, rank: int | None, position: int | None, passthrough: Passthrough) -> float | None:
    """``waiting_score`` of a job with this state, rank and position."""
    if passthrough.score is not None or (state is not State.WAITING and rank is None):
        return passthrough.score
    # The source's pop order, inside the rank that its family gives. Below IMPORTED: ahead of what is published from now on.
    sequence = 0 if position is None else min(position + 1, IMPORTED - 1)
    return float((rank or 0) * RANK_STEP + sequence)


def standard(job: Job, passthrough: Passthrough) -> Stored:
    """What the scripts would have stored for this job. Only for a job in a state that has a place."""
    return standard_at(job, passthrough, waiting_score(job, passthrough))


def standard_at(job: Job, passthrough: Passthrough, waiting_score: float | None) -> Stored:
    """``standard`` of a job whose score in waiting is known."""
    role = ROLE_OF[job.state]
    fields: dict[bytes, bytes] = {}
    if passthrough.head is None:
        fields[b"payload"] = job.payload or b""
        fields[b"name"] = to_bytes(job.name)
    else:
        fields[b"message"] = passthrough.head + b"\n" + (job.payload or b"")
    if job.created_at is not None:
        fields[b"published_at"] = b"%d" % job.created_at
    if job.due_at is not None:
        fields[b"due_at"] = b"%d" % job.due_at
    if job.started_at is not None:
        fields[b"delivered_at"] = b"%d" % job.started_at
    if job.attempts is not None:
        fields[b"deliveries"] = b"%d" % job.attempts
    remembered = score_to_int(waiting_score) if role in ("scheduled", "dead", "blocked") else None
    if remembered is not None:
        fields[b"score"] = b"%d" % remembered
    if job.worker is not None:
        fields[b"consumer"] = to_bytes(job.worker)
    if job.error is not None:
        fields[b"error"] = to_bytes(job.error)
    if job.unique_key is not None:
        fields[b"unique"] = to_bytes(job.unique_key)
    if role == "dead":
        fields[b"reason"] = CANCELLED if job.state is State.CANCELLED else FAILED
    for name, value in passthrough.fields.items():
        if value is None:
            fields.pop(name, None)
        else:
            fields[name] = value
    return Stored(
        fields,
        role,
        _score(job, role, waiting_score),
        job.worker if role == "held" else None,
        job.lease_expires_at if role == "held" else None,
        tuple(sorted(set(job.depends_on))) if role == "blocked" else (),
    )


def _score(job: Job, role: str, waiting_score: float | None) -> float | None:
    match role:
        case "waiting" | "held":
            return waiting_score or 0.0
        case "scheduled":
            return float(job.due_at or 0)
        case "dead" | "done":
            return float(next((time for time in (job.finished_at, job.updated_at, job.created_at) if time is not None), 0))
    return None
