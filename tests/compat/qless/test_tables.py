"""Sound qless jobs in a table are those that the reader makes of each by itself."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from attrs import evolve
from ferryman.compat.qless import FAMILY
from ferryman.compat.qless.keys import Generation
from ferryman.schema.fact import Entry
from ferryman.schema.family import Keyspace
from ferryman.schema.prefilter import Member
from ferryman.schema.totals import Totals
from hypothesis import event, given, settings
from hypothesis import strategies as st

from ...support.effort import examples
from ...support.prefiltering import Keys, accept
from ...support.tables import rows_in_tables
from . import strategies
from .keyspaces import NOW, PUT, generated
from .test_prefilter import FIELDS, entries_of

PREFILTER = FAMILY.prefilter("ql", NOW, for_transfer=True)
BOTH = [generated(120, 4), generated(120, 5)]


def totals(*, lower_first: bool) -> Totals:
    found = Totals()
    found.count("generation", (Generation.FIRST if lower_first else Generation.REQLESS).name)
    found.count("work", "mail", 1_000)
    return found


def stored(
    record: Entry,
    keys: Sequence[Entry],
    lines: Sequence[bytes] = (),
    score: float | None = None,
    rank: int = 0,
    tagged_at: float | None = None,
) -> Keys | None:
    """The keys of the job with this record among ``keys``, if it is accepted. None: as there.

    ``lines``: what is told in its history besides; ``score`` and ``rank``: where it stands; ``tagged_at``: in the sets of tags.
    """
    accepted = accept(PREFILTER, record.value, record.key)
    if accepted is None:
        return None
    (index_key,), member = accepted.group.index_keys, record.key.removeprefix(b"ql:j:")
    listed = [entry for entry in entries_of(member, keys) if entry.key == index_key.key]
    own = [item[1] if isinstance(item, tuple) else 0.0 for entry in listed for item in entry.value]
    told = next(entry for entry in keys if entry.key == record.key + b"-history")
    named = [entry for entry in entries_of(member, keys) if entry.key.startswith(b"ql:t:") or entry.key.endswith(b"-pending")]
    if tagged_at is not None:
        named = [evolve(entry, value=[(member, tagged_at)]) for entry in named]
    at = own[0] if own and score is None else score or 0.0
    history = evolve(told, value=[*told.value[:1], *lines, *told.value[1:]])
    return Keys(record.key, record.value, [Member(index_key.key, member, at, rank)], [*named, history])


RECORDS = [(entry, keys) for keys in BOTH for entry in keys if entry.redis_type == "hash" and stored(entry, keys)]


@pytest.mark.parametrize("lower_first", [False, True])
def test_all_accepted_jobs_as_qless_writes_them_are_read_from_tables_unless_their_priority_is_a_fraction(
    lower_first: bool,
) -> None:
    jobs = [job for rank, (record, keys) in enumerate(RECORDS) if (job := stored(record, keys, rank=rank)) is not None]
    assert {record.value[b"state"] for record, _ in RECORDS} >= {b"waiting", b"scheduled", b"complete", b"failed", b"throttled"}
    assert any(job.key.startswith(b"ql:t:") for each in jobs for job in each.owned_lists)
    keyspace = Keyspace(FAMILY, "ql", NOW, totals(lower_first=lower_first))
    whole = [record for record, _ in RECORDS if b"." not in record.value[b"priority"]]
    assert rows_in_tables(keyspace, PREFILTER, jobs) == len(whole) > 200


@settings(max_examples=examples(300))
@given(
    st.lists(
        st.tuples(
            st.integers(0, len(RECORDS) - 1),
            st.dictionaries(
                st.sampled_from([name for name in FIELDS if name not in (b"jid", b"queue", b"state", b"tags")]),
                strategies.texts,
                max_size=2,
            ),
            st.lists(strategies.event_texts, max_size=2),
            st.none() | st.sampled_from([0.0, 5 - PUT / 1e10, PUT + 0.5, 1e300, float("inf"), float("-inf")]),
            st.none() | st.just(PUT + 0.5),
        ),
        min_size=1,
        max_size=3,
    ),
    st.booleans(),
)
def test_jobs_in_a_table_are_those_that_the_reader_makes_of_each(rows, lower_first: bool) -> None:
    jobs = []
    for rank, (at, fields, lines, score, tagged_at) in enumerate(rows):
        record, keys = RECORDS[at]
        jobs.append(stored(evolve(record, value=record.value | fields), keys, lines, score, rank, tagged_at))
    accepted = list(filter(None, jobs))
    found = rows_in_tables(Keyspace(FAMILY, "ql", NOW, totals(lower_first=lower_first)), PREFILTER, accepted)
    event(f"in tables: {found}, one by one: {len(accepted) - found}")
