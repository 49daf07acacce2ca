"""Packed values come back exactly, whatever they are: also those that look like what stands for bytes and odd floats."""

from __future__ import annotations

import math
from typing import Any

import pytest
from ferryman.schema.errors import MalformedValue
from ferryman.schema.tagged_json import decode_tagged, encode_tagged
from hypothesis import given
from hypothesis import strategies as st

keys = st.sampled_from(["b64", "float", "plain", "inf", "nan"]) | st.text(max_size=3)
plain = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.sampled_from(["nan", "inf", '{"b64":'])
)
values = st.recursive(plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=2), max_leaves=10)


def comparable(value: Any) -> Any:
    """The value in a form in which NaN equals itself, and 0.0 is neither 0 nor -0.0."""
    match value:
        case float():
            return ("float", "nan" if math.isnan(value) else repr(value))
        case dict():
            return {key: comparable(each) for key, each in value.items()}
        case list() | tuple():
            return [comparable(each) for each in value]
    return (type(value), value)


@given(st.dictionaries(keys, values, max_size=3))
def test_values_come_back_exactly(encoded: dict[str, Any]) -> None:
    assert comparable(decode_tagged(encode_tagged(encoded))) == comparable(encoded)


@pytest.mark.parametrize(
    "value",
    [b"\xff", {"b64": "QQ=="}, {"float": "nan"}, {"plain": {"b64": "QQ=="}}, [{"b64": b"A"}, b"B"], '{"b64":"QQ=="}', -math.inf],
)
def test_what_looks_like_a_mark_is_none(value: Any) -> None:
    assert decode_tagged(encode_tagged({"one": value, "two": b"raw"})) == {"one": value, "two": b"raw"}


def test_values_nested_too_deep_are_refused() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(MalformedValue):
        encode_tagged({"deep": deep})
