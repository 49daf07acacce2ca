"""What compiled loops write of numbers and texts is what plain Python writes of each."""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error
from itertools import accumulate, chain, pairwise
from random import Random
from struct import pack

import numpy as np
from ferryman.schema.columnar.binary_views import BinaryViews
from ferryman.schema.columnar.build import (
    LengthPrefixed,
    base64_decode,
    base64_encode,
    concat_rows,
    format_ints,
    little_endian,
    map_distinct,
    masked,
    merge_runs,
    resp_bulk,
    resp_commands,
    scatter,
)
from hiredis import pack_command
from hypothesis import given
from hypothesis import strategies as st

from ...support.binary_views import WAYS, Way, stored

raws = st.binary(max_size=6) | st.sampled_from([b"", b"\0", b"x" * 9, b"x" * 10, b"y" * 99, b"y" * 100, b"z" * 1234])
wholes = st.integers(-(2**63) + 1, 2**63 - 1) | st.sampled_from([0, -1, 9, 10, -10, 2**63 - 1, -(2**63) + 1, 10**18, 10**18 - 1])


@given(st.data(), st.integers(0, 5), st.lists(st.sampled_from(["same", "texts", "sized"]), max_size=6))
def test_parts_of_a_row_follow_one_another(data: st.DataObject, rows: int, kinds: list[str]) -> None:
    parts, expected = [], [b""] * rows
    for kind in kinds:
        values = data.draw(st.lists(raws, min_size=rows, max_size=rows))
        texts = data.draw(st.sampled_from(WAYS))(values, data.draw(st.lists(raws, max_size=2)), [])
        match kind:
            case "same":
                part = data.draw(raws)
                parts.append(part)
                expected = [text + part for text in expected]
            case "texts":
                parts.append(texts)
                expected = [text + value for text, value in zip(expected, values, strict=True)]
            case "sized":
                before, between, after = (data.draw(raws) for _ in range(3))
                parts.append(LengthPrefixed(texts, before, between, after))
                expected = [
                    b"%b%b%d%b%b%b" % (text, before, len(value), between, value, after)
                    for text, value in zip(expected, values, strict=True)
                ]
    found = concat_rows(rows, parts)
    assert found.to_list() == expected
    assert found.data.tobytes() == b"".join(expected)


@given(st.lists(wholes), st.lists(st.floats()))
def test_numbers_are_their_eight_bytes(numbers: list[int], fractions: list[float]) -> None:
    assert little_endian(np.array(numbers, np.int64)).to_list() == [pack("<q", number) for number in numbers]
    assert little_endian(np.array(fractions)).to_list() == [pack("<d", number) for number in fractions]


@given(st.lists(raws, min_size=1, max_size=4), raws)
def test_words_make_commands(values: list[bytes], word: bytes) -> None:
    rows = len(values)
    found = concat_rows(rows, [b"*3\r\n", resp_bulk(b"SET"), resp_bulk(word), resp_bulk(BinaryViews.of(values))])
    assert found.to_list() == [pack_command((b"SET", word, value)) for value in values]


@given(stored(raws), st.data())
def test_some_rows_have_a_part_and_others_nothing(case: tuple[BinaryViews, list[bytes]], data: st.DataObject) -> None:
    texts, values = case
    mask = data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    chosen = np.array(mask, np.bool_)
    assert masked(chosen, texts).to_list() == [value if wanted else b"" for value, wanted in zip(values, mask, strict=True)]
    assert masked(chosen, b"same").to_list() == [b"same" if wanted else b"" for wanted in mask]


@given(st.lists(st.lists(raws, max_size=3), max_size=5))
def test_texts_that_follow_one_another_become_one(groups: list[list[bytes]]) -> None:
    lines = BinaryViews.of([line for group in groups for line in group])
    found = merge_runs(concat_rows(len(lines), [lines, b","]), np.array(list(map(len, groups)), np.int64))
    assert found.to_list() == [b"".join(line + b"," for line in group) for group in groups]


@given(st.lists(wholes))
def test_numbers_are_written_in_decimal_digits(numbers: list[int]) -> None:
    assert format_ints(np.array(numbers, np.int64)).to_list() == [b"%d" % number for number in numbers]


@given(st.lists(st.sampled_from([0.0, -0.0, 0.5, 1.0, 0.1, 1e-7]), min_size=1))
def test_equal_values_are_written_once(values: list[float]) -> None:
    asked = []

    def write(value: float) -> bytes:
        asked.append(value)
        return repr(value).encode()

    assert map_distinct(np.array(values), write).to_list() == [repr(value).encode() for value in values]
    assert len(asked) == len(set(map(repr, values)))


@given(stored(st.binary(max_size=9)))
def test_base64_and_back(case: tuple[BinaryViews, list[bytes]]) -> None:
    texts, values = case
    found = base64_encode(texts)
    assert found.to_list() == list(map(b64encode, values))
    back, are_valid = base64_decode(found)
    assert back.to_list() == values
    assert are_valid.all()


@given(st.lists(st.text("Aa+/=Q0_-\n", max_size=9).map(str.encode) | st.binary(max_size=5), max_size=6), st.sampled_from(WAYS))
def test_what_is_no_base64_is_told(values: list[bytes], way: Way) -> None:
    texts, are_valid = base64_decode(way(values, [b"QUFB"], []))
    expected = []
    for value in values:
        try:
            found = b64decode(value, validate=True)
            expected.append(found if b64encode(found) == value else None)
        except (Error, ValueError):
            expected.append(None)
    assert [text if is_valid else None for text, is_valid in zip(texts.to_list(), are_valid.tolist(), strict=True)] == expected


@given(st.lists(st.lists(raws, max_size=4), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_texts_of_several_parts_are_put_in_rows(parts: list[list[bytes]], random: Random) -> None:
    rows = list(range(sum(map(len, parts))))
    random.shuffle(rows)
    ends = [0, *accumulate(map(len, parts))]
    found = scatter([BinaryViews.of(part) for part in parts], [np.array(rows[a:b], np.int64) for a, b in pairwise(ends)])
    expected = dict(zip(rows, chain.from_iterable(parts), strict=True))
    assert found.to_list() == [expected[row] for row in range(len(rows))]
    assert found.data.tobytes() == b"".join(found.to_list())


def expected_commands(keys: list[bytes], name: bytes, *others: bytes) -> bytes:
    """What hiredis makes of them."""
    return b"".join(pack_command((name, key, *others)) for key in keys)


@given(stored(raws), st.lists(raws | st.sampled_from([b"HGETALL", b"LRANGE", b"0", b"-1"]), min_size=1, max_size=12))
def test_commands_go_over_the_wire_as_hiredis_packs_them(case: tuple[BinaryViews, list[bytes]], command: list[bytes]) -> None:
    keys, values = case
    found = resp_commands(keys, *command)
    assert found.dtype == np.uint8
    assert found.tobytes() == expected_commands(values, *command)


def test_commands_tell_the_size_of_keys_of_any_length() -> None:
    sizes = [0, *(10**digit + more for digit in range(1, 7) for more in (-1, 0, 1)), 0]
    keys = [b"k" * size for size in sizes]
    assert resp_commands(BinaryViews.of(keys), b"HGET", b"f").tobytes() == expected_commands(keys, b"HGET", b"f")
    assert resp_commands(BinaryViews.of(keys), b"GET").tobytes() == expected_commands(keys, b"GET")
