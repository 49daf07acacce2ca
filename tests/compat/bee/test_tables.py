"""Sound bee jobs in a table are those that the reader makes of each by itself."""

from __future__ import annotations

import json
from collections.abc import Iterable

from attrs import evolve
from ferryman.compat.bee import FAMILY
from ferryman.compat.bee.keys import OPTIONS_TTL
from ferryman.compat.bee.prefilter import FIELDS
from ferryman.schema.fact import Entry
from ferryman.schema.family import Keyspace
from ferryman.schema.totals import Totals
from hypothesis import event, given, settings
from hypothesis import strategies as st

from ...support.effort import examples
from ...support.prefiltering import Keys
from ...support.tables import rows_in_tables
from .strategies import histories, options
from .test_prefilter import NOW, RECORDS, stands

KEYSPACE = Keyspace(FAMILY, "bee", NOW, Totals())
PREFILTER = FAMILY.prefilter("bee", NOW, for_transfer=True)
SOUND = [record for record in RECORDS if stands(record, for_transfer=True).keys]


def stored(record: Entry, score: float, rank: int) -> Keys | None:
    """The keys of the job with this record, if it is accepted; ``score`` and ``rank``: in its sorted set."""
    found = stands(record, for_transfer=True)
    members = [member._replace(score=score, rank=rank) for member in found.members]
    return Keys(record.key, record.value, members, found.owned) if members else None


def usual_score(record: Entry) -> float:
    """The score that bee would give the job."""
    events = json.loads(record.value[b"history"])
    if record.value[b"status"] in (b"completed", b"failed"):
        return events[-1].get("timestamp", 0) + float(OPTIONS_TTL)
    return float(events[-1].get("till", NOW))


def in_tables(jobs: Iterable[Keys | None]) -> int:
    return rows_in_tables(KEYSPACE, PREFILTER, filter(None, jobs))


def test_all_accepted_jobs_as_bee_writes_them_are_read_from_tables_unless_their_priority_is_a_fraction() -> None:
    whole = [record for record in SOUND if type(json.loads(record.value[b"options"])["priority"]) is int]
    assert len(SOUND) > len(whole) > 90
    assert in_tables(stored(record, usual_score(record), rank) for rank, record in enumerate(SOUND)) == len(whole)


texts = st.sampled_from([b"", b"0", b"1", b"07", b"-1", b"x", b"{}", b"[]", b'["a","b"]', b'["\xc3\xa9"]', b"[1.5, 2]", b'"t"'])


@settings(max_examples=examples(300))
@given(
    st.lists(
        st.tuples(
            st.sampled_from(SOUND),
            st.dictionaries(
                st.sampled_from([*sorted(FIELDS), b"result", b"failedReason", b"hash", b"tenant"]), texts, max_size=1
            ),
            st.none() | histories,
            st.none() | options,
            st.none() | st.sampled_from([NOW + 0.5, NOW - 1.0, 10.0**13, 2.0**60]),
            st.booleans(),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_jobs_in_a_table_are_those_that_the_reader_makes_of_each(rows) -> None:
    jobs = []
    for rank, (record, fields, history, chosen, score, is_compact) in enumerate(rows):
        value, separators = dict(record.value), (",", ":") if is_compact else None
        if history is not None:
            events = json.loads(value[b"history"])
            value[b"history"] = json.dumps([*events[:-1], *history, events[-1]], separators=separators).encode()
        if chosen is not None:
            value[b"options"] = json.dumps(json.loads(value[b"options"]) | chosen, separators=separators).encode()
        changed = evolve(record, value=value | fields)
        jobs.append(stored(changed, usual_score(record) if score is None else score, rank))
    found = in_tables(jobs)
    event(f"in tables: {found}, one by one: {len(list(filter(None, jobs))) - found}")
