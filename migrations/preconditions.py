"""Preconditions: what must still be true at the moment in which a repair is applied, as reading commands with their answers.

``preconditions`` says what to ask about a finding: everything that speaks of its job, and everything that its commands change.
The answers are compared again, by digest, in the script that applies the commands (``lua/repair.lua``). Only commands of which
the table below knows what they change can be sent that way. Pure. Called by ``repair.py``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ..schema.errors import FerrymanError
from ..schema.fact import Subject
from ..schema.family import Command
from ..schema.text import to_bytes

Precondition = Command
"""A command that only reads."""

READING = frozenset(
    {
        *("EXISTS", "GET", "PTTL", "STRLEN", "TYPE"),
        *("HEXISTS", "HGET", "HGETALL", "HLEN"),
        *("LINDEX", "LLEN", "LRANGE"),
        *("SCARD", "SISMEMBER", "SMEMBERS"),
        *("ZCARD", "ZRANGE", "ZSCORE"),
    }
)
"""What a repair may ask for beside its changes, where something else must stay as it is."""

UNORDERED: Mapping[str, int] = {"HGETALL": 2, "SMEMBERS": 1}
"""Replies without an order, by how many parts belong together."""


def preconditions(commands: Sequence[Command], subject: Subject | None, shared: Collection[bytes]) -> tuple[Precondition, ...]:
    """What to ask before the commands are sent, each question once. ``shared``: keys that speak of several jobs."""
    questions = [precondition for command in commands for precondition in _about_changes(command)]
    if subject is not None:
        questions += _about_job(subject, shared)
    return tuple(dict.fromkeys(questions))


def keys_of(command: Command) -> tuple[bytes, ...]:
    """The keys that a command names. Raises FerrymanError for a command that no repair may use."""
    name, *rest = command
    words = tuple(to_bytes(word) if isinstance(word, str) else word for word in rest)
    if name in ("DEL", "UNLINK", "EXISTS"):
        keys = words
    elif name in ("SMOVE", "RENAMENX"):
        keys = words[:2]
    elif name in _ITEMS or name in _WHOLE or name in READING:
        keys = words[:1]
    else:
        raise FerrymanError(f"a repair can't use {name!s}: it is not known what that would change")
    return tuple(key for key in keys if isinstance(key, bytes))


def _about_job(subject: Subject, shared: Collection[bytes]) -> Iterator[Precondition]:
    for fact in subject.facts:
        key, member = fact.key, fact.member
        if key not in shared:
            yield ("PTTL", key)
        match fact.redis_type:
            case "zset" if member is not None:
                yield ("ZSCORE", key, member)
            case "set" if member is not None:
                yield ("SISMEMBER", key, member)
            case "hash" if key in shared:
                # Where a hash has a field for each job, the field is the fact's member, or the id.
                yield ("HGET", key, to_bytes(subject.job_id) if member is None else member)
            case "list" if key in shared and fact.index is not None:
                yield ("LINDEX", key, fact.index)
            case redis_type:
                yield _content(redis_type, key)


def _content(redis_type: str, key: bytes) -> Precondition:
    """Asks for all of a key."""
    match redis_type:
        case "string":
            return ("GET", key)
        case "list":
            return ("LRANGE", key, 0, -1)
        case "hash":
            return ("HGETALL", key)
        case "set":
            return ("SMEMBERS", key)
        case "zset":
            return ("ZRANGE", key, 0, -1, "WITHSCORES")
    return ("TYPE", key)


def _about_changes(command: Command) -> Iterator[Precondition]:
    """What stands where the command will write."""
    name = str(command[0])
    if name in READING:
        yield command
    elif name in _ITEMS:
        precondition, members = _ITEMS[name]
        for member in members(command):
            yield (precondition, command[1], member)
    else:
        for key in keys_of(command):
            yield ("TYPE", key)
            yield from ((precondition, key) for precondition in _WHOLE.get(name, ("PTTL",)))


def _after_options(command: Command) -> Sequence[Any]:
    """The score and member pairs of ZADD."""
    words = command[2:]
    while words and str(words[0]).upper() in ("NX", "XX", "GT", "LT"):
        words = words[1:]
    return words


_ITEMS: Mapping[str, tuple[str, Any]] = {
    "HSET": ("HGET", lambda command: command[2::2]),
    "HSETNX": ("HGET", lambda command: command[2:3]),
    "HDEL": ("HGET", lambda command: command[2:]),
    "ZADD": ("ZSCORE", lambda command: _after_options(command)[1::2]),
    "ZINCRBY": ("ZSCORE", lambda command: command[3:4]),
    "ZREM": ("ZSCORE", lambda command: command[2:]),
    "SADD": ("SISMEMBER", lambda command: command[2:]),
    "SREM": ("SISMEMBER", lambda command: command[2:]),
    "LSET": ("LINDEX", lambda command: command[2:3]),
}
"""Commands that change items of a key: what to ask about each, and which they are."""

_WHOLE: Mapping[str, tuple[str, ...]] = {
    "SET": ("STRLEN", "GET", "PTTL"),
    "PERSIST": ("PTTL",),
    "PEXPIRE": ("PTTL",),
    "LPUSH": (),
    "RPUSH": (),
    "LREM": (),
    "LTRIM": ("LLEN",),
    "LPOP": ("LLEN",),
}
"""Commands that change a key: what to ask about it beside its type. What is added to a list, or taken out by value, is right at
any length; where the length matters, the repair asks for it itself."""


# Answers


def digest_of(precondition: Precondition, reply: Any) -> bytes:
    """The digest of an answer, as the script works it out."""
    size = UNORDERED.get(str(precondition[0]))
    if precondition[0] == "PTTL" and isinstance(reply, int) and reply >= 0:
        reply = b"expires"
    elif size and isinstance(reply, list):
        reply = sorted(_hexdigest(reply[start : start + size]) for start in range(0, len(reply), size))
    return _hexdigest(reply)


def _hexdigest(reply: Any) -> bytes:
    return hashlib.sha1(_flat(reply), usedforsecurity=False).hexdigest().encode()


def _flat(reply: Any) -> bytes:
    match reply:
        case None:
            return b"-"
        case bytes():
            return b"$%d:%b" % (len(reply), reply)
        case int():
            return b":%d," % reply
        case list():
            return b"*%d:%b" % (len(reply), b"".join(map(_flat, reply)))
    return b"!"
