"""The message of kombu, both ways: JSON text to a Message and back, and what a message says in canonical fields.

A Message is what the publisher meant, without how kombu wraps it: the body stands as raw bytes, not as base64, so that its
head and body are at the same time a frame of the native family. ``encode`` writes what kombu itself would write; what it would
not reproduce of a text stands in passthrough.py. Bodies are never unpickled, unzipped or evaluated. Called by the reader, the
writer and the rules.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from attrs import evolve

from ...schema.errors import MalformedValue
from ...schema.frozen import frozen
from ...schema.job import Job, State
from ...schema.memo import remember_last
from ...schema.text import load_json, to_bytes, to_text
from ..numbers import int64_or_none
from ..timestamps import EPOCH, MILLISECOND, parse_timestamp
from .keys import STEPS, VISIBILITY_TIMEOUT_MS, step_of

BASE64 = "base64"
"""The value of the property ``body_encoding`` that the Redis transport sets on every message."""


@frozen
class Message:
    """One message. ``head``: ``content-type``, ``content-encoding``, ``headers``, ``properties``, and what else stands there."""

    head: Mapping[str, Any]
    body: bytes | None

    @property
    def headers(self) -> Mapping[str, Any]:
        """The headers; empty where there are none."""
        return self.head.get("headers") or {}

    @property
    def properties(self) -> Mapping[str, Any]:
        """The properties."""
        properties: Mapping[str, Any] = self.head["properties"]
        return properties

    @property
    def tag(self) -> str:
        """The delivery tag."""
        return str(self.properties["delivery_tag"])

    @property
    def exchange(self) -> str:
        """The exchange to which it was published; empty for the default one."""
        return self.properties["delivery_info"]["exchange"] or ""

    @property
    def routing_key(self) -> str:
        """The routing key; with the default exchange, the name of its queue."""
        return self.properties["delivery_info"]["routing_key"] or ""

    def step(self, steps: Sequence[int] = STEPS) -> int:
        """The bucket in which it belongs, of these."""
        return step_of(self.properties.get("priority"), steps)

    def with_headers(self, **headers: Any) -> Message:
        """The message with more headers, or other values of them."""
        return evolve(self, head={**self.head, "headers": {**self.headers, **headers}})

    def without_header(self, name: str) -> Message:
        """The message without one of its headers."""
        return evolve(self, head={**self.head, "headers": {key: value for key, value in self.headers.items() if key != name}})

    def with_properties(self, **properties: Any) -> Message:
        """The message with more properties, or other values of them."""
        return evolve(self, head={**self.head, "properties": {**self.properties, **properties}})

    def in_base64(self) -> Message:
        """The message with its body in base64, as the transport does it whatever the publisher says of the encoding."""
        properties = {name: value for name, value in self.properties.items() if name != "body_encoding"}
        return Message({**self.head, "properties": properties}, self.body)

    @property
    def is_plain(self) -> bool:
        """Whether its body stands in JSON as text."""
        return "body_encoding" in self.properties and _is_plain(self.properties["body_encoding"])


def _is_plain(encoding: Any) -> bool:
    return encoding is None or (isinstance(encoding, str) and encoding.lower() == "utf-8")


# JSON text


@remember_last
def decode(raw: bytes) -> Message:
    """The message behind a list entry. Raises MalformedValue for what a kombu consumer can't take, and names the reason."""
    return _message(load_json(raw))


def encode(message: Message) -> bytes:
    """The list entry as kombu writes it."""
    return json.dumps(_value(message)).encode("ascii")


def decode_delivery(raw: bytes) -> tuple[Message, str, str]:
    """Message, exchange and routing key behind a value of the hash of unacked messages. Raises MalformedValue."""
    match load_json(raw):
        case [dict() as value, str() | None as exchange, str() | None as routing_key]:
            return _message(value), exchange or "", routing_key or ""
    raise MalformedValue("not a message with its exchange and routing key")


def encode_delivery(message: Message) -> bytes:
    """The value in the hash of unacked messages as kombu writes it."""
    return json.dumps([_value(message), message.exchange, message.routing_key]).encode("ascii")


def _message(value: Any) -> Message:
    _, properties, body = _checked(value)
    message = Message({name: part for name, part in value.items() if name != "body"}, body)
    return message.in_base64() if properties.get("body_encoding") == BASE64 else message


def _checked(value: Any) -> tuple[Mapping[str, Any], Mapping[str, Any], bytes | None]:
    """Headers, properties and body of a message that a consumer can take. Raises MalformedValue for any other value."""
    if not isinstance(value, dict):
        raise MalformedValue(f"a JSON {type(value).__name__} instead of a message")
    properties, headers = value.get("properties"), value.get("headers")
    if not isinstance(properties, dict) or not isinstance(headers, dict | None):
        raise MalformedValue("a message whose properties or headers are no object")
    tag, info = properties.get("delivery_tag"), properties.get("delivery_info")
    if isinstance(tag, bool) or not isinstance(tag, str | int) or tag == "":
        raise MalformedValue("a message without a delivery tag")
    match info:
        case {"exchange": str() | None, "routing_key": str() | None}:
            return headers or {}, properties, _body(value.get("body"), properties.get("body_encoding"))
    raise MalformedValue("a message whose delivery_info names no exchange and routing key")


