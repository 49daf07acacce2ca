"""Outgoing messages: what a publisher hands over, with all that kombu itself would have added.

Pure. Called by ``live.py`` and ``client.py``.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import uuid4

from ...schema.errors import MalformedValue, UsageError
from ...schema.live import NewJob
from ...schema.text import load_json
from .keys import step_of
from .record import BASE64, decode

HIGHEST_PRIORITY = 9
"""The highest that kombu's transport lets through."""


def stamped(job: NewJob, exchange: str, routing_key: str, steps: Sequence[int]) -> tuple[bytes, str, int]:
    """The message as it is to stand in a list, its delivery tag, and its bucket. Raises UsageError for what is no message."""
    value = _message(job.payload)
    properties = value.get("properties", {})
    info = properties.get("delivery_info") or {}
    wanted = {**info, "exchange": exchange, "routing_key": routing_key}
    added: dict[str, Any] = {} if info == wanted else {"delivery_info": wanted}
    if "priority" not in properties or (job.priority is not None and properties["priority"] != int(job.priority)):
        added["priority"] = int(job.priority or 0)
    if job.id is not None or not properties.get("delivery_tag"):
        added["delivery_tag"] = job.id or str(uuid4())
    text = job.payload
    if added or value.get("headers") is None:
        # The order in which kombu writes them.
        text = json.dumps({**value, "headers": value.get("headers") or {}, "properties": {**properties, **added}}).encode("ascii")
    try:
        message = decode(text)
    except MalformedValue as error:
        raise UsageError(f"the payload is no message of kombu: {error}") from None
    return text, message.tag, bucket_of(message.properties.get("priority"), steps)


def _message(payload: bytes) -> dict[str, Any]:
    try:
        value = load_json(payload)
    except MalformedValue as error:
        raise UsageError(f"the payload is no message of kombu: {error}") from None
    if not isinstance(value, dict) or not isinstance(value.get("properties", {}), dict):
        raise UsageError("the payload is no message of kombu: it must be an object with body, headers and properties")
    return value


def bucket_of(priority: Any, steps: Sequence[int]) -> int:
    """The bucket into which kombu's transport puts a message of this priority; what is no number counts as 0."""
    try:
        number = int(priority)
    except (TypeError, ValueError, OverflowError):
        number = 0
    return step_of(min(max(number, 0), HIGHEST_PRIORITY), steps)


def task_message(
    task: str,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    task_id: str | None = None,
    priority: int = 0,
    eta: datetime | None = None,
    headers: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A Celery task as a message, protocol 2, as ``send_task`` makes it but for what only that process knows (``origin``)."""
    task_id = task_id or str(uuid4())
    embedded = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    body = json.dumps([list(args), dict(kwargs or {}), embedded])
    return {
        "body": base64.b64encode(body.encode("utf-8")).decode("ascii"),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {
            "lang": "py",
            "task": task,
            "id": task_id,
            "shadow": None,
            "eta": None if eta is None else eta.isoformat(),
            "expires": None,
            "group": None,
            "group_index": None,
            "retries": 0,
            "timelimit": [None, None],
            "root_id": task_id,
            "parent_id": None,
            "argsrepr": repr(tuple(args)),
            "kwargsrepr": repr(dict(kwargs or {})),
            "ignore_result": False,
            "replaced_task_nesting": 0,
            "stamped_headers": None,
            "stamps": {},
            **(headers or {}),
        },
        "properties": {
            "correlation_id": task_id,
            "reply_to": "",
            "delivery_mode": 2,
            "delivery_info": {},
            "priority": priority,
            "body_encoding": BASE64,
        },
    }
