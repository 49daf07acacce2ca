"""KeySplits: a key of very many items, in splits that several tasks read side by side.

    cut -> read_split, one task each

Splits of a zset or list begin and end at items, not at indexes, so they fit together though items come and go in between
(long_keys.py); what comes behind the last item after the key was cut is in none. An item's index counts from where its split
began then. Splits of a set or hash are ranges of positions, as those of a whole keyspace are (scan.py): only where it is a hash
table, and where the server's cursors are positions.

Only reads. Called by ``engine/longkeys.py``; index_slices.py cuts indexes in another way.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import redis
from attrs import asdict, frozen

from ..schema.connection.pipeline import PipelineConnection, pairs
from ..schema.errors import ServerError
from ..schema.fact import Entry
from ..schema.text import to_text
from .long_keys import ANCHOR, LIST_CHUNK, WHOLE, Scored, Sizes, anchor_before, find, list_chunks, scored, zset_chunks
from .reading import numbered
from .scan import CursorRange, position, ranges

LONG = 200_000
"""Keys with fewer items are not cut."""
PART = 100_000
"""About so many items make a split, as long as that makes no more than MAX_PARTS."""
MAX_PARTS = 1024
PAGE = 1_000
"""Items of a set or hash that one call looks at: what it returns beyond the end of a split has to be told apart."""
FULL = 64
"""As long as a table has so many items for each split, the splits begin between two of its buckets."""
FAR = 300
"""Chunks of a list in which the beginning of a split is looked for, on each side: the list has moved since it was cut."""

_LENGTH = {"list": "LLEN", "zset": "ZCARD", "set": "SCARD", "hash": "HLEN"}
_SCAN = {"set": "SSCAN", "hash": "HSCAN"}
Border = tuple[bytes, ...]
"""The last items before a border: of a list a run, of a zset a member and its score; empty where there are none to know it by."""


@frozen
class KeySplit:
    """A part of a key, to be read on its own."""

    key: bytes
    redis_type: str
    """The key's Redis type."""
    ttl_ms: int | None
    offset: int
    """The index of its first item when the key was cut."""
    count: int
    """How many items it had then, about as many if it is of a set or hash."""
    number: int
    """Which split of the key it is, 0 first."""
    of: int
    after: Border = ()
    until: Border = ()

    def to_json(self) -> dict[str, Any]:
        """A plain value for ``from_json``."""
        return asdict(self, value_serializer=lambda _part, _field, value: _plain(value))

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> KeySplit:
        """The split behind ``to_json``."""
        borders = {name: tuple(map(base64.b64decode, raw[name])) for name in ("after", "until")}
        return cls(**{**raw, **borders, "key": base64.b64decode(raw["key"])})


