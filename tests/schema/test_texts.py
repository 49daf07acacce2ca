"""Texts: what compiled loops say of slices of one buffer is what plain Python says of each text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from itertools import product
from random import Random

import hiredis
import numpy as np
import pyarrow as pa
import pytest
from ferryman.compat.numbers import PLAIN_DIGITS, whole
from ferryman.schema import texts
from ferryman.schema.text import MAX_JSON_DEPTH, is_json
from ferryman.schema.texts import DEEPEST, MOST_DIGITS, NO_NUMBER, NULL, Texts, concatenated, packed, shapes
from hypothesis import given, settings
from hypothesis import strategies as st

# Where texts stand: each way puts others before and after them, so that reading too far or too early shows.

Way = Callable[[list[bytes], list[bytes], list[bytes]], Texts]


def sliced(values: list[bytes], before: list[bytes], after: list[bytes]) -> Texts:
    return Texts.from_arrow(pa.array([*before, *values, *after], pa.binary()).slice(len(before), len(values)))


def packed_again(values: list[bytes], before: list[bytes], after: list[bytes]) -> Texts:
    return Texts.from_arrow(sliced(values, before, after).to_arrow())


def parted(values: list[bytes], before: list[bytes], after: list[bytes]) -> Texts:
    return Texts.of([*before, *values, *after]).part(len(before), len(before) + len(values))


def masked(values: list[bytes], before: list[bytes], after: list[bytes]) -> Texts:
    mask = [False] * len(before) + [True] * len(values) + [False] * len(after)
    return Texts.of([*before, *values, *after]).take(np.array(mask, np.bool_))


def turned(values: list[bytes], before: list[bytes], after: list[bytes]) -> Texts:
    return Texts.of([*before, *reversed(values), *after]).take(len(before) + np.arange(len(values))[::-1])


def joined(values: list[bytes], before: list[bytes], after: list[bytes]) -> Texts:
    half = len(values) // 2
    pieces = [Texts.of(before), sliced(values[:half], after, before), Texts.of(values[half:]), Texts.of(after)]
    return concatenated(pieces).part(len(before), len(before) + len(values))


WAYS: list[Way] = [sliced, packed_again, parted, masked, turned, joined]


@st.composite
def stored(draw: st.DrawFn, each: st.SearchStrategy[bytes], max_size: int = 12) -> tuple[Texts, list[bytes]]:
    """Texts, and the same as Python's own."""
    values = draw(st.lists(each, max_size=max_size))
    before, after = draw(st.lists(each, max_size=2)), draw(st.lists(each, max_size=2))
    return draw(st.sampled_from(WAYS))(values, before, after), values


def numbered(keys: Iterable[object]) -> tuple[list[int], list[int]]:
    """A number for each, in the order in which they first stand there, and where that is."""
    numbers: dict[object, int] = {}
    codes, firsts = [], []
    for row, key in enumerate(keys):
        if key not in numbers:
            numbers[key] = len(numbers)
            firsts.append(row)
        codes.append(numbers[key])
    return codes, firsts


raws = st.binary(max_size=6) | st.sampled_from([b"", b"\0", b"\0\0", b"a", b"ab", b"b", b"x" * 300])


# The texts themselves


@given(st.lists(raws))
def test_texts_come_back_as_they_went_in(values: list[bytes]) -> None:
    found = Texts.of(values)
    assert found.to_list() == values
    assert len(found) == len(values)
    assert Texts.of(iter(values)).to_list() == values


@given(stored(raws))
def test_texts_are_the_same_wherever_they_stand(case: tuple[Texts, list[bytes]]) -> None:
    found, values = case
    assert (found.data.dtype, found.starts.dtype, found.sizes.dtype) == (np.uint8, np.int64, np.int64)
    assert len(found) == len(values)
    assert found.to_list() == values
    assert [found[index] for index in range(len(values))] == values
    array = found.to_arrow()
    array.validate(full=True)
    assert array.equals(pa.array(values, pa.binary()))


