"""Sound kickq jobs at a glance: those in which no rule in this folder can find anything, and where they stand.

Careful in one direction only: jobs that a worker has, documents that are unusual, and what is late are left to the rules, and may
well be sound. tests/compat/kickq/test_prefilter.py holds every rule against it. Called by ``family.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...schema.errors import MalformedValue
from ...schema.fact import Entry, Fact, FactKind, Subject
from ...schema.job import Job, State, replaced
from ...schema.jobnumber import number_of
from ...schema.memo import Memo
from ...schema.prefilter import Accepted, IndexKey, IndexMembers, JobGroup, Member, Prefilter, RecordColumns
from ...schema.text import load_json, to_text
from ...schema.totals import Totals
from ..numbers import score_to_int
from ..overflow import FIELD, why_unreadable
from .keys import LOOK_MS, RUN_TRACE, SCHEDULED_WORDS, WORDS, as_sent, counted, layout
from .passthrough import decoded, time_role
from .reader import job_of
from .record import DEFAULTS, ITEM, RUN_STATES, Record, as_integer, as_number, truthy

if TYPE_CHECKING:
    from ...schema.columnar.jobtable import AcceptedJobs, JobKeys, JobTable

NEEDED = frozenset({b"id", b"name", b"state", b"createTime", b"updateTime", ITEM})
"""The fields without which no job is accepted."""

ENDS = {"retry": "fail", "ghost": "ghost"}
"""How the last run of a job ended that is in these states."""

_Where = tuple[JobGroup, float, float, int]
"""Where a job claims to stand: its scores in the time index and in the last of its indexes; and when it was created."""


class KickqPrefilter(Prefilter):
    """The keyspace under ``prefix`` at ``now_ms`` (Unix ms). ``for_transfer``: as for ``KeyFamily.prefilter``."""

    def __init__(self, prefix: str, now_ms: int, *, for_transfer: bool = False) -> None:
        self._layout = layout(prefix)
        self._head = self._layout.key("record", id="")
        self._late = float("-inf") if for_transfer else now_ms - LOOK_MS
        """No scheduler looks at what was due before."""
        self._groups = Memo(self._group)
        self._indexes = Memo(self._index)

    def record(self, key: bytes) -> int | None:
        return self.number(to_text(key[len(self._head) :]), "") if self.is_record(key) else None

    def is_record(self, key: bytes) -> bool:
        return key.startswith(self._head) and len(key) > len(self._head)

    def number(self, job_id: str, scope: str) -> int:
        return number_of("", job_id)

    def accept(self, records: RecordColumns, keys: Sequence[bytes]) -> Accepted:
        if not records.keys() >= NEEDED:
            return Accepted.none(len(keys))
        start = len(self._head)
        columns = (records[name] for name in (b"id", b"name", b"createTime", b"updateTime", b"state", ITEM))
        found: list[_Where | None] = []
        for key, job_id, name, created, updated, word, raw in zip(keys, *columns, strict=True):
            where = None
            if job_id == key[start:]:
                where = self._where(job_id, name, created, updated, word, raw)
            found.append(where)
        for row, raw in enumerate(records.get(FIELD, ())):
            if why_unreadable(raw, decoded) is not None:
                found[row] = None
        nowhere = (None, 0.0, 0.0, 0)
        groups, time_index, last, created_at = zip(*(nowhere if each is None else each for each in found), strict=True)
        return Accepted(groups, (time_index, [0.0] * len(keys), last), created_at)

    def _where(self, job_id: bytes, name: bytes, created: bytes, updated: bytes, word: bytes, raw: bytes) -> _Where | None:
        """Where the job stands whose record has these fields; None where a rule must look."""
        group, state, text = self._groups[name, word]
        if group is None:
            return None
        try:
            item = load_json(raw)
        except MalformedValue:
            return None
        if type(item) is not dict:
            return None
        get = item.get
        created_at, updated_at, end = get("createTime"), get("updateTime"), get("finishTime")
        if not (
            get("name") == group.queue
            and get("id") == to_text(job_id)
            and type(created_at) is int
            and type(updated_at) is int
            and created == b"%d" % created_at
            and updated == b"%d" % updated_at
            and as_integer(created_at) is not None
            and as_integer(updated_at) is not None
            and (end is None or as_integer(end) is not None)
            and _has_limits(item)
        ):
            return None
        before, runs = get("state"), get("runs", [])
        if (before not in SCHEDULED_WORDS if text == "queued" else before != text) or not _are_runs(runs):
            return None
        last = runs[-1]["state"] if runs else None
        is_complete = get("complete") is True
        if state is State.WAITING or state is State.SCHEDULED:
            if is_complete or end is not None or (before == text and ENDS.get(text, last) != last):
                return None
        elif (
            not is_complete
            or end is None
            or (get("success") is True) is not (state is State.COMPLETED)
            or last is None
            or RUN_STATES[last] is not state
        ):
            return None
        if time_role(state) is None:
            return group, float(created_at), 0.0, created_at
        due = as_number(get("scheduledFor"))
        if due is None or due < self._late or score_to_int(float(due)) is None:
            return None
        return group, float(created_at), float(due), created_at

    def index_members(self, entry: Entry) -> IndexMembers | None:
        index = self._indexes[entry.key, entry.redis_type] if entry.ttl_ms is None else None
        if index is None:
            return None
        members = [member for member, _ in entry.value] if entry.redis_type == "zset" else entry.value
        return IndexMembers(index[0], [number_of("", to_text(member)) for member in members])

    def subject(self, key: bytes, record: tuple[bytes, ...], members: Iterable[Member], owned: Iterable[Entry]) -> Subject:
        job_id = to_text(key[len(self._head) :])
        facts = [Fact(FactKind.RECORD, "record", key, "hash", job_id, values=record)]
        for index, member, score, rank in members:
            facts.append(self._place(index, member, score, rank, job_id))
        return Subject(job_id, "", tuple(facts), prefiltered=True)

    def tables(self, jobs: AcceptedJobs, totals: Totals) -> Iterator[JobTable]:
        """See TableReader."""
        from ...schema.columnar.tables_of_jobs import tables_of_accepted  # needs what only the extra columnar has

        return tables_of_accepted(jobs, self._read)

    def _read(self, keys: JobKeys) -> Job:
        """What the reader makes of a job."""
        scores: dict[str, float] = {}
        position = None
        for key, _, score, rank in keys.members:
            redis_type, role, _, _ = self._index_of(key)
            if redis_type == "zset":
                scores[role] = score
            elif redis_type == "list":
                position = rank
        return replaced(job_of(to_text(keys.key[len(self._head) :]), Record.of(keys.record, scores)), position=position)

    def _index_of(self, key: bytes) -> tuple[str, str, str | None, str | None]:
        """The type of the index with this key, its role, and the queue or the state word of which it speaks."""
        for redis_type in ("zset", "set", "list"):
            index = self._indexes[key, redis_type]
            if index is not None:
                break
        return redis_type, *index[1:]

    def _place(self, key: bytes, member: bytes, score: float, rank: int, job_id: str) -> Fact:
        redis_type, role, queue, word = self._index_of(key)
        if redis_type == "list":
            return Fact(FactKind.PLACE, role, key, redis_type, job_id, queue=queue, member=member, index=rank)
        if redis_type == "set":
            return Fact(FactKind.PLACE, role, key, redis_type, job_id, label=word, member=member)
        return Fact(FactKind.PLACE, role, key, redis_type, job_id, member=member, score=score)

    def tally_accepted(self, records: RecordColumns, keys: Sequence[bytes], totals: Totals) -> None:
        start = len(self._head)
        totals.count("records", number=len(keys))
        numbers = [number for number in (counted(to_text(key[start:])) for key in keys) if number is not None]
        if numbers:
            totals.maximum("highest id", max(numbers))
        for raw in records[ITEM]:
            trace = RUN_TRACE.search(raw)
            if trace:
                totals.name("run traces", [to_text(trace[1])])

    def tally_index(self, entry: Entry, scores: Sequence[float], totals: Totals) -> None:
        if entry.redis_type == "set" and scores:
            totals.count("state members", number=len(scores))

    def _index(self, key_and_type: tuple[bytes, str]) -> tuple[IndexKey, str, str | None, str | None] | None:
        """An index with its role, and the queue or the state word of which its key speaks; None for a key that is none."""
        key, redis_type = key_and_type
        match = self._layout.parse(key, redis_type)
        if match is None or match.role not in ("queue", "state", "time_index", "scheduled", "purge"):
            return None
        word = match.fields.get("state")
        if match.role == "state" and word not in WORDS:
            return None
        return IndexKey(key, redis_type == "zset"), match.role, match.fields.get("queue"), word

    def _group(self, name_and_word: tuple[bytes, bytes]) -> tuple[JobGroup | None, State, str]:
        """The group of all jobs of a name in a state, the state, and its word; no group where a rule must look."""
        name, word = map(to_text, name_and_word)
        state = WORDS.get(word, State.UNKNOWN)
        if state in (State.UNKNOWN, State.ACTIVE) or as_sent(name) != name:
            return None, state, word
        key = self._layout.key
        last = time_role(state)
        index_keys = (
            IndexKey(key("time_index")),
            IndexKey(key("state", state=word), is_scored=False),
            IndexKey(key("queue", queue=name), is_scored=False) if last is None else IndexKey(key(last)),
        )
        return JobGroup(name, state, index_keys), state, word


def _has_limits(item: Mapping[str, Any]) -> bool:
    """Whether it says in numbers how often and how long the job may run (KICKQ-27)."""
    for switch, name in (("retry", "retryTimes"), ("ghostRetry", "ghostTimes")):
        if truthy(item.get(switch, DEFAULTS[switch])) and as_integer(item.get(name, DEFAULTS[name])) is None:
            return False
    limit = item.get("processTimeout")
    return limit is None or as_number(limit) is not None


def _are_runs(runs: Any) -> bool:
    """Whether these are runs that have ended, numbered from 1 (KICKQ-22)."""
    if type(runs) is not list:
        return False
    for number, run in enumerate(runs, 1):
        if type(run) is not dict or run.get("count") != number:
            return False
        state = run.get("state")
        if type(state) is not str or state not in RUN_STATES:
            return False
    return True
