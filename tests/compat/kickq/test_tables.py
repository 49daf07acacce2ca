"""Sound kickq jobs in a table are those that the reader makes of each by itself."""

from __future__ import annotations

import json

from attrs import evolve
from ferryman.compat.kickq import FAMILY
from ferryman.compat.kickq.passthrough import NAME, Note, Postponed, as_of
from ferryman.compat.kickq.record import Record
from ferryman.compat.overflow import Overflow
from ferryman.schema.fact import Entry
from ferryman.schema.family import Keyspace
from ferryman.schema.totals import Totals
from hypothesis import event, given, settings
from hypothesis import strategies as st

from ...support.effort import examples
from ...support.prefiltering import Keys
from ...support.tables import rows_in_tables
from .keyspaces import NOW
from .strategies import documents
from .test_prefilter import keyspace, stands

KEYSPACE = Keyspace(FAMILY, "kickq", NOW, Totals())
PREFILTER = FAMILY.prefilter("kickq", NOW, for_transfer=True)


def stored(record: Entry, rank: int) -> Keys | None:
    """The keys of the job with this record, if it is accepted; ``rank``: in its list."""
    _, members = stands(record, for_transfer=True, now_ms=NOW)
    return Keys(record.key, record.value, [member._replace(rank=rank) for member in members]) if members else None


RECORDS = [entry for entry in keyspace(150) if entry.redis_type == "hash" and stored(entry, 0)]


def overflow(record: Entry, *, is_current: bool) -> bytes:
    """What another system's job has left in a record, and a time that was moved; ``is_current``: kickq left it so."""
    _, (_, _, last) = stands(record, for_transfer=True, now_ms=NOW)
    note = Note((b"line",), Postponed(last.score, 1_500_000_000_000.0, b"1500000000000", None))
    touched = as_of(Record.of(record.value, {})) if is_current else b"before"
    return Overflow({"tags": ["a"], "priority": 7}, {"bee": {"x": 1}, NAME: note.to_extra()}, touched).encode()


def test_all_accepted_jobs_are_read_from_tables() -> None:
    jobs = [job for rank, record in enumerate(RECORDS) if (job := stored(record, rank)) is not None]
    assert rows_in_tables(KEYSPACE, PREFILTER, jobs) == len(jobs) > 120


@settings(max_examples=examples(300))
@given(
    st.lists(
        st.tuples(
            st.sampled_from(RECORDS),
            st.dictionaries(
                st.sampled_from(["data", "lastError", "processTimeout", "retryTimes", "ghostRetry", "finishTime", "more"]),
                st.sampled_from([None, 0, 1, 1.5, "", "x", "\ud800", [1, {"a": []}], True, 2**60]),
                max_size=2,
            ),
            st.none() | documents(),
            st.none() | st.sampled_from([b"", b"x", b"{}"]) | st.booleans(),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_jobs_in_a_table_are_those_that_the_reader_makes_of_each(rows) -> None:
    jobs = []
    for rank, (record, members, document, own) in enumerate(rows):
        text = json.dumps({**json.loads(record.value[b"itemData"]), **members}).encode() if document is None else document
        fields = {**record.value, b"itemData": text}
        if own is not None:
            fields[b"ferryman"] = overflow(record, is_current=own) if isinstance(own, bool) else own
        jobs.append(stored(evolve(record, value=fields), rank))
    accepted = list(filter(None, jobs))
    found = rows_in_tables(KEYSPACE, PREFILTER, accepted)
    event(f"in tables: {found}, one by one: {len(accepted) - found}")
