"""Texts: what is asked of many at once has the same answers as asked of each."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest
from ferryman.schema.errors import MalformedValue
from ferryman.schema.text import (
    MAX_JSON_DEPTH,
    ago,
    dump_json,
    is_json,
    json_encoder,
    jsonable,
    load_json,
    not_json,
    printable_json,
    span,
)
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


numbers = st.sampled_from(
    ["18446744073709551615", "18446744073709551616", "-9223372036854775809", "1e400", "-0", "0.1", "1e-400"]
)
odd = st.lists(numbers | st.sampled_from(["true", '"\\ud800"', '"\\u0000"', "{}", "01", "-", '"']), max_size=3)


@given(texts | odd.map(lambda each: f"[{','.join(each)}]".encode()))
def test_json_has_the_value_that_python_itself_finds_whatever_the_size_of_its_numbers(text: bytes) -> None:
    try:
        found = repr(load_json(text))
    except MalformedValue:
        found = None
    try:
        expected = repr(json.loads(text.decode(), parse_constant=int))
    except (ValueError, RecursionError):
        expected = None
    assert found == expected or (expected is not None and text.count(b"[") > MAX_JSON_DEPTH)


@given(values, st.booleans())
def test_an_encoder_writes_what_python_itself_does(value: object, ensure_ascii: bool) -> None:
    def written(dump: Callable[[], str]) -> str | None:
        try:
            return dump()
        except ValueError:  # NaN
            return None

    made = written(lambda: json_encoder(ensure_ascii=ensure_ascii)(value))
    usual = {"separators": (",", ":"), "allow_nan": False}
    assert made == written(lambda: json.dumps(value, ensure_ascii=ensure_ascii, **usual))  # type: ignore[arg-type]


@given(st.recursive(st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8))
def test_json_of_commands_is_printable_and_has_the_same_value(value: object) -> None:
    line = dump_json(value)
    assert line.isprintable()
    assert json.loads(line) == jsonable(value)


@pytest.mark.parametrize("text", ["\x80", "\x9b2J", "\u2028", "\u202egnp", "\U000e0041", "\x7f", "\u00a0", "\ufeff"])
def test_characters_that_cannot_be_seen_are_escapes_of_json(text: str) -> None:
    line = dump_json({text: text})
    assert line.isascii()
    assert json.loads(line) == {text: text}


def test_json_of_several_lines_keeps_them() -> None:
    text = json.dumps({"a": ["\u202e", "é"]}, ensure_ascii=False, indent=2)
    assert printable_json(text) == text.replace("\u202e", "\\u202e")
