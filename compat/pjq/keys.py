"""Keys of pjq: every key pattern by role, where a job can stand, the program's constants, and which layout wrote a keyspace.

The program knows no prefix of its own: a job's key is its bare id. Queue names may be anything, empty too, and are all that
follows the first colon. A name that begins like a container is never a job, whatever its type. Called by everything in this
folder.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ...schema.family import Keyspace
from ...schema.job import State
from ...schema.keys import KeyLayout, KeyPattern, PrefixFinder
from ...schema.state_index import StateIndex, StateIndexQuery, known
from ...schema.text import is_unicode

_ANY = {"queue": ".*"}

PATTERNS = (
    KeyPattern("queued", "<prefix>jobs_queued:<queue>", ("list",), _ANY),
    KeyPattern("dispatched", "<prefix>jobs_dispatched:<queue>", ("zset",), _ANY),
    KeyPattern("processing", "<prefix>jobs_processing:<queue>", ("zset",), _ANY),
    KeyPattern("progress", "<prefix>jobs_progress:<queue>", ("zset",), _ANY),
    KeyPattern("finished", "<prefix>jobs_finished:<queue>", ("zset",), _ANY),
    KeyPattern("idle", "<prefix>workers_idle:<queue>", ("set",), _ANY),
    KeyPattern("busy", "<prefix>workers_busy:<queue>", ("set",), _ANY),
    KeyPattern("seen", "<prefix>workers_last_seen:<queue>", ("zset",), _ANY),
    # The first JavaScript program, for eight days in September 2017.
    KeyPattern("js_queued", "<prefix>job_queue:<queue>", ("list",), _ANY),
    KeyPattern("js_leased", "<prefix>leased_queue:<queue>", ("zset",), _ANY),
    KeyPattern("js_progress", "<prefix>progress_queue:<queue>", ("zset",), _ANY),
    KeyPattern("js_idle", "<prefix>idle_queue:<queue>", ("zset",), _ANY),
    # What the writer needs until a migration is finished.
    KeyPattern("staged", "<prefix>_ferryman.jobs_queued:<queue>", ("zset",), _ANY),
    KeyPattern("staged_list", "<prefix>_ferryman.jobs_queued_list:<queue>", ("list",), _ANY),
    KeyPattern("record", "<prefix><id>", ("hash",), {"id": ".*"}),
)

STATES = ("finished", "processing", "dispatched", "queued", "js_leased", "js_queued")
"""The containers that tell a job's state, what counts most first."""

EARLIEST, LATEST = 1e9, 1e11
"""Seconds of honest times. A time in milliseconds is far above: never readmitted, never purged."""

LISTS = ("queued", "js_queued")
"""Popped from their tail."""

CONTAINERS = frozenset({*STATES, "progress", "js_progress"})
"""All containers of job ids."""

WORKERS = frozenset({"idle", "busy", "seen", "js_idle"})
"""All containers of worker ids."""

JS_1 = frozenset({"js_queued", "js_leased", "js_progress", "js_idle"})
"""What only the first JavaScript program reads."""

TICK_MS = 3_000
"""An idle message older than this gets no job."""
LEASE_MS = 9_000
"""So long after its dispatch a job that nobody has accepted goes back; so long after its last word a worker is forgotten."""

PREFIX_FINDER = PrefixFinder(PATTERNS, {*CONTAINERS, *WORKERS}, prefix="(?:.*:)?")
"""A job's own key could be anybody's, but every job that is to run stands in a container."""

_UUID = re.compile("[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


@lru_cache(maxsize=64)
def layout(prefix: str) -> KeyLayout:
    """All keys of the keyspace under ``prefix``, which is empty unless something between program and server adds one."""
    return KeyLayout(PATTERNS, prefix=prefix)


def is_uuid(job_id: str) -> bool:
    """Whether an id has the form that producers usually give it."""
    return _UUID.fullmatch(job_id) is not None


def can_be_id(job_id: str) -> bool:
    """Whether the program could store a job of this id, and a reader would take its key for one."""
    return is_unicode(job_id) and next(layout("").matches(job_id.encode())).role == "record"


# Who wrote the keyspace


def version(keyspace: Keyspace) -> str | None:
    """The programs that can have written the keyspace, as far as ``reader.tally`` has seen traces of them; None without any."""
    totals = keyspace.totals
    found = []
    if totals.names.get("js-1 keys"):
        found.append("js-1 (September 2017)")
    if totals.sums["trace", "js-3"]:
        found.append("js-2 or js-3 (September and October 2017)")
    if totals.sums["trace", "accepted"]:
        found.append("py-2 or py-3 (October 2017 and later)")
    elif totals.sums["trace", "dispatched"]:
        found.append("py-1 to py-3 (October 2017 and later)")
    elif totals.names.get("current keys") and not totals.sums["trace", "js-3"]:
        found.append("js-2, js-3 or any Python program (September 2017 and later)")
    return " and ".join(found) or None


STATE_ROLES = {
    State.WAITING: LISTS,
    State.ACTIVE: ("processing", "dispatched", "js_leased"),
    State.COMPLETED: ("finished",),
    State.FAILED: ("finished",),
}


def state_indexes(prefix: str, queue: str, state: State) -> StateIndexQuery:
    """See KeyFamily.state_indexes. The containers of a pjq queue by state, each in the order of runs."""
    names = layout(prefix)
    return known(
        [
            StateIndex(names.key(role, queue=queue), "list" if role in LISTS else "zset", runs_from_tail=role in LISTS)
            for role in STATE_ROLES.get(state, ())
        ]
    )
