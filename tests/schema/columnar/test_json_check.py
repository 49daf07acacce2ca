"""Thousands of texts are JSON where each of them is: the answers of the loops against those of ``is_json``."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pytest
from ferryman.schema.columnar.binary_views import BinaryViews
from ferryman.schema.columnar.json_check import DEEPEST, MOST_DIGITS, are_plain_json
from ferryman.schema.text import MAX_JSON_DEPTH, is_json
from hypothesis import given, settings
from hypothesis import strategies as st

from ...support.binary_views import WAYS, Way, stored
from ...support.effort import examples

BLANKS = [b"", b" ", b"\n", b"\r", b"\t", b" \r\n\t "]
NO_BLANKS = [b"\0", b"\v", b"\f", b"\x1f", b"\x7f", b"\xa0", b"\xc2\x85", b"\xc2\xa0", b"\xe2\x80\xa8", b"\xe3\x80\x80"]
BOM = b"\xef\xbb\xbf"

MALFORMED_NUMBERS = [
    *rb"0 -0 00 01 -01 - +1 --1 1. .5 -.5 0.0 1.5.5 1.e5 1-2 1+ 0x1 1_000 1a NaN -NaN nan Infinity -Infinity inf".split(),
    *rb"1e5 1E5 1e+5 1E-5 1e 1e+ 1e- e5 1e5.0 1e05 1e00005 0e0 1e308 1e309 1e999 -1e999 1e-999 1e99999999999".split(),
    *(sign + b"9" * count for sign in (b"", b"-", b"0.", b"1e") for count in (17, 18, 19, 20, 309, 3999, 4000, 4300, 4301, 5000)),
    *(b"9" * 18 + b"." + b"9" * 18 + exponent for exponent in (b"", b"e99", b"e-99", b"e100", b"E+99")),
    *(b"\xd9\xa3", b"1\xd9\xa3", b"\xef\xbc\x91", b"1 1", b"0 0", b"-\n1", b"1 .5"),
]
MALFORMED_WORDS = rb"true True tru truee false fals falsy null nul None nulltrue t f n".split()
MALFORMED_STRINGS = [
    *rb""" " "a a" "a\" "\ "\" "\\" "\\\" 'a' "a"b" "\x41" "\0" "\u" "\u12" "\u123" "\u1234 "\u12g4" "\U1234" """.split(),
    *rb""" "\u+123" "\u-123" "\u0x1f" "\u0000" "\u001f" "\uFFFF" "\uabCD" "\ud7ff" "\ud800" "\udbff" "\udc00" """.split(),
    *rb""" "\uDFFF" "\ue000" "\ud83d\ude00" "\ude00\ud83d" "\ud83d\u0041" "\ud83dx" "\ud83d\n" """.split(),
    *(b'"\n"', b'"\0"', b'"\x1f"', b'"\x7f"', b'"\\u 123"', b'"\\\n"', b'"\\u00\xc3\xa9"'),
]
MALFORMED_BYTES = [
    *(b"\xf0\x9f\x98\x80", b"\xed\x9f\xbf", b"\xee\x80\x80", b"\xf4\x8f\xbf\xbf", b"\x80", b"\xbf", b"\xc2", b"\xfe", b"\xff"),
    # Longer than need be, surrogates, more than Unicode has, and cut off.
    *(b"\xc0\x80", b"\xc1\xbf", b"\xe0\x80\x80", b"\xe0\x9f\xbf", b"\xf0\x80\x80\x80", b"\xf0\x8f\xbf\xbf"),
    *(b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xed\xa0\xbd\xed\xb8\x80", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80"),
    *(b"\xf8\x88\x80\x80\x80", b"\xe2\x82", b"\xf0\x9f", b"\xf0\x9f\x98"),
]
MALFORMED_BRACKETS = [
    *rb"{ } [ ] [] {} [} {] [[ ]] [[] []] {}} ][ [][] {}[] [], ,[] [1]2 [1,] [,1] [,] [1,,2] [1 [1, 1] 1, , : [1:2] [1}".split(),
    *rb"""["a":1] {"a":1] {"a"} {"a":} {"a":1,} {,"a":1} {:1} {1:2} {null:1} {[]:1} {"a"::1} {"a":1:2} {"a":1,"b"}""".split(),
    *rb"""{"a":1,2} {"a":1,"b":} {"a":1,"a":2} {"":0} {a:1} {'a':1} {"a": {"a" {"a":[]} {"a":[} [{"a":1]} [{"a":1},2]""".split(),
    *rb"""{"a":{},"b":[{}]} {"a":1],"b":2} [1,"a":2] [[],"b":2] [{},{"a"}] /**/1 1// #""".split(),
    *(b"[1 2]", b'{"a" 1}', b'{"a":1 "b":2}', b"[1]\0", b"\0[1]", b"1\0", BOM, BOM + b"1", b"1" + BOM, b"\xfe\xff\x001"),
]
MALFORMED = [
    b"",
    b" ",
    *MALFORMED_NUMBERS,
    *MALFORMED_WORDS,
    *MALFORMED_STRINGS,
    *(b'"%b"' % each for each in MALFORMED_BYTES),
    *MALFORMED_BYTES,
    *MALFORMED_BRACKETS,
    *NO_BLANKS,
]


