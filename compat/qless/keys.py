"""Keys of qless: every key pattern by role, whom a key speaks of, and which generation wrote a keyspace.

The prefix is always ``ql`` in qless itself. Names of jobs, queues, groups, tags and workers are free text, empty ones
included, so the Redis type decides what a key under ``ql:j:`` is, and the last suffix what a key under ``ql:q:`` is. Never
guesses beyond that. Called by everything in this folder.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from functools import lru_cache

from attrs import frozen

from ...schema.family import Keyspace
from ...schema.job import State
from ...schema.keys import KeyLayout, KeyMatch, KeyPattern, PrefixFinder
from ...schema.memo import remember_last
from ...schema.state_index import StateIndex, StateIndexQuery, known
from ...schema.text import to_bytes
from ...schema.totals import Totals

_ANY = ".*"


def _pattern(role: str, template: str, redis_type: str, *names: str, **where: str) -> KeyPattern:
    """A pattern whose ``names`` may be any text, the empty one included."""
    return KeyPattern(role, template, (redis_type,), {**dict.fromkeys(names, _ANY), **where})


INDEXES = ("work", "locks", "scheduled", "depends", "throttled")
"""The zsets of a queue. A job stands in one of them at most; the role is also the suffix of the key."""

PATTERNS = (
    _pattern("record", "<prefix>:j:<id>", "hash", "id"),
    _pattern("history", "<prefix>:j:<id>-history", "list", "id"),
    _pattern("dependencies", "<prefix>:j:<id>-dependencies", "set", "id"),
    _pattern("dependents", "<prefix>:j:<id>-dependents", "set", "id"),
    *(_pattern(role, f"<prefix>:q:<queue>-{role}", "zset", "queue") for role in (*INDEXES, "recur")),
    # Heartbeats of the first weeks went to the bare name of the queue by mistake.
    _pattern("beats", "<prefix>:q:<queue>", "zset", "queue"),
    _pattern("template", "<prefix>:r:<id>", "hash", "id"),
    _pattern("queues", "<prefix>:queues", "zset"),
    _pattern("paused", "<prefix>:paused_queues", "set"),
    _pattern("workers", "<prefix>:workers", "zset"),
    _pattern("held", "<prefix>:w:<worker>:jobs", "zset", "worker"),
    _pattern("groups", "<prefix>:failures", "set"),
    _pattern("failed", "<prefix>:f:<group>", "list", "group"),
    _pattern("completed", "<prefix>:completed", "zset"),
    _pattern("tracked", "<prefix>:tracked", "zset"),
    _pattern("tagged", "<prefix>:t:<tag>", "zset", "tag"),
    _pattern("tags", "<prefix>:tags", "zset"),
    _pattern("statistics", "<prefix>:s:<measure>:<day>:<queue>", "hash", "queue", measure="wait|run|stats", day="-?[0-9]+"),
    _pattern("config", "<prefix>:config", "hash"),
    _pattern("slots", "<prefix>:th:<throttle>-locks", "zset", "throttle"),
    _pattern("pending", "<prefix>:th:<throttle>-pending", "zset", "throttle"),
    _pattern("throttle", "<prefix>:th:<throttle>", "hash", "throttle"),
    _pattern("identifiers", "<prefix>:qp:identifiers", "hash"),
    _pattern("priorities", "<prefix>:qp:priorities", "list"),
    # What reqless workers read to find their queues has no prefix.
    _pattern("name_patterns", "qmore:dynamic", "hash"),
    _pattern("name_order", "qmore:priority", "list"),
)

UNPREFIXED = ("qmore:dynamic", "qmore:priority")


PREFIX_FINDER = PrefixFinder(PATTERNS, {"record", "work", "locks", "scheduled", "completed", "held"}, prefix="ql")
"""qless has no other prefix, and every keyspace with a job has one of these keys."""


class Layout:
    """All keys of the keyspace under one prefix."""

    def __init__(self, prefix: str) -> None:
        self._all = KeyLayout(PATTERNS, prefix=prefix)
        self.start = to_bytes(prefix) + b":"
        # A key is matched only against the patterns that share its second word.
        words: dict[bytes, list[KeyPattern]] = {}
        for pattern in PATTERNS:
            words.setdefault(self._word(to_bytes(pattern.template.replace("<prefix>", prefix))), []).append(pattern)
        self._by_word = {word: KeyLayout(tuple(patterns), prefix=prefix) for word, patterns in words.items()}

    def _word(self, key: bytes) -> bytes:
        return key[len(self.start) :].split(b":", 1)[0] if key.startswith(self.start) else b""

    def key(self, role: str, **values: str) -> bytes:
        """The name of the key of this role."""
        return self._all.key(role, **values)

    def parse(self, key: bytes, redis_type: str) -> KeyMatch | None:
        """The pattern that fits both the name and the type; None if there is none."""
        patterns = self._by_word.get(self._word(key))
        return None if patterns is None else patterns.parse(key, redis_type)

    def misfit(self, key: bytes) -> KeyMatch | None:
        """The first pattern that fits at least the name."""
        return next(self._all.matches(key), None)

    def redis_type(self, role: str) -> str:
        """The type that the keys of a role have."""
        return self._all.patterns[role].redis_types[0]


@lru_cache(maxsize=64)
def layout(prefix: str) -> Layout:
    """The layout of one prefix, made once."""
    return Layout(prefix)


# Whom facts speak of


class Scope(StrEnum):
    """What the id of a subject names. Jobs are one kind among several: rules are as well about tags, workers, throttles …"""

    JOB = ""
    RECURRING = "recurring job"
    TAG = "tag"
    GROUP = "failure group"
    WORKER = "worker"
    THROTTLE = "throttle"
    STATISTICS = "statistics"


def own_throttle(prefix: str, queue: str) -> str:
    """The name of the throttle that every job of this queue in reqless holds."""
    return f"{prefix}:q:{queue}"


# Who wrote the keyspace


class Generation(IntEnum):
    """What can be told apart from the keys. Comparable: later is larger."""

    SEED = 0
    """Of March 5th, 2012: a history of arrays, the state pending."""
    FIRST = 1
    """Until April 2012: jobs have an ``id``."""
    JID = 2
    """Until summer 2013, qless-py 0.9: a ``jid``, the history as one field of the hash."""
    UNIFIED = 5
    """Since 2013, qless-py 0.10 and later: the history as a list of its own."""
    REQLESS = 7
    """Since 2024: throttles."""

    @classmethod
    def of(cls, totals: Totals) -> Generation:
        """The newest one that has left a trace."""
        return max(_generations_seen(totals), default=cls.UNIFIED)

    @classmethod
    def all_of(cls, totals: Totals) -> set[Generation]:
        """All that have left a trace which is still to be seen."""
        return set(_generations_seen(totals))


def _generations_seen(totals: Totals) -> list[Generation]:
    return [generation for generation in Generation if totals.sums["generation", generation.name]]


LOWER_FIRST_UNTIL = 1_334_188_800
"""The first weeks' order had no time in the scores, and no trace but its age: April 12th, 2012, in seconds."""

