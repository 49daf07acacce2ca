"""Members of JSON documents: exact texts out and in, for any bytes, in bounded time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ferryman.compat.members import Member, _split, compact, join, split, stringify
from ferryman.schema.errors import MalformedValue
from hypothesis import event, given
from hypothesis import strategies as st

texts = st.text(st.characters(exclude_categories=()), max_size=6)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)
objects = st.dictionaries(texts, values, max_size=4)


@given(objects)
def test_what_is_joined_splits_into_the_same_members(found: dict[str, Any]) -> None:
    members = {name: Member.of(value) for name, value in found.items()}
    again = split(join(members))
    assert {name: member.text for name, member in again.items()} == {name: member.text for name, member in members.items()}


@given(objects, st.sampled_from([(",", ":"), (" , ", " : "), ("\n,\t", "\r:")]), st.booleans())
def test_each_member_has_its_exact_text_whatever_stands_around_it(
    found: dict[str, Any], separators: tuple[str, str], ascii_only: bool
) -> None:
    raw = json.dumps(found, separators=separators, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    if b"\xed" in raw:
        return  # a lone surrogate that is not escaped is no UTF-8
    members = split(b" " + raw + b"\n")
    assert {name: member.value for name, member in members.items()} == json.loads(raw)
    for name, value in json.loads(raw).items():
        text = json.dumps(value, separators=separators, ensure_ascii=ascii_only).encode()
        assert members[name].text == text


@given(st.one_of(st.binary(max_size=12), st.text(st.sampled_from('{}[]",:1a\\ '), max_size=12).map(str.encode)))
def test_any_bytes_are_an_object_or_malformed(raw: bytes) -> None:
    try:
        value = json.loads(raw.decode("utf-8"), parse_constant=lambda _name: 1 / 0)
    except (ValueError, ZeroDivisionError):
        value = None
    if isinstance(value, dict):
        assert {name: member.value for name, member in split(raw).items()} == value
    else:
        with pytest.raises(MalformedValue):
            split(raw)


@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b"{", b"}", b"null", b"[]", b'{"a"}', b'{"a":}', b'{"a":1,}', b'{"a":1}{}', b'{"a":1 2}', b"{1:2}", b'{"a":NaN}'),
        *(b"\xff", b'{"a":"\xff"}', b'{"a":' * 100_000, b'{"a":' + b"[" * 100_000, b'{"a":' + b"9" * 10_000 + b"}"),
        b'{"a":"\n"}',
    ],
)
def test_what_is_no_json_object_is_malformed(raw: bytes) -> None:
    with pytest.raises(MalformedValue):
        split(raw)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("ü☃😀\u2028\x00\x1f\x7f/", '"ü☃😀\u2028\\u0000\\u001f\x7f/"'.encode()),
        ("a\ud800b\udfff", b'"a\\ud800b\\udfff"'),
        ({"a": [1, 2.5, None, True]}, b'{"a":[1,2.5,null,true]}'),
    ],
)
def test_texts_are_those_of_javascript(value: Any, text: bytes) -> None:
    assert stringify(value) == text


@pytest.mark.parametrize("value", [b"x", float("inf"), float("nan"), object()])
def test_what_has_no_form_in_json_is_malformed(value: Any) -> None:
    with pytest.raises(MalformedValue):
        stringify(value)


def test_a_large_document_takes_no_longer_than_its_size() -> None:
    raw = b'{"a":' + b" " * 5_000_000 + b'"' + b"x" * 5_000_000 + b'"' + b"}"
    assert len(split(raw)["a"].text) == 5_000_002
    many = b"{" + b",".join(b'"%d":%d' % (number, number) for number in range(100_000)) + b"}"
    assert join(split(many)) == many


parts = st.tuples(
    st.sampled_from(['"a"', '"b"', '"é"', '"a\\"b"', '""', "b", '"c" ', ' "d"']),
    st.sampled_from([":", ": ", " :"]),
    st.sampled_from(
        ["null", "true", "0", "-0", "-1", "01", "1.5", '"x"', '"\\u00e9"', "[]", "NaN", "9" * 18, "9" * 21, '"x"y', " 1", "1 "]
    ),
).map("".join)


@given(st.lists(parts, max_size=4), st.sampled_from([",", " ,", ", "]), st.sampled_from(["}", " }", "}}", "", ",}"]))
def test_documents_of_short_members_have_the_values_that_python_itself_finds(each: list[str], comma: str, end: str) -> None:
    text = "{" + comma.join(each) + end
    try:
        expected = json.loads(text, parse_constant=int)
    except ValueError:
        with pytest.raises(MalformedValue):
            split(text.encode())
        return
    members = split(text.encode())
    assert repr({name: member.value for name, member in members.items()}) == repr(expected)
    assert all(json.loads(member.text) == member.value for member in members.values())
    assert all(member.text in text.encode() for member in members.values())


@given(objects, st.sampled_from([(",", ":"), (", ", ":")]), st.booleans())
def test_the_members_of_a_compact_text_join_to_it_and_are_those_that_splitting_finds(found, separators, is_ascii) -> None:
    raw = json.dumps(found, separators=separators, ensure_ascii=is_ascii).encode("utf-8", "backslashreplace")
    members = compact(raw)
    event(f"compact: {members is not None}")
    if members is not None:
        assert join(members) == raw
        values, names = _split(raw.decode()), [*members]
        assert members == values
        assert names == [*values]
        assert [repr(each.value) for each in members.values()] == [repr(each.value) for each in values.values()]


def test_most_documents_are_compact() -> None:
    text = '{"a":1,"b":null,"c":true,"d":"ü\\n","e":[1,{"f":0.5}],"g":""}'.encode()
    assert compact(text) == split(text)
    assert compact(text) is not None
    assert compact(text.replace(b":1,", b": 1,")) is None
