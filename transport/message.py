"""Between kombu's messages and the jobs that stand in Redis.

Outwards: the dict that ``prepare_message`` makes becomes a frame (head and raw body) and the few facts the broker acts on:
priority, due time, task id. Inwards: a job's fields become a kombu Message. A job that came from another system has a
payload and a name instead of a frame; it becomes a Celery task message with the name as task and the payload as its one
argument. Nothing here decodes a body: kombu does, and only with content types that the user accepts.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from attrs import frozen
from kombu.message import Message as KombuMessage

from ..schema.errors import MalformedValue, UsageError
from ..schema.native import codec
from ..schema.text import load_json, to_text

JSON_HEAD = {"content-type": "application/json", "content-encoding": "utf-8"}


@frozen
class Outgoing:
    """One message ready to be stored."""

    frame: bytes
    priority: int
    due_ms: int | None
    """Unix ms before which it must not be delivered."""
    ttl_ms: int | None
    """How long it may wait once it is due; AMQP's per-message ``expiration``."""


def outgoing(message: Mapping[str, Any]) -> Outgoing:
    """The stored form of a message made by ``prepare_message``.

    Raises UsageError for a priority or a delay that is no number; the text names the value.
    """
    body = message["body"]
    raw = body.encode("utf-8") if isinstance(body, str) else bytes(body)
    head = {name: message.get(name) for name in ("content-type", "content-encoding", "headers", "properties")}
    properties = message["properties"]
    return Outgoing(
        frame=codec.encode(head, raw),
        priority=_whole(properties.get("priority"), "priority") or 0,
        due_ms=_due_ms(message.get("headers") or {}),
        ttl_ms=_whole(properties.get("expiration"), "expiration"),
    )


def _whole(value: Any, what: str) -> int | None:
    if value is None:
        return None
    try:
        return int(value)
    except (TypeError, ValueError):
        raise UsageError(f"{what} must be a whole number, not {value!r}") from None


def _due_ms(headers: Mapping[str, Any]) -> int | None:
    """When Celery's ``eta`` header, or the ``x-delay`` header (ms from now), lets the message run."""
    eta = headers.get("eta")
    if isinstance(eta, str):
        try:
            moment = datetime.datetime.fromisoformat(eta)
        except ValueError:
            return None  # the worker that gets it says what is wrong with it
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=datetime.UTC)
        return round(moment.timestamp() * 1000)
    delay = _whole(headers.get("x-delay"), "the header x-delay (ms)")
    if delay is None:
        return None
    return round(datetime.datetime.now(datetime.UTC).timestamp() * 1000) + delay


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
    head, body = codec.decode(frame)
    headers, properties = head.get("headers") or {}, head.get("properties") or {}
    if not isinstance(headers, dict) or not isinstance(properties, dict):
        raise MalformedValue(f"message {job_id!r} has headers or properties that are no JSON object")
    return Content(body, head.get("content-type"), head.get("content-encoding"), headers, properties)


def _task(job_id: str, queue: str, fields: Mapping[bytes, bytes]) -> Content:
    """A Celery task message (protocol 2) for a job of another system: ``name(payload)``."""
    if b"payload" not in fields or b"name" not in fields:
        raise MalformedValue(f"job {job_id!r} has neither a message nor a payload with a name")
    payload, name = fields[b"payload"], to_text(fields[b"name"])
    load_json(payload)
    headers = {
        "lang": "py",
        "task": name,
        "id": job_id,
        "root_id": job_id,
        "parent_id": None,
        "group": None,
        "retries": 0,
        "eta": None,
        "expires": None,
        "timelimit": [None, None],
        "argsrepr": "(<payload>,)",
        "kwargsrepr": "{}",
        "origin": "ferryman",
        "ignore_result": False,
    }
    body = b"[[" + payload + b'],{},{"callbacks":null,"errbacks":null,"chain":null,"chord":null}]'
    properties = {"correlation_id": job_id, "delivery_info": {"exchange": "", "routing_key": queue}}
    return Content(body, JSON_HEAD["content-type"], JSON_HEAD["content-encoding"], headers, properties)


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
