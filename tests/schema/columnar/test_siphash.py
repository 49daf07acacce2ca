"""SipHash: the numbers that its authors and OpenSSL give, and that each byte and the key count."""

from __future__ import annotations

import pytest
from ferryman.schema.columnar.binary_views import BinaryViews
from ferryman.schema.columnar.siphash import siphash, siphash_of
from hypothesis import given
from hypothesis import strategies as st

from ...support.binary_views import WAYS, Way

KEY = bytes(range(16))


@pytest.mark.parametrize(
    ("size", "digest"),
    [
        (0, "a3817f04ba25a8e66df67214c7550293"),
        (1, "da87c1d86b99af44347659119b22fc45"),
        (7, "a1f1ebbed8dbc153c0b84aa61ff08239"),
        (8, "3b62a9ba6258f5610f83e264f31497b4"),
        (15, "5493e99933b0a8117e08ec0f97cfc3d9"),
        (63, "5150d1772f50834a503e069a973fbd7c"),
        (200, "7c5853f4ed12ff9d836a79bc4047022d"),
    ],
)
def test_numbers_of_others(size: int, digest: str) -> None:
    text = bytes(range(size))
    (found,) = siphash(BinaryViews.of([text]), KEY).to_pylist()
    assert found == siphash_of(text, KEY) == bytes.fromhex(digest)


@given(st.lists(st.binary(max_size=40)), st.lists(st.binary(max_size=3)), st.lists(st.binary(max_size=3)), st.sampled_from(WAYS))
def test_each_text_has_its_own(values: list[bytes], before: list[bytes], after: list[bytes], way: Way) -> None:
    expected = [siphash_of(value, KEY) for value in values]
    assert siphash(way(values, before, after), KEY).to_pylist() == expected
    assert len(set(expected)) == len(set(values))


@given(st.binary(min_size=1, max_size=40), st.data())
def test_every_bit_of_text_and_key_counts(text: bytes, data: st.DataObject) -> None:
    bit = 1 << data.draw(st.integers(0, 8 * len(text) - 1))
    other = (int.from_bytes(text) ^ bit).to_bytes(len(text))
    another_key = (int.from_bytes(KEY) ^ 1 << data.draw(st.integers(0, 127))).to_bytes(16)
    one = BinaryViews.of([text])
    assert len({siphash(one, KEY)[0], siphash(BinaryViews.of([other]), KEY)[0], siphash(one, another_key)[0]}) == 3
