"""What compiled loops say of slices of one buffer is what plain Python says of each value."""

from __future__ import annotations

import math
import re
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from ferryman.compat.numbers import PLAIN_DIGITS, parse_int
from ferryman.schema.columnar.binary_views import (
    MOST_DIGITS,
    NO_NUMBER,
    NULL,
    BinaryViews,
    concat,
)
from ferryman.schema.text import is_json
from hypothesis import given, settings
from hypothesis import strategies as st

from ...support.binary_views import WAYS, Way, numbered, stored
from ...support.effort import examples

raws = st.binary(max_size=6) | st.sampled_from([b"", b"\0", b"\0\0", b"a", b"ab", b"b", b"x" * 300])


# The texts themselves


@given(st.lists(raws))
def test_texts_come_back_as_they_went_in(values: list[bytes]) -> None:
    found = BinaryViews.of(values)
    assert found.to_list() == values
    assert len(found) == len(values)
    assert BinaryViews.of(iter(values)).to_list() == values


@given(stored(raws))
def test_texts_are_the_same_wherever_they_stand(case: tuple[BinaryViews, list[bytes]]) -> None:
    found, values = case
    assert (found.data.dtype, found.starts.dtype, found.sizes.dtype) == (np.uint8, np.int64, np.int64)
    assert len(found) == len(values)
    assert found.to_list() == values
    assert [found[index] for index in range(len(values))] == values
    array = found.to_arrow()
    array.validate(full=True)
    assert array.equals(pa.array(values, pa.binary()))


@given(stored(raws), st.data())
def test_some_texts_are_taken_by_index_by_mask_and_by_range(case: tuple[BinaryViews, list[bytes]], data: st.DataObject) -> None:
    found, values = case
    rows = data.draw(st.lists(st.sampled_from(range(len(values))))) if values else []
    assert found.take(np.array(rows, np.int64)).to_list() == [values[row] for row in rows]
    mask = data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    assert found.take(np.array(mask, np.bool_)).to_list() == [value for value, wanted in zip(values, mask, strict=True) if wanted]
    start, end = sorted(data.draw(st.tuples(st.integers(0, len(values)), st.integers(0, len(values)))))
    assert found.slice(start, end).to_list() == values[start:end]
    assert found.slice(start, end).take(np.arange(end - start)[::-1]).to_list() == values[start:end][::-1]


@given(st.lists(stored(raws, max_size=4), min_size=1, max_size=5))
def test_parts_put_together_are_all_their_texts_in_order(cases: list[tuple[BinaryViews, list[bytes]]]) -> None:
    found = concat([part for part, _ in cases])
    assert found.to_list() == [value for _, values in cases for value in values]


@given(st.lists(st.none() | raws), st.lists(st.none() | raws, max_size=20), st.data())
def test_nulls_stay_nulls(one: list[bytes | None], other: list[bytes | None], data: st.DataObject) -> None:
    values = [*one, *other]
    found = concat([BinaryViews.of(one), BinaryViews.from_arrow(pa.array([*one, *other], pa.binary()).slice(len(one)))])
    assert found.to_list() == values
    array = found.to_arrow()
    array.validate(full=True)
    assert array.null_count == values.count(None)
    assert array.equals(pa.array(values, pa.binary()))
    start, end = sorted(data.draw(st.tuples(st.integers(0, len(values)), st.integers(0, len(values)))))
    assert found.slice(start, end).to_list() == values[start:end]
    assert found.take(np.arange(len(values))[::-1]).to_list() == values[::-1]
    assert BinaryViews.from_arrow(array.slice(start, end - start)).to_list() == values[start:end]
    assert (found.sizes == NULL).tolist() == [value is None for value in values]


def test_an_array_read_from_a_stream_is_taken_as_it_is() -> None:
    batches = [pa.record_batch({"a": pa.array(values, pa.binary())}) for values in ([b"one", b"", b"three"], [], [b""])]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    with pa.ipc.open_stream(sink.getvalue()) as read:
        assert [BinaryViews.from_arrow(batch.column(0)).to_list() for batch in read] == [[b"one", b"", b"three"], [], [b""]]


def test_an_empty_array_needs_no_offsets() -> None:
    """Arrow allows it."""
    array = pa.Array.from_buffers(pa.binary(), 0, [None, pa.py_buffer(b""), pa.py_buffer(b"")])
    assert BinaryViews.from_arrow(array).to_list() == []


