"""Sound kue jobs at a glance: those for which no rule in this folder can find anything, and what they look like.

Careful in one direction only: what is unusual here (an old member form, a number in an odd notation) is left to the rules, and
may well be sound. tests/compat/kue/test_prefilter.py holds every rule against it. Called by ``family.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...schema.fact import Entry, Fact, FactKind, Subject
from ...schema.job import State
from ...schema.memo import Memo
from ...schema.prefilter import Accepted, IndexKey, IndexMembers, JobGroup, Member, Prefilter, RecordColumns
from ...schema.text import not_json, to_text
from ...schema.totals import Totals
from ..numbers import parse_ints, parse_number
from ..overflow import FIELD, why_unreadable
from .keys import BORROWED, EARLIEST_TIME, WORDS, MemberFormat, is_borrowed, layout
from .passthrough import decoded
from .record import INDEXES, SHORTEST_LEASE, progress_of, state_of
from .rules.record import LATE_MS

KNOWN = frozenset({State.WAITING, State.SCHEDULED, State.ACTIVE, State.COMPLETED, State.FAILED})
"""Of an active job without ttl keys alone never tell whether all is well."""

NEEDED = frozenset({b"type", b"state", b"priority", b"data", b"created_at", b"updated_at", b"promote_at", b"max_attempts"})
"""The fields without which no job is accepted."""
JSON = frozenset({b"data", b"result", b"progress_data", b"backoff"})
ID_DIGITS = 16
LOG = b":log"
"""The end of the name of a job's log."""
LATEST = 2**53
"""Numbers up to here are the same in Python, JavaScript, a 64-bit column and a double."""


