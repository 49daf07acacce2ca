"""ISO 8601 texts as Unix milliseconds and back."""

from __future__ import annotations

from typing import Any

import pytest
from ferryman.compat.timestamps import parse_timestamp, timestamp_text
from hypothesis import given
from hypothesis import strategies as st

FIRST, LAST = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999."""


@given(st.integers(FIRST, LAST))
def test_a_moment_of_a_year_with_four_digits_comes_back(unix_ms: int) -> None:
    assert parse_timestamp(timestamp_text(unix_ms)) == unix_ms


@pytest.mark.parametrize("unix_ms", [FIRST - 1, LAST + 1, 2**63, -(2**63)])
def test_a_moment_of_another_year_has_no_text(unix_ms: int) -> None:
    assert timestamp_text(unix_ms) is None


@pytest.mark.parametrize(
    ("text", "unix_ms"),
    [
        ("2026-11-21T12:22:47.936220Z", 1795263767936),
        ("2026-11-21T12:22:47.9365Z", 1795263767937),
        ("2026-11-21T12:22:47", 1795263767000),
        ("2026-11-21T14:22:47+02:00", 1795263767000),
        ("0001-01-01T00:00:00+23:00", FIRST - 23 * 3_600_000),
        ("now", None),
        ("", None),
        (5, None),
        (None, None),
        (b"2026-11-21", None),
    ],
)
def test_a_text_is_a_moment_or_nothing(text: Any, unix_ms: int | None) -> None:
    assert parse_timestamp(text) == unix_ms


@given(st.text())
def test_no_text_is_an_error(text: str) -> None:
    assert isinstance(parse_timestamp(text), int | None)
