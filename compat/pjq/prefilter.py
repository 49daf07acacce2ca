"""Sound pjq jobs at a glance: those that wait or are finished, in which no rule in this folder can find anything.

Careful in one direction only: jobs that workers have, and the next of each queue, are left to the rules, and may well be sound.
tests/compat/pjq/test_prefilter.py holds every rule against it. Called by ``family.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ...schema.fact import Entry, Fact, FactKind, Subject
from ...schema.job import Job, State, replaced
from ...schema.jobnumber import number_of
from ...schema.memo import Memo
from ...schema.prefilter import Accepted, IndexKey, IndexMembers, JobGroup, Member, Prefilter, RecordColumns
from ...schema.text import to_text
from ...schema.totals import Totals
from ..numbers import parse_number
from ..overflow import FIELD, why_unreadable
from ..timestamps import parse_timestamp
from .keys import layout
from .passthrough import decoded, job_of
from .payload import has_failed, members_of
from .reader import position, tally_members
from .record import Record, started_ms

if TYPE_CHECKING:
    from ...schema.columnar.jobtable import AcceptedJobs, JobKeys, JobTable

INDEXES = {"queued": "list", "finished": "zset"}
"""The Redis types of the containers whose jobs may be accepted, by role."""

FINISHED = frozenset({b"finished_at", b"worker_uuid", b"dispatched_at"})
"""The fields of a finished job."""


class PjqPrefilter(Prefilter):
    """The keyspace under ``prefix``."""

    def __init__(self, prefix: str) -> None:
        self._layout = layout(prefix)
        self._start = len(self._layout.key("record", id=""))
        self._groups = Memo(self._group)
        self._indexes = Memo(self._index)

    def record(self, key: bytes) -> int | None:
        return self.number(to_text(key[self._start :]), "") if self.is_record(key) else None

    def is_record(self, key: bytes) -> bool:
        match = next(self._layout.matches(key), None)
        return match is not None and match.role == "record"

    def number(self, job_id: str, scope: str) -> int:
        return number_of("", job_id)

    def accept(self, records: RecordColumns, keys: Sequence[bytes]) -> Accepted:
        if b"json" not in records:
            return Accepted.none(len(keys))
        is_finished = b"finished_at" in records
        if is_finished and not records.keys() >= FINISHED:
            return Accepted.none(len(keys))
        groups: list[JobGroup | None] = [None] * len(keys)
        scores = [0.0] * len(keys)
        created_at: list[int | None] = [None] * len(keys)
        start = self._start
        for row, (key, raw) in enumerate(zip(keys, records[b"json"], strict=True)):
            members = members_of(raw)
            if members is None or members.get("uuid") != to_text(key[start:]):
                continue
            queue = members.get("queue_name")
            if not isinstance(queue, str):
                continue
            state = State.WAITING if not is_finished else State.FAILED if has_failed(members) else State.COMPLETED
            groups[row] = self._groups[queue, state]
            created_at[row] = parse_timestamp(members.get("created_at"))
        for row, raw in enumerate(records.get(b"finished_at", ())):
            finished_at = parse_number(raw)
            if finished_at is None or started_ms(raw) is None:
                groups[row] = None
            else:
                scores[row] = float(finished_at)
        for row, raw in enumerate(records.get(b"started_at", ())):
            if started_ms(raw) is None:
                groups[row] = None
        for row, raw in enumerate(records.get(FIELD, ())):
            if why_unreadable(raw, decoded) is not None:
                groups[row] = None
        return Accepted(groups, (scores,), created_at)

    def index_members(self, entry: Entry) -> IndexMembers | None:
        index = self._indexes[entry.key] if entry.ttl_ms is None else None
        if index is None or entry.redis_type != INDEXES[index[1]]:
            return None
        if entry.redis_type == "zset":
            return IndexMembers(index[0], [number_of("", to_text(member)) for member, _ in entry.value])
        numbers: list[int | None] = [number_of("", to_text(member)) for member in entry.value]
        if not entry.offset and numbers:
            numbers[0] = None  # where one is found that waits while workers are idle (PJQ-24)
        return IndexMembers(index[0], numbers)

    def subject(self, key: bytes, record: tuple[bytes, ...], members: Iterable[Member], owned: Iterable[Entry]) -> Subject:
        job_id = to_text(key[self._start :])
        facts = [Fact(FactKind.RECORD, "record", key, "hash", job_id, values=record)]
        for index, member, score, rank in members:
            _, role, queue = self._indexes[index]
            redis_type = INDEXES[role]
            at = None if redis_type == "list" else score
            facts.append(Fact(FactKind.PLACE, role, index, redis_type, job_id, "", queue, None, member, at, rank))
        return Subject(job_id, "", tuple(facts), prefiltered=True)

    def tables(self, jobs: AcceptedJobs, totals: Totals) -> Iterator[JobTable]:
        """See TableReader."""
        from ...schema.columnar.tables_of_jobs import tables_of_accepted  # needs what only the extra columnar has

        def read(keys: JobKeys) -> Job:
            """What the reader makes of a job without an overflow."""
            (member,) = keys.members
            _, role, queue = self._indexes[member.key]
            is_waiting = role == "queued"
            record = Record(role, keys.record, {} if is_waiting else {role: member.score})
            job = job_of(to_text(keys.key[self._start :]), queue, record, {})
            return replaced(job, position=position(role, queue, member.rank, totals)) if is_waiting else job

        return iter(()) if FIELD in jobs.records else tables_of_accepted(jobs, read)

    def tally_accepted(self, records: RecordColumns, keys: Sequence[bytes], totals: Totals) -> None:
        """Of records nothing is counted."""

    def tally_index(self, entry: Entry, scores: Sequence[float], totals: Totals) -> None:
        if scores:
            _, role, queue = self._indexes[entry.key]
            tally_members(role, entry, queue, totals)

    def _index(self, key: bytes) -> tuple[IndexKey, str, str] | None:
        """A container with its role and its queue; None for any other key."""
        match = next(self._layout.matches(key), None)
        if match is None or match.role not in INDEXES:
            return None
        return IndexKey(key, match.role == "finished"), match.role, match.fields["queue"]

    def _group(self, queue_and_state: tuple[str, State]) -> JobGroup | None:
        """The group of all jobs of a queue in a state; None where the queue has a name that no key can have."""
        queue, state = queue_and_state
        role = "queued" if state is State.WAITING else "finished"
        key = self._layout.key(role, queue=queue)
        index = self._indexes[key]
        return None if index is None or index[2] != queue else JobGroup(queue, state, (index[0],))
