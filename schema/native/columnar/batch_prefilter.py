"""Accepted jobs of our own queues, thousands at once: ``../prefilter.py`` for columns.

tests/schema/native/columnar/test_batch_prefilter.py. Made by ``../family.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ...columnar.batch_prefilter import NOT_ACCEPTED, UNDATED, AcceptedColumns, BatchPrefilter, IndexMemberColumns
from ...columnar.binary_views import NO_NUMBER, NULL, BinaryViews, has
from ...columnar.jit import BYTE_ARRAY, INT_ARRAY, OUT_INTS, kernel
from ...columnar.jobnumbers import numbers_of
from ...columnar.jobtable import AcceptedJobs, JobTable
from ...prefilter import ANYWHERE
from ...totals import Totals
from ..numbers import parse_int
from ..overflow import Overflow
from ..prefilter import EXACT, SOMEWHERE, NativePrefilter, is_message, is_readable
from ..reader import order_of
from ..record import CANCELLED
from ..scripts.waiting_score import ASCENDING, RANK_STEP
from .overflow import OverflowColumns
from .table import read_tables


class NativeBatchPrefilter(BatchPrefilter):
    """What a NativePrefilter says."""

    fields = (b"payload", b"message", b"published_at", b"reason", b"score", b"deliveries", b"delivered_at", Overflow.FIELD)

    def __init__(self, prefilter: NativePrefilter) -> None:
        self._prefilter = prefilter

    def records(self, keys: BinaryViews) -> Any:
        tags, ids = self._split(keys)
        codes, texts = tags.dictionary_encode()
        queues = [self._prefilter.queue(tag) for tag in texts]
        numbers = numbers_of(ids, ["" if queue is None else queue for queue in queues], codes)
        is_record = np.array([queue is not None for queue in queues] or [False])[codes] & (ids.sizes > 0)
        return np.where(is_record, numbers, NO_NUMBER)

    def owners(self, keys: BinaryViews) -> Any:
        return np.full(len(keys), NO_NUMBER)

    def accept(self, records: Mapping[bytes, BinaryViews]) -> AcceptedColumns:
        is_set = {name: column.sizes != NULL for name, column in records.items()}
        created_at = records[b"published_at"].map_ints(parse_int, UNDATED)
        is_accepted = is_set[b"payload"] | is_set[b"message"]
        # Messages of kombu don't say when they were published.
        is_accepted &= ~is_set[b"published_at"] | (created_at != UNDATED)
        is_accepted &= ~records[b"reason"].equals(CANCELLED)
        is_accepted &= ~is_set[b"score"] | (records[b"score"].map_ints(parse_int, UNDATED) != UNDATED)
        for name in (b"deliveries", b"delivered_at"):
            is_accepted &= ~is_set[name] | (records[name].map_ints(parse_int, UNDATED) != UNDATED)
        for row in np.flatnonzero(is_set[b"message"] & ~is_set[b"payload"]).tolist():
            is_accepted[row] &= is_message(records[b"message"][row])
        is_accepted[is_set[Overflow.FIELD]] &= _are_readable(records[Overflow.FIELD].take(is_set[Overflow.FIELD]))
        return AcceptedColumns((SOMEWHERE,), np.where(is_accepted, 0, NOT_ACCEPTED), (np.zeros(len(is_accepted)),), created_at)

    def index_members(self, key: bytes, members: BinaryViews, scores: Any) -> IndexMemberColumns | None:
        index = self._prefilter.index(key)
        if index is None:
            return None
        queue, role, group = index
        numbers = numbers_of(members, [queue], np.zeros(len(members), np.int64))
        if role == "waiting":
            with np.errstate(invalid="ignore"):
                numbers[(np.floor(scores) != scores) | (np.abs(scores) > EXACT)] = NO_NUMBER
        elif role == "scheduled":
            numbers[(scores < self._prefilter.late) | ~(np.abs(scores) < 2.0**63)] = NO_NUMBER
        return IndexMemberColumns(ANYWHERE, numbers, group)

    def tally_accepted(self, keys: BinaryViews, numbers: Any, totals: Totals) -> None:
        codes, tags = self._split(keys)[0].dictionary_encode()
        for tag, records in zip(tags, np.bincount(codes, minlength=len(tags)).tolist(), strict=True):
            totals.count("records", self._prefilter.queue(tag) or "", records)

    def tally_index(self, key: bytes, scores: Any, totals: Totals) -> None:
        index = self._prefilter.index(key)
        if len(scores) and index is not None and index[1] == "waiting":
            self._prefilter.tally_waiting(index[0], len(scores), int((scores.astype(np.int64) % RANK_STEP).max()), totals)

    def tables(self, jobs: AcceptedJobs, totals: Totals) -> Iterator[JobTable]:
        tags, ids = self._split(jobs.keys)
        queue = self._prefilter.queue(tags[0])
        if queue is None or order_of(queue, totals) != ASCENDING:
            return iter(())
        return read_tables(ids, jobs, queue)

    def _split(self, keys: BinaryViews) -> tuple[BinaryViews, BinaryViews]:
        """The tag and the id in each name of a record; both are empty in all other names."""
        head, middle = (np.frombuffer(text, np.uint8) for text in (self._prefilter.head, b"}:job:"))
        tag_starts, tag_sizes, id_starts, id_sizes = found = np.zeros((4, len(keys)), np.int64)
        _split_keys(keys.data, keys.starts, keys.sizes, head, middle, *found)
        return BinaryViews(keys.data, tag_starts, tag_sizes), BinaryViews(keys.data, id_starts, id_sizes)


def _are_readable(overflows: BinaryViews) -> Any:
    """``is_readable`` of each."""
    readable = OverflowColumns.of(overflows).are_plain
    for row in np.flatnonzero(~readable).tolist():
        readable[row] = is_readable(overflows[row])
    return readable


@kernel(BYTE_ARRAY, INT_ARRAY, INT_ARRAY, BYTE_ARRAY, BYTE_ARRAY, OUT_INTS, OUT_INTS, OUT_INTS, OUT_INTS)
def _split_keys(
    data: Any,
    starts: Any,
    sizes: Any,
    head: Any,
    middle: Any,
    tag_starts: Any,
    tag_sizes: Any,
    id_starts: Any,
    id_sizes: Any,
) -> None:
    for row in range(len(starts)):
        first, end = starts[row] + len(head), starts[row] + sizes[row]
        if first > end or not has(data, starts[row], head):
            continue
        for at in range(first, end - len(middle)):
            if has(data, at, middle):
                tag_starts[row], tag_sizes[row] = first, at - first
                id_starts[row], id_sizes[row] = at + len(middle), end - at - len(middle)
                break