class Envelope(NamedTuple):
    """A message without its body."""

    tag: str
    exchange: str
    routing_key: str
    headers: Mapping[str, Any]


def decode_envelope(raw: bytes) -> Envelope:
    """What ``decode`` finds in a list entry, at a third of the cost. Raises MalformedValue as it does, and for a numeric tag."""
    headers, properties, _ = _checked(load_json(raw))
    tag, info = properties["delivery_tag"], properties["delivery_info"]
    if not isinstance(tag, str):
        raise MalformedValue("a delivery tag that is a number, which may have been rounded")
    return Envelope(tag, info["exchange"] or "", info["routing_key"] or "", headers)


def _body(text: Any, encoding: Any) -> bytes | None:
    if text is None:
        return None
    if not isinstance(text, str):
        raise MalformedValue("a message whose body is no text")
    if _is_plain(encoding):
        return to_bytes(text)
    if encoding != BASE64:
        raise MalformedValue("a message whose body has an encoding that kombu does not know")
    try:
        # As loosely as kombu does it: line breaks inside are skipped.
        return base64.b64decode(to_bytes(text))
    except binascii.Error:
        raise MalformedValue("a message whose body is not base64") from None


def _value(message: Message) -> dict[str, Any]:
    properties = message.properties
    if message.is_plain or message.body is None:
        body = None if message.body is None else to_text(message.body)
    else:
        body = base64.b64encode(message.body).decode("ascii")
        # kombu sets both at once, in this order.
        before = {name: value for name, value in properties.items() if name != "delivery_tag"}
        properties = {**before, "body_encoding": BASE64, "delivery_tag": properties["delivery_tag"]}
    return {"body": body, **message.head, "properties": properties}


# Canonical fields


@frozen
class Record:
    """A message as a queue or a consumer has it."""

    message: Message
    held: bool = False
    """A consumer has taken it and not acked it."""
    since: float | None = None
    """When that was, in seconds of Unix time; None when the index has lost it."""

    @property
    def text(self) -> bytes:
        """What kombu writes: a list entry, or the value in the hash of unacked messages."""
        return encode_delivery(self.message) if self.held else encode(self.message)


def canonical(job_id: str, queue: str, record: Record, now_ms: int, visibility_ms: int = VISIBILITY_TIMEOUT_MS) -> Job:
    """The job that a message describes, without its ``extra``. What has no sensible value is None."""
    message = record.message
    task = task_of(message)
    name = task.get("task")
    due_at = parse_timestamp(task.get("eta"))
    started_at = None if record.since is None else _milliseconds(record.since)
    state = State.WAITING
    if record.held:
        state = State.ACTIVE
    elif due_at is not None and due_at > now_ms:
        state = State.SCHEDULED
    return Job(
        id=job_id,
        queue=queue,
        name=name if isinstance(name, str) else "",
        state=state,
        priority=_number(message.properties.get("priority")),
        payload=message.body,
        due_at=due_at,
        started_at=started_at,
        attempts=_whole(task.get("retries")),
        lease_expires_at=None if started_at is None else int64_or_none(started_at + visibility_ms),
        ttl=_time_limit(task.get("timelimit")),
    )


def task_of(message: Message) -> Mapping[str, Any]:
    """What Celery says about the task: the headers, or up to Celery 3 (protocol 1) the body. For other messages the headers."""
    headers = message.headers
    if isinstance(headers.get("task"), str) or message.head.get("content-type") != "application/json" or "compression" in headers:
        return headers
    try:
        body = load_json(message.body or b"")
    except MalformedValue:
        return headers
    return body if isinstance(body, dict) and isinstance(body.get("task"), str) and "args" in body else headers


def unreadable(task: Mapping[str, Any]) -> list[str]:
    """What a task says of when, how often and how long it runs in a form that no worker could read."""
    eta, retries, limits = task.get("eta"), task.get("retries"), task.get("timelimit")
    wrong = ["eta"] if eta is not None and parse_timestamp(eta) is None else []
    wrong += ["retries"] if retries is not None and _whole(retries) is None else []
    if limits is not None and not (
        isinstance(limits, list) and all(each is None or _number(each) is not None for each in limits)
    ):
        wrong.append("timelimit")
    return wrong


def eta_text(due_at: int) -> str | None:
    """The ISO 8601 text of a moment; None for one outside the years 1 to 9999."""
    try:
        return (EPOCH + due_at * MILLISECOND).isoformat()
    except OverflowError:
        return None


def _milliseconds(seconds: float) -> int | None:
    return int64_or_none(int(seconds * 1000)) if math.isfinite(seconds) and abs(seconds) < 1e18 else None


def _time_limit(limits: Any) -> int | None:
    """The longest run time: the first of Celery's ``[hard, soft]``, in seconds."""
    hard = _number(limits[0]) if isinstance(limits, list) and limits else None
    return None if hard is None else _milliseconds(hard)


def _whole(value: Any) -> int | None:
    return int64_or_none(value) if type(value) is int else None


def _number(value: Any) -> int | float | None:
    """A JSON number that a report can hold; JSON has neither infinite ones nor NaN, but 1e999 reads as one."""
    if type(value) is float:
        return value if math.isfinite(value) else None
    return _whole(value)
