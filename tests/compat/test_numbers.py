"""Numbers found in Redis: strict, bounded, and written as JavaScript writes them."""

from __future__ import annotations

import math

import pytest
from ferryman.compat.numbers import MAX_INT64, number_text, parse_int, parse_number, score_to_int
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"0", 0),
        (b"-15", -15),
        (b"007", 7),
        (b"9223372036854775807", MAX_INT64),
        (b"9223372036854775808", None),
        (b"+5", None),
        (b" 5", None),
        (b"5.0", None),
        (b"", None),
        (b"-", None),
        (b"1_000", None),
        ("٣".encode(), None),
        (b"9" * 100_000, None),
        (None, None),
    ],
)
def test_a_whole_number_is_decimal_digits_that_64_bits_hold(text: bytes | None, value: int | None) -> None:
    assert parse_int(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"2.5", 2.5),
        (b".5", 0.5),
        (b"5.", 5.0),
        (b"+1e3", 1000.0),
        (b"1e400", None),
        (b"nan", None),
        (b"inf", None),
        (b"0x1A", None),
    ],
)
def test_a_number_may_have_a_fraction_and_is_finite(text: bytes, value: float | None) -> None:
    assert parse_number(text) == value


@given(st.one_of(st.integers(-MAX_INT64, MAX_INT64), st.floats(allow_nan=False, allow_infinity=False)))
def test_a_number_reads_back_as_it_was_written(value: float) -> None:
    assert parse_number(number_text(value)) == value


def test_a_whole_float_is_written_without_a_point() -> None:
    assert (number_text(2.0), number_text(-0.0), number_text(1e21), number_text(2.5)) == (b"2", b"0", b"1e+21", b"2.5")


@given(st.binary(max_size=20))
def test_no_bytes_make_reading_fail(raw: bytes) -> None:
    for read in (parse_int, parse_number):
        value = read(raw)
        assert value is None or math.isfinite(value)


def test_a_score_without_end_is_no_time() -> None:
    assert [score_to_int(score) for score in (1.9, -1.9, math.inf, -math.inf, 1e300, None)] == [1, -1, None, None, None, None]