@given(stored(raws), st.data())
def test_some_texts_are_taken_by_index_by_mask_and_by_range(case: tuple[Texts, list[bytes]], data: st.DataObject) -> None:
    found, values = case
    rows = data.draw(st.lists(st.sampled_from(range(len(values))))) if values else []
    assert found.take(np.array(rows, np.int64)).to_list() == [values[row] for row in rows]
    mask = data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    assert found.take(np.array(mask, np.bool_)).to_list() == [value for value, wanted in zip(values, mask, strict=True) if wanted]
    start, end = sorted(data.draw(st.tuples(st.integers(0, len(values)), st.integers(0, len(values)))))
    assert found.part(start, end).to_list() == values[start:end]
    assert found.part(start, end).take(np.arange(end - start)[::-1]).to_list() == values[start:end][::-1]


@given(st.lists(stored(raws, max_size=4), min_size=1, max_size=5))
def test_parts_put_together_are_all_their_texts_in_order(cases: list[tuple[Texts, list[bytes]]]) -> None:
    found = concatenated([part for part, _ in cases])
    assert found.to_list() == [value for _, values in cases for value in values]


@given(st.lists(st.none() | raws), st.lists(st.none() | raws, max_size=20), st.data())
def test_nulls_stay_nulls(one: list[bytes | None], other: list[bytes | None], data: st.DataObject) -> None:
    values = [*one, *other]
    found = concatenated([Texts.of(one), Texts.from_arrow(pa.array([*one, *other], pa.binary()).slice(len(one)))])
    assert found.to_list() == values
    array = found.to_arrow()
    array.validate(full=True)
    assert array.null_count == values.count(None)
    assert array.equals(pa.array(values, pa.binary()))
    start, end = sorted(data.draw(st.tuples(st.integers(0, len(values)), st.integers(0, len(values)))))
    assert found.part(start, end).to_list() == values[start:end]
    assert found.take(np.arange(len(values))[::-1]).to_list() == values[::-1]
    assert Texts.from_arrow(array.slice(start, end - start)).to_list() == values[start:end]
    assert (found.sizes == NULL).tolist() == [value is None for value in values]


def test_an_array_read_from_a_stream_is_taken_as_it_is() -> None:
    batches = [pa.record_batch({"a": pa.array(values, pa.binary())}) for values in ([b"one", b"", b"three"], [], [b""])]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    with pa.ipc.open_stream(sink.getvalue()) as read:
        assert [Texts.from_arrow(batch.column(0)).to_list() for batch in read] == [[b"one", b"", b"three"], [], [b""]]


def test_an_empty_array_needs_no_offsets() -> None:
    """Arrow allows it."""
    array = pa.Array.from_buffers(pa.binary(), 0, [None, pa.py_buffer(b""), pa.py_buffer(b"")])
    assert Texts.from_arrow(array).to_list() == []


def test_more_bytes_than_a_column_holds_are_refused() -> None:
    found = Texts.of([b"x" * 2**20]).take(np.zeros(2**11, np.int64))
    with pytest.raises(OverflowError, match=str(2**31)):
        found.to_arrow()


# Numbers

digits = st.text("0123456789", max_size=21).map(str.encode)
numerals = st.one_of(
    digits,
    st.integers(-(2**65), 2**65).map(lambda number: b"%d" % number),
    st.integers(0, 10**MOST_DIGITS - 1).map(lambda number: b"%d" % number),
    st.text("0129+-. /:e_\n٣", max_size=5).map(str.encode),
    st.sampled_from(
        [b"9" * MOST_DIGITS, b"9" * (MOST_DIGITS + 1), b"0" * MOST_DIGITS, b"0" * (MOST_DIGITS + 1), b"7\0", b"\xb2"]
    ),
)


@given(stored(numerals))
def test_plain_digits_are_the_number_that_python_reads(case: tuple[Texts, list[bytes]]) -> None:
    found, values = case
    answers = found.wholes()
    assert answers.dtype == np.int64
    assert answers.tolist() == [whole(value) if value.isdigit() and len(value) <= PLAIN_DIGITS else NO_NUMBER for value in values]


affixes = st.sampled_from([b"", b"a", b"ab", b"b", b"1", b"0", b"11", b"bq:job:", b":", b"\xff"])


