"""Accepted jobs of our own queues: those for which no rule of ``rules.py`` can find anything.

A record does not say where its job stands, so it claims to stand anywhere, once. Jobs that are held, blocked, tagged or in the
outbox, or have a unique key, are left to the rules. tests/schema/native/test_prefilter.py holds every rule against it. Called by
``family.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from ..errors import MalformedValue
from ..fact import Entry, Fact, FactKind, Subject
from ..jobnumber import number_of
from ..memo import Memo
from ..prefilter import ANYWHERE, Accepted, IndexMembers, JobGroup, Member, Prefilter, RecordColumns
from ..text import to_bytes, to_text
from ..totals import Totals
from . import codec
from .keys import is_escaped, unescape
from .layout import layout
from .numbers import parse_int, parse_number, score_to_int
from .overflow import Overflow, is_plain
from .record import CANCELLED, STATES
from .rules import LATE_MS
from .scripts.waiting_score import sequence_of

UNHELD = frozenset({"waiting", "scheduled", "dead", "done"})
"""The roles of the indexes where nobody holds a job."""
SOMEWHERE = JobGroup("", None, (ANYWHERE,))
NEVER = -(2**63)
"""Before all moments."""
EXACT = 2**53
"""Up to here each whole number has a score of its own."""


class NativePrefilter(Prefilter):
    """The keyspace under ``prefix`` at ``now_ms`` (Unix ms). ``for_transfer``: as for ``KeyFamily.prefilter``."""

    def __init__(self, prefix: str, now_ms: int, *, for_transfer: bool = False) -> None:
        self._layout = layout(prefix)
        self.head = to_bytes(prefix) + b":{"
        """The name of every record, up to the tag."""
        self.late = NEVER if for_transfer else now_ms - LATE_MS
        """A job that was due before is late."""
        self._queues = Memo(_queue)
        self._groups = Memo(_group)

    def record(self, key: bytes) -> int | None:
        split = self._split(key)
        return None if split is None else self.number(split[1], split[0])

    def is_record(self, key: bytes) -> bool:
        return self._split(key) is not None

    def number(self, job_id: str, scope: str) -> int:
        return number_of(scope, job_id)

    def accept(self, records: RecordColumns, keys: Sequence[bytes]) -> Accepted:
        rows = len(keys)
        if not records.keys() & {b"payload", b"message"}:
            return Accepted.none(rows)
        # Messages of kombu don't say when they were published.
        is_dated = b"published_at" in records
        created_at = list(map(parse_int, records[b"published_at"])) if is_dated else [None] * rows
        rejected = {row for row, time in enumerate(created_at) if is_dated and time is None}
        if b"reason" in records:
            rejected.update(row for row, reason in enumerate(records[b"reason"]) if reason == CANCELLED)
        if b"score" in records:
            rejected.update(row for row, score in enumerate(records[b"score"]) if parse_number(score) is None)
        for name in (b"deliveries", b"delivered_at"):
            rejected.update(row for row, value in enumerate(records.get(name, ())) if parse_int(value) is None)
        if b"payload" not in records:
            rejected.update(row for row, message in enumerate(records[b"message"]) if not is_message(message))
        if Overflow.FIELD in records:
            rejected.update(row for row, overflow in enumerate(records[Overflow.FIELD]) if not is_readable(overflow))
        groups = [None if row in rejected else SOMEWHERE for row in range(rows)]
        return Accepted(groups, ([0.0] * rows,), created_at)

    def index_members(self, entry: Entry) -> IndexMembers | None:
        index = self.index(entry.key) if entry.redis_type == "zset" and entry.ttl_ms is None else None
        if index is None:
            return None
        queue, role, group = index
        is_rejected = {"waiting": _is_inexact, "scheduled": self._is_late}.get(role, _never)
        numbers = [None if is_rejected(score) else self.number(to_text(member), queue) for member, score in entry.value]
        return IndexMembers(ANYWHERE, numbers, group)

    def index(self, key: bytes) -> tuple[str, str, JobGroup] | None:
        """The queue, the role and the group of the jobs in a zset of this name, if it is an index where nobody holds a job."""
        match = self._layout.parse(key, "zset")
        if match is None or match.role not in UNHELD or not is_escaped(match.fields["tag"]):
            return None
        queue = unescape(match.fields["tag"])
        return queue, match.role, self._groups[queue, match.role]

    def subject(self, key: bytes, record: tuple[bytes, ...], members: Iterable[Member], owned: Iterable[Entry]) -> Subject:
        split = self._split(key)
        if split is None:
            raise ValueError(f"{key!r} is no record")
        queue, job_id = split
        facts = [Fact(FactKind.RECORD, "record", key, "hash", job_id, queue, queue, values=record)]
        for zset, member, score, rank in members:
            role = zset.rpartition(b":")[2].decode()
            facts.append(Fact(FactKind.PLACE, role, zset, "zset", job_id, queue, queue, None, member, score, rank))
        return Subject(job_id, queue, tuple(facts), prefiltered=True)

    def tally_accepted(self, records: RecordColumns, keys: Sequence[bytes], totals: Totals) -> None:
        start = len(self.head)
        for tag, number in Counter(key[start:].partition(b"}")[0] for key in keys).items():
            totals.count("records", self.queue(tag) or "", number)

    def tally_index(self, entry: Entry, scores: Sequence[float], totals: Totals) -> None:
        index = self.index(entry.key)
        if scores and index is not None and index[1] == "waiting":
            highest = max(sequence_of(score_to_int(score) or 0) for score in scores)
            self.tally_waiting(index[0], len(scores), highest, totals)

    def tally_waiting(self, queue: str, members: int, highest: int, totals: Totals) -> None:
        """Counts so many members of a queue's waiting jobs; ``highest``: of their sequences."""
        totals.count("waiting", queue, members)
        totals.maximum("highest sequence", highest, queue)

    def queue(self, tag: bytes) -> str | None:
        """The queue in whose keys a tag stands; None for what is no tag."""
        queue: str | None = self._queues[tag]
        return queue

    def _split(self, key: bytes) -> tuple[str, str] | None:
        """The queue and the id in the name of a record."""
        if not key.startswith(self.head):
            return None
        tag, _, name = key[len(self.head) :].partition(b"}:job:")
        queue = self.queue(tag) if name else None
        return None if queue is None else (queue, to_text(name))

    def _is_late(self, due_at: float) -> bool:
        return due_at < self.late or score_to_int(due_at) is None


def _queue(tag: bytes) -> str | None:
    text = to_text(tag)
    return unescape(text) if text and is_escaped(text) else None


def _group(of: tuple[str, str]) -> JobGroup:
    """The group of all jobs of a queue in indexes of a role."""
    queue, role = of
    return JobGroup(queue, STATES[role], (ANYWHERE,))


def is_message(raw: bytes) -> bool:
    """Whether a message can be read."""
    try:
        codec.decode(raw)
    except MalformedValue:
        return False
    return True


def is_readable(overflow: bytes) -> bool:
    """Whether an overflow can be read, and has no other time of publication."""
    if is_plain(overflow):
        return True
    try:
        return "created_at" not in Overflow.decode(overflow).fields
    except MalformedValue:
        return False


def _is_inexact(score: float) -> bool:
    return not score.is_integer() or abs(score) > EXACT


def _never(_score: float) -> bool:
    return False
