"""Message: between kombu's messages and the jobs in Redis.

Outwards: the dict that ``prepare_message`` makes becomes a frame (head and raw body) and the few facts the broker acts on:
priority, due time, expiration, dedup key. Inwards: a job's fields become a kombu Message. A job that came from another system
has a payload and a name instead of a frame; it becomes a Celery task message with the name as task and the payload as its one
argument. Nothing here decodes a body: kombu does, and only with content types that the user accepts.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from attrs import frozen
from kombu.message import Message as KombuMessage
from kombu.utils.json import JSONEncoder, object_hook

from ..schema.errors import MalformedValue, UsageError
from ..schema.native import codec
from ..schema.native.scripts.publication import Publication
from ..schema.native.scripts.waiting_score import HIGHEST_PRIORITY
from ..schema.native.task_message import JSON_HEAD, task_message
from ..schema.text import load_json, to_text

DELAY = "x-delay"
"""Header: ms from now until the message may be delivered."""
UNIQUE_KEY = "x-unique-key"
"""Header: while one message of a queue has it, no other with the same one is stored there."""
UNIQUE_TTL = "x-unique-ttl"
"""Header: ms for which the key is held; without it, until the message is finished."""

PAST_ETA = "x-eta"
"""Header: the ``eta`` of a message that is due."""

TYPE_MARK = b'"__type__"'
"""What kombu's form of a date, a UUID, a decimal or bytes begins with."""

encode_kombu_type = JSONEncoder().default
"""kombu's JSON form of a value that JSON has none for; what ``redis://`` accepts in a header is accepted here."""


def decode_kombu_type(value: dict[str, Any]) -> Any:
    """The value behind ``encode_kombu_type``. An object that only looks like one stays as it is."""
    try:
        return object_hook(value)
    except (ArithmeticError, AttributeError, TypeError, ValueError):
        return value


def publication(job_id: str, message: Mapping[str, Any]) -> Publication:
    """The stored form of a message made by ``prepare_message``, and what the broker acts on.

    Raises UsageError for a head that is no JSON, and a delay or dedup key that can't be; the text names the value.
    """
    body = message["body"]
    raw = body.encode("utf-8") if isinstance(body, str) else bytes(body)
    head = {name: message.get(name) for name in ("content-type", "content-encoding", "headers", "properties")}
    properties, headers = message["properties"], message.get("headers") or {}
    unique = headers.get(UNIQUE_KEY)
    if unique is not None and not isinstance(unique, str):
        raise UsageError(f"the header {UNIQUE_KEY} must be a text, not {unique!r}")
    return Publication(
        job_id,
        codec.encode(head, raw, encode_kombu_type),
        priority=_priority(properties.get("priority")),
        due_ms=_due_ms(headers.get("eta")),
        ttl_ms=_integer(properties.get("expiration"), "expiration"),
        delay_ms=_integer(headers.get(DELAY), f"the header {DELAY} (ms)"),
        unique=unique,
        unique_ttl_ms=_integer(headers.get(UNIQUE_TTL), f"the header {UNIQUE_TTL} (ms)"),
    )


def _priority(value: Any) -> int:
    """As on ``redis://``: what is out of range is the nearest that is not, and what is no number is the default."""
    try:
        return max(0, min(int(value), HIGHEST_PRIORITY))
    except (OverflowError, TypeError, ValueError):
        return 0


def _integer(value: Any, what: str) -> int | None:
    if value is None:
        return None
    try:
        return int(value)
    except (TypeError, ValueError):
        raise UsageError(f"{what} must be a whole number, not {value!r}") from None


def drop_past_eta(headers: dict[str, Any], now: int) -> None:
    """Remove Celery's ``eta`` from a message that is due by the server's clock, ``now``. It moves to the header ``x-eta``.

    A worker compares an eta with its own clock. If that is behind, the worker takes every due message and holds it in its memory.
    """
    eta = headers.get("eta")
    due = None if eta is None else _due_ms(eta)
    if due is not None and due <= now:
        headers[PAST_ETA], headers["eta"] = eta, None


def _due_ms(eta: Any) -> int | None:
    """When Celery's ``eta`` header lets the message run."""
    if isinstance(eta, str):
        try:
            eta = datetime.datetime.fromisoformat(eta)
        except ValueError:
            return None  # the worker that gets it says what is wrong with it
    if not isinstance(eta, datetime.datetime):
        return None
    moment = eta if eta.tzinfo is not None else eta.replace(tzinfo=datetime.UTC)
    return round(moment.timestamp() * 1000)


@frozen
class Content:
    """What a job's fields say: kombu's four parts of a message and the raw body."""

    body: bytes
    content_type: str | None
    content_encoding: str | None
    headers: dict[str, Any]
    properties: dict[str, Any]


def content(job_id: str, queue: str, fields: Mapping[bytes, bytes]) -> Content:
    """The message that a job's hash holds. Raises MalformedValue when it holds none that can be understood."""
    frame = fields.get(b"message")
    if frame is None:
        return _task(job_id, queue, fields)
    head, body = codec.decode(frame, decode_kombu_type if TYPE_MARK in frame else None)
    headers, properties = head.get("headers") or {}, head.get("properties") or {}
    if not isinstance(headers, dict) or not isinstance(properties, dict):
        raise MalformedValue(f"message {job_id!r} has headers or properties that are no JSON object")
    for name in ("content-type", "content-encoding"):
        if not isinstance(head.get(name), str | None):
            raise MalformedValue(f"message {job_id!r} has a {name} that is no text")
    if not isinstance(properties.get("delivery_info") or {}, dict):
        raise MalformedValue(f"message {job_id!r} has a delivery_info that is no JSON object")
    return Content(body, head.get("content-type"), head.get("content-encoding"), headers, properties)


def _task(job_id: str, queue: str, fields: Mapping[bytes, bytes]) -> Content:
    """A Celery task message (protocol 2) for a job of another system: ``name(payload)``."""
    if b"payload" not in fields or b"name" not in fields:
        raise MalformedValue(f"job {job_id!r} has neither a message nor a payload with a name")
    payload, name = fields[b"payload"], to_text(fields[b"name"])
    headers, properties, body = task_message(job_id, queue, name, payload)
    return Content(body, JSON_HEAD["content-type"], JSON_HEAD["content-encoding"], headers, properties)


def is_task(found: Content) -> bool:
    """Whether a message asks for a Celery task, in protocol 2 by its headers, in protocol 1 by its body, if that is JSON."""
    names: Any = found.headers
    if "task" not in names and found.content_type == JSON_HEAD["content-type"] and "compression" not in names:
        try:
            names = load_json(found.body)
        except MalformedValue:
            return False
    return isinstance(names, dict) and bool(names.get("task") and names.get("id"))


class Message(KombuMessage):  # type: ignore[misc]
    """A delivered message. ``delivery_tag`` is unique within its channel."""

    def __init__(self, channel: Any, tag: int, content: Content, **delivery_info: Any) -> None:
        properties = content.properties
        info = {"exchange": "", "routing_key": "", **(properties.get("delivery_info") or {}), **delivery_info}
        super().__init__(
            body=content.body,
            delivery_tag=tag,
            content_type=content.content_type,
            content_encoding=content.content_encoding,
            delivery_info=info,
            properties=properties,
            headers=content.headers,
            channel=channel,
        )

    def settle(self) -> None:
        """Gives its place free; what becomes of it was said by other means."""
        self.channel.settle(self.delivery_tag)
        self._state = "ACK"
