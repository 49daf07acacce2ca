"""The key patterns of the native family: which key of a keyspace is what, known by its name and type.

``keys.py`` builds the names, this file takes them apart. Names that look like ours but could not have been built by us are
reported as odd by the reader, never guessed at. Called by the reader.
"""

from __future__ import annotations

from functools import lru_cache

from ..keys import KeyLayout, KeyPattern, PrefixFinder

_TAG = {"tag": "[^{}]+"}


def _of_queue(role: str, name: str, *redis_types: str) -> KeyPattern:
    return KeyPattern(role, "<prefix>:{<tag>}:" + name, redis_types, _TAG)


PATTERNS = (
    _of_queue("meta", "meta", "hash"),
    _of_queue("waiting", "waiting", "zset"),
    _of_queue("scheduled", "scheduled", "zset"),
    _of_queue("consumers", "consumers", "zset"),
    _of_queue("dead", "dead", "zset"),
    _of_queue("done", "done", "zset"),
    _of_queue("wake", "wake", "list"),
    _of_queue("blocked", "blocked", "set"),
    _of_queue("outbox", "outbox", "zset"),
    _of_queue("moves", "moves", "zset"),
    _of_queue("letters", "letters", "zset"),
    _of_queue("unreported", "unreported", "zset"),
    _of_queue("record", "job:<id>", "hash"),
    _of_queue("held", "held:<consumer>", "zset"),
    _of_queue("needs", "needs:<id>", "set"),
    _of_queue("unblocks", "unblocks:<id>", "set"),
    _of_queue("publisher", "publisher:<producer>", "string"),
    _of_queue("batch", "batch:<label>", "set", "string"),
    _of_queue("tag", "tag:<label>", "set"),
    _of_queue("unique", "unique:<label>", "string"),
    _of_queue("times", "times", "string"),
    _of_queue("history", "history", "hash"),
    KeyPattern("slots", "<prefix>:{<tag>}:history:<step>", ("list",), {**_TAG, "step": "1|10|60"}),
    KeyPattern("queues", "<prefix>:queues", ("set",)),
    KeyPattern("forwarding", "<prefix>:forwarding", ("set",)),
    KeyPattern("unroutable", "<prefix>:unroutable", ("hash",)),
    KeyPattern("exchange", "<prefix>:exchange:<name>", ("hash",), {"name": ".*"}),
    KeyPattern("cursors", "<prefix>:fanout:{<tag>}:cursors", ("hash",), _TAG),
    KeyPattern("fanout", "<prefix>:fanout:{<tag>}", ("stream",), _TAG),
    KeyPattern("connection", "<prefix>:wake:<name>", ("list",)),
)

PREFIX_FINDER = PrefixFinder(PATTERNS, {"meta", "record"}, prefix="[^{}]+")
"""Every queue has its meta hash; a queue that lost it may still have jobs."""

JOB_ROLES = ("waiting", "scheduled", "held", "dead", "done", "blocked")
"""The roles whose members are jobs: a job stands in exactly one of these keys."""

WITH_TTL = frozenset({"publisher", "batch", "unique", "connection", "fanout", "cursors", "history", "slots"})
"""The roles of keys that may carry a TTL, whatever their queue is."""


@lru_cache(maxsize=64)
def layout(prefix: str) -> KeyLayout:
    """All keys of the keyspace under ``prefix``."""
    return KeyLayout(PATTERNS, prefix=prefix)