@given(affixes, affixes, st.data())
def test_a_text_names_a_number_between_two_others(before: bytes, after: bytes, data: st.DataObject) -> None:
    numeral = st.integers(0, 10**19).map(lambda number: b"%d" % number) | numerals
    named = st.builds(lambda *words: b"".join(words), affixes | st.just(before), numeral, affixes | st.just(after))
    # Those with one text in place of both, or with a bit of them, are shorter than both together.
    short = st.sampled_from([before, after, before + after, before[:-1], after[1:], before + b"1", b"1" + after])
    found, values = data.draw(stored(st.one_of(named, named, short, numeral)))
    pattern = re.compile(re.escape(before) + rb"([1-9][0-9]{0,17})" + re.escape(after))
    matches = [pattern.fullmatch(value) for value in values]
    answers = found.named(before, after)
    assert answers.dtype == np.int64
    assert answers.tolist() == [int(match[1]) if match else NO_NUMBER for match in matches]
    if not after:
        assert found.named(before).tolist() == answers.tolist()


# Groups


@given(stored(raws, max_size=60))
def test_equal_texts_share_a_code_in_order_of_appearance(case: tuple[Texts, list[bytes]]) -> None:
    found, values = case
    codes, each = found.codes()
    expected, firsts = numbered(values)
    assert codes.dtype == np.int64
    assert codes.tolist() == expected
    assert each == [values[first] for first in firsts]


@given(st.integers(0, 2**32), st.integers(1001, 5000), st.sampled_from(WAYS))
@settings(max_examples=15)
def test_codes_are_right_for_thousands_of_texts(seed: int, count: int, way: Way) -> None:
    random = Random(seed)
    distinct = {b"%d" % number for number in range(count)} | {random.randbytes(random.randrange(12)) for _ in range(count)}
    values = [*distinct, *random.choices([*distinct], k=count)]
    random.shuffle(values)
    found = way(values, [b"before"], [b"after"])
    codes, each = found.codes()
    expected, firsts = numbered(values)
    assert codes.tolist() == expected
    assert each == [values[first] for first in firsts]


@pytest.mark.parametrize("count", [31, 32, 33, 64, 127, 128, 129, 511, 512, 513, 2047, 2048, 2049])
def test_codes_are_right_where_their_table_grows(count: int) -> None:
    values = [b"key:%d" % number for number in range(count)]
    codes, each = Texts.of(values + values[::-1] + [b"last"]).codes()
    assert codes.tolist() == [*range(count), *reversed(range(count)), count]
    assert each == [*values, b"last"]


@given(stored(raws), raws)
def test_texts_are_compared_to_one_value(case: tuple[Texts, list[bytes]], other: bytes) -> None:
    found, values = case
    for value in [*values, other, b"", other + b"\0"]:
        answers = found.are(value)
        assert answers.dtype == np.bool_
        assert answers.tolist() == [each == value for each in values]


names = st.sampled_from([b"", b"a", b"ab", b"abc", b"b", b"bc", b"c"])
"""Some make the same text when put together."""


def shaped(records: list[list[bytes]], way: Way, step: int) -> tuple[list[int], list[int]]:
    """What ``shapes`` says of these."""
    words = way([word for record in records for word in record], [b"a", b"ab"], [b"c"])
    codes, firsts = shapes(np.array([len(record) for record in records], np.int64), words, step)
    assert codes.dtype == np.int64
    return codes.tolist(), firsts


@given(st.sampled_from([1, 2, 3]), st.sampled_from(WAYS), st.data())
def test_records_of_the_same_names_share_a_shape(step: int, way: Way, data: st.DataObject) -> None:
    fields = st.tuples(names, *[raws] * (step - 1))
    drawn = data.draw(st.lists(st.lists(fields, max_size=3), max_size=25))
    records = [[word for field in record for word in field] for record in drawn]
    assert shaped(records, way, step) == numbered(tuple(record[::step]) for record in records)


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
def test_other_names_are_another_shape(one: list[bytes], other: list[bytes]) -> None:
    assert shaped([one, other, one, one, other], sliced, 2) == ([0, 1, 0, 0, 1], [0, 1])
    assert shaped([other, one, one, other], joined, 2) == ([0, 1, 1, 0], [0, 1])


def test_two_names_are_two_words_away_by_default() -> None:
    words = Texts.of([b"a", b"1", b"a", b"2"])
    assert shapes(np.array([2, 2]), words)[0].tolist() == [0, 0]
    assert shapes(np.array([2, 2]), words, 1)[0].tolist() == [0, 1]