def _plain(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


# Cutting


def cut(pipe: PipelineConnection, key: bytes, redis_type: str, ttl_ms: int | None, *, by_cursor: bool) -> list[KeySplit]:
    """The splits of a key; none if it is not long, or can't be cut.

    ``by_cursor``: whether the server's cursors are known to be positions, without which sets and hashes stay whole.
    """
    length = length_in(pipe.call([(_LENGTH[redis_type], key)])[0])
    of = min(MAX_PARTS, length // PART)
    if length < LONG or of < 2 or (redis_type in _SCAN and not (by_cursor and _is_table(pipe, key))):
        return []
    if redis_type in _SCAN:
        of = 1 << of.bit_length() - 1  # as tables have
        offsets = [length * number // of for number in range(of + 1)]
        borders: list[Border] = [()] * (of + 1)
    else:
        offsets = [length * number // of // LIST_CHUNK * LIST_CHUNK for number in range(of)] + [length]
        borders = [(), *borders_at(pipe, key, redis_type, offsets[1:])]
        if redis_type == "zset" and not all(borders[1:-1]):
            return []  # it has lost most of its members just now
    return between(key, redis_type, ttl_ms, offsets, borders)


def between(key: bytes, redis_type: str, ttl_ms: int | None, offsets: Sequence[int], borders: Sequence[Border]) -> list[KeySplit]:
    """The splits from each of these indexes to the next."""
    of = len(offsets) - 1
    return [
        KeySplit(key, redis_type, ttl_ms, first, end - first, number, of, after, until)
        for number, ((first, after), (end, until)) in enumerate(pairwise(zip(offsets, borders, strict=True)))
    ]


def length_in(reply: Any) -> int:
    """A key's length, 0 for one that has another type by now."""
    return reply if isinstance(reply, int) else 0


def _is_table(pipe: PipelineConnection, key: bytes) -> bool:
    return pipe.call([("OBJECT", "ENCODING", key)]) == [b"hashtable"]


def borders_at(pipe: PipelineConnection, key: bytes, redis_type: str, offsets: Sequence[int]) -> list[Border]:
    """What stands before each of these indexes."""
    if redis_type == "list":
        replies = pipe.call(("LRANGE", key, offset - ANCHOR, offset - 1) for offset in offsets)
        return [anchor_before(reply) if isinstance(reply, list) else () for reply in replies]
    replies = pipe.call(("ZRANGE", key, offset - 1, offset - 1, "WITHSCORES") for offset in offsets)
    return [() if isinstance(reply, Exception) or not reply else _border(scored(reply)[0]) for reply in replies]


def _border(item: Scored) -> Border:
    return item[0], repr(item[1]).encode()


def member_at(border: Border) -> Scored | None:
    """The member and its score at the border of a zset's split."""
    return (border[0], float(border[1])) if border else None


# Reading


def read_split(pipe: PipelineConnection, split: KeySplit, sizes: Sizes = WHOLE) -> Iterator[Entry]:
    """The items of a split, in entries of bounded size. Items that stand still are in exactly one split.

    Of a set or hash that has lost nearly all its items, one may be in two. A key that has another type by now has no items.
    Raises ServerError when cursors prove not to be positions.
    """
    try:
        for offset, items in numbered(split.offset, _CHUNKS[split.redis_type](pipe, split, sizes)):
            yield Entry(split.key, split.redis_type, dict(items) if split.redis_type == "hash" else items, split.ttl_ms, offset)
    except redis.exceptions.ResponseError as error:
        if not str(error).startswith("WRONGTYPE"):
            raise


def _list_items(pipe: PipelineConnection, split: KeySplit, sizes: Sizes) -> Iterator[list[Any]]:
    after, index, count = split.after, split.offset, split.count
    begin = find(pipe, split.key, after, index, FAR)
    end = find(pipe, split.key, split.until, index + count, FAR) if begin is None else None
    if begin is not None:
        index = begin
    elif end is not None and split.number == 0:
        count = end
    elif end is not None and after:
        # What it began behind has gone: it begins at the head of the list now, or as far before its end as it did.
        after, index = (), max(0, end - count)
    elif after and split.until:
        return iter(())  # all of it has been taken away
    return list_chunks(pipe, split.key, sizes, index, after, split.until, count)


def _zset_items(pipe: PipelineConnection, split: KeySplit, sizes: Sizes) -> Iterator[list[Any]]:
    return zset_chunks(pipe, split.key, sizes, split.offset, member_at(split.after), member_at(split.until))


def _table_items(pipe: PipelineConnection, split: KeySplit, _sizes: Sizes) -> Iterator[list[Any]]:
    span = ranges(split.of)[split.number]
    cursor = span.first
    # When the table shrinks, calls return again what earlier ones did.
    known: set[bytes] = set()
    while True:
        is_table, length, following, items = _page(pipe, split, cursor)
        if not is_table:
            # Another key stands here, whose items come all at once.
            if split.number == 0 and items:
                yield items
            return
        is_past = span.is_past(following) if following else split.number < split.of - 1
        if is_past and length > FULL * split.of:
            known |= _beyond(pipe, split, span.hi, following)
        fresh = [item for item in items if _name(item) not in known]
        if fresh:
            yield fresh
        known.update(map(_name, fresh))
        if is_past or not following:
            return
        if not span.advances(cursor, following):
            raise _no_positions(split)
        cursor = following


def _beyond(pipe: PipelineConnection, split: KeySplit, start: int, following: int) -> set[bytes]:
    """The names of the items from a position on to that of a cursor: they are the next split's."""
    rest = CursorRange(start, position(following)) if following else CursorRange(start)
    names: set[bytes] = set()
    cursor = rest.first
    while cursor and not rest.is_past(cursor):
        _, _, onward, items = _page(pipe, split, cursor)
        names.update(map(_name, items))
        if onward and not rest.advances(cursor, onward):
            raise _no_positions(split)
        cursor = onward
    return names


def _page(pipe: PipelineConnection, split: KeySplit, cursor: int) -> tuple[bool, int, int, list[Any]]:
    """One call's items, and at the same moment: whether the key is a hash table, and its length; and the next cursor."""
    key = split.key
    look = ("OBJECT", "ENCODING", key), (_LENGTH[split.redis_type], key), (_SCAN[split.redis_type], key, cursor, "COUNT", PAGE)
    *_, replies = pipe.call([("MULTI",), *look, ("EXEC",)])
    for reply in (replies, *(replies if isinstance(replies, list) else ())):
        if isinstance(reply, Exception):
            raise reply
    encoding, length, (following, items) = replies
    return encoding == b"hashtable", length, int(following), pairs(items) if split.redis_type == "hash" else items


def _name(item: Any) -> bytes:
    name: bytes = item[0] if isinstance(item, tuple) else item
    return name


def _no_positions(split: KeySplit) -> ServerError:
    return ServerError(f"this server's cursors within {to_text(split.key)!r} can't be split into ranges; use the local engine")


_CHUNKS = {"list": _list_items, "zset": _zset_items, "set": _table_items, "hash": _table_items}
