"""Whole keyspaces as values, to be compared key by key, and to be audited as they are."""

from __future__ import annotations

from typing import Any

import redis
from ferryman.schema.fact import Entry
from ferryman.schema.family import get_family
from ferryman.schema.rule import Finding, Severity
from ferryman.schema.text import to_text
from ferryman.testing import keyspaces


def dump(client: redis.Redis) -> dict[str, Any]:
    """All keys with their values: text, a list, a set, or a mapping of fields, or of members to scores."""
    return {to_text(key): _shown(entry) for key, entry in keyspaces.dump(client).items()}


def _shown(entry: Entry) -> Any:
    value: Any = entry.value
    match entry.redis_type:
        case "string":
            return to_text(value)
        case "hash":
            return {to_text(name): to_text(each) for name, each in value.items()}
        case "zset":
            return {to_text(member): score for member, score in value}
        case "set":
            return set(map(to_text, value))
    return [to_text(each) for each in value]


def changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What is different: each key with its new value, None for one that has gone."""
    return {key: after.get(key) for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


def findings(client: redis.Redis, family: str, prefix: str, now_ms: int) -> list[Finding]:
    """What an audit of the keyspace finds, but for what it merely mentions."""
    found = keyspaces.read_keyspace(get_family(family), keyspaces.dump(client).values(), prefix, now_ms).findings()
    return [finding for finding in found if finding.severity is not Severity.INFO]
