"""Passthrough: what a job of kombu remembers in ``extra``, so that it goes on as the same message, and back as the same bytes.

Under ``ferryman``, as the native reader would write it:

    head             the message but its body: a native queue stores both as a frame, and a worker gets the message it would
                     have got from kombu
    fields           that there are no deliveries yet: a task's retries are its own affair, and must not use up the delivery limit

Under ``kombu``, only where it differs from what the writer would write anyway:

    state, scores    of an unacked message: "active", and since when (``unacked_index``, in seconds)
    step             the bucket, where the priority names another one, or the bucket is none of those that the URL says
    bindings         [exchange, routing key, pattern] of the queue, where it is not bound as Celery does it by default
    text             the exact JSON text, where kombu would write the same message differently

What other families keep, and canonical fields that no message has, stand in a header of our own (overflow.py). Called by the
reader and the writer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import evolve, field

from ...schema.errors import MalformedValue
from ...schema.frozen import frozen
from ...schema.job import Job, State, differences, rank_of, replaced
from ...schema.native import codec
from ...schema.native.record import NAME as NATIVE
from ...schema.native.record import Passthrough as NativePassthrough
from ...schema.text import to_bytes, to_text
from ..overflow import FIELD, Overflow
from .bindings import Binding, default_bindings
from .keys import STEPS, VISIBILITY_TIMEOUT_MS
from .record import Message, Record, canonical, decode, decode_delivery

NAME = "kombu"

HEADER = to_text(FIELD)
"""The header for what a message has no place for. Celery hands headers that it doesn't know to the task, and back."""


@frozen
class Passthrough:
    """What ``extra["kombu"]`` says."""

    held: bool = False
    since: float | None = None
    step: int | None = None
    bindings: tuple[Binding, ...] | None = None
    text: bytes | None = None

    @classmethod
    def of(cls, job: Job) -> Passthrough:
        """What the job's extra remembers. Raises MalformedValue if that is not what ``to_extra`` makes."""
        extra = job.extra.get(NAME, {})
        try:
            since, step, bindings, text = (
                extra.get("scores", {}).get("unacked_index"),
                extra.get("step"),
                extra.get("bindings"),
                extra.get("text"),
            )
            if not isinstance(text, bytes | None) or (step is not None and type(step) is not int):
                raise TypeError
            return cls(
                held=extra.get("state") == State.ACTIVE,
                since=None if since is None else float(since),
                step=step,
                bindings=None if bindings is None else tuple(_binding(parts) for parts in bindings),
                text=text,
            )
        except (AttributeError, TypeError, ValueError) as error:
            raise MalformedValue(f"job {job.id}: extra[{NAME!r}] is not what the kombu reader writes") from error

    def to_extra(self) -> dict[str, Any]:
        """The mapping for ``Job.extra``; empty if there is nothing to remember."""
        extra: dict[str, Any] = {}
        if self.held:
            extra["state"] = str(State.ACTIVE)
        if self.since is not None:
            extra["scores"] = {"unacked_index": self.since}
        if self.step is not None:
            extra["step"] = self.step
        if self.bindings is not None:
            extra["bindings"] = [list(binding) for binding in self.bindings]
        if self.text is not None:
            extra["text"] = self.text
        return extra

    def exact(self, record: Record) -> bytes:
        """The text of a record: as it once stood in Redis, as long as that still means the same."""
        if self.text is not None:
            try:
                meant = decode_delivery(self.text)[0] if record.held else decode(self.text)
            except MalformedValue:
                # It was kept for another state: a delivery is no list entry.
                return record.text
            if meant == record.message:
                return self.text
        return record.text


def _binding(parts: Any) -> Binding:
    exchange, routing_key, pattern = parts
    if not all(isinstance(part, str) for part in (exchange, routing_key, pattern)):
        raise TypeError
    return Binding(exchange, routing_key, pattern)


# A job's message


def head_of(job: Job) -> dict[str, Any] | None:
    """The head of the message that the job was read as; None for a job that never was one. Raises MalformedValue."""
    raw = NativePassthrough.of(job).head
    if raw is None:
        return None
    head, _ = codec.decode(raw + b"\n")
    if not isinstance(head.get("headers"), dict | None) or not isinstance(head.get("properties"), dict | None):
        raise MalformedValue(f"job {job.id}: the head of its message has headers or properties that are no object")
    return {**head, "properties": head.get("properties") or {}}


