"""Texts: what is asked of many at once has the same answers as asked of each."""

from __future__ import annotations

import json
import math

from ferryman.schema.text import MAX_JSON_DEPTH, ago, is_json, not_json, span
from hypothesis import given
from hypothesis import strategies as st

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=9,
)
texts = st.one_of(
    st.binary(max_size=20),
    values.map(lambda value: json.dumps(value).encode()),
    st.sampled_from([b"", b" 1", b"{", b"[1", b"2]", b"NaN", b'"\\ud800"', b"1" * 600]),
    st.sampled_from([250, 501]).map(lambda depth: b"[" * depth + b"]" * depth),
)


@given(st.lists(texts))
def test_many_texts_are_json_if_each_is(raws: list[bytes]) -> None:
    assert not_json(raws) == [index for index, raw in enumerate(raws) if not is_json(raw)]


def test_json_is_not_too_deep_up_to_the_limit() -> None:
    deep = [b"[" * depth + b"]" * depth for depth in (1, MAX_JSON_DEPTH // 2, MAX_JSON_DEPTH, MAX_JSON_DEPTH + 1)]
    assert not_json(deep) == [3]
    assert not_json(deep[:2]) == []


def test_lengths_of_time_are_told_in_one_unit() -> None:
    assert [span(ms) for ms in (0, 999, 90_000, 120_000, 7_200_000, 172_800_000)] == [
        "0 s",
        "1 s",
        "90 s",
        "2 min",
        "2 h",
        "2 days",
    ]
    assert (span(math.inf), span(-90_000)) == ("an endless time", "-90 s")


def test_what_is_no_moment_is_no_length_of_time_either() -> None:
    assert ago(1_795_000_000_000, 1_795_010_800_000) == "3 h ago"
    assert ago(0, 1_795_000_000_000) == "at 0, which is no time"
