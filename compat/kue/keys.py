"""Keys of kue: every key pattern by role, how an index writes a job's id, and which version wrote a keyspace.

Type names (queues) are free text and may hold colons, so several patterns can fit one name; the Redis type decides, and
``P:jobs:<type>:<state>`` is split at its last colon. Never guesses beyond that. Called by everything in this folder.
"""

from __future__ import annotations

import hashlib
import re
from enum import IntEnum, StrEnum
from functools import lru_cache

from ...schema.family import Keyspace
from ...schema.job import Job, State
from ...schema.keys import KeyLayout, KeyPattern, PrefixFinder
from ...schema.state_index import StateIndex, StateIndexQuery, known
from ...schema.totals import Totals

_ID = "0|[1-9][0-9]{0,15}"
"""Ids come from INCR and pass through JavaScript numbers, which are exact up to 16 digits."""

PATTERNS = (
    KeyPattern("record", "<prefix>:job:<id>", ("hash",), {"id": _ID}),
    KeyPattern("log", "<prefix>:job:<id>:log", ("list",), {"id": _ID}),
    KeyPattern("all", "<prefix>:jobs", ("zset",)),
    KeyPattern("by_type", "<prefix>:jobs:<queue>:<state>", ("zset",), {"state": "[^:]+"}),
    KeyPattern("by_state", "<prefix>:jobs:<state>", ("zset",), {"state": "[^:]+"}),
    KeyPattern("types", "<prefix>:job:types", ("set",)),
    KeyPattern("ids", "<prefix>:ids", ("string",)),
    KeyPattern("work_time", "<prefix>:stats:work-time", ("string",)),
    KeyPattern("settings", "<prefix>:settings", ("hash",)),
    # reds before 0.2, which kue up to 0.7.0 used, kept its search index in sets.
    KeyPattern("search_word", "<prefix>:search:word:<code>", ("zset", "set"), {"code": ".*"}),
    KeyPattern("search_object", "<prefix>:search:object:<id>", ("zset", "set"), {"id": _ID}),
    KeyPattern("search_query", "<prefix>:searchtmpkey", ("zset",)),
    KeyPattern("tokens", "<prefix>:<queue>:jobs", ("list",)),
    # The two locks have no prefix: every kue keyspace in a database shares them.
    KeyPattern("lock", "<name>:lock", ("string",), {"name": "promotion|activeJobsTTL"}),
)

PREFIX_FINDER = PrefixFinder(PATTERNS, {"record", "types"})
"""Every kue keyspace has its set of types, and one with a job has a hash."""

LOCKS = ("promotion:lock", "activeJobsTTL:lock")

WORDS = {
    State.WAITING: "inactive",
    State.SCHEDULED: "delayed",
    State.ACTIVE: "active",
    State.COMPLETED: "complete",
    State.FAILED: "failed",
}
"""The five words that kue itself writes, by canonical state."""

STATES = {word.encode(): state for state, word in WORDS.items()}
"""Canonical states by the word in the hash."""

LARGEST_ID = 2**53 - 1
"""The largest id that JavaScript counts exactly."""

EARLIEST_TIME = 1e11
"""A score of the delayed index above this (March 1973, in ms) is a time; below it, a priority of kue 0.8 or older."""


@lru_cache(maxsize=64)
def layout(prefix: str) -> KeyLayout:
    """All keys of the keyspace under ``prefix``; an ioredis installation has the braces in it."""
    return KeyLayout(PATTERNS, prefix=prefix)


# How an index names a job


class MemberFormat(StrEnum):
    """The two ways in which kue wrote a job's id as member of a zset."""

    PADDED = "padded"
    """Since 0.10.3: two digits for the length, a bar, the id. Byte order is then numeric order: FIFO among equal scores."""
    PLAIN = "plain"
    """Before: the id alone, so that 10 runs before 9."""
    MALFORMED = "odd"
    """Neither, though an id can be read from it: a wrong length, leading zeros."""


def padded(job_id: str) -> str:
    """The member for a job in kue 0.10.3 and later."""
    return f"{len(job_id):02d}|{job_id}"


def member_id(member: bytes) -> str | None:
    """The id that kue reads from a member, in any form; None if there is no number in it."""
    _, bar, tail = member.partition(b"|")
    digits = tail if bar else member
    # bytes.isdigit knows ASCII digits only.
    return str(int(digits)) if digits.isdigit() and len(digits) <= 16 else None


def member_format(member: str, job_id: str) -> MemberFormat:
    """Which format a member of this job has."""
    if member == padded(job_id):
        return MemberFormat.PADDED
    return MemberFormat.PLAIN if member == job_id else MemberFormat.MALFORMED


