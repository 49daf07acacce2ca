"""Ageing: makes all that a queue has stored older, which for who looks next is as if time had moved on. Called by ``broker.py``.

The times of a queue stand in the scores of some sorted sets, in fields of its jobs, in the headers of Celery's messages and in
TTLs (``schema/native/scripts/lua/_queue.lua``). Only for tests: it is no transition, and nobody else may work on the queue.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from ..schema.keys import glob_escape
from ..schema.native import codec
from ..schema.native.keys import QueueKeys
from ..schema.text import to_text
from ..transport.message import TYPE_MARK, decode_kombu_type, encode_kombu_type

TIMES = (b"due_at", b"expires_at", b"published_at", b"delivered_at")
"""Fields of a job, Unix ms."""
HEADERS = ("eta", "expires")
"""Headers of Celery's messages, ISO 8601."""


def age(client: Any, keys: QueueKeys, ms: int) -> None:
    """Makes everything in a queue older by so many ms."""
    for zset in (keys.scheduled, keys.consumers, keys.dead, keys.done):
        for member, score in client.zrange(zset, 0, -1, withscores=True):
            client.zadd(zset, {member: score - ms})
    horizon = client.hget(keys.meta, "horizon")
    if horizon is not None:
        client.hset(keys.meta, "horizon", round(float(horizon)) - ms)
    for key in client.scan_iter(match=glob_escape(to_text(keys.base)) + "*", count=1000):
        if key.startswith(keys.job_prefix):
            _age_job(client, key, ms)
        left_ms = client.pttl(key)
        if left_ms > ms:
            client.pexpire(key, left_ms - ms)
        elif left_ms > 0:
            client.unlink(key)


def _age_job(client: Any, key: bytes, ms: int) -> None:
    fields = client.hgetall(key)
    changed: dict[bytes, Any] = {name: round(float(fields[name])) - ms for name in TIMES if name in fields}
    if b"message" in fields:
        head, body = codec.decode(fields[b"message"], decode_kombu_type if TYPE_MARK in fields[b"message"] else None)
        headers = head.get("headers") or {}
        earlier = {name: _earlier(headers[name], ms) for name in HEADERS if headers.get(name)}
        if earlier:
            head["headers"] = headers | earlier
            changed[b"message"] = codec.encode(head, body, encode_kombu_type)
    if changed:
        client.hset(key, mapping=changed)


def _earlier(moment: Any, ms: int) -> Any:
    if isinstance(moment, datetime):
        return moment - timedelta(milliseconds=ms)
    try:
        return (datetime.fromisoformat(str(moment)) - timedelta(milliseconds=ms)).isoformat()
    except ValueError:
        return moment
