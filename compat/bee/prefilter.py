"""Sound bee jobs at a glance: those that wait or have ended, and are tied to no other job, in which no rule here can find anything.

Careful in one direction only: jobs that run, that die, that have tags, a hash, a parent or others that wait for them, and
what is late are left to the rules, and may well be sound. tests/compat/bee/test_prefilter.py holds every rule against it. Called by
``family.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from ...schema.fact import Entry, Fact, FactKind, Subject
from ...schema.job import State
from ...schema.jobnumber import number_of
from ...schema.memo import Memo
from ...schema.prefilter import Accepted, IndexKey, IndexMembers, JobGroup, Member, Prefilter, RecordColumns
from ...schema.text import to_text
from ...schema.totals import Totals
from .. import lua_json
from ..numbers import parse_int, score_to_int
from ..overflow import FIELD, why_unreadable
from .history import fitting
from .keys import EARLIEST_TIME, ROLE_OF, UNFINISHED, layout
from .reader import trace_of
from .rules.placement import AHEAD_MS, OVERDUE_MS
from .rules.record import NEEDED, USUAL, wrong_options

FIELDS = frozenset({b"jid", *NEEDED, *USUAL})
"""The fields without which no job is accepted."""

TIES = frozenset({b"hash", b"parent", b"dependants", b"duplicate"})
"""The fields of jobs that other keys and other jobs must speak of."""

STATES = {
    "queued": State.WAITING,
    "new": State.SCHEDULED,
    "retried": State.SCHEDULED,
    "completed": State.COMPLETED,
    "failed": State.FAILED,
}
"""The states of the jobs that may be accepted, by status."""

INDEXES = frozenset(ROLE_OF[word] for word in STATES)
"""The roles of the sorted sets in which they stand."""

NO_TAGS = frozenset({b"{}", b"[]"})


class BeePrefilter(Prefilter):
    """The keyspace under ``prefix`` at ``now_ms`` (Unix ms). ``for_transfer``: as for ``KeyFamily.prefilter``."""

    def __init__(self, prefix: str, now_ms: int, *, for_transfer: bool = False) -> None:
        self._layout = layout(prefix)
        self._head = self._layout.key("record", id="")
        self._earliest = {"expires": EARLIEST_TIME if for_transfer else max(EARLIEST_TIME, now_ms - OVERDUE_MS)}
        """Scores that no member may be below, by role: elsewhere it is EARLIEST_TIME."""
        self._latest = {"queue": now_ms + AHEAD_MS}
        """Scores that no member may be above, by role."""
        self._groups = Memo(self._group)
        self._indexes = Memo(self._index)
        self._most_retries = Memo(_most_retries)

    def record(self, key: bytes) -> int | None:
        return self.number(to_text(key[len(self._head) :]), "") if self.is_record(key) else None

    def is_record(self, key: bytes) -> bool:
        return key.startswith(self._head)

    def number(self, job_id: str, scope: str) -> int:
        return number_of("", job_id)

    def accept(self, records: RecordColumns, keys: Sequence[bytes]) -> Accepted:
        if not (records.keys() >= FIELDS and records.keys().isdisjoint(TIES)):
            return Accepted.none(len(keys))
        start = len(self._head)
        names = (b"jid", b"queue", b"status", b"tags", b"options", b"retries", b"history")
        groups: list[JobGroup | None] = []
        for key, job_id, queue, word, tags, options, retries, history in zip(keys, *map(records.__getitem__, names), strict=True):
            group, status = self._groups[queue, word]
            made = parse_int(retries)
            is_sound = (
                group is not None
                and job_id == key[start:]
                and tags in NO_TAGS
                and made is not None
                and 0 <= made <= self._most_retries[options]
                and _fits(history, status, group.state)
            )
            groups.append(group if is_sound else None)
        created_at = list(map(parse_int, records[b"submitted"]))
        for row, created in enumerate(created_at):
            if created is None:
                groups[row] = None
        for name in (b"data", b"result"):
            for row, raw in enumerate(records.get(name, ())):
                if not lua_json.is_json(raw):
                    groups[row] = None
        for row, raw in enumerate(records.get(FIELD, ())):
            if why_unreadable(raw) is not None:
                groups[row] = None
        return Accepted(groups, ([0.0] * len(keys),), created_at)

    def index_members(self, entry: Entry) -> IndexMembers | None:
        index = self._indexes[entry.key] if entry.ttl_ms is None and entry.redis_type == "zset" else None
        if index is None:
            return None
        index_key, role, _ = index
        earliest, latest = self._earliest.get(role, EARLIEST_TIME), self._latest.get(role, float("inf"))
        numbers = (
            number_of("", to_text(member)) if earliest <= score <= latest and score_to_int(score) is not None else None
            for member, score in entry.value
        )
        return IndexMembers(index_key, list(numbers))

    def subject(self, key: bytes, record: tuple[bytes, ...], members: Iterable[Member], owned: Iterable[Entry]) -> Subject:
        job_id = to_text(key[len(self._head) :])
        facts = [Fact(FactKind.RECORD, "record", key, "hash", job_id, values=record)]
        for index, member, score, rank in members:
            _, role, queue = self._indexes[index]
            facts.append(Fact(FactKind.PLACE, role, index, "zset", job_id, "", queue, None, member, score, rank))
        return Subject(job_id, "", tuple(facts), prefiltered=True)

    def tally_accepted(self, records: RecordColumns, keys: Sequence[bytes], totals: Totals) -> None:
        totals.count("records", number=len(keys))
        for options, number in Counter(records[b"options"]).items():
            trace = trace_of(options, records)
            if trace is not None:
                totals.count("trace", trace, number)

    def tally_index(self, entry: Entry, scores: Sequence[float], totals: Totals) -> None:
        """Of the members of these sets nothing is counted."""

    def _index(self, key: bytes) -> tuple[IndexKey, str, str] | None:
        """A sorted set of jobs that may be accepted, with its role and its queue; None for any other key."""
        match = self._layout.parse(key, "zset")
        if match is None or match.role not in INDEXES:
            return None
        return IndexKey(key, is_scored=False), match.role, match.fields["queue"]

    def _group(self, queue_and_word: tuple[bytes, bytes]) -> tuple[JobGroup | None, str]:
        """The group of all jobs of a queue with a status, and that; no group where a rule must look."""
        queue, word = map(to_text, queue_and_word)
        if word not in STATES:
            return None, word
        index = self._indexes[self._layout.key(ROLE_OF[word], queue=queue)]
        return (None if index is None or index[2] != queue else JobGroup(queue, STATES[word], (index[0],))), word


def _most_retries(raw: bytes) -> float:
    """How often a job with these options may be tried again; less than 0 for options in which a rule may find something."""
    options = lua_json.as_object(raw)
    if options is None or wrong_options(options, blocked=False):
        return -1
    allowed = lua_json.plain_number(options.get("retries"))
    return -1 if allowed is None else allowed


def _fits(raw: bytes, status: str, state: State | None) -> bool:
    """Whether these are events as a job of this status has them, none of which is unusual."""
    history = lua_json.as_list(raw)
    if not history or state is None:
        return False
    names = [entry.get("event") if type(entry) is dict else None for entry in history]
    if not all(type(name) is str for name in names) or names[-1] not in fitting(status, state) or "canceled" in names:
        return False
    if status in UNFINISHED:
        return "completed" not in names
    ends_in_queue = any(before == "queued" and after in ("completed", "failed") for before, after in pairwise(names))
    return names.count("completed") == (status == "completed") and not ends_in_queue