def test_many_shapes_keep_their_numbers() -> None:
    random = Random(1)
    kinds = [[word for name in picked for word in (name, b"value")] for picked in product([b"a", b"b", b"ab", b""], repeat=3)]
    records = random.choices(kinds, k=2000)
    assert shaped(records, sliced, 2) == numbered(tuple(record[::2]) for record in records)


# Commands


def expected_commands(keys: list[bytes], name: bytes, *others: bytes) -> bytes:
    """What hiredis makes of them."""
    return b"".join(hiredis.pack_command((name, key, *others)) for key in keys)


@given(stored(raws), st.lists(raws | st.sampled_from([b"HGETALL", b"LRANGE", b"0", b"-1"]), min_size=1, max_size=12))
def test_commands_go_over_the_wire_as_hiredis_packs_them(case: tuple[Texts, list[bytes]], command: list[bytes]) -> None:
    keys, values = case
    found = packed(keys, *command)
    assert found.dtype == np.uint8
    assert found.tobytes() == expected_commands(values, *command)


def test_commands_tell_the_size_of_keys_of_any_length() -> None:
    sizes = [0, *(10**digit + more for digit in range(1, 7) for more in (-1, 0, 1)), 0]
    keys = [b"k" * size for size in sizes]
    assert packed(Texts.of(keys), b"HGET", b"f").tobytes() == expected_commands(keys, b"HGET", b"f")
    assert packed(Texts.of(keys), b"GET").tobytes() == expected_commands(keys, b"GET")


# JSON

BLANKS = [b"", b" ", b"\n", b"\r", b"\t", b" \r\n\t "]
NO_BLANKS = [b"\0", b"\v", b"\f", b"\x1f", b"\x7f", b"\xa0", b"\xc2\x85", b"\xc2\xa0", b"\xe2\x80\xa8", b"\xe3\x80\x80"]
BOM = b"\xef\xbb\xbf"

ODD_NUMBERS = [
    *rb"0 -0 00 01 -01 - +1 --1 1. .5 -.5 0.0 1.5.5 1.e5 1-2 1+ 0x1 1_000 1a NaN -NaN nan Infinity -Infinity inf".split(),
    *rb"1e5 1E5 1e+5 1E-5 1e 1e+ 1e- e5 1e5.0 1e05 1e00005 0e0 1e308 1e309 1e999 -1e999 1e-999 1e99999999999".split(),
    *(sign + b"9" * count for sign in (b"", b"-", b"0.", b"1e") for count in (17, 18, 19, 20, 309, 3999, 4000, 4300, 4301, 5000)),
    *(b"9" * 18 + b"." + b"9" * 18 + exponent for exponent in (b"", b"e99", b"e-99", b"e100", b"E+99")),
    *(b"\xd9\xa3", b"1\xd9\xa3", b"\xef\xbc\x91", b"1 1", b"0 0", b"-\n1", b"1 .5"),
]
ODD_WORDS = rb"true True tru truee false fals falsy null nul None nulltrue t f n".split()
ODD_STRINGS = [
    *rb""" " "a a" "a\" "\ "\" "\\" "\\\" 'a' "a"b" "\x41" "\0" "\u" "\u12" "\u123" "\u1234 "\u12g4" "\U1234" """.split(),
    *rb""" "\u+123" "\u-123" "\u0x1f" "\u0000" "\u001f" "\uFFFF" "\uabCD" "\ud7ff" "\ud800" "\udbff" "\udc00" """.split(),
    *rb""" "\uDFFF" "\ue000" "\ud83d\ude00" "\ude00\ud83d" "\ud83d\u0041" "\ud83dx" "\ud83d\n" """.split(),
    *(b'"\n"', b'"\0"', b'"\x1f"', b'"\x7f"', b'"\\u 123"', b'"\\\n"', b'"\\u00\xc3\xa9"'),
]
ODD_BYTES = [
    *(b"\xf0\x9f\x98\x80", b"\xed\x9f\xbf", b"\xee\x80\x80", b"\xf4\x8f\xbf\xbf", b"\x80", b"\xbf", b"\xc2", b"\xfe", b"\xff"),
    # Longer than need be, surrogates, more than Unicode has, and cut off.
    *(b"\xc0\x80", b"\xc1\xbf", b"\xe0\x80\x80", b"\xe0\x9f\xbf", b"\xf0\x80\x80\x80", b"\xf0\x8f\xbf\xbf"),
    *(b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xed\xa0\xbd\xed\xb8\x80", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80"),
    *(b"\xf8\x88\x80\x80\x80", b"\xe2\x82", b"\xf0\x9f", b"\xf0\x9f\x98"),
]
ODD_BRACKETS = [
    *rb"{ } [ ] [] {} [} {] [[ ]] [[] []] {}} ][ [][] {}[] [], ,[] [1]2 [1,] [,1] [,] [1,,2] [1 [1, 1] 1, , : [1:2] [1}".split(),
    *rb"""["a":1] {"a":1] {"a"} {"a":} {"a":1,} {,"a":1} {:1} {1:2} {null:1} {[]:1} {"a"::1} {"a":1:2} {"a":1,"b"}""".split(),
    *rb"""{"a":1,2} {"a":1,"b":} {"a":1,"a":2} {"":0} {a:1} {'a':1} {"a": {"a" {"a":[]} {"a":[} [{"a":1]} [{"a":1},2]""".split(),
    *rb"""{"a":{},"b":[{}]} {"a":1],"b":2} [1,"a":2] [[],"b":2] [{},{"a"}] /**/1 1// #""".split(),
    *(b"[1 2]", b'{"a" 1}', b'{"a":1 "b":2}', b"[1]\0", b"\0[1]", b"1\0", BOM, BOM + b"1", b"1" + BOM, b"\xfe\xff\x001"),
]
ODD = [
    b"",
    b" ",
    *ODD_NUMBERS,
    *ODD_WORDS,
    *ODD_STRINGS,
    *(b'"%b"' % each for each in ODD_BYTES),
    *ODD_BYTES,
    *ODD_BRACKETS,
    *NO_BLANKS,
]


