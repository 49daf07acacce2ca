"""Samples: captured keyspaces as entries, so that a demo and the tests need no server of the original software.

A capture is a text file with one key a line: ``{"key", "type", "ttl_ms", "value"}``. A value is text, a list (head first),
a set as a list, a zset as ``[[member, score], …]`` in order, or a hash; bytes that are no UTF-8 stand as ``{"b64": …}``.
Called by each family's ``samples.py`` and by the tests.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Iterator
from importlib.resources import files
from typing import Any

from attrs import frozen

from ..schema.fact import Entry
from ..schema.family import Command
from ..schema.text import to_bytes


@frozen
class Sample:
    """One captured keyspace that is shipped with a family."""

    package: str
    """The family's package; the capture is its ``data/<name>.jsonl.gz``."""
    name: str
    prefix: str
    captured_at_ms: int
    """The moment to compare with: seen from today every lease is long over."""

    def faults(self) -> list[tuple[str, str | None]]:
        """(rule, job id) of the faults that were injected before the capture; id None for a fault of the whole keyspace."""
        text = files(self.package).joinpath("data", f"{self.name}.damage.json").read_text("utf-8")
        return [(rule, job_id) for rule, job_id in json.loads(text)]

    def entries(self) -> Iterator[Entry]:
        """Every key of the capture."""
        compressed = files(self.package).joinpath("data", f"{self.name}.jsonl.gz").read_bytes()
        # Not splitlines: payloads hold line separators of other alphabets.
        return read_capture(gzip.decompress(compressed).decode("utf-8").split("\n"))


def read_capture(lines: Iterable[str]) -> Iterator[Entry]:
    """The entries that the lines of a capture describe."""
    for line in lines:
        if line:
            row = json.loads(line)
            ttl_ms = None if row["ttl_ms"] < 0 else row["ttl_ms"]
            yield Entry(_bytes(row["key"]), row["type"], _value(row["type"], row["value"]), ttl_ms)


def commands(entry: Entry) -> list[Command]:
    """What writes the entry into an empty server. A time to live is left out, so that an expired lock stays to be seen."""
    match entry.redis_type:
        case "string":
            return [("SET", entry.key, entry.value)]
        case "list":
            return [("RPUSH", entry.key, *entry.value)]
        case "set":
            return [("SADD", entry.key, *entry.value)]
        case "zset":
            return [("ZADD", entry.key, *(word for member, score in entry.value for word in (score, member)))]
        case "hash":
            return [("HSET", entry.key, *(word for pair in entry.value.items() for word in pair))]
    return []


def _value(redis_type: str, raw: Any) -> Any:
    match redis_type:
        case "string":
            return _bytes(raw)
        case "list" | "set":
            return [_bytes(item) for item in raw]
        case "zset":
            return [(_bytes(member), float(score)) for member, score in raw]
        case "hash":
            return {to_bytes(field): _bytes(value) for field, value in raw.items()}
    return None


def _bytes(raw: Any) -> bytes:
    return base64.b64decode(raw["b64"]) if isinstance(raw, dict) else to_bytes(raw)
