"""What a loop takes for plain tagged JSON is that, and nearly all that is kept of jobs is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ferryman.schema.columnar.automaton import MOST_NAMES
from ferryman.schema.columnar.binary_views import BinaryViews
from ferryman.schema.columnar.tagged_json_check import DEEPEST, check_mappings, check_tagged_json, check_texts
from ferryman.schema.errors import MalformedValue
from ferryman.schema.tagged_json import MARKS, decode_tagged, encode_tagged
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from ...support.binary_views import WAYS, Way
from ...support.effort import examples

names = st.sampled_from(["a", "ab", "b", "kue", "fields", "", "é", '"', *sorted(MARKS)]) | st.text(max_size=3)
leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5) | st.binary(max_size=5)
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=3))
extras = st.dictionaries(names, st.dictionaries(names, values, max_size=3), max_size=2)


def checked(text: bytes) -> tuple[bool, bytes]:
    are_plain, families = check_tagged_json(BinaryViews.of([text]))
    return bool(are_plain[0]), families[0]


def is_encoded_so(text: bytes) -> bool:
    """Whether the text is the one that would be kept again, of one family at most."""
    try:
        found = decode_tagged(text)
    except MalformedValue:
        return False
    return encode_tagged(found) == text and len(found) <= 1 and all(isinstance(each, dict) for each in found.values())


def with_a_fault(text: bytes, at: int, put: bytes, cut: int) -> bytes:
    at %= len(text) + 1
    return text[:at] + put + text[at + cut :]


PIECES = [
    b"",
    b" ",
    b",",
    b"}",
    b"{",
    b'"',
    b"0",
    b"-",
    b"=",
    b"==",
    b"A",
    b"/",
    b".",
    b'{"b64":"AA=="}',
    b'"a":1,',
    b"\x7f",
    b"\\",
]


@settings(max_examples=examples(1000))
@given(extras, st.integers(0, 200), st.sampled_from(PIECES), st.integers(0, 3), st.booleans())
@example({"kue": {"a": {"b64": "AB=="}}}, 0, b"", 0, False)
def test_what_is_plain_would_be_encoded_so_again(extra: dict[str, Any], at: int, put: bytes, cut: int, spoil: bool) -> None:
    text = encode_tagged(extra)
    if spoil:
        text = with_a_fault(text, at, put, cut)
    is_plain, family = checked(text)
    event(f"plain: {is_plain}")
    if is_plain:
        assert is_encoded_so(text)
        assert [family.decode()] == (list(decode_tagged(text)) or [""])


plain_names = st.text(st.characters(min_codepoint=32, max_codepoint=126, exclude_characters='"\\'), max_size=5).filter(
    lambda name: name not in MARKS
)
any_texts = st.text(st.characters() | st.sampled_from('\0\b\t\n\v\f\r\x1b\x7f\x80"\\/é€😀\udc80\ud83d'), max_size=5)
plain_leaves = st.none() | st.booleans() | st.integers(-(10**18) + 1, 10**18 - 1) | any_texts | st.binary(max_size=7)
plain_values = st.recursive(
    plain_leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(plain_names, inner, max_size=3), max_leaves=8
)
plain_mappings = st.dictionaries(plain_names, plain_values, max_size=3)


@given(st.lists(st.dictionaries(plain_names, plain_mappings, max_size=1)), st.sampled_from(WAYS))
def test_most_packs_are_plain(those: list[dict[str, Any]], way: Way) -> None:
    texts = [encode_tagged(each) for each in those]
    are_plain, families = check_tagged_json(way(texts, [b'{"a":'], [b"}}}"]))
    assert [bool(each) for each in are_plain] == [_depth(each) <= DEEPEST for each in those]
    assert [family.decode() for family, is_plain in zip(families.to_list(), are_plain, strict=True) if is_plain] == [
        next(iter(each), "") for each, is_plain in zip(those, are_plain, strict=True) if is_plain
    ]


def _depth(value: Any) -> int:
    """How many brackets are open at once."""
    if isinstance(value, bytes):
        return 1
    if isinstance(value, dict | list):
        return 1 + max(map(_depth, value.values() if isinstance(value, dict) else value), default=0)
    return 0


@settings(max_examples=examples(1000))
@given(
    st.lists(any_texts, min_size=1, max_size=4) | st.lists(plain_mappings, min_size=1, max_size=3),
    *(
        st.integers(0, 200),
        st.sampled_from([*PIECES, b"\\u0041", b"\\u00E9", b"\\/", b"[", b"]", b"null"]),
        st.integers(0, 3),
        st.booleans(),
    ),
)
def test_plain_lists_of_texts_or_of_mappings_would_be_encoded_so_again(
    those: list[Any], at: int, put: bytes, cut: int, spoil: bool
) -> None:
    text = encode_tagged(those)
    if spoil:
        text = with_a_fault(text, at, put, cut)
    for check, kind in ((check_texts, str), (check_mappings, dict)):
        is_plain = bool(check(BinaryViews.of([text]))[0])
        event(f"{kind.__name__}, plain: {is_plain}")
        if is_plain:
            found = decode_tagged(b'{"":%b}' % text)[""]
            assert encode_tagged(found) == text
            assert {type(each) for each in found} == {kind}
        elif not spoil and type(those[0]) is kind:
            assert _depth(those) > DEEPEST


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{}", b'["a",1]', b'[{},"a"]', b"[null]", b"[[]]", b'["a"', b'["a",]', b'[{"b64":"AA=="}]']
)
def test_other_lists_are_not(text: bytes) -> None:
    texts = BinaryViews.of([text])
    assert not check_texts(texts)[0]
    assert not check_mappings(texts)[0]


def test_with_many_names_a_text_is_left_to_python() -> None:
    for names, is_plain in ((MOST_NAMES, True), (MOST_NAMES + 1, False)):
        text = encode_tagged([{}, {str(number): number for number in range(names)}])
        assert check_mappings(BinaryViews.of([text]))[0] == is_plain


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"a":1}',
        b'{"a":{"b64":"AA=="}}',
        b'{"a":{"b":{"b64":"AB=="}}}',
        b'{"a":{"b":{"b64":"AAB="}}}',
        b'{"a":{"b":{"b64":"=="}}}',
        b'{"a":{"b":{"b64":"AAA"}}}',
        b'{"a":{"b":{"b64":"AA==","c":1}}}',
        b'{"a":{"b":{"float":"nan"}}}',
        b'{"a":{"b":{"plain":{"b64":1}}}}',
        b'{"a":{"b":1,"b":1}}',
        b'{"a":{"b":1,"c":[2],"b":1}}',
        b'{"a":{"b":-0}}',
        b'{"a":{"b":01}}',
        b'{"a":{"b":1.0}}',
        b'{"a":{"b":1e3}}',
        b'{"a":{"b":[1,]}}',
        b'{"a":{"b":[1}}',
        b'{"a":{"b":[{"b64":"AA=="]}}',
        b'{"a":{"b":1},"b":{}}',
        b'{"a":{"b":1}} ',
        b'{"a": {"b":1}}',
        b'{"a":{"b":1,}}',
        b'{"a":{,"b":1}}',
        b'{"a":{"b":"\xc3\xa9"}}',
        b'{"a":{"b":"\\u0041"}}',
        b'{"a":{"b":"\\u000a"}}',
        b'{"a":{"b":"\\u00E9"}}',
        b'{"a":{"b":"\\u007e"}}',
        b'{"a":{"b":"\\/"}}',
        b'{"a":{"b\\n":1}}',
        b'{"a":{"b":"\x7f"}}',
        b'{"a":{"b":1}}}',
    ],
)
def test_others_are_not(text: bytes) -> None:
    assert not checked(text)[0]


def test_text_of_many_digits_is_left_to_python() -> None:
    assert checked(json.dumps({"a": {"b": 10**17}}, separators=(",", ":")).encode())[0]
    assert not checked(json.dumps({"a": {"b": 10**18}}, separators=(",", ":")).encode())[0]