def check_json(found: Texts, values: list[bytes]) -> list[bool]:
    """That the answers are those of ``is_json``, the compiled part's included. What it says."""
    compiled: list[bool] = texts._are_json(found.data, found.starts, found.sizes).tolist()
    answers = found.are_json()
    assert answers.dtype == np.bool_
    expected = [is_json(value) for value in values]
    assert [value for value, yes, truth in zip(values, compiled, expected, strict=True) if yes and not truth] == []
    assert answers.tolist() == expected
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
sound = dumped | written

short_odd = [text for text in ODD if len(text) < 30]
splinters = st.one_of(
    st.binary(max_size=2),
    st.sampled_from([b"", b"", *(bytes([byte]) for byte in b'{}[],:"\\ \t0-+.eEu/')]),
    st.sampled_from(short_odd),
)


@st.composite
def broken(draw: st.DrawFn) -> bytes:
    """JSON with bytes flipped, left out, put in or cut off."""
    raw = bytearray(draw(sound))
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


@given(stored(sound))
def test_sound_json_is_json(case: tuple[Texts, list[bytes]]) -> None:
    check_json(*case)


@given(stored(broken()))
@settings(max_examples=200)
def test_broken_json_is_json_only_if_python_says_so(case: tuple[Texts, list[bytes]]) -> None:
    check_json(*case)


@given(stored(st.lists(st.sampled_from(short_odd) | numbers | escaped, max_size=8).map(b"".join)))
def test_splinters_of_json_are_json_only_if_python_says_so(case: tuple[Texts, list[bytes]]) -> None:
    check_json(*case)


@given(stored(st.binary(max_size=12)))
def test_any_bytes_are_json_only_if_python_says_so(case: tuple[Texts, list[bytes]]) -> None:
    check_json(*case)


@pytest.mark.parametrize("way", WAYS)
def test_odd_texts_are_json_only_if_python_says_so(way: Way) -> None:
    around = [b"%b", b" %b", b"%b\n", b"[%b]", b"[1,%b]", b"[%b,1]", b'{"a":%b}', b"{%b:1}", b'{"a":1,%b}', b'"%b"', b"[[%b],{}]"]
    values = [form % text for text in ODD for form in around]
    check_json(way(values, [b'"', b"[1", b"1"], [b"1]", b'"', b"e5"]), values)


