"""Reading: the values of keys that a scan has named, as entries of bounded size.

Only reads, many keys in one round trip. A key that goes away while it is read is left out; a key that changes its type is
read again. No command here holds the server longer than one chunk takes. Called by the serial scan and by Spark tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..schema.errors import ServerError
from ..schema.fact import Entry
from ..schema.family import Command
from ..schema.text import show, to_text
from .wire import Wire, pairs

BATCH = 100
"""Keys to read in one round trip: the rate of larger batches at a quarter of the wait for the server's other clients."""
CHUNK = 10_000
"""Most members of a zset, set or hash in one entry."""
LIST_CHUNK = 1_000
"""Most items of a list in one entry: lists hold whole messages."""
ATTEMPTS = 10
"""How often a key is read again that keeps changing its type."""


def read_entries(line: Wire, keys: Iterable[bytes]) -> Iterator[list[Entry]]:
    """The values of the keys: a list with the entry of each, or its first part, then one list for each further part.

    Keys that don't exist any more are left out. A list, set or hash longer than a chunk that changes while it is read may
    miss or repeat the items that change, and a list those beside them; a zset never misses a member that stands still.
    """
    found, large, changed = _read_together(line, list(keys))
    for key in changed:
        for head in _read_alone(line, key):
            found.append(_entry(head))
            large.append(head)
    if found:
        yield found
    for key, kind, ttl_ms, reply in large:
        if _has_more(kind, reply):
            for offset, value in _further(line, key, kind, reply):
                yield [Entry(key, kind, value, ttl_ms, offset)]


_Head = tuple[bytes, str, int | None, Any]
"""A key, its type, its time to live and the reply with its first chunk."""


def _read_once(line: Wire, keys: Sequence[bytes]) -> tuple[list[Entry], list[_Head], list[bytes]]:
    """The first chunk of every key, the heads of those that have more, and the keys to read again."""
    found: list[Entry] = []
    large: list[_Head] = []
    changed: list[bytes] = []
    answers = line.call(command for key in keys for command in (("TYPE", key), ("PTTL", key)))
    heads = []
    for key, kind, ttl in zip(keys, answers[::2], answers[1::2], strict=True):
        name = to_text(_checked(kind))
        if name != "none":
            heads.append((key, name, _checked(ttl) if _checked(ttl) >= 0 else None))
    commands = [_first(key, kind) for key, kind, _ in heads]
    replies = iter(line.call(command for command in commands if command is not None))
    for (key, kind, ttl_ms), command in zip(heads, commands, strict=True):
        if command is None:
            found.append(Entry(key, kind, None, ttl_ms))
            continue
        reply = next(replies)
        if isinstance(reply, Exception) and str(reply).startswith("WRONGTYPE"):
            changed.append(key)
            continue
        value = _value(kind, _checked(reply))
        more = _has_more(kind, reply)
        if value or more or (kind == "string" and value is not None):
            found.append(Entry(key, kind, value, ttl_ms))
        if more:
            large.append((key, kind, ttl_ms, reply))
    return found, large, changed


def _checked(reply: Any) -> Any:
    """The reply, unless it is an error. Raises the error."""
    if isinstance(reply, Exception):
        raise reply
    return reply


def _first(key: bytes, kind: str) -> Command | None:
    """What reads a key of this type, or as much of it as one chunk holds. None: a type whose values are not read."""
    match kind:
        case "string":
            return "GET", key
        case "list":
            return "LRANGE", key, 0, LIST_CHUNK - 1
        case "zset":
            return "ZRANGE", key, 0, CHUNK - 1, "WITHSCORES"
        case "set":
            return "SSCAN", key, 0, "COUNT", CHUNK
        case "hash":
            return "HSCAN", key, 0, "COUNT", CHUNK
    return None


def _value(kind: str, reply: Any) -> Any:
    """The value of an Entry behind a reply to ``_first``, or to a later command of the same form."""
    match kind:
        case "zset":
            return [(member, float(score)) for member, score in pairs(reply)]
        case "set":
            return list(reply[1])
        case "hash":
            return dict(pairs(reply[1]))
    return reply


def _has_more(kind: str, reply: Any) -> bool:
    match kind:
        case "list":
            return len(reply) == LIST_CHUNK
        case "zset":
            return len(pairs(reply)) == CHUNK
        case "set" | "hash":
            return int(reply[0]) != 0
    return False


def _further(line: Wire, key: bytes, kind: str, reply: Any) -> Iterator[tuple[int, Any]]:
    """The chunks after the first: offset and value."""
    match kind:
        case "list":
            yield from _list_chunks(line, key)
        case "zset":
            yield from _zset_chunks(line, key, _value(kind, reply)[-1])
        case _:
            yield from _cursor_chunks(line, key, kind, reply)


def _list_chunks(line: Wire, key: bytes) -> Iterator[tuple[int, Any]]:
    offset = LIST_CHUNK
    while items := line.ask("LRANGE", key, offset, offset + LIST_CHUNK - 1):
        yield offset, items
        offset += len(items)


def _cursor_chunks(line: Wire, key: bytes, kind: str, reply: Any) -> Iterator[tuple[int, Any]]:
    command = "SSCAN" if kind == "set" else "HSCAN"
    offset = len(_value(kind, reply))
    while cursor := int(reply[0]):
        reply = line.ask(command, key, cursor, "COUNT", CHUNK)
        value = _value(kind, reply)
        if value:
            yield offset, value
        offset += len(value)


def _zset_chunks(line: Wire, key: bytes, last: tuple[bytes, float]) -> Iterator[tuple[int, Any]]:
    """The members after ``last``, in order, whatever enters or leaves the zset meanwhile.

    Ranks shift when members before them go. So each chunk starts at least one member back: when its first member is not
    past the last one seen, nothing between them can be missing; else the next try starts further back.
    """
    offset = rank = CHUNK
    back = 1
    while True:
        start = max(0, rank - back)
        chunk = _value("zset", line.ask("ZRANGE", key, start, start + CHUNK - 1, "WITHSCORES"))
        if start > 0 and (not chunk or _order(chunk[0]) > _order(last)):
            back = CHUNK if back == 1 else 2 * back
            continue
        fresh = [item for item in chunk if _order(item) > _order(last)]
        if fresh:
            yield offset, fresh
            offset += len(fresh)
            last = fresh[-1]
        if len(chunk) < CHUNK:
            return
        rank, back = start + len(chunk), 1


def _order(item: tuple[bytes, float]) -> tuple[float, bytes]:
    """The order of a zset: by score, then by the member's bytes."""
    return item[1], item[0]