EARLIEST_PART, LATEST_PART = 0.13, 0.25
"""The time in seconds divided by 1e10, which scores hold beside the priority: 2011 to 2049."""

RECENT_S = (1e10 * EARLIEST_PART, 1e10 * LATEST_PART)


def time_part(score: float) -> str:
    """``higher`` or ``lower`` if the fraction of a score looks like a time taken off, or added to, a whole priority."""
    fraction = score % 1 if abs(score) < 2**40 else 0.0
    if EARLIEST_PART < fraction < LATEST_PART:
        return "lower"
    return "higher" if 1 - LATEST_PART < fraction < 1 - EARLIEST_PART else "unknown"


@frozen
class Era:
    """What rules and readers must know of the software that last worked on a keyspace."""

    generation: Generation
    lower_first: bool
    """Whether the lowest priority runs first, as before May 18th, 2012."""


@remember_last
def era_of(keyspace: Keyspace) -> Era:
    """The era of a keyspace, told from its totals once."""
    return Era(Generation.of(keyspace.totals), lower_first(keyspace.totals))


def lower_first(totals: Totals) -> bool:
    """See Era."""
    generation = Generation.of(totals)
    if generation is not Generation.JID:
        return generation < Generation.JID
    lower, higher = totals.sums["time part", "lower"], totals.sums["time part", "higher"]
    if lower or higher:
        return lower > higher
    newest = totals.maxima.get(("newest", ""), 0)
    return totals.sums["time part", "unknown"] > 0 and 0 < newest < LOWER_FIRST_UNTIL


VERSIONS = {
    Generation.SEED: "qless of its first days (March 5th, 2012)",
    Generation.FIRST: "qless of March and April 2012",
    Generation.JID: "qless of 2012 and 2013 (qless-py 0.9)",
    Generation.UNIFIED: "qless since 2013 (qless-py 0.10 and later)",
    Generation.REQLESS: "reqless 0.13 and later",
}


def version(keyspace: Keyspace) -> str | None:
    """The software that can have written the keyspace, for people; None for one without a job."""
    totals = keyspace.totals
    seen = sorted(Generation.all_of(totals), reverse=True)
    if not seen:
        return None
    newest = VERSIONS[seen[0]]
    if seen[0] is Generation.JID and lower_first(totals):
        newest = "qless of April and May 2012, where the lowest priority runs first"
    elif seen[0] is Generation.UNIFIED and totals.sums["trace", "final"]:
        newest = "qless-core of late 2013 to 2024"
    elif totals.sums["trace", "queue patterns"]:
        newest = "reqless after 0.13.3"
    older = [VERSIONS[each] for each in seen[1:] if each is not Generation.UNIFIED or seen[0] is not Generation.REQLESS]
    return newest + (f", with jobs of {' and '.join(older)}" if older else "")


STATE_ROLES = {
    State.WAITING: ("work",),
    State.SCHEDULED: ("scheduled",),
    State.ACTIVE: ("locks",),
    State.BLOCKED: ("depends", "throttled"),
    State.CANCELLED: (),
}
"""Completed jobs stand in one index for all queues, failed ones in one for each group."""


def state_indexes(prefix: str, queue: str, state: State) -> StateIndexQuery | None:
    """See KeyFamily.state_indexes. The indexes of a qless queue by state, each in the order of runs."""
    roles = STATE_ROLES.get(state)
    if roles is None:
        return None
    names = layout(prefix)
    return known([StateIndex(names.key(role, queue=queue), "zset", runs_from_tail=role == "work") for role in roles])
