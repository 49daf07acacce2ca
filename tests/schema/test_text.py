"""Texts: what is asked of many at once has the same answers as asked of each."""

from __future__ import annotations

import json

from ferryman.schema.text import MAX_JSON_DEPTH, is_json, not_json
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
