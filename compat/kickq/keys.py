"""Keys of kickq: every key pattern by role, the eight state words, and which release wrote a keyspace.

Names of queues and ids are free text, the empty name included; the word after the namespace tells what a key is, so no name
can be taken for another key. Never guesses beyond that. Called by everything in this folder.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ...schema.family import Keyspace
from ...schema.job import State
from ...schema.keys import KeyLayout, KeyPattern, PrefixFinder
from ...schema.state_index import StateIndex, StateIndexQuery, known

WORDS = {
    "new": State.WAITING,
    "queued": State.WAITING,
    "delayed": State.SCHEDULED,
    "retry": State.SCHEDULED,
    "ghost": State.SCHEDULED,
    "processing": State.ACTIVE,
    "success": State.COMPLETED,
    "fail": State.FAILED,
}
"""The canonical state of each of kickq's words. ``new`` and ``delayed`` have not run, ``queued`` was in ``scheduled`` before."""

SCHEDULED_WORDS = ("delayed", "retry", "ghost")
"""What a job can be that waits for a time; it keeps the word in its record when it is promoted and while it runs."""

FINISHED = frozenset({State.COMPLETED, State.FAILED})

PATTERNS = (
    KeyPattern("record", "<prefix>:job:<id>", ("hash",)),
    KeyPattern("queue", "<prefix>:queue:<queue>", ("list",), {"queue": ".*"}),
    KeyPattern("state", "<prefix>:state:<state>", ("set",)),
    KeyPattern("time_index", "<prefix>:time-index", ("zset",)),
    KeyPattern("scheduled", "<prefix>:scheduled", ("zset",)),
    KeyPattern("purge", "<prefix>:scheduled-purge", ("zset",)),
    KeyPattern("ids", "<prefix>:id", ("string",)),
    # What the writer needs until a migration is finished.
    KeyPattern("staged", "<prefix>:ferryman:staged:<queue>", ("zset",), {"queue": ".*"}),
    KeyPattern("staged_list", "<prefix>:ferryman:staged-list:<queue>", ("list",), {"queue": ".*"}),
)

PREFIX_FINDER = PrefixFinder(
    (*PATTERNS[3:6], KeyPattern("state", "<prefix>:state:<word>", ("set",), {"word": "|".join(WORDS)})),
    ("time_index", "purge", "state"),
)
"""The keys by which a kickq keyspace is recognised: hashes ``…:job:…`` and lists ``…:queue:…`` are anybody's."""

LARGEST_ID = 2**53 - 1
"""Ids come from INCR through JavaScript numbers; above this they would not stay apart."""

LOOK_MS = 1500
"""A scheduler takes what is due up to so long ago, and never looks at older entries again."""


@lru_cache(maxsize=64)
def layout(prefix: str) -> KeyLayout:
    """All keys of the keyspace under a namespace."""
    return KeyLayout(PATTERNS, prefix=prefix)


def counted(job_id: str) -> int | None:
    """The number of an id that the counter of a keyspace could give out; None for any other text."""
    return int(job_id) if _COUNTED(job_id) else None


_COUNTED = re.compile("[1-9][0-9]{0,17}").fullmatch


def as_sent(name: str) -> str:
    """The text that Node.js makes of a name when it sends it: half a surrogate pair becomes a replacement character."""
    return _LONE.sub("\ufffd", name)


_LONE = re.compile("[\ud800-\udfff]")

RUN_TRACE = re.compile(rb'"state":"(?:success|fail|ghost)","(error(?:Message)?)":')
"""A run in a record: the name of its last but one member changed with 1.0."""


def version(keyspace: Keyspace) -> str | None:
    """The releases that can have written the keyspace, for people; None where no job tells."""
    totals = keyspace.totals
    error_members = totals.names.get("run traces", set())
    if not totals.sums["records", ""]:
        return None
    if "errorMessage" in error_members:
        oldest = "0.0.12 to 0.2.4" if totals.sums["state members", ""] else "0.0.1 to 0.0.11"
        return f"1.0 to 1.1, upgraded from {oldest}" if "error" in error_members else oldest
    if "error" in error_members:
        return "1.0 to 1.1"
    return None if totals.sums["state members", ""] else "0.0.1 to 0.0.11"


def state_indexes(prefix: str, queue: str, state: State) -> StateIndexQuery | None:
    """See KeyFamily.state_indexes. The list of a kickq queue; all else stands in sets of all queues."""
    if state is State.WAITING:
        return known([StateIndex(layout(prefix).key("queue", queue=queue), "list")])
    return known([]) if state in (State.CANCELLED, State.BLOCKED) else None