def native_extra_of(message: Message, job: Job) -> dict[str, Any]:
    """What makes a native queue take the job for the message that it is."""
    own: dict[str, Any] = {"head": codec.encode(message.head, b"")[:-1]}
    if job.attempts:
        own["fields"] = {"deliveries": None}
    return own


@frozen
class QueuedRecord:
    """A message in its queue, as the keys tell it."""

    queue: str
    record: Record
    text: bytes
    """The exact JSON text of the record."""
    step: int
    """The bucket."""
    now_ms: int
    """The moment to which an eta is compared."""
    bindings: Sequence[Binding] = field(factory=tuple)
    """Those of the queue."""
    position: int | None = None
    """As in Job."""
    steps: Sequence[int] = STEPS
    """The buckets of the keyspace, as its URL says, or the usual ones."""
    visibility_ms: int = VISIBILITY_TIMEOUT_MS


def job_of(job_id: str, queued: QueuedRecord) -> Job:
    """The job with everything: canonical fields, what overflowed, and what goes back byte for byte."""
    message, overflow = _take_overflow(queued.record.message)
    record = queued.record if overflow is None else evolve(queued.record, message=message)
    job = canonical(job_id, queued.queue, record, queued.now_ms, queued.visibility_ms)
    own = native_extra_of(message, job)
    extra: dict[str, Any] = {}
    if overflow is not None:
        extra = {name: each for name, each in overflow.extra.items() if name not in (NAME, NATIVE)}
        native_extra = overflow.extra.get(NATIVE)
        # Celery gives a task's headers to its next try, which is another message: the overflow speaks of this one.
        same_message = overflow.as_of == to_bytes(message.tag)
        job = overflow.restored(job, NAME, to_bytes(message.tag))
        if same_message:
            job = replaced(job, logs=overflow.logs(NAME))
            if "made" in overflow.note(NAME):
                own = native_extra or {}
            elif native_extra is not None:
                own = {"head": own["head"], **native_extra}
    if own:
        extra[NATIVE] = own
    remembered = Passthrough(
        held=queued.record.held,
        since=queued.record.since,
        step=None if queued.step == message.step(queued.steps) else queued.step,
        bindings=None if tuple(queued.bindings) == default_bindings(queued.queue) else tuple(queued.bindings),
        text=None if queued.text == queued.record.text else queued.text,
    ).to_extra()
    if remembered:
        extra[NAME] = remembered
    return replaced(job, extra=extra, position=queued.position, rank=rank_of(queued.step))


def _take_overflow(message: Message) -> tuple[Message, Overflow | None]:
    """The message without the header of ours, and what stood in it. Any other text there is an application's own header."""
    raw = message.headers.get(HEADER)
    if not isinstance(raw, str):
        return message, None
    try:
        return message.without_header(HEADER), Overflow.decode(to_bytes(raw))
    except MalformedValue:
        return message, None


def with_overflow(job: Job, queued: QueuedRecord) -> Record:
    """The record with one header more, for all that reading it would not give back of the job; the same if that is nothing."""
    overflow = _overflow_of(job, queued)
    if overflow is None:
        return queued.record
    roomy = queued.record.message.without_header(HEADER)
    if roomy != queued.record.message:
        # There were no headers, or one of the name that an application has taken: that overflows as well.
        queued = evolve(queued, record=evolve(queued.record, message=roomy))
        overflow = _overflow_of(job, queued) or overflow
    return evolve(queued.record, message=roomy.with_headers(**{HEADER: to_text(overflow.encode())}))


def _overflow_of(job: Job, queued: QueuedRecord) -> Overflow | None:
    again = job_of(job.id, queued)
    lost = differences(job, again)
    extra = {name: each for name, each in job.extra.items() if name not in (NAME, NATIVE)}
    own, found = job.extra.get(NATIVE), again.extra.get(NATIVE, {})
    note: dict[str, Any] = {}
    if own is None or "head" not in own:
        note["made"] = True
        extra |= {NATIVE: own} if own else {}
    elif own != found:
        extra[NATIVE] = {name: value for name, value in own.items() if name != "head" or value != found.get("head")}
    if job.logs:
        note["logs"] = job.logs
    return Overflow.of(replaced(job, extra=extra), lost, NAME, to_bytes(queued.record.message.tag), note)
