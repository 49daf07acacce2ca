"""Sound pjq jobs in a table are those that the reader makes of each by itself."""

from __future__ import annotations

import json

from ferryman.compat.pjq import FAMILY
from ferryman.schema.fact import Entry
from ferryman.schema.family import Keyspace
from ferryman.schema.prefilter import Member
from ferryman.schema.totals import Totals
from hypothesis import event, given, settings
from hypothesis import strategies as st

from ...support.effort import examples
from ...support.prefiltering import Keys, accept
from ...support.tables import rows_in_tables
from .strategies import NOW_MS
from .test_prefilter import keyspace

PREFILTER = FAMILY.prefilter("", NOW_MS)
RECORDS = [entry for entry in keyspace(150) if entry.redis_type == "hash"]


def totals(older: int) -> Totals:
    """Those of queues with jobs in them, some of which the first program has left behind."""
    found = Totals()
    for queue in {json.loads(record.value[b"json"])["queue_name"] for record in RECORDS}:
        found.maximum("length:queued", 1_000, queue)
        found.maximum("length:js_queued", older, queue)
    return found


def stored(record: Entry, score: float | None, rank: int) -> Keys | None:
    """The keys of the job with this record, if it is accepted; ``score`` and ``rank``: where it stands. None: as it says."""
    accepted = accept(PREFILTER, record.value, record.key)
    if accepted is None:
        return None
    (index_key,), (told,) = accepted.group.index_keys, accepted.scores
    at = (told if score is None else score) if index_key.is_scored else 0.0
    return Keys(record.key, record.value, [Member(index_key.key, record.key, at, rank)])


def test_all_accepted_jobs_are_read_from_tables() -> None:
    jobs = [job for rank, record in enumerate(RECORDS) if (job := stored(record, None, rank)) is not None]
    assert rows_in_tables(Keyspace(FAMILY, "", NOW_MS, totals(7)), PREFILTER, jobs) == len(jobs) > 120


@settings(max_examples=examples(300))
@given(
    st.lists(
        st.tuples(
            st.sampled_from(RECORDS),
            st.dictionaries(
                st.sampled_from([b"dispatched_at", b"started_at", b"worker_uuid", b"finished_at", b"ferryman", b"tenant"]),
                st.sampled_from([b"", b"1", b"1794106465.934984", b"2026-11-08T02:52:09.298642Z", b"2026-11-08T02:52:09Z", b"x"]),
                max_size=2,
            ),
            st.dictionaries(
                st.sampled_from(["created_at", "exitcode", "command", "stdout", "stderr"]),
                st.sampled_from([None, 0, 1, "", "x", "\ud800", 1.5, ["a"], "2026-11-08T02:52:09Z"]),
                max_size=2,
            ),
            st.none() | st.sampled_from([0.5, NOW_MS / 1000, 1e15]),
        ),
        min_size=1,
        max_size=3,
    ),
    st.integers(0, 3),
)
def test_jobs_in_a_table_are_those_that_the_reader_makes_of_each(rows, older) -> None:
    jobs = []
    for rank, (record, fields, members, score) in enumerate(rows):
        text = json.dumps({**json.loads(record.value[b"json"]), **members}).encode()
        jobs.append(stored(Entry(record.key, "hash", {**record.value, b"json": text, **fields}), score, rank))
    accepted = list(filter(None, jobs))
    found = rows_in_tables(Keyspace(FAMILY, "", NOW_MS, totals(older)), PREFILTER, accepted)
    event(f"in tables: {found}, one by one: {len(accepted) - found}")