def test_white_space_is_that_of_json() -> None:
    forms = [
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
    values = [form % blank for form in forms for blank in [*BLANKS, *(bytes([byte]) for byte in range(256)), *NO_BLANKS]]
    check_json(Texts.of(values), values)


@pytest.mark.parametrize("way", WAYS)
def test_texts_cut_off_are_not_read_to_their_end(way: Way) -> None:
    """What would complete a text stands behind it."""
    text = '{"a": [true, false, null, -1.5e+10, {"é😀\\u00e9\\n": ""}], "": {}}'.encode()
    values = [text[:size] for size in range(len(text) + 1)] + [text[start:] for start in range(len(text))]
    check_json(way(values, [text], [text]), values)
    found = Texts.of([text])
    bounds = [(start, end) for start in range(len(text)) for end in range(start, len(text) + 1)]
    starts, ends = (np.array(each, np.int64) for each in zip(*bounds, strict=True))
    check_json(Texts(found.data, starts, ends - starts), [text[start:end] for start, end in bounds])


def test_every_short_row_of_signs_is_judged_as_python_does() -> None:
    signs = [b"{", b"}", b"[", b"]", b",", b":", b'"a"', b"1", b" "]
    values = [b"".join(row) for length in range(6) for row in product(signs, repeat=length)]
    values += [b'{"a":%b}' % b"".join(row) for row in product(signs, repeat=4)]
    assert check_json(Texts.of(values), values) == [is_json(value) for value in values]


def test_every_short_numeral_is_judged_as_python_does() -> None:
    values = [b"".join(row) for length in range(7) for row in product([b"0", b"1", b"-", b"+", b".", b"e"], repeat=length)]
    check_json(Texts.of(values), values)
    values = [b"[%b]" % value for value in values if len(value) < 6]
    check_json(Texts.of(values), values)


def test_every_escape_is_judged_as_python_does() -> None:
    every = [bytes([byte]) for byte in range(256)]
    values = [b'"\\%b"' % byte for byte in every]
    values += [b'"\\u%b%b%b"' % (b"00e9"[:at], byte, b"00e9"[at + 1 :]) for at in range(4) for byte in every]
    values += [b'"\\u%04x"' % code for code in range(0, 0x10000, 0x40)]
    values += [b'"\\u%04X\\u%04X"' % (0xD7C0 + 0x40 * one, 0xD7C0 + 0x40 * other) for one in range(34) for other in range(34)]
    check_json(Texts.of(values), values)


def test_every_start_of_a_character_is_judged_as_python_does() -> None:
    leads = bytes.fromhex("41 7f 80 bf c1 c2 df e0 e1 ec ed ee ef f0 f1 f3 f4 f5 ff")
    trails = bytes.fromhex("22 7f 80 8f 90 9f a0 bf c0")
    values = [b'"%b"' % bytes(pair) for pair in product(range(256), repeat=2)]
    values += [b'"%b"' % bytes(row) for length in (1, 2, 3) for row in product(leads, *[trails] * length)]
    values += [value[:-1] for value in values[256 * 256 :]]
    check_json(Texts.of(values), values)


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
    check_json(Texts.of(values), values)


def test_brackets_are_counted_by_depth_and_not_by_number() -> None:
    values = [b"[%b]" % b",".join([b"[{}]"] * 1000), b"[%b]" % b",".join([b'{"a":[]}'] * 1000)]
    assert check_json(Texts.of(values), values) == [True, True]


def test_brackets_within_strings_count_as_they_do_for_python() -> None:
    counts = [DEEPEST, DEEPEST + 1, MAX_JSON_DEPTH, MAX_JSON_DEPTH + 1]
    forms = [b'"%b"', b'{"a": "%b"}', b'{"%b": 1}', b'["", "%b"]']
    rows = [bracket * count for count in counts for bracket in (b"[", b"{", b"]", b"}", b"[]", b"[{")]
    values = [form % row for form in forms for row in rows]
    check_json(Texts.of(values), values)


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
    found = Texts.of(json.dumps(value, ensure_ascii=False, indent=indent).encode() for value in values)
    assert all(texts._are_json(found.data, found.starts, found.sizes))
    nested = [b"[" * DEEPEST + b"1" + b"]" * DEEPEST, b'{"\\u00e9\\n": 0}', b"-1.5e-07", b"[1E+20]"]
    assert check_json(Texts.of(nested), nested) == [True] * len(nested)
