"""The keys of a foreign keyspace in use, as bytes: those of the original software, and our own beside them."""

from __future__ import annotations

from typing import Any

import redis
from ferryman.testing import keyspaces

SIDE = b"ferryman:"
"""What our own keys begin with, unless told otherwise."""


def everything(client: redis.Redis) -> dict[bytes, Any]:
    """Every key with its value: text, tuple of a list, frozenset, scores by member, values by field."""
    return {key: _value(entry.redis_type, entry.value) for key, entry in keyspaces.dump(client).items()}


def seen(client: redis.Redis) -> dict[bytes, Any]:
    """What the original software knows."""
    return {key: value for key, value in everything(client).items() if not key.startswith(SIDE)}


def side_keys(client: redis.Redis) -> list[bytes]:
    """The names of our own keys about foreign jobs, without what remembers publications for some minutes."""
    return sorted(key for key in everything(client) if key.startswith(SIDE + b"live:") and b":publisher:" not in key)


def _value(redis_type: str, value: Any) -> Any:
    match redis_type:
        case "list":
            return tuple(value)
        case "set":
            return frozenset(value)
        case "zset":
            return dict(value)
    return value