def valid_id(job_id: str) -> bool:
    """Whether kue could have given out this id."""
    return _VALID(job_id) is not None and int(job_id) <= LARGEST_ID


_VALID = re.compile("[1-9][0-9]{0,15}").fullmatch


BORROWED = 2**52
"""From here on ids are lent to jobs of other systems whose own ids are no numbers. kue itself will never count so far."""


def is_borrowed(number: str) -> bool:
    """Whether an id is one that ``number_for`` has lent."""
    return valid_id(number) and int(number) >= BORROWED


def keeps_id(job: Job, state: State) -> bool:
    """Whether a job's id is a number of kue's that it can keep.

    A waiting one that no priority but its place alone puts in order, as in a list, gets another: kue would order by the ids.
    """
    by_position = state is State.WAITING and job.priority is None and job.position is not None and "kue" not in job.extra
    return valid_id(job.id) and not by_position


def number_for(job: Job, state: State) -> str:
    """The number under which kue holds a job, in this state: its id, or one that is lent to it, always the same one.

    kue runs jobs of equal priority in the order of their ids: waiting ones that had no place come first, then those that had
    one, in order. Two jobs get the same number with a probability of n²/2^52 for n jobs.
    """
    if keeps_id(job, state):
        return job.id
    digest = hashlib.blake2b(f"{job.queue}\0{job.id}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    chance = int.from_bytes(digest)
    if state is not State.WAITING:
        return str(BORROWED + 2**51 + chance % 2**51)
    if job.position is None or job.position >= 2**26:
        return str(BORROWED + chance % 2**50)
    return str(BORROWED + 2**50 + (job.position << 24) + chance % 2**24)


# Who wrote the keyspace


class Era(IntEnum):
    """The versions whose keyspaces differ, by the first of each. Comparable: later is larger."""

    V0_3 = 3
    """Up to 0.7: ``max_attempts`` only where it was set."""
    V0_8 = 8
    """``max_attempts`` always; results are kept; the delayed index is still sorted by priority."""
    V0_9 = 9
    """``promote_at``, which is also the score of the delayed index; leases."""
    V0_10_3 = 10
    """Padded members."""

    @classmethod
    def of(cls, totals: Totals) -> Era:
        """The newest version that has left a trace in the keyspace, as tallied by ``reader.tally``."""
        if totals.sums["members", MemberFormat.PADDED]:
            return cls.V0_10_3
        if totals.sums["trace", "0.9"]:
            return cls.V0_9
        if totals.sums["trace", "0.8"]:
            return cls.V0_8
        if totals.sums["trace", "no max_attempts"]:
            return cls.V0_3
        return cls.V0_8 if totals.sums["members", MemberFormat.PLAIN] else cls.V0_10_3

    @property
    def is_padded(self) -> bool:
        """Whether its members are padded."""
        return self >= Era.V0_10_3

    @property
    def versions(self) -> str:
        """The versions, for people."""
        return _VERSIONS[self]


def parse_version(text: str) -> str:
    """A version of kue, such as ``0.9.6``: the URL parameter ``version``. Raises ValueError for what is none."""
    era_of(text)
    return text


def era_of(version: str) -> Era:
    """The era of a version. Raises ValueError for what is none."""
    found = re.fullmatch(r"0\.([0-9]{1,2})(?:\.([0-9]{1,2}))?", version)
    minor, patch = (int(found[1]), int(found[2] or 0)) if found else (0, 0)
    if not 4 <= minor <= 11:
        raise ValueError("must be a version of kue from 0.4 to 0.11, such as 0.9.6")
    if (minor, patch) >= (10, 3):
        return Era.V0_10_3
    return Era.V0_9 if minor >= 9 else Era.V0_8 if minor == 8 else Era.V0_3


_VERSIONS = {Era.V0_3: "0.3 to 0.7", Era.V0_8: "0.8", Era.V0_9: "0.9 to 0.10.2", Era.V0_10_3: "0.10.3 to 0.11"}


def version(keyspace: Keyspace) -> str | None:
    """The versions that can have written the keyspace; None where no job tells. Old members beside new ones: an upgrade."""
    totals = keyspace.totals
    if not any(measure == "members" for measure, _ in totals.sums):
        return None
    newest = Era.of(totals)
    upgraded = newest is Era.V0_10_3 and totals.sums["members", MemberFormat.PLAIN]
    return f"{newest.versions}, upgraded from an older one" if upgraded else newest.versions


def state_indexes(prefix: str, queue: str, state: State) -> StateIndexQuery:
    """See KeyFamily.state_indexes. The indexes of a kue type by state, each in the order of runs."""
    word = WORDS.get(state)
    return known([] if word is None else [StateIndex(layout(prefix).key("by_type", queue=queue, state=word), "zset")])