def test_more_bytes_than_a_column_holds_are_refused() -> None:
    found = BinaryViews.of([b"x" * 2**20]).take(np.zeros(2**11, np.int64))
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
def test_plain_digits_are_the_number_that_python_reads(case: tuple[BinaryViews, list[bytes]]) -> None:
    found, values = case
    results = found.parse_ints()
    assert results.dtype == np.int64
    assert results.tolist() == [
        parse_int(value) if value.isdigit() and len(value) <= PLAIN_DIGITS else NO_NUMBER for value in values
    ]


decimals = st.one_of(
    numerals,
    st.floats(allow_nan=False).map(lambda number: repr(number).encode()),
    st.decimals(-(10**16), 10**16, places=3).map(lambda number: str(number).encode()),
    st.text("0123456789.-", max_size=18).map(str.encode),
    st.sampled_from([b"inf", b"-inf", b"-0", b"0", b".5", b"5.", b"-", b"--1", b"1e5", b"9007199254740993", b"0.1", b"-0.0"]),
)


def read(text: bytes) -> float | None:
    """What Python makes of a text."""
    try:
        return float(text)
    except ValueError:
        return None


@given(stored(decimals))
def test_decimals_are_what_python_reads_or_nothing(case: tuple[BinaryViews, list[bytes]]) -> None:
    found, values = case
    results = found.parse_floats()
    assert results.dtype == np.float64
    for value, result in zip(values, results.tolist(), strict=True):
        assert math.isnan(result) or repr(result) == repr(read(value)), value


@given(stored(decimals.filter(lambda text: read(text) is not None and not math.isnan(float(text)))))
def test_floats_are_those_of_python(case: tuple[BinaryViews, list[bytes]]) -> None:
    found, values = case
    assert list(map(repr, found.cast_floats().tolist())) == [repr(float(value)) for value in values]


def test_a_text_that_is_no_number_is_no_float() -> None:
    assert BinaryViews.of([b"17", b"-0.25"]).parse_floats().tolist() == [17.0, -0.25]
    with pytest.raises(ValueError, match="could not convert"):
        BinaryViews.of([b"1", b"x"]).cast_floats()


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
    results = found.int_between(before, after)
    assert results.dtype == np.int64
    assert results.tolist() == [int(match[1]) if match else NO_NUMBER for match in matches]
    if not after:
        assert found.int_between(before).tolist() == results.tolist()


# Groups


@given(stored(raws, max_size=60))
def test_equal_texts_share_a_code_in_order_of_appearance(case: tuple[BinaryViews, list[bytes]]) -> None:
    found, values = case
    codes, each = found.dictionary_encode()
    expected, firsts = numbered(values)
    assert codes.dtype == np.int64
    assert codes.tolist() == expected
    assert each == [values[first] for first in firsts]


@given(st.integers(0, 2**32), st.integers(1001, 5000), st.sampled_from(WAYS))
@settings(max_examples=examples(15))
def test_codes_are_right_for_thousands_of_texts(seed: int, count: int, way: Way) -> None:
    random = Random(seed)
    distinct = {b"%d" % number for number in range(count)} | {random.randbytes(random.randrange(12)) for _ in range(count)}
    values = [*distinct, *random.choices([*distinct], k=count)]
    random.shuffle(values)
    found = way(values, [b"before"], [b"after"])
    codes, each = found.dictionary_encode()
    expected, firsts = numbered(values)
    assert codes.tolist() == expected
    assert each == [values[first] for first in firsts]


@pytest.mark.parametrize("count", [31, 32, 33, 64, 127, 128, 129, 511, 512, 513, 2047, 2048, 2049])
def test_codes_are_right_where_their_table_grows(count: int) -> None:
    values = [b"key:%d" % number for number in range(count)]
    codes, each = BinaryViews.of(values + values[::-1] + [b"last"]).dictionary_encode()
    assert codes.tolist() == [*range(count), *reversed(range(count)), count]
    assert each == [*values, b"last"]


@given(stored(raws), raws)
def test_texts_are_compared_to_one_value(case: tuple[BinaryViews, list[bytes]], other: bytes) -> None:
    found, values = case
    for value in [*values, other, b"", other + b"\0"]:
        results = found.equals(value)
        assert results.dtype == np.bool_
        assert results.tolist() == [each == value for each in values]


@given(st.lists(st.none() | raws, min_size=1))
def test_what_is_null_is_no_value(values: list[bytes | None]) -> None:
    texts = BinaryViews.of(values)
    assert texts.map_ints(parse_int, -5).tolist() == [
        -5 if value is None or parse_int(value) is None else parse_int(value) for value in values
    ]
    assert texts.equals(b"").tolist() == [value == b"" for value in values]
    assert texts.are_json().tolist() == [value is not None and is_json(value) for value in values]
    codes, dictionary = texts.dictionary_encode()
    assert [dictionary[code] for code in codes.tolist()] == [value or b"" for value in values]
