"""The records that a compiled loop takes for alike are those whose fields have the same names in the same order."""

from __future__ import annotations

from itertools import product
from random import Random

import numpy as np
import pytest
from ferryman.schema.columnar.binary_views import BinaryViews
from ferryman.schema.columnar.field_sets import field_sets, select_fields
from hypothesis import given
from hypothesis import strategies as st

from ...support.binary_views import WAYS, Way, joined, numbered, sliced

raws = st.binary(max_size=6) | st.sampled_from([b"", b"\0", b"\0\0", b"a", b"ab", b"b", b"x" * 300])
names = st.sampled_from([b"", b"a", b"ab", b"abc", b"b", b"bc", b"c"])
"""Some make the same text when put together."""


def coded(records: list[list[bytes]], way: Way, step: int) -> tuple[list[int], list[int]]:
    """What ``field_sets`` says of these."""
    words = way([word for record in records for word in record], [b"a", b"ab"], [b"c"])
    codes, firsts = field_sets(np.array([len(record) for record in records], np.int64), words, step)
    assert codes.dtype == np.int64
    return codes.tolist(), firsts


@given(st.sampled_from([1, 2, 3]), st.sampled_from(WAYS), st.data())
def test_records_of_the_same_names_share_a_code(step: int, way: Way, data: st.DataObject) -> None:
    fields = st.tuples(names, *[raws] * (step - 1))
    drawn = data.draw(st.lists(st.lists(fields, max_size=3), max_size=25))
    records = [[word for field in record for word in field] for record in drawn]
    assert coded(records, way, step) == numbered(tuple(record[::step]) for record in records)


@given(st.sampled_from(WAYS), st.lists(st.dictionaries(names, raws, max_size=4), max_size=25), st.sets(names, min_size=1))
def test_fields_of_records_are_nulls_where_one_lacks_them(way: Way, records: list[dict[bytes, bytes]], those: set[bytes]) -> None:
    words = way([word for record in records for pair in record.items() for word in pair], [b"a"], [b"c"])
    counts, wanted = np.array([2 * len(record) for record in records], np.int64), sorted(those)
    columns, codes, sets = select_fields(counts, words, wanted)
    assert list(columns) == wanted
    for name, column in columns.items():
        assert column.to_list() == [record.get(name) for record in records]
    assert [sets[code] for code in codes.tolist()] == [tuple(record) for record in records]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([b"a", b"1", b"bc", b"2"], [b"ab", b"1", b"c", b"2"]),
        ([b"a", b"1", b"b", b"2"], [b"b", b"2", b"a", b"1"]),
        ([b"a", b"1", b"b", b"2"], [b"a", b"1"]),
        ([b"a", b"1", b"", b"2"], [b"a", b"1"]),
        ([b"a", b"1"], []),
        ([b"", b"1"], []),
        ([b"a", b"1", b"a", b"1"], [b"a", b"1", b"b", b"1"]),
    ],
)
def test_other_names_are_another_field_set(one: list[bytes], other: list[bytes]) -> None:
    assert coded([one, other, one, one, other], sliced, 2) == ([0, 1, 0, 0, 1], [0, 1])
    assert coded([other, one, one, other], joined, 2) == ([0, 1, 1, 0], [0, 1])


def test_two_names_are_two_words_away_by_default() -> None:
    words = BinaryViews.of([b"a", b"1", b"a", b"2"])
    assert field_sets(np.array([2, 2]), words)[0].tolist() == [0, 0]
    assert field_sets(np.array([2, 2]), words, 1)[0].tolist() == [0, 1]


def test_many_field_sets_keep_their_codes() -> None:
    random = Random(1)
    kinds = [[word for name in picked for word in (name, b"value")] for picked in product([b"a", b"b", b"ab", b""], repeat=3)]
    records = random.choices(kinds, k=2000)
    assert coded(records, sliced, 2) == numbered(tuple(record[::2]) for record in records)
