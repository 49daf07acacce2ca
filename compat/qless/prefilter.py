"""Sound qless jobs at a glance: those that wait, are scheduled, or have ended, in which no rule in this folder can find anything.

A job's history is a list of its own, without which it is not sound. It tells when the job was created, and of a completed one the
queue, so it counts as a place: the record claims a history of the form that jobs like it have. Careful in one direction only:
jobs that workers have, those tied to others, and what the first weeks have left are left to the rules, and may well be sound.
tests/compat/qless/test_prefilter.py holds every rule against it. Called by ``family.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from ...schema.fact import Entry, Fact, FactKind, Subject
from ...schema.job import Job, State, replaced
from ...schema.jobnumber import number_of, number_of_raw
from ...schema.memo import Memo
from ...schema.prefilter import WORD, Accepted, IndexKey, IndexMembers, JobGroup, Member, OwnedList, Prefilter, RecordColumns
from ...schema.text import not_json, to_bytes, to_text
from ...schema.totals import Totals
from ..lua_json import EMPTY, as_object, is_json
from ..numbers import parse_int, parse_number
from . import history, reader
from .acceptance import FIELDS, UNUSUAL
from .keys import EARLIEST_PART, LATEST_PART, Generation, layout, lower_first
from .passthrough import NONE, Memberships, job_of
from .record import Record, milliseconds, names_of
from .rules.placement import SLACK_S

if TYPE_CHECKING:
    from ...schema.columnar.jobtable import AcceptedJobs, JobKeys, JobTable

NEEDED = FIELDS | {b"time"}
"""The fields without which no job is accepted."""

STATES = {
    b"waiting": State.WAITING,
    b"stalled": State.WAITING,
    b"scheduled": State.SCHEDULED,
    b"complete": State.COMPLETED,
    b"failed": State.FAILED,
    b"throttled": State.BLOCKED,
}
"""The words of the jobs that may be accepted."""
ROLES = {
    State.WAITING: "work",
    State.SCHEDULED: "scheduled",
    State.COMPLETED: "completed",
    State.FAILED: "failed",
    State.BLOCKED: "throttled",
}
"""Where these stand."""
OF_QUEUES = frozenset({"work", "scheduled", "throttled"})
"""The roles of the indexes of queues."""
OPTIONAL = frozenset({"tagged", "pending"})
"""The roles of the indexes in which only some jobs stand: of each of their tags, and of the throttle for which one waits."""
INDEXES = {**dict.fromkeys((*ROLES.values(), *OPTIONAL), "zset"), "failed": "list"}
"""The Redis types of the indexes, by role."""
STATING = OPTIONAL | {"failed"}
"""The roles of those that state something of a tag, a throttle or a group of failures, beside the jobs in them."""

HISTORY = b"-history"
"""The end of the name of a job's history."""
ENDS = (HISTORY, b"-dependencies", b"-dependents")
"""The ends of the names of all keys that belong to a job. A record with such a name is left to the rules."""

# No key of a keyspace has such a name: all have a colon.
NEW = IndexKey(b"new")
"""A history in which nobody has popped the job, as a place; its score is the time of the first put in seconds."""
POPPED = IndexKey(b"popped", is_scored=False)
"""One of a job that was popped, and has not just been done."""
DONE = IndexKey(b"done", is_scored=False)
"""One of a job that was popped, and done after all else."""
PENDING = IndexKey(b"pending", is_scored=False)
"""Any throttle for which a job waits."""

PART_SLACK = 0.01
"""More than what a score loses of the time when it is rounded."""

_Where = tuple[JobGroup, int, int]
"""Where a job claims to stand: the group, when it was created if the record tells, and the sum of hashes of all other places."""


class _Index(NamedTuple):
    """An index of jobs."""

    key: IndexKey
    role: str
    name: str | None
    """The queue, the group of failures, the tag or the throttle of which its key speaks."""