class KuePrefilter(Prefilter):
    """The keyspace under ``prefix`` at ``now_ms`` (Unix ms). ``for_transfer``: as for ``KeyFamily.prefilter``."""

    def __init__(self, prefix: str, now_ms: int, *, for_transfer: bool = False) -> None:
        self._layout = layout(prefix)
        self.head = self._layout.key("record", id="")
        """The name of every record, up to the id."""
        self.for_transfer = for_transfer
        """Also for active jobs of which nobody knows how long they may run (KUE-15)."""
        self.late = 0 if for_transfer else now_ms - LATE_MS
        """A job that was due before has not been promoted in time, and one whose lease was over has not been given up."""
        self.active = self._layout.key("by_state", state=WORDS[State.ACTIVE])
        """The index of active jobs, in which scores are leases, of which records don't know."""
        self._groups = Memo(self._group)
        self._scores = Memo(priority_of)
        self._progress = Memo(progress_of)
        self._indexes = Memo(self._index)

    def group(self, queue: bytes, word: bytes) -> JobGroup | None:
        """The group of all jobs of a type in a state, as their records name these; None where a rule must look."""
        group: JobGroup | None = self._groups[queue, word]
        return group

    def record(self, key: bytes) -> int | None:
        if not key.startswith(self.head):
            return None
        digits = key[len(self.head) :]
        return int(digits) if digits.isdigit() and len(digits) <= ID_DIGITS and digits[0] != ord("0") else None

    def number(self, job_id: str, scope: str) -> int:
        return int(job_id)

    def accept(self, records: RecordColumns, keys: Sequence[bytes]) -> Accepted:
        rows = len(keys)
        if not records.keys() >= NEEDED:
            return Accepted.none(rows)
        groups = [self._groups[pair] for pair in zip(records[b"type"], records[b"state"], strict=True)]
        scores = list(map(self._scores.__getitem__, records[b"priority"]))
        created_at = _wholes(records[b"created_at"])
        numbers = (_wholes(records[name]) for name in (b"updated_at", b"promote_at", b"max_attempts"))
        made = _wholes(records[b"attempts"]) if b"attempts" in records else [0] * rows
        can_fail = b"failed_at" in records and b"error" in records
        progress, passing = (records.get(name, [b""] * rows) for name in (b"progress", b"removeOnComplete"))
        ttls = _wholes(records[b"ttl"]) if b"ttl" in records else [0] * rows
        by_state = list(scores)
        columns = zip(groups, scores, created_at, *numbers, made, strict=True)
        for row, (group, score, created, updated, due, allowed, used) in enumerate(columns):
            is_accepted = (
                group is not None
                and score is not None
                and 0 <= created <= updated <= LATEST
                and created <= due <= LATEST
                and 0 <= used <= allowed <= LATEST  # beyond, JavaScript counts otherwise
                and allowed >= 1
            )
            if is_accepted:
                match group.state:
                    case State.SCHEDULED:
                        by_state[row] = float(due)
                        is_accepted = due >= self.late
                    case State.COMPLETED:
                        is_accepted = used >= 1 and not passing[row] and progress[row] == b"100"
                    case State.FAILED:
                        is_accepted = used == allowed and can_fail
                    case State.ACTIVE:
                        # With a duration it may be done.
                        by_state[row] = 0.0
                        is_accepted = (ttls[row] > 0 or self.for_transfer) and b"duration" not in records
            if not is_accepted:
                groups[row] = None
        for row, limit in enumerate(ttls):
            if limit < 0:
                groups[row] = None
        for name in (b"started_at", b"failed_at", b"duration"):
            for row, time in enumerate(_wholes(records[name]) if name in records else ()):
                if time < 0:
                    groups[row] = None
        for row, raw in enumerate(records.get(b"progress", ())):
            if self._progress[raw] is None:
                groups[row] = None
        for row, raw in enumerate(records.get(FIELD, ())):
            if why_unreadable(raw, decoded) is not None:
                groups[row] = None
        for name in JSON & records.keys():
            for row in not_json(records[name]):
                groups[row] = None
        return Accepted(groups, (scores, by_state, scores), created_at)

    def index_members(self, entry: Entry) -> IndexMembers | None:
        if entry.redis_type != "zset" or entry.ttl_ms is not None or not self.is_index(entry.key):
            return None
        numbers = _padded_numbers([member for member, _ in entry.value])
        if entry.key != self.active:
            return IndexMembers(IndexKey(entry.key), numbers)
        is_over = [SHORTEST_LEASE <= score < self.late for _, score in entry.value]
        known = [None if over else number for number, over in zip(numbers, is_over, strict=True)]
        return IndexMembers(IndexKey(entry.key, is_scored=False), known)

    def is_index(self, key: bytes) -> bool:
        """Whether a zset of this name is one of the indexes."""
        match = self._layout.parse(key, "zset")
        return match is not None and match.role in INDEXES

    def owner(self, key: bytes) -> int | None:
        return self.record(key.removesuffix(LOG)) if key.endswith(LOG) else None

    def subject(self, key: bytes, record: tuple[bytes, ...], members: Iterable[Member], owned: Iterable[Entry]) -> Subject:
        job_id = key[len(self.head) :].decode()
        facts = [Fact(FactKind.RECORD, "record", key, "hash", job_id, values=record)]
        for index, member, score, rank in members:
            role, queue, word = self._indexes[index]
            facts.append(Fact(FactKind.PLACE, role, index, "zset", job_id, "", queue, word, member, score, rank))
        for entry in owned:
            facts.append(Fact(FactKind.NOTE, "log", entry.key, "list", job_id, values=tuple(entry.value), index=entry.offset))
        return Subject(job_id, "", tuple(facts), prefiltered=True)

    def tally_accepted(self, records: RecordColumns, keys: Sequence[bytes], totals: Totals) -> None:
        numbers = (int(key[len(self.head) :]) for key in keys)
        own = [each for each in numbers if each < BORROWED or not is_borrowed(str(each))]
        if own:
            totals.maximum("highest id", max(own))
        totals.count("trace", "0.9", len(keys))

    def tally_index(self, entry: Entry, scores: Sequence[float], totals: Totals) -> None:
        self.tally_members(entry.key, len(scores), sum(score > EARLIEST_TIME for score in scores), totals)

    def tally_members(self, key: bytes, members: int, times: int, totals: Totals) -> None:
        """The same for so many members of an index, of whose scores so many are times."""
        found = self._layout.parse(key, "zset")
        if not members or found is None:
            return
        totals.count("members", MemberFormat.PADDED, members)
        match found.role, found.fields.get("state"):
            case "by_type", "inactive":
                totals.count("waiting", found.fields["queue"], members)
            case "by_state", "delayed":
                if times:
                    totals.count("trace", "0.9", times)

    def is_settled(self, queue: str, totals: Totals) -> bool:
        return queue in totals.names.get("types", ())

    def _index(self, key: bytes) -> tuple[str, str | None, str | None]:
        """The role of an index, and the type and state of which its key speaks."""
        match = self._layout.parse(key, "zset")
        if match is None:
            raise ValueError(f"{key!r} is no index")
        return match.role, match.fields.get("queue"), match.fields.get("state")

    def _group(self, pair: tuple[bytes, bytes]) -> JobGroup | None:
        """The group of all jobs of a type in a state; None where a rule must look."""
        queue, word = pair
        state = state_of({b"type": queue, b"state": word})
        if state not in KNOWN or not queue:
            return None
        name = to_text(queue)
        keys = (self._layout.key(role, queue=name, state=WORDS[state]) for role in INDEXES)
        return JobGroup(name, state, tuple(IndexKey(key, key != self.active) for key in keys))


def priority_of(raw: bytes) -> float | None:
    """The score of a job with this priority; None for one that is no number."""
    value = parse_number(raw)
    return None if value is None else float(value)


def _wholes(column: Sequence[bytes]) -> list[int]:
    """The numbers in a column; -1 for what is none."""
    return [-1 if value is None else value for value in parse_ints(column)]


def _padded_numbers(members: Sequence[bytes]) -> Sequence[int | None]:
    """The jobs that members name."""
    digits = [member[3:] for member in members]
    heads = {(member[:3], len(member) - 3) for member in members}
    if (
        all(0 < size <= ID_DIGITS and prefix == b"%02d|" % size for prefix, size in heads)
        and b"".join(digits).isdigit()
        and b"|0" not in b" ".join(members)
    ):
        return list(map(int, digits))
    return list(map(_padded_number, members))


def _padded_number(member: bytes) -> int | None:
    """The job that a member in today's form names."""
    digits = member[3:]
    if not digits.isdigit() or len(digits) > ID_DIGITS:
        return None
    found = int(digits)
    return found if member == b"%02d|%d" % (len(digits), found) else None
