"""Sound bee jobs at a glance: those that wait or have ended, and that no other job speaks of, in which no rule can find anything.

The sets of a job's tags count as places, and so does the list of its hash, as long as the job is alone there. Careful in one
direction only: jobs that run or die, children, jobs that others wait for or are equal to, and what is late are left to the rules,
and may well be sound. tests/compat/bee/test_prefilter.py holds every rule against it. Called by ``family.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from ...schema.fact import Entry, Fact, FactKind, Subject
from ...schema.job import Job, State, replaced
from ...schema.jobnumber import number_of, number_of_raw
from ...schema.memo import Memo
from ...schema.prefilter import WORD, Accepted, IndexKey, IndexMembers, JobGroup, Member, OwnedList, Prefilter, RecordColumns
from ...schema.text import to_bytes, to_text
from ...schema.totals import Totals
from .. import lua_json
from ..numbers import parse_int, score_to_int
from ..overflow import FIELD, why_unreadable
from .history import fitting
from .keys import EARLIEST_TIME, ROLE_OF, UNFINISHED, hashed, layout
from .passthrough import job_of
from .reader import RANK, trace_of
from .record import Record, tag_names
from .rules.placement import AHEAD_MS, OVERDUE_MS
from .rules.record import NEEDED, USUAL, wrong_options

if TYPE_CHECKING:
    from ...schema.columnar.jobtable import AcceptedJobs, JobKeys, JobTable

FIELDS = frozenset({b"jid", *NEEDED, *USUAL})
"""The fields without which no job is accepted."""

TIES = frozenset({b"parent", b"dependants", b"duplicate"})
"""The fields of jobs that are tied to others."""

STATES = {
    "queued": State.WAITING,
    "new": State.SCHEDULED,
    "retried": State.SCHEDULED,
    "completed": State.COMPLETED,
    "failed": State.FAILED,
}
"""The states of the jobs that may be accepted, by status."""

INDEXES = {**{ROLE_OF[word]: "zset" for word in STATES}, "tag": "set"}
"""The Redis types of the indexes in which they stand, by role: one of the sorted sets, and the sets of any number of tags."""


class BeePrefilter(Prefilter):
    """The keyspace under ``prefix`` at ``now_ms`` (Unix ms). ``for_transfer``: as for ``KeyFamily.prefilter``."""

    def __init__(self, prefix: str, now_ms: int, *, for_transfer: bool = False) -> None:
        self._layout = layout(prefix)
        self._head = self._layout.key("record", id="")
        self._earliest = {"expires": EARLIEST_TIME if for_transfer else max(EARLIEST_TIME, now_ms - OVERDUE_MS)}
        """Scores that no member may be below, by role: elsewhere it is EARLIEST_TIME."""
        self._latest = {"queue": now_ms + AHEAD_MS}
        """Scores that no member may be above, by role."""
        self._list_head = self._layout.key("hashes", hashed="")
        self._groups = Memo(self._group)
        self._indexes = Memo(self._index)
        self._tagged = Memo(self._hash_of_tags)
        self._most_retries = Memo(_most_retries)

    def record(self, key: bytes) -> int | None:
        return number_of_raw(key[len(self._head) :]) if self.is_record(key) else None

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
        others: list[int] = []
        for key, job_id, queue, word, tags, options, retries, history in zip(keys, *map(records.__getitem__, names), strict=True):
            group, status = self._groups[queue, word]
            made, tagged = parse_int(retries), self._tagged[tags]
            is_accepted = (
                group is not None
                and job_id == key[start:]
                and tagged is not None
                and made is not None
                and 0 <= made <= self._most_retries[options]
                and _fits(history, status, group.state)
            )
            groups.append(group if is_accepted else None)
            others.append(tagged or 0)
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
        for row, unique_key in enumerate(records.get(b"hash", ())):
            own = self._layout.key("hashes", hashed=hashed(to_text(records[b"queue"][row]), to_text(unique_key)))
            others[row] = (others[row] + _hash_of_place(own)) % WORD
        return Accepted(groups, ([0.0] * len(keys),), created_at, others)

    def index_members(self, entry: Entry) -> IndexMembers | None:
        index = self._indexes[entry.key, entry.redis_type] if entry.ttl_ms is None else None
        if index is None:
            return None
        index_key, role, _ = index
        if role == "tag":
            return IndexMembers(index_key, list(map(number_of_raw, entry.value)), is_optional=True)
        earliest, latest = self._earliest.get(role, EARLIEST_TIME), self._latest.get(role, float("inf"))
        numbers = (
            number_of_raw(member) if earliest <= score <= latest and score_to_int(score) is not None else None
            for member, score in entry.value
        )
        return IndexMembers(index_key, list(numbers))

    def is_owned_list(self, key: bytes) -> bool:
        return key.startswith(self._list_head)

    def owned_list(self, entry: Entry, totals: Totals) -> OwnedList | None:
        if entry.offset or len(entry.value) != 1:
            return None
        return OwnedList(number_of_raw(entry.value[0]), IndexKey(entry.key, is_scored=False))

    def subject(self, key: bytes, record: tuple[bytes, ...], members: Iterable[Member], owned: Iterable[Entry]) -> Subject:
        job_id = to_text(key[len(self._head) :])
        facts = [Fact(FactKind.RECORD, "record", key, "hash", job_id, values=record)]
        for index, member, score, rank in members:
            _, role, queue = self._indexes[index, "zset"]
            facts.append(Fact(FactKind.PLACE, role, index, "zset", job_id, "", queue, None, member, score, rank))
        for entry in owned:
            (member,) = entry.value
            if self.is_owned_list(entry.key):
                label = to_text(entry.key[len(self._list_head) :])
                place = FactKind.PLACE, "hashes", entry.key, "list", job_id
                facts.append(Fact(*place, label=label, member=member, index=0, values=(b"1",)))
            else:
                _, role, tag = self._indexes[entry.key, "set"]
                facts.append(Fact(FactKind.NOTE, role, entry.key, "set", job_id, label=tag, member=member))
        return Subject(job_id, "", tuple(facts), prefiltered=True)

    def tables(self, jobs: AcceptedJobs, totals: Totals) -> Iterator[JobTable]:
        """See TableReader."""
        from ...schema.columnar.tables_of_jobs import tables_of_accepted  # needs what only the extra columnar has

        return iter(()) if FIELD in jobs.records else tables_of_accepted(jobs, self._read)

    def _read(self, keys: JobKeys) -> Job:
        """What the reader makes of a job without an overflow."""
        (member,) = keys.members
        _, role, _ = self._indexes[member.key, "zset"]
        job = job_of(to_text(keys.key[len(self._head) :]), Record(keys.record, {role: member.score}))
        return replaced(job, position=member.rank if role == "queue" else None, rank=RANK)

    def tally_accepted(self, records: RecordColumns, keys: Sequence[bytes], totals: Totals) -> None:
        totals.count("records", number=len(keys))
        for options, number in Counter(records[b"options"]).items():
            trace = trace_of(options, records)
            if trace is not None:
                totals.count("trace", trace, number)

    def tally_index(self, entry: Entry, scores: Sequence[float], totals: Totals) -> None:
        """Of the members of indexes nothing is counted."""

    def _index(self, key_and_type: tuple[bytes, str]) -> tuple[IndexKey, str, str] | None:
        """An index with its role, and its queue or tag; None for any other key."""
        match = self._layout.parse(*key_and_type)
        if match is None or match.role not in INDEXES:
            return None
        (name,) = match.fields.values()
        return IndexKey(key_and_type[0], is_scored=False), match.role, name

    def _group(self, queue_and_word: tuple[bytes, bytes]) -> tuple[JobGroup | None, str]:
        """The group of all jobs of a queue with a status, and that; no group where a rule must look."""
        queue, word = map(to_text, queue_and_word)
        if word not in STATES:
            return None, word
        index = self._indexes[self._layout.key(ROLE_OF[word], queue=queue), "zset"]
        return (None if index is None or index[2] != queue else JobGroup(queue, STATES[word], (index[0],))), word

    def _hash_of_tags(self, raw: bytes) -> int | None:
        """The sum of the placement hashes of a job's tags; None where they can't be read, or a key can't have such a name."""
        if lua_json.as_list(raw) is None:
            return None
        tags = set(tag_names(raw))
        if any(to_text(to_bytes(tag)) != tag for tag in tags):
            return None
        return sum(_hash_of_place(self._layout.key("tag", tag=tag)) for tag in tags) % WORD


def _hash_of_place(key: bytes) -> int:
    """That of standing in a key that has no scores."""
    return IndexKey(key, is_scored=False).placement_hash(0.0)


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
