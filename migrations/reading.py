"""Reading: the values of keys that a scan has named, as entries of bounded size.

Only reads, many keys in one round trip. A key that goes away while it is read is left out; a key that changes its type is
read again. No command here holds the server longer than one chunk takes. Called by the serial scan and by Spark tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from functools import cache
from typing import Any, TypeVar

import redis

from ..schema.connection.pipeline import PipelineConnection, mapping
from ..schema.fact import Entry
from ..schema.family import Command
from ..schema.frozen import frozen
from ..schema.text import to_text
from .long_keys import WHOLE, Sizes, anchor_before, list_chunks, scored, zset_chunks
from .throttle import Pace

Chunk = TypeVar("Chunk", bound=Sized)

BATCH = 100
"""Keys to read in one round trip: the rate of larger batches at a quarter of the wait for the server's other clients."""
BATCH_BYTES = 8 << 20
"""Where values are large, as many keys are read in one round trip as made this much in the one before."""
SAMPLE = 10
"""Each entry of so many is weighed."""
SMALL_HASH = 1_000
"""Most fields of a hash that is read at once, when its length is known."""
ZSET_HEAD = 1_000
"""Members of a zset, at most, that are read before it is known whether it is long: who sets it aside reads them again."""
MISSING = "none"
"""What Redis calls the type of a key that does not exist."""


Guess = Callable[[bytes], object]
"""Whether a key of this name is in all likelihood a hash of a few fields, as the records of jobs are; true or false."""


def no_guess(_key: bytes) -> bool:
    """Nothing is known of the types of keys."""
    return False


SetAside = Callable[[PipelineConnection, bytes, str, int | None], bool]
"""Takes a key (name, type, time to live in ms) off the reader's hands, who then says nothing about it; or returns False."""


def keep(*_: object) -> bool:
    """Nothing is set aside."""
    return False