def check_json(found: BinaryViews, values: list[bytes]) -> list[bool]:
    """That the answers are those of ``is_json``, the compiled part's included. What it says."""
    compiled: list[bool] = are_plain_json(found.data, found.starts, found.sizes).tolist()
    results = found.are_json()
    assert results.dtype == np.bool_
    expected = [is_json(value) for value in values]
    assert [value for value, yes, truth in zip(values, compiled, expected, strict=True) if yes and not truth] == []
    assert results.tolist() == expected
    return compiled


documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=()), max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)
dumped = st.builds(
    lambda value, ascii_only, indent: json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "surrogatepass"),
    documents,
    st.booleans(),
    st.none() | st.integers(0, 1),
)
numbers = st.from_regex(rb"-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,4})?", fullmatch=True)
escaped = st.lists(
    st.from_regex(r"\\u[0-9a-fA-F]{4}", fullmatch=True)
    | st.sampled_from([r"\"", r"\\", r"\/", r"\b", r"\f", r"\n", r"\r", r"\t", "é", "東", "😀", "a", " ", "\x7f"]),
    max_size=5,
).map(lambda words: b'"%b"' % "".join(words).encode())
blanks = st.sampled_from(BLANKS)


def spaced(inner: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return st.builds(lambda before, text, after: before + text + after, blanks, inner, blanks)


def brackets(inner: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Lists and objects with blanks at every place."""
    members = st.builds(lambda name, value: name + b":" + value, spaced(escaped), spaced(inner))
    return st.one_of(
        st.lists(spaced(inner), min_size=1, max_size=3).map(lambda items: b"[%b]" % b",".join(items)),
        st.lists(members, min_size=1, max_size=3).map(lambda items: b"{%b}" % b",".join(items)),
        blanks.map(lambda blank: b"[%b]" % blank),
        blanks.map(lambda blank: b"{%b}" % blank),
    )


written = spaced(st.recursive(numbers | escaped | st.sampled_from([b"true", b"false", b"null"]), brackets, max_leaves=8))
well_formed = dumped | written

short_malformed = [text for text in MALFORMED if len(text) < 30]
splinters = st.one_of(
    st.binary(max_size=2),
    st.sampled_from([b"", b"", *(bytes([byte]) for byte in b'{}[],:"\\ \t0-+.eEu/')]),
    st.sampled_from(short_malformed),
)


@st.composite
def broken(draw: st.DrawFn) -> bytes:
    """JSON with bytes flipped, left out, put in or cut off."""
    raw = bytearray(draw(well_formed))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(raw)))
        match draw(st.sampled_from(["flip", "replace", "replace", "cut", "double"])):
            case "flip" if at < len(raw):
                raw[at] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del raw[at:]
            case "double":
                raw[at:at] = raw[at : at + draw(st.integers(1, 3))]
            case _:
                raw[at : at + draw(st.integers(0, 2))] = draw(splinters)
    return bytes(raw)


@given(stored(well_formed))
def test_sound_json_is_json(case: tuple[BinaryViews, list[bytes]]) -> None:
    check_json(*case)


@given(stored(broken()))
@settings(max_examples=examples(200))
def test_broken_json_is_json_only_if_python_says_so(case: tuple[BinaryViews, list[bytes]]) -> None:
    check_json(*case)


@given(stored(st.lists(st.sampled_from(short_malformed) | numbers | escaped, max_size=8).map(b"".join)))
def test_splinters_of_json_are_json_only_if_python_says_so(case: tuple[BinaryViews, list[bytes]]) -> None:
    check_json(*case)


@given(stored(st.binary(max_size=12)))
def test_any_bytes_are_json_only_if_python_says_so(case: tuple[BinaryViews, list[bytes]]) -> None:
    check_json(*case)


@pytest.mark.parametrize("way", WAYS)
def test_odd_texts_are_json_only_if_python_says_so(way: Way) -> None:
    around = [b"%b", b" %b", b"%b\n", b"[%b]", b"[1,%b]", b"[%b,1]", b'{"a":%b}', b"{%b:1}", b'{"a":1,%b}', b'"%b"', b"[[%b],{}]"]
    values = [template % text for text in MALFORMED for template in around]
    check_json(way(values, [b'"', b"[1", b"1"], [b"1]", b'"', b"e5"]), values)


def test_white_space_is_that_of_json() -> None:
    templates = [
        b"%b1",
        b"1%b",
        b"[%b1]",
        b"[1%b]",
        b"[1,%b1]",
        b"[%b]",
        b"{%b}",
        b'{%b"a":1}',
        b'{"a"%b:1}',
        b'{"a":%b1}',
        b'{"a":1%b}',
    ]
    values = [
        template % blank for template in templates for blank in [*BLANKS, *(bytes([byte]) for byte in range(256)), *NO_BLANKS]
    ]
    check_json(BinaryViews.of(values), values)


@pytest.mark.parametrize("way", WAYS)
def test_texts_cut_off_are_not_read_to_their_end(way: Way) -> None:
    """What would complete a text stands behind it."""
    text = '{"a": [true, false, null, -1.5e+10, {"é😀\\u00e9\\n": ""}], "": {}}'.encode()
    values = [text[:size] for size in range(len(text) + 1)] + [text[start:] for start in range(len(text))]
    check_json(way(values, [text], [text]), values)
    found = BinaryViews.of([text])
    bounds = [(start, end) for start in range(len(text)) for end in range(start, len(text) + 1)]
    starts, ends = (np.array(each, np.int64) for each in zip(*bounds, strict=True))
    check_json(BinaryViews(found.data, starts, ends - starts), [text[start:end] for start, end in bounds])


def test_every_short_row_of_signs_is_judged_as_python_does() -> None:
    signs = [b"{", b"}", b"[", b"]", b",", b":", b'"a"', b"1", b" "]
    values = [b"".join(row) for length in range(6) for row in product(signs, repeat=length)]
    values += [b'{"a":%b}' % b"".join(row) for row in product(signs, repeat=4)]
    assert check_json(BinaryViews.of(values), values) == [is_json(value) for value in values]


def test_every_short_numeral_is_judged_as_python_does() -> None:
    values = [b"".join(row) for length in range(7) for row in product([b"0", b"1", b"-", b"+", b".", b"e"], repeat=length)]
    check_json(BinaryViews.of(values), values)
    values = [b"[%b]" % value for value in values if len(value) < 6]
    check_json(BinaryViews.of(values), values)


def test_every_escape_is_judged_as_python_does() -> None:
    every = [bytes([byte]) for byte in range(256)]
    values = [b'"\\%b"' % byte for byte in every]
    values += [b'"\\u%b%b%b"' % (b"00e9"[:at], byte, b"00e9"[at + 1 :]) for at in range(4) for byte in every]
    values += [b'"\\u%04x"' % code for code in range(0, 0x10000, 0x40)]
    values += [b'"\\u%04X\\u%04X"' % (0xD7C0 + 0x40 * one, 0xD7C0 + 0x40 * other) for one in range(34) for other in range(34)]
    check_json(BinaryViews.of(values), values)


def test_every_start_of_a_character_is_judged_as_python_does() -> None:
    leads = bytes.fromhex("41 7f 80 bf c1 c2 df e0 e1 ec ed ee ef f0 f1 f3 f4 f5 ff")
    trails = bytes.fromhex("22 7f 80 8f 90 9f a0 bf c0")
    values = [b'"%b"' % bytes(pair) for pair in product(range(256), repeat=2)]
    values += [b'"%b"' % bytes(row) for length in (1, 2, 3) for row in product(leads, *[trails] * length)]
    values += [value[:-1] for value in values[256 * 256 :]]
    check_json(BinaryViews.of(values), values)


def deep(depth: int, opening: bytes, closing: bytes, inner: bytes) -> list[bytes]:
    """Brackets within brackets, closed, and closed once too often and too seldom."""
    return [opening * depth + inner + closing * (depth + more) for more in (0, 1, -1)]


@pytest.mark.parametrize("depth", [1, DEEPEST - 1, DEEPEST, DEEPEST + 1, MAX_JSON_DEPTH, MAX_JSON_DEPTH + 1])
@pytest.mark.parametrize(
    ("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[0,{"a":', b"}]"), (b' [ {"a" : ', b" } , 1 ] ")]
)
def test_deep_json_is_judged_as_python_does(depth: int, opening: bytes, closing: bytes) -> None:
    brackets_each = opening.count(b"[") + opening.count(b"{")
    values = [
        value
        for times in {depth, depth // brackets_each}
        for inner in (b"1", b"", b"[]", b"{}", b"{ }", b'[{"a":[]},{}]', b'"]"')
        for value in deep(times, opening, closing, inner)
    ]
    check_json(BinaryViews.of(values), values)


def test_brackets_are_counted_by_depth_and_not_by_number() -> None:
    values = [b"[%b]" % b",".join([b"[{}]"] * 1000), b"[%b]" % b",".join([b'{"a":[]}'] * 1000)]
    assert check_json(BinaryViews.of(values), values) == [True, True]


def test_brackets_within_strings_count_as_they_do_for_python() -> None:
    counts = [DEEPEST, DEEPEST + 1, MAX_JSON_DEPTH, MAX_JSON_DEPTH + 1]
    templates = [b'"%b"', b'{"a": "%b"}', b'{"%b": 1}', b'["", "%b"]']
    rows = [bracket * count for count in counts for bracket in (b"[", b"{", b"]", b"}", b"[]", b"[{")]
    values = [template % row for template in templates for row in rows]
    check_json(BinaryViews.of(values), values)


plain_documents = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(1 - 10**MOST_DIGITS, 10**MOST_DIGITS - 1),
        st.floats(-1e15, 1e15).filter(lambda number: not 0 < abs(number) < 0.1),
        st.text(max_size=9),
    ),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


@given(st.lists(plain_documents), st.none() | st.integers(0, 1))
def test_usual_json_is_not_left_to_python(values: list[object], indent: int | None) -> None:
    found = BinaryViews.of(json.dumps(value, ensure_ascii=False, indent=indent).encode() for value in values)
    assert all(are_plain_json(found.data, found.starts, found.sizes))
    nested = [b"[" * DEEPEST + b"1" + b"]" * DEEPEST, b'{"\\u00e9\\n": 0}', b"-1.5e-07", b"[1E+20]"]
    assert check_json(BinaryViews.of(nested), nested) == [True] * len(nested)
