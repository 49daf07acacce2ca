"""Whole messages: the payloads of a system whose jobs are AMQP messages already, as those of kombu's ``redis://`` are.

Such a payload is a JSON object with body, content type and encoding, headers and properties. Pure. Called by ``messages.py``.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from ...schema.errors import MalformedValue
from ...schema.live import ForeignDelivery
from ...schema.text import load_loose_json, show
from ..message import TYPE_MARK, Content, decode_kombu_type

HEADER = "ferryman"
"""Header: where a message came from. A task sees it in ``self.request.headers``."""
CONSUMER = "ferryman_consumer"
"""Property: the consumer that holds the job; whoever ends it says so."""


def payload_of_message(found: Content, queue: str, priority: float | None) -> dict[str, Any]:
    """The payload that a message becomes, complete as kombu writes it. Nothing of an earlier delivery goes with it."""
    headers = {name: value for name, value in found.headers.items() if name != HEADER}
    properties = {name: value for name, value in found.properties.items() if name != CONSUMER}
    info = properties.get("delivery_info") or {}
    # Each queue's copy gets a delivery tag of its own: by that alone the system tells apart what consumers have.
    properties |= {
        "delivery_tag": str(uuid4()),
        "delivery_info": {**info, "exchange": "", "routing_key": queue},
    }
    if priority is not None or "priority" not in properties:
        properties["priority"] = int(priority or 0)
    return {
        "body": base64.b64encode(found.body).decode("ascii"),
        "content-encoding": found.content_encoding,
        "content-type": found.content_type,
        "headers": headers,
        "properties": {**properties, "body_encoding": "base64"},
    }


def content_of_message(job: ForeignDelivery, mark: Mapping[str, Any], consumer: str) -> Content:
    """The message that a job is, with ``mark`` among its headers. Raises MalformedValue."""
    message = load_loose_json(job.payload)  # as stock workers read it, NaN included
    if TYPE_MARK in job.payload:
        message = json.loads(job.payload, object_hook=decode_kombu_type)
    match message:
        case {"body": str(body), "headers": dict(headers), "properties": dict(properties)}:
            try:
                raw = base64.b64decode(body) if properties.get("body_encoding") == "base64" else body.encode("utf-8")
            except ValueError as error:
                raise MalformedValue(f"message {job.id!r} has a body that can't be read: {error}") from None
        case _:
            raise MalformedValue(f"job {job.id!r} is no message: {show(job.payload)}")
    if not isinstance(properties.get("delivery_info") or {}, dict):
        raise MalformedValue(f"message {job.id!r} has a delivery_info that is no JSON object")
    types = (message.get("content-type"), message.get("content-encoding"))
    if not all(isinstance(each, str | None) for each in types):
        raise MalformedValue(f"message {job.id!r} has a content type or encoding that is no text")
    return Content(raw, *types, {**headers, HEADER: dict(mark)}, {**properties, CONSUMER: consumer})