def read_all(
    pipe: PipelineConnection, names: Sequence[bytes], pace: Pace, is_hash: Guess = no_guess, set_aside: SetAside = keep
) -> Iterator[list[Entry]]:
    """The values of any number of keys, in batches, no faster than ``pace`` wants. See ``read_entries``."""
    most, chunk_pace = pace.throttle.batch(BATCH), pace.throttle.pace()
    start, size = 0, most
    while start < len(names):
        batch = names[start : start + size]
        pace.begin()
        found = read_entries(pipe, batch, is_hash, set_aside, pace.throttle.sizes)
        first = next(found, None)
        pace.end(len(batch))
        start += len(batch)
        if first is not None:
            weighed = first[::SAMPLE]
            size = max(1, min(most, BATCH_BYTES * len(weighed) // (sum(map(_weight, weighed)) + 1)))
            yield first
            yield from chunk_pace.through(found)


def _weight(entry: Entry) -> int:
    """The bytes of an entry's values, about."""
    match entry.value:
        case bytes() as text:
            return len(text)
        case dict() as fields:
            return sum(map(len, fields.values()))
        case list() as items if entry.redis_type != "zset":
            return sum(map(len, items))
    return 0


def read_entries(
    pipe: PipelineConnection, keys: Iterable[bytes], is_hash: Guess = no_guess, set_aside: SetAside = keep, sizes: Sizes = WHOLE
) -> Iterator[list[Entry]]:
    """The values of the keys: a list with the entry of each, or its first part, then one list for each further part.

    Keys that don't exist any more are left out. Of a key longer than a chunk, items that come or go while it is read may be
    missed or repeated; those that stand still are not (long_keys.py), but a set or hash whose table shrinks may repeat some.
    ``is_hash`` may be wrong, and only costs time then. ``set_aside`` is offered each key that is longer than its first part.
    """
    heads = _heads(pipe, list(keys), is_hash, sizes)
    heads = [head for head in heads if not (_has_more(head) and set_aside(pipe, head.key, head.redis_type, head.ttl_ms))]
    entries = [entry for entry in map(_entry, heads) if entry is not None]
    if entries:
        yield entries
    for head in heads:
        if _has_more(head):
            try:
                for offset, value in _further(pipe, head):
                    yield [Entry(head.key, head.redis_type, value, head.ttl_ms, offset)]
            except redis.exceptions.ResponseError as error:
                if not is_wrong_type(error):
                    raise
                # Another key stands there now; what was read of the old one counts, as if it had gone away.


@frozen
class _Head:
    """A key and the reply with its first chunk."""

    key: bytes
    redis_type: str
    ttl_ms: int | None
    reply: Any
    sizes: Sizes
    """Of that chunk, and of the further ones."""


def _heads(pipe: PipelineConnection, keys: Sequence[bytes], is_hash: Guess, sizes: Sizes) -> list[_Head]:
    """The first chunk of every key that exists: types first, then what reads each type."""
    # The length of a hash tells its type as well, and whether one plain command may read it.
    guessed = [bool(is_hash(key)) for key in keys]
    first = _first(sizes)
    type_replies = pipe.call(
        command for key, hit in zip(keys, guessed, strict=True) for command in (("HLEN" if hit else "TYPE", key), ("PTTL", key))
    )
    existing: list[tuple[bytes, str, int | None, Command | None]] = []
    again: list[bytes] = []
    for key, hit, found, ttl in zip(keys, guessed, type_replies[::2], type_replies[1::2], strict=True):
        if hit and is_wrong_type(found):
            again.append(key)
        elif hit:
            if checked(found):
                existing.append(
                    (key, "hash", _ttl(checked(ttl)), ("HGETALL", key) if found <= SMALL_HASH else first["hash"](key))
                )
        elif (redis_type := _type_in(found)) != MISSING:
            existing.append((key, redis_type, _ttl(checked(ttl)), first[redis_type](key) if redis_type in first else None))
    replies = iter(pipe.call(read for *_, read in existing if read is not None))
    heads = []
    for key, redis_type, ttl_ms, read in existing:
        reply = None if read is None else next(replies)
        if is_wrong_type(reply):
            heads += _head_at_once(pipe, key, sizes)
        else:
            reply = checked(reply)
            whole = (b"0", reply) if read is not None and read[0] == "HGETALL" else reply
            heads.append(_Head(key, redis_type, ttl_ms, whole, sizes))
    return heads + (_heads(pipe, again, no_guess, sizes) if again else [])


def _head_at_once(pipe: PipelineConnection, key: bytes, sizes: Sizes) -> list[_Head]:
    """The same for one key that changes its type between two commands: asked for as every type, in one transaction."""
    first = _first(sizes)
    reads = [read(key) for read in first.values()]
    replies = checked(pipe.call([("MULTI",), ("TYPE", key), ("PTTL", key), *reads, ("EXEC",)])[-1])
    redis_type, ttl_ms = _type_in(replies[0]), _ttl(checked(replies[1]))
    by_type = dict(zip(first, replies[2:], strict=True))
    return [] if redis_type == MISSING else [_Head(key, redis_type, ttl_ms, checked(by_type.get(redis_type)), sizes)]


def _type_in(reply: Any) -> str:
    return to_text(checked(reply))


def _ttl(reply: int) -> int | None:
    return reply if reply >= 0 else None


def is_wrong_type(reply: Any) -> bool:
    """Whether it says that the key is of another type than the command is for."""
    return isinstance(reply, redis.exceptions.ResponseError) and str(reply).startswith("WRONGTYPE")


def checked(reply: Any) -> Any:
    """The reply, unless it is an error. Raises the error."""
    if isinstance(reply, Exception):
        raise reply
    return reply


@cache
def _first(sizes: Sizes) -> Mapping[str, Callable[[bytes], Command]]:
    """What reads a key of each type, or as much of it as one chunk holds. Values of other types are not read."""
    return {
        "string": lambda key: ("GET", key),
        "list": lambda key: ("LRANGE", key, 0, sizes.items - 1),
        "zset": lambda key: ("ZRANGE", key, 0, _zset_head(sizes) - 1, "WITHSCORES"),
        "set": lambda key: ("SSCAN", key, 0, "COUNT", sizes.members),
        "hash": lambda key: ("HSCAN", key, 0, "COUNT", sizes.members),
    }


def _zset_head(sizes: Sizes) -> int:
    return min(sizes.members, ZSET_HEAD)


def _entry(head: _Head) -> Entry | None:
    """The entry of a key or of its first chunk; None for a key that went away after its type was asked for."""
    value = _value(head.redis_type, head.reply)
    gone = value is None if head.redis_type == "string" else not value and not _has_more(head)
    if gone and head.redis_type in _first(head.sizes):
        return None
    return Entry(head.key, head.redis_type, value, head.ttl_ms)


def _value(redis_type: str, reply: Any) -> Any:
    """The value of an Entry behind a reply to ``_FIRST``, or to a later command of the same form."""
    match redis_type:
        case "zset":
            return scored(reply)
        case "set":
            return list(reply[1])
        case "hash":
            return mapping(reply[1])
    return reply


def _has_more(head: _Head) -> bool:
    match head.redis_type:
        case "list":
            return len(head.reply) == head.sizes.items
        case "zset":
            in_turn = bool(head.reply) and isinstance(head.reply[0], bytes)
            return len(head.reply) == (2 if in_turn else 1) * _zset_head(head.sizes)
        case "set" | "hash":
            return int(head.reply[0]) != 0
    return False


def _further(pipe: PipelineConnection, head: _Head) -> Iterator[tuple[int, Any]]:
    """The chunks after the first: offset and value."""
    match head.redis_type:
        case "list":
            read = head.sizes.items
            yield from numbered(read, list_chunks(pipe, head.key, head.sizes, read, anchor_before(head.reply)))
        case "zset":
            read = _zset_head(head.sizes)
            yield from numbered(read, zset_chunks(pipe, head.key, head.sizes, read, scored(head.reply[-2:])[-1]))
        case _:
            yield from _cursor_chunks(pipe, head)


def numbered(offset: int, chunks: Iterable[Chunk]) -> Iterator[tuple[int, Chunk]]:
    """Each chunk with the index of its first item, if the first of all has ``offset``."""
    for chunk in chunks:
        yield offset, chunk
        offset += len(chunk)


def _cursor_chunks(pipe: PipelineConnection, head: _Head) -> Iterator[tuple[int, Any]]:
    command = "SSCAN" if head.redis_type == "set" else "HSCAN"
    reply = head.reply
    offset = len(_value(head.redis_type, reply))
    while cursor := int(reply[0]):
        reply = pipe.ask(command, head.key, cursor, "COUNT", head.sizes.members)
        value = _value(head.redis_type, reply)
        if value:
            yield offset, value
        offset += len(value)
