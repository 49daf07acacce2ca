"""KeySample: some keys of a database, for detection: the names of many, and the values of those that are asked for.

Only reads, never calls KEYS, and stops after so many keys or seconds. Called by ``detect.py``.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

import redis
from attrs import frozen

from ..schema.connection.permission import Forbidden, ForbiddenKey
from ..schema.connection.pipeline import PipelineConnection
from ..schema.fact import Entry
from ..schema.family import CountQuery
from ..schema.job import State
from .counting import answer
from .probes import clock_ms
from .reading import read_entries
from .source import Source

PAGE = 1000
LARGE = 1000
"""A key with so many items may have more than were read of it."""

Key = tuple[bytes, str]
"""A key's name and type."""

Read = Callable[[Sequence[Key]], Iterator[tuple[Entry, float]]]
"""The entries of some keys. Large ones may be cut short: the number says how many times as long the whole is."""


@frozen
class KeySample:
    """What was seen of a database."""

    size: int
    """How many keys there are."""
    keys: list[Key]
    finished: bool
    """Whether these are all keys."""
    now_ms: int
    read: Read
    hidden: int = 0
    """Keys at which the user may not look."""
    count: Callable[[CountQuery], Mapping[str, Counter[State]]] | None = None
    """Asks a server for the lengths of a family's indexes; None for a file."""


def at_server(client: redis.Redis, pipe: PipelineConnection, most_keys: int, deadline: float) -> KeySample:
    """Sample a server's database. Names are collected until ``deadline`` (of the monotonic clock)."""
    size = int(pipe.ask("DBSIZE"))
    keys, finished, hidden = _names(pipe, most_keys, deadline)
    return KeySample(size, keys, finished, clock_ms(client), lambda those: _read(pipe, those), hidden, partial(answer, pipe))


def at_source(source: Source, most_keys: int, deadline: float) -> KeySample:
    """Looks at the beginning of a source that can only be read from one end to the other, and keeps it in memory."""
    now_ms = source.clock_ms()
    found: defaultdict[bytes, list[Entry]] = defaultdict(list)
    finished = True
    for entry in chain.from_iterable(source.entries(now_ms)):
        if entry.key not in found and (len(found) >= most_keys or time.monotonic() > deadline):
            finished = False
            break
        found[entry.key].append(entry)
    keys = [(key, entries[0].redis_type) for key, entries in found.items()]
    return KeySample(max(source.size(), len(keys)), keys, finished, now_ms, lambda those: _in_memory(found, those))


def _in_memory(found: dict[bytes, list[Entry]], keys: Sequence[Key]) -> Iterator[tuple[Entry, float]]:
    return ((entry, 1.0) for key, _ in keys for entry in found[key])


def _names(pipe: PipelineConnection, most_keys: int, deadline: float) -> tuple[list[Key], bool, int]:
    """Names and types of the keys, whether that is all of them, and how many the user may not see. One that SCAN repeats counts
    once. Raises Forbidden where the user may look at no key at all."""
    found: dict[bytes, str] = {}
    hidden: set[bytes] = set()
    cursor = 0
    while True:
        reply = pipe.ask("SCAN", cursor, "COUNT", PAGE)
        cursor, page = int(reply[0]), [key for key in reply[1] if key not in found]
        for key, redis_type in zip(page, pipe.call(("TYPE", key) for key in page), strict=True):
            if isinstance(redis_type, bytes) and redis_type != b"none":
                found[key] = redis_type.decode()
            elif isinstance(redis_type, ForbiddenKey):
                hidden.add(key)
            elif isinstance(redis_type, Forbidden):
                raise redis_type
        if cursor == 0:
            return list(found.items()), True, len(hidden)
        if len(found) >= most_keys or time.monotonic() > deadline:
            return list(found.items()), False, len(hidden)


LENGTHS = {"list": "LLEN", "zset": "ZCARD", "set": "SCARD", "hash": "HLEN"}
"""What tells the length of a key of each type."""


def _read(pipe: PipelineConnection, keys: Sequence[Key]) -> Iterator[tuple[Entry, float]]:
    entries = next(read_entries(pipe, [key for key, _ in keys]), [])
    large = [entry for entry in entries if entry.redis_type in LENGTHS and len(entry.value) >= LARGE]
    lengths = pipe.call((LENGTHS[entry.redis_type], entry.key) for entry in large)
    longer = {entry.key: length for entry, length in zip(large, lengths, strict=True) if isinstance(length, int)}
    for entry in entries:
        yield entry, max(1.0, longer[entry.key] / len(entry.value)) if entry.key in longer else 1.0