class QlessPrefilter(Prefilter):
    """The keyspace under ``prefix`` at ``now_ms`` (Unix ms). ``for_transfer``: as for ``KeyFamily.prefilter``."""

    def __init__(self, prefix: str, now_ms: int, *, for_transfer: bool = False) -> None:
        self._prefix = prefix
        self._layout = layout(prefix)
        self._head = self._layout.key("record", id="")
        self._for_transfer = for_transfer
        """Also jobs that were put in the future (QLESS-36), or whose score counts time the other way (QLESS-37)."""
        self._latest = float("inf") if for_transfer else now_ms / 1000 + SLACK_S
        self._groups = Memo(self._group)
        self._completed = Memo(_completed)
        self._indexes = Memo(self._index)
        self._tagged = Memo(self._hash_of_tags)
        self._priorities = Memo(_is_whole)
        self._throttles = Memo(names_of)

    def record(self, key: bytes) -> int | None:
        return number_of_raw(key[len(self._head) :]) if self.is_record(key) else None

    def is_record(self, key: bytes) -> bool:
        return key.startswith(self._head) and not key.endswith(ENDS)

    def number(self, job_id: str, scope: str) -> int:
        return number_of(scope, job_id)

    def accept(self, records: RecordColumns, keys: Sequence[bytes]) -> Accepted:
        if not records.keys() >= NEEDED or not UNUSUAL.isdisjoint(records):
            return Accepted.none(len(keys))
        names = (b"state", b"queue", b"priority", b"retries", b"remaining", b"time", b"tags")
        columns = (*(records[name] for name in names), records.get(b"failure", repeat(EMPTY, len(keys))))
        found = [self._where(*row) for row in zip(*columns, strict=True)]
        for row, raw in enumerate(records.get(b"expires", ())):
            if raw and raw != b"0" and parse_number(raw) is None:
                found[row] = None
        for row, raw in enumerate(records.get(b"throttles", ())):
            if self._throttles[raw] is None:
                found[row] = None
        for row in not_json(records[b"data"]):
            if not is_json(records[b"data"][row], loose=True):
                found[row] = None
        groups, created_at, others = zip(*((None, 0, 0) if each is None else each for each in found), strict=True)
        return Accepted(groups, ([0.0] * len(keys),), created_at, others)

    def _where(
        self,
        word: bytes,
        queue: bytes,
        priority: bytes,
        retries: bytes,
        remaining: bytes,
        time: bytes,
        tags: bytes,
        failure: bytes,
    ) -> _Where | None:
        """Where the job stands whose record has these fields; None where a rule must look."""
        state, is_whole, tagged = STATES.get(word), self._priorities[priority], self._tagged[tags]
        allowed, left, put = parse_int(retries), parse_int(remaining), parse_number(time)
        put_ms = milliseconds(put)
        if (
            state is None
            or is_whole is None
            or not (is_whole or self._for_transfer or state is not State.WAITING)
            or tagged is None
            or allowed is None
            or left is None
            or put is None
            or put_ms is None
            or put > self._latest
        ):
            return None
        listed = None
        if failure != EMPTY:
            failed = as_object(failure, loose=True)
            if failed is None or milliseconds(failed.get("when", 0)) is None:
                return None
            listed = failed.get("group", failed.get("type"))
        group = self._groups[state, queue, listed if state is State.FAILED and isinstance(listed, str) else None]
        if group is None:
            return None
        if state is State.COMPLETED:
            return group, 0, (DONE_HASH + tagged) % WORD
        if state is State.BLOCKED:
            tagged += PENDING_HASH
        if state is State.FAILED or left != allowed:
            return group, 0, (POPPED_HASH + tagged) % WORD
        return group, put_ms, (NEW.placement_hash(put_ms // 1000) + tagged) % WORD

    def index_members(self, entry: Entry) -> IndexMembers | None:
        index = self._indexes[entry.key, entry.redis_type] if entry.ttl_ms is None else None
        if index is None:
            return None
        numbers: Sequence[int | None]
        match index.role:
            case "failed":
                numbers = [number_of_raw(member) for member in entry.value]
            case "work" if not self._for_transfer:
                numbers = [None if _is_unclear(score) else number_of_raw(member) for member, score in entry.value]
            case "scheduled":
                numbers = [None if milliseconds(score) is None else number_of_raw(member) for member, score in entry.value]
            case _:
                numbers = [number_of_raw(member) for member, _ in entry.value]
        # What is stated of the whole comes first.
        facts = tuple(islice(reader.facts(entry, self._prefix), 1)) if index.role in STATING else ()
        return IndexMembers(index.key, numbers, is_optional=index.role in OPTIONAL, facts=facts)

    def owner(self, key: bytes) -> int | None:
        return number_of_raw(key[len(self._head) : -len(HISTORY)]) if self.is_owned_list(key) else None

    def is_owned_list(self, key: bytes) -> bool:
        return key.startswith(self._head) and key.endswith(HISTORY)

    def owned_list(self, entry: Entry, totals: Totals) -> OwnedList | None:
        number = self.owner(entry.key)
        if number is None or entry.offset:
            return None
        story = history.story_of(entry.value)
        if story is None:
            return None
        reader.tally_history(totals)
        if not story.was_popped:
            return OwnedList(number, NEW, float(story.put))
        if story.is_done:
            return OwnedList(number, DONE, group=self._completed[story.queue], created_at=1000 * story.put)
        return OwnedList(number, POPPED, created_at=1000 * story.put)

    def subject(self, key: bytes, record: tuple[bytes, ...], members: Iterable[Member], owned: Iterable[Entry]) -> Subject:
        job_id = to_text(key[len(self._head) :])
        facts = [Fact(FactKind.RECORD, "record", key, "hash", job_id, values=record)]
        for index, member, score, rank in members:
            facts.append(self._place(index, member, score, rank, job_id))
        for entry in owned:
            if entry.redis_type == "list":
                values = tuple(entry.value)
                facts.append(Fact(FactKind.NOTE, "history", entry.key, "list", job_id, index=entry.offset, values=values))
            else:
                ((member, score),) = entry.value
                _, role, name = self._indexes[entry.key, "zset"]
                facts.append(Fact(FactKind.NOTE, role, entry.key, "zset", job_id, "", None, name, member, score, entry.offset))
        return Subject(job_id, "", tuple(facts), prefiltered=True)

    def _place(self, key: bytes, member: bytes, score: float, rank: int, job_id: str) -> Fact:
        _, role, name = self._index_of(key)
        if role == "failed":
            return Fact(FactKind.PLACE, role, key, "list", job_id, label=name, member=member, index=rank)
        return Fact(FactKind.PLACE, role, key, "zset", job_id, "", name, None, member, score, rank)

    def _index_of(self, key: bytes) -> _Index:
        """The index with this key, which is one."""
        index: _Index = self._indexes[key, "zset"] or self._indexes[key, "list"]
        return index

    def tables(self, jobs: AcceptedJobs, totals: Totals) -> Iterator[JobTable]:
        """See TableReader."""
        from ...schema.columnar.tables_of_jobs import tables_of_accepted  # needs what only the extra columnar has

        return tables_of_accepted(jobs, partial(self._read, totals=totals, is_lower_first=lower_first(totals)))

    def _read(self, keys: JobKeys, totals: Totals, *, is_lower_first: bool) -> Job:
        """What the reader makes of a job."""
        (member,) = keys.members
        _, role, queue = self._index_of(member.key)
        lines: tuple[bytes, ...] = ()
        tagged: dict[str, float] = {}
        slots: dict[str, float] = {}
        for entry in sorted(keys.owned, key=attrgetter("key")):
            if entry.redis_type == "list":
                lines = tuple(entry.value)
                continue
            ((_, score),) = entry.value
            _, kind, name = self._indexes[entry.key, "zset"]
            if kind == "tagged":
                tagged[name] = score
            else:
                slots[f"{kind}:{name}"] = score
        stored = Record(keys.record, lines, {} if role == "failed" else {role: member.score})
        memberships = Memberships(slots=slots, tagged=tagged) if tagged or slots else NONE
        job = job_of(to_text(keys.key[len(self._head) :]), stored, memberships)
        if role != "work":
            return replaced(job, rank=reader.rank_in(job.priority, lower_first=is_lower_first))
        position = reader.position_of(queue or "", member.rank, totals, lower_first=is_lower_first)
        return replaced(job, position=position, rank=reader.rank_in(member.score, lower_first=is_lower_first))

    def tally_accepted(self, records: RecordColumns, keys: Sequence[bytes], totals: Totals) -> None:
        generation = Generation.REQLESS if b"throttles" in records else Generation.UNIFIED
        totals.count("generation", generation.name, len(keys))
        if b"spawned_from_jid" in records:
            totals.count("trace", "final", len(keys))

    def tally_index(self, entry: Entry, scores: Sequence[float], totals: Totals) -> None:
        index = self._indexes[entry.key, entry.redis_type]
        if scores and index.role in OF_QUEUES:
            reader.tally_members(index.role, index.name, scores, totals)

    def _index(self, key_and_type: tuple[bytes, str]) -> _Index | None:
        """An index; None for a key that is none."""
        match = self._layout.parse(*key_and_type)
        if match is None or match.role not in INDEXES:
            return None
        name = next(iter(match.fields.values()), None)
        key = PENDING if match.role == "pending" else IndexKey(key_and_type[0], is_scored=False)
        return _Index(key, match.role, name)

    def _group(self, which: tuple[State, bytes, str | None]) -> JobGroup | None:
        """The group of all jobs in a state whose records name this queue, and this group of failures; None for the rules."""
        state, queue, listed = which
        name = to_text(queue)
        role = ROLES[state]
        if (state is State.COMPLETED) is bool(queue) or (state is State.FAILED) is (listed is None):
            return None
        key = self._layout.key(role, queue=name, group=listed or "")
        index = self._indexes[key, INDEXES[role]]
        if index is None or index.name != (name if role in OF_QUEUES else listed):
            return None  # its text can't be the name of a key
        return JobGroup(name, None if state is State.COMPLETED else state, (index.key,))

    def _hash_of_tags(self, raw: bytes) -> int | None:
        """The sum of the placement hashes of a job's tags; None where they can't be read, or a key can't have such a name."""
        tags = names_of(raw)
        if tags is None or any(to_text(to_bytes(tag)) != tag for tag in tags):
            return None
        keys = (self._layout.key("tagged", tag=tag) for tag in set(tags))
        return sum(IndexKey(key, is_scored=False).placement_hash(0.0) for key in keys)


POPPED_HASH, DONE_HASH, PENDING_HASH = (index_key.placement_hash(0.0) for index_key in (POPPED, DONE, PENDING))


def _completed(queue: str) -> JobGroup:
    """The group of the completed jobs of a queue, which only their histories tell."""
    return JobGroup(queue, State.COMPLETED, ())


def _is_whole(priority: bytes) -> bool | None:
    """Whether a priority is a whole number, which leaves the fraction of a score to the time; None if it is no number at all."""
    number = parse_number(priority)
    return None if number is None else number == int(number)


def _is_unclear(score: float) -> bool:
    """Whether the score of a waiting job with a whole priority may count time the other way (QLESS-37)."""
    return EARLIEST_PART - PART_SLACK < score % 1 < LATEST_PART + PART_SLACK
