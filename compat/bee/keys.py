"""Keys of bee: every key pattern by role, and the words that stand in a record.

Names of queues, tags and hashes are free text with any colons in it. ``P:l:hashes:<queue>:<hash>`` can't be split by itself:
a record tells which list is its own. Called by everything in this folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from ...schema.family import Keyspace
from ...schema.job import State
from ...schema.keys import KeyLayout, KeyPattern
from ...schema.state_index import StateIndex, StateIndexQuery, known
from ...schema.text import to_text

_ANY = ".*"
"""A queue, a tag or a hash may be empty."""

PATTERNS = (
    KeyPattern("record", "<prefix>:h:jobs:<id>", ("hash",), {"id": _ANY}),
    KeyPattern("queue", "<prefix>:ss:queue:<queue>", ("zset",), {"queue": _ANY}),
    KeyPattern("delayed", "<prefix>:ss:delayed:<queue>", ("zset",), {"queue": _ANY}),
    KeyPattern("locks", "<prefix>:ss:locks:<queue>", ("zset",), {"queue": _ANY}),
    KeyPattern("expires", "<prefix>:ss:expires:<queue>", ("zset",), {"queue": _ANY}),
    KeyPattern("bees", "<prefix>:ss:bees:<queue>", ("zset",), {"queue": _ANY}),
    KeyPattern("lock_waits", "<prefix>:str:lock-waits:<worker>:<id>", ("string",), {"worker": _ANY, "id": "[^:]*"}),
    KeyPattern("hashes", "<prefix>:l:hashes:<hashed>", ("list",), {"hashed": _ANY}),
    # In this order: a tag may end in ":children".
    KeyPattern("tag", "<prefix>:s:tags:<tag>", ("set",), {"tag": _ANY}),
    KeyPattern("held", "<prefix>:s:locks:<worker>", ("set",), {"worker": _ANY}),
    KeyPattern("dependencies", "<prefix>:s:dependencies:<id>", ("set",), {"id": _ANY}),
    KeyPattern("children", "<prefix>:s:<id>:children", ("set",), {"id": _ANY}),
    KeyPattern("hive", "<prefix>:str:hive:options", ("string",)),
    KeyPattern("scripts", "<prefix>:scripts", ("hash",)),
)

SETS = ("queue", "delayed", "locks", "expires")
"""The roles of the sorted sets, of each of which a queue has one. A sound job stands in at most one of them."""

WORDS = {
    State.WAITING: "queued",
    State.SCHEDULED: "new",
    State.BLOCKED: "new",
    State.ACTIVE: "running",
    State.COMPLETED: "completed",
    State.FAILED: "failed",
    State.CANCELLED: "canceled",
}
"""The usual status word of a job in each canonical state."""

STATES_OF = {
    "new": (State.SCHEDULED, State.BLOCKED, State.UNKNOWN),
    "queued": (State.WAITING,),
    "running": (State.ACTIVE,),
    "completed": (State.COMPLETED,),
    "failed": (State.FAILED,),
    "retried": (State.SCHEDULED, State.UNKNOWN),
    "duplicate": (State.COMPLETED, State.FAILED, State.CANCELLED, State.BLOCKED, State.UNKNOWN),
    "canceled": (State.CANCELLED,),
    "expired": (State.COMPLETED, State.FAILED, State.UNKNOWN),
}
"""The nine status words, and the canonical states that each can mean."""

ROLE_OF = {
    "queued": "queue",
    "new": "delayed",
    "retried": "delayed",
    "running": "locks",
    "completed": "expires",
    "failed": "expires",
}
"""The role of the sorted set in which a job of a status belongs."""

UNFINISHED = frozenset({"new", "queued", "running", "retried"})
"""Status words of jobs that have yet to end."""

DYING = frozenset({"canceled", "expired"})
"""Status words of jobs whose record Redis removes by itself."""

EVENTS = ("completed", "failed", "canceled")
"""The history events that end a job."""

SCRIPTS = frozenset(
    [f"job/{name}" for name in ("put", "pop", "done", "load", "hash", "failed", "setTags", "cancel")]
    + ["bee/heartbeat", "bee/expired"]
)
"""The fields of ``P:scripts``."""

OPTIONS_TTL = 1_800_000
"""How long a finished job stays valid where its options say nothing else, ms."""

OPTIONS = {
    "priority": 0,
    "delay": 0,
    "dependencies": {},
    "dependenciesOnTags": False,
    "preferredHostname": False,
    "retries": 5,
    "retryDelay": 30_000,
    "progressiveDelay": False,
    "ttl": OPTIONS_TTL,
}
"""A job's options as bee sets them where nobody says otherwise."""

EARLIEST_TIME = 10**12
"""A score below this (September 2001, in ms) is no time."""

LOCK_MS = 45_000
"""How long a worker's lock lasts without a heartbeat."""


@lru_cache(maxsize=64)
def layout(prefix: str) -> KeyLayout:
    """All keys of the keyspace; bee itself knows only the prefix ``bee``."""
    return KeyLayout(PATTERNS, prefix=prefix)


def hashed(queue: str, unique_key: str) -> str:
    """What the name of the list of jobs with one hash ends in."""
    return f"{queue}:{unique_key}"


# Whose a key is, and who wrote the keyspace

_RECORD = re.compile(r"(.+):h:jobs:[0-9a-f]{8}-[0-9a-f]{4}-1[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", re.DOTALL)
"""Ids are version 1 UUIDs in lower case."""

_VERSIONS = (("0.0.3", "0.0.3 or older"), ("0.0.4", "0.0.4 or 0.0.5"), ("head", "head of the repository (2014-01-13)"))
"""What ``reader.tally`` counts as the trace of each version, oldest first."""


def prefixes(key: bytes, redis_type: str) -> Iterable[str]:
    """The prefix of a key that only bee can have: a job's record."""
    found = _RECORD.fullmatch(to_text(key)) if redis_type == "hash" else None
    return (found[1],) if found else ()


def version(keyspace: Keyspace) -> str | None:
    """All versions that have left jobs behind, oldest first."""
    found = [words for trace, words in _VERSIONS if keyspace.totals.sums["trace", trace]]
    return ", then ".join(found) or None


STATE_ROLES = {
    State.WAITING: "queue",
    State.SCHEDULED: "delayed",
    State.ACTIVE: "locks",
}
"""Jobs that have ended stand in no index once they are expired or duplicates, those that wait for others never."""


def state_indexes(prefix: str, queue: str, state: State) -> StateIndexQuery | None:
    """See KeyFamily.state_indexes. The sorted sets of a bee queue by state, each in the order of runs."""
    role = STATE_ROLES.get(state)
    return None if role is None else known([StateIndex(layout(prefix).key(role, queue=queue), "zset")])
