"""What is said of thousands of kue jobs at once is what the prefilter says of each."""

from __future__ import annotations

import numpy as np
from ferryman.compat.kue import FAMILY
from ferryman.compat.kue.columnar.batch_prefilter import KueBatchPrefilter
from ferryman.schema.columnar.batch_prefilter import NOT_ACCEPTED
from ferryman.schema.columnar.binary_views import BinaryViews
from ferryman.schema.fact import Entry
from ferryman.schema.totals import Totals
from hypothesis import given, settings
from hypothesis import strategies as st

from ....support.effort import examples
from ....support.prefiltering import accept_both, numbers, without
from ..strategies import fields, texts
from ..test_prefilter import ALL_JOBS, NOW, PREFIX, edges, leases, stored_as

PREFILTER = FAMILY.prefilter(PREFIX, NOW)
BATCH = KueBatchPrefilter(PREFILTER)
ids = st.sampled_from([b"0", b"1", b"07", b"12", b"9" * 16, b"1" + b"0" * 16, b"", b"x", b"1x", b"-1", "١".encode()]) | st.binary(
    max_size=3
)
names = st.one_of(
    st.builds(
        lambda before, number, after: before + number + after,
        st.sampled_from([b"q:job:", b"q:job", b"r:job:"]),
        ids,
        st.sampled_from([b"", b":log", b":log:log", b"\n"]),
    ),
    st.binary(max_size=9),
)
members = st.builds(
    lambda size, bar, number: size + bar + number,
    st.sampled_from([b"01", b"02", b"16", b"1", b"00"]),
    st.sampled_from([b"|", b""]),
    ids,
)


@given(st.lists(names))
def test_names_of_records_and_logs(keys: list[bytes]) -> None:
    assert BATCH.records(BinaryViews.of(keys)).tolist() == numbers(list(map(PREFILTER.record, keys)))
    assert BATCH.owners(BinaryViews.of(keys)).tolist() == numbers(list(map(PREFILTER.owner, keys)))


@settings(max_examples=examples(1000))
@given(
    st.lists(st.tuples(st.sampled_from(ALL_JOBS), st.dictionaries(fields, edges, max_size=2)), min_size=1),
    st.lists(st.none() | fields, min_size=1, max_size=3),
    st.booleans(),
)
def test_records_are_accepted_as_one_by_one(those, missing, for_transfer) -> None:
    prefilter = FAMILY.prefilter(PREFIX, NOW, for_transfer=for_transfer)
    expected, found = accept_both(
        prefilter, KueBatchPrefilter(prefilter), without([stored_as(job) | changes for job, changes in those], missing)
    )
    for row, accepted in enumerate(expected):
        if accepted is not None:
            assert tuple(column[row] for column in found.scores) == accepted.scores
            assert found.created_at[row] == accepted.created_at
    part = found.take(found.at != NOT_ACCEPTED)
    assert part.created_at.tolist() == [accepted.created_at for accepted in expected if accepted is not None]


@given(
    st.lists(st.tuples(members | texts, st.floats(allow_nan=False) | leases), min_size=1),
    st.sampled_from(["q:jobs", "q:jobs:delayed", "q:jobs:active", "q:jobs:mail:active", "q:jobs:mail:inactive", "q:ids"]),
)
def test_members_of_indexes(items: list[tuple[bytes, float]], key: str) -> None:
    entry = Entry(key.encode(), "zset", items)
    index_members = PREFILTER.index_members(entry)
    found = BATCH.index_members(
        entry.key, BinaryViews.of([member for member, _ in items]), np.array([score for _, score in items])
    )
    assert (found is None) == (index_members is None)
    if index_members is not None:
        assert found.numbers.tolist() == numbers(index_members.numbers)
        assert (found.key, found.group) == (index_members.key, None)


@given(st.lists(st.floats(allow_nan=False)), st.sampled_from(["q:jobs", "q:jobs:delayed", "q:jobs:mail:inactive"]))
def test_members_are_counted_alike(scores: list[float], key: str) -> None:
    one, many = Totals(), Totals()
    PREFILTER.tally_index(Entry(key.encode(), "zset", []), scores, one)
    BATCH.tally_index(key.encode(), np.array(scores, np.float64), many)
    assert one == many


@given(st.lists(st.integers(1, 10**16 - 1), min_size=1))
def test_records_are_counted_alike(known: list[int]) -> None:
    one, many = Totals(), Totals()
    PREFILTER.tally_accepted({}, [b"q:job:%d" % number for number in known], one)
    keys = [b"q:job:%d" % number for number in known]
    BATCH.tally_accepted(BinaryViews.of(keys), np.array(known), many)
    assert one == many
