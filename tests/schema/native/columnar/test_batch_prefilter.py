"""What is said of thousands of our own jobs at once is what the prefilter says of each."""

from __future__ import annotations

import numpy as np
from ferryman.schema.columnar.batch_prefilter import NOT_ACCEPTED, UNDATED
from ferryman.schema.columnar.binary_views import NO_NUMBER, BinaryViews
from ferryman.schema.fact import Entry
from ferryman.schema.native import FAMILY
from ferryman.schema.native.columnar.batch_prefilter import NativeBatchPrefilter
from ferryman.schema.text import to_bytes
from ferryman.schema.totals import Totals
from hypothesis import given, settings
from hypothesis import strategies as st

from ....support.effort import examples
from ....support.prefiltering import accept_both, numbers, without
from ..strategies import fields, texts
from ..test_prefilter import NOW, PLAIN, PREFIX, scores, stored

PREFILTER = FAMILY.prefilter(PREFIX, NOW)
BATCH = NativeBatchPrefilter(PREFILTER)

tags = st.sampled_from([b"mail", b"", b"%7B", b"{", b"a}:job:b", "ü".encode(), b"\xff"])
names = st.one_of(
    st.builds(
        b"%b%b%b%b".__mod__,
        st.tuples(
            st.sampled_from([b"ferryman:{", b"ferryman:", b"f:{"]), tags, st.sampled_from([b"}:job:", b"}:waiting", b"}"]), texts
        ),
    ),
    st.binary(max_size=9),
)
keys = st.sampled_from(
    [
        b"ferryman:{%b}:%b" % (tag, role)
        for tag in (b"mail", b"%7B", b"{")
        for role in (b"waiting", b"scheduled", b"done", b"dead", b"held", b"job:1")
    ]
)


@given(st.lists(names))
def test_names_of_records(those: list[bytes]) -> None:
    assert BATCH.records(BinaryViews.of(those)).tolist() == numbers(list(map(PREFILTER.record, those)))
    assert BATCH.owners(BinaryViews.of(those)).tolist() == numbers(list(map(PREFILTER.owner, those)))


@settings(max_examples=examples(300))
@given(
    st.lists(st.tuples(st.sampled_from(PLAIN), st.dictionaries(fields, texts, max_size=2)), min_size=1),
    st.lists(st.none() | fields, min_size=1, max_size=3),
)
def test_records_are_accepted_as_one_by_one(those, missing) -> None:
    singly, found = accept_both(PREFILTER, BATCH, without([stored(job)[0].value | changes for job, changes in those], missing))
    times = [each.created_at for each in singly if each is not None]
    assert found.take(found.at != NOT_ACCEPTED).created_at.tolist() == [UNDATED if time is None else time for time in times]


@given(st.lists(st.tuples(texts, scores), min_size=1), keys)
def test_members_of_places(items: list[tuple[bytes, float]], key: bytes) -> None:
    index_members = PREFILTER.index_members(Entry(key, "zset", items))
    members, array = BinaryViews.of([member for member, _ in items]), np.array([score for _, score in items])
    found = BATCH.index_members(key, members, array)
    assert (found is None) == (index_members is None)
    if index_members is None:
        return
    assert found.numbers.tolist() == numbers(index_members.numbers)
    assert (found.key, found.group) == (index_members.key, index_members.group)
    known = found.numbers != NO_NUMBER
    one, many = Totals(), Totals()
    PREFILTER.tally_index(Entry(key, "zset", items), array[known].tolist(), one)
    BATCH.tally_index(key, array[known], many)
    assert one == many


@given(st.lists(st.tuples(st.sampled_from(["mail", "ü", "{"]), st.text(min_size=1)), min_size=1))
def test_records_are_counted_alike(jobs: list[tuple[str, str]]) -> None:
    those = [b"ferryman:{%b}:job:%b" % (to_bytes(queue.replace("{", "%7B")), to_bytes(name)) for queue, name in jobs]
    one, many = Totals(), Totals()
    PREFILTER.tally_accepted({}, those, one)
    BATCH.tally_accepted(BinaryViews.of(those), BATCH.records(BinaryViews.of(those)), many)
    assert one == many
