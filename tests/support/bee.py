"""Keyspaces and events of bee, in a form in which two that mean the same are equal, for tests of bee in use.

The order of fields in JSON is arbitrary; how numbers are written is not. Times to live are compared roughly.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import redis
from ferryman.testing.keyspaces import dump

JSON_FIELDS = (b"data", b"options", b"tags", b"history", b"result", b"dependants")
SIDE = b"ferryman:"


def exact(raw: bytes | str) -> Any:
    """The value of a JSON text, its numbers as they are written."""
    return json.loads(raw, parse_int=lambda text: f"number {text}", parse_float=lambda text: f"number {text}")


def keyspace(client: redis.Redis) -> dict[bytes, Any]:
    """All keys of bee: type, value, and time to live in units of 20 s."""
    found = {}
    for key, entry in dump(client).items():
        if not key.startswith(SIDE):
            value = record(entry.value) if entry.redis_type == "hash" else entry.value
            found[key] = (entry.redis_type, value, None if entry.ttl_ms is None else round(entry.ttl_ms / 20_000))
    return found


def record(fields: Mapping[bytes, bytes]) -> dict[bytes, Any]:
    """A record with its JSON read."""
    return {name: exact(raw) if name in JSON_FIELDS else raw for name, raw in fields.items()}


def side_keys(client: redis.Redis) -> list[bytes]:
    """Ferryman's own keys in a database, but for what is remembered of publications, which ends by itself."""
    return sorted(key for key in client.scan_iter("ferryman:*") if b":publisher:" not in key)


@contextmanager
def events(client: redis.Redis) -> Iterator[list[tuple[str, Any]]]:
    """What is published on bee's channels within the block: filled when it ends."""
    found: list[tuple[str, Any]] = []
    listening = client.pubsub()
    listening.psubscribe("bee:ch:*")
    assert listening.get_message(timeout=60) is not None
    try:
        yield found
        client.publish("bee:ch:end", b"null")
        while (message := listening.get_message(timeout=60)) is not None and message["channel"] != b"bee:ch:end":
            found.append((message["channel"].decode(), exact(message["data"])))
    finally:
        listening.close()


def json_bytes(value: Any) -> bytes:
    """A value as JSON text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
