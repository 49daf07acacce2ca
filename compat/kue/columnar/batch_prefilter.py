"""Sound kue jobs at a glance, thousands at once: ``prefilter.py`` for columns.

tests/compat/kue/columnar/test_batch_prefilter.py. Made by ``family.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ....schema.columnar.batch_prefilter import NOT_ACCEPTED, AcceptedColumns, BatchPrefilter, IndexMemberColumns
from ....schema.columnar.binary_views import NO_NUMBER, NULL, BinaryViews
from ....schema.columnar.jit import BYTE_ARRAY, INT_ARRAY, OUT_INTS, kernel
from ....schema.columnar.jobtable import AcceptedJobs, JobTable
from ....schema.job import State
from ....schema.memo import Memo
from ....schema.prefilter import IndexKey, JobGroup
from ....schema.totals import Totals
from ...numbers import parse_int
from ...overflow import FIELD, why_unreadable
from ..keys import BORROWED, EARLIEST_TIME, LARGEST_ID
from ..passthrough import decoded
from ..prefilter import ID_DIGITS, JSON, LATEST, LOG, NEEDED, KuePrefilter, priority_of
from ..record import INDEXES, SHORTEST_LEASE, progress_of
from .table import read_table

OTHERS = frozenset({b"attempts", b"progress", b"removeOnComplete", b"failed_at", b"error", b"ttl", b"duration", b"started_at"})
"""Fields that tell something about jobs in some states."""


class KueBatchPrefilter(BatchPrefilter):
    """What a KuePrefilter says."""

    fields = tuple(NEEDED | JSON | OTHERS | {FIELD})

    def __init__(self, prefilter: KuePrefilter) -> None:
        self._prefilter = prefilter
        self._scores = Memo(priority_of)
        self._progress = Memo(progress_of)

    def records(self, keys: BinaryViews) -> Any:
        return _ids(keys.int_between(self._prefilter.head))

    def owners(self, keys: BinaryViews) -> Any:
        return _ids(keys.int_between(self._prefilter.head, LOG))

    def accept(self, records: Mapping[bytes, BinaryViews]) -> AcceptedColumns:
        created, updated, due, allowed, lease = (
            records[name].map_ints(parse_int, NO_NUMBER)
            for name in (b"created_at", b"updated_at", b"promote_at", b"max_attempts", b"ttl")
        )
        used = np.where(records[b"attempts"].sizes == NULL, 0, records[b"attempts"].map_ints(parse_int, NO_NUMBER))
        codes, texts = records[b"priority"].dictionary_encode()
        score = np.array([np.nan if value is None else value for value in map(self._scores.__getitem__, texts)])[codes]
        groups, at = self._at_group(records[b"type"], records[b"state"])
        is_accepted = (
            (at != NOT_ACCEPTED)
            & ~np.isnan(score)
            & (created >= 0)
            & (created <= updated)
            & (updated <= LATEST)
            & (created <= due)
            & (due <= LATEST)
            & (used >= 0)
            & (used <= allowed)
            & (allowed <= LATEST)
            & (allowed >= 1)
        )
        is_set = {name: column.sizes != NULL for name, column in records.items()}
        for name in NEEDED:
            is_accepted &= is_set[name]
        states = [group.state for group in groups]
        is_due, is_done, is_failed, is_active = (
            np.array([found is state for found in states] or [False])[at]
            for state in (State.SCHEDULED, State.COMPLETED, State.FAILED, State.ACTIVE)
        )
        is_through = records[b"progress"].equals(b"100") & (records[b"removeOnComplete"].sizes <= 0)
        is_accepted &= ~is_due | (due >= self._prefilter.late)
        is_accepted &= ~is_done | ((used >= 1) & is_through)
        is_accepted &= ~is_failed | ((used == allowed) & is_set[b"failed_at"] & is_set[b"error"])
        is_accepted &= ~is_active | (((lease > 0) | self._prefilter.for_transfer) & ~is_set[b"duration"])
        is_accepted &= ~is_set[b"ttl"] | (lease >= 0)
        for name in JSON:
            is_accepted &= ~is_set[name] | records[name].are_json()
        for name in (b"started_at", b"failed_at", b"duration"):
            is_accepted &= ~is_set[name] | (records[name].map_ints(parse_int, NO_NUMBER) >= 0)
        codes, texts = records[b"progress"].dictionary_encode()
        is_readable = np.array([self._progress[text] is not None for text in texts] or [False])[codes]
        is_accepted &= ~is_set[b"progress"] | is_readable
        for row in np.flatnonzero(is_set[FIELD] & is_accepted).tolist():
            is_accepted[row] = why_unreadable(records[FIELD][row], decoded) is None
        by_state = np.select([is_due, is_active], [due.astype(np.float64), 0.0], score)
        return AcceptedColumns(groups, np.where(is_accepted, at, NOT_ACCEPTED), (score, by_state, score), created)

    def _at_group(self, types: BinaryViews, words: BinaryViews) -> tuple[list[JobGroup], Any]:
        """The groups of jobs of these types in these states, each once, and the index of each job's; NOT_ACCEPTED for none."""
        by_type, queues = types.dictionary_encode()
        by_word, states = words.dictionary_encode()
        pairs, at = np.unique(by_type * len(states) + by_word, return_inverse=True)
        by_pair = [self._prefilter.group(queues[pair // len(states)], states[pair % len(states)]) for pair in pairs.tolist()]
        groups = [group for group in by_pair if group is not None]
        index = {group: number for number, group in enumerate(groups)}
        return groups, np.array([NOT_ACCEPTED if group is None else index[group] for group in by_pair], np.int64)[at]

    def index_members(self, key: bytes, members: BinaryViews, scores: Any) -> IndexMemberColumns | None:
        if not self._prefilter.is_index(key):
            return None
        numbers = members.fill(np.full(len(members), NO_NUMBER), _padded)
        if key != self._prefilter.active:
            return IndexMemberColumns(IndexKey(key), numbers)
        numbers[(scores >= SHORTEST_LEASE) & (scores < self._prefilter.late)] = NO_NUMBER
        return IndexMemberColumns(IndexKey(key, is_scored=False), numbers)

    def tally_index(self, key: bytes, scores: Any, totals: Totals) -> None:
        self._prefilter.tally_members(key, len(scores), int((scores > EARLIEST_TIME).sum()), totals)

    def tally_accepted(self, keys: BinaryViews, numbers: Any, totals: Totals) -> None:
        own = numbers[(numbers < BORROWED) | (numbers > LARGEST_ID)]
        if len(own):
            totals.maximum("highest id", int(own.max()))
        totals.count("trace", "0.9", len(numbers))

    def tables(self, jobs: AcceptedJobs, totals: Totals) -> Iterator[JobTable]:
        group = self._prefilter.group(jobs.records[b"type"][0], jobs.records[b"state"][0])
        if group is None or group.state is None:
            return
        start = len(self._prefilter.head)
        ids = BinaryViews(jobs.keys.data, jobs.keys.starts + start, jobs.keys.sizes - start)
        indexes = {role: jobs.indexes[index_key.key] for role, index_key in zip(INDEXES, group.index_keys, strict=True)}
        table = read_table(ids, jobs, group.queue, group.state, indexes)
        if table is not None:
            yield table


def _ids(numbers: Any) -> Any:
    return np.where(numbers < 10**ID_DIGITS, numbers, NO_NUMBER)


@kernel(BYTE_ARRAY, INT_ARRAY, INT_ARRAY, OUT_INTS)
def _padded(data: Any, starts: Any, sizes: Any, numbers: Any) -> None:
    """Fills in the job that each member in today's form names."""
    for row in range(len(starts)):
        at, digits = starts[row], sizes[row] - 3
        if not 0 < digits <= ID_DIGITS or data[at] != 48 + digits // 10 or data[at + 1] != 48 + digits % 10:
            continue
        if data[at + 2] != 124 or (data[at + 3] == 48 and digits > 1):
            continue
        number = 0
        for index in range(at + 3, at + 3 + digits):
            digit = data[index] - 48
            if not 0 <= digit <= 9:
                number = NO_NUMBER
                break
            number = number * 10 + digit
        numbers[row] = number
