"""Build: makes BinaryViews of numbers and other BinaryViews, thousands at once.

    concat_rows(rows, [b"ZADD ", keys, b" ", format_ints(scores)])    a value for each row

Called by whoever makes commands, digests or JSON of columns. tests/schema/columnar/test_build.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from attrs import frozen

from .automaton import BASE64
from .binary_views import BinaryViews
from .jit import BYTE_ARRAY, INT, INT_ARRAY, OUT_BOOLS, OUT_BYTES, OUT_INTS, copy, helper, kernel

MOST_DECIMAL = 20
"""Characters of a number of 64 bits."""
ALPHABET = np.frombuffer(BASE64, np.uint8)
PADDING = ord("=")
VALUES = np.full(256, 255, np.uint8)
"""What a character stands for in base64; 255 for one that does not."""
VALUES[ALPHABET] = np.arange(64)


@frozen(eq=False)
class LengthPrefixed:
    """Values with their sizes in decimal digits before them: ``before``, the size, ``between``, the value, ``after``."""

    values: BinaryViews
    before: bytes = b""
    between: bytes = b":"
    after: bytes = b""


Datum = bytes | BinaryViews | LengthPrefixed
"""What stands in each row: the same bytes in all, or a value of its own."""


def resp_bulk(part: bytes | BinaryViews) -> Datum:
    """A word of a command as it goes over the wire."""
    return b"$%d\r\n%b\r\n" % (len(part), part) if isinstance(part, bytes) else LengthPrefixed(part, b"$", b"\r\n", b"\r\n")


def resp_commands(keys: BinaryViews, *command: bytes) -> Any:
    """One command for each key, which comes after the first word, as they go over the wire (uint8)."""
    name, *others = command
    before = b"*%d\r\n$%d\r\n%b\r\n$" % (1 + len(command), len(name), name)
    after = b"".join([b"\r\n", *(b"$%d\r\n%b\r\n" % (len(word), word) for word in others)])
    return concat_rows(len(keys), [LengthPrefixed(keys, before, b"\r\n", after)]).data


def concat_rows(rows: int, parts: Iterable[Datum]) -> BinaryViews:
    """The parts of each row one after the other. The rows lie one after the other too, and fill their buffer."""
    those = list(_merged(parts))
    sizes = np.zeros(rows, np.int64)
    for part in those:
        match part:
            case bytes():
                sizes += len(part)
            case BinaryViews():
                sizes += part.sizes
            case LengthPrefixed():
                fixed = len(part.before) + len(part.between) + len(part.after)
                _add_sizes(sizes, part.values.sizes, fixed)
    at = np.cumsum(sizes) - sizes
    starts, data = at.copy(), np.empty(int(sizes.sum()), np.uint8)
    for part in those:
        match part:
            case bytes():
                _put_same(data, at, _array(part))
            case BinaryViews():
                _put(data, at, part.data, part.starts, part.sizes)
            case LengthPrefixed():
                values, around = part.values, (_array(part.before), _array(part.between), _array(part.after))
                _put_prefixed(data, at, values.data, values.starts, values.sizes, *around)
    return BinaryViews(data, starts, sizes)


def scatter(parts: Sequence[BinaryViews], rows: Sequence[Any]) -> BinaryViews:
    """The values of all parts in one, as from ``concat_rows``: each in the row, of as many as there are values, that is given."""
    sizes = np.empty(sum(map(len, parts)), np.int64)
    for part, those in zip(parts, rows, strict=True):
        sizes[those] = part.sizes
    starts, data = np.cumsum(sizes) - sizes, np.empty(int(sizes.sum()), np.uint8)
    for part, those in zip(parts, rows, strict=True):
        _put(data, starts[those], part.data, part.starts, part.sizes)
    return BinaryViews(data, starts, sizes)


def masked(mask: Any, part: bytes | BinaryViews) -> BinaryViews:
    """The part in some rows (bool), and nothing in the others."""
    if isinstance(part, bytes):
        return BinaryViews(_array(part), np.zeros(len(mask), np.int64), np.where(mask, len(part), 0))
    return BinaryViews(part.data, part.starts, np.where(mask, part.sizes, 0))


def merge_runs(values: BinaryViews, counts: Any) -> BinaryViews:
    """One value for each so many that follow one another, if they lie one after the other as ``concat_rows`` leaves them."""
    ends = np.append(values.starts, len(values.data))
    lasts = np.cumsum(counts)
    starts = ends[lasts - counts]
    return BinaryViews(values.data, starts, ends[lasts] - starts)


def format_ints(numbers: Any) -> BinaryViews:
    """Whole numbers (int64, but for the lowest one) in decimal digits."""
    data, sizes = np.empty(len(numbers) * MOST_DECIMAL, np.uint8), np.empty(len(numbers), np.int64)
    starts = np.arange(len(numbers), dtype=np.int64) * MOST_DECIMAL
    _write_decimals(numbers, data, starts, sizes)
    return BinaryViews(data, starts, sizes)


def little_endian(numbers: Any) -> BinaryViews:
    """Numbers (int64 or float64) as their eight bytes, the lowest first."""
    data = np.ascontiguousarray(numbers, numbers.dtype.newbyteorder("<")).view(np.uint8)
    return BinaryViews(data, np.arange(0, len(data), 8), np.full(len(numbers), 8))


def map_distinct(values: Any, write: Callable[[Any], bytes]) -> BinaryViews:
    """What ``write`` makes of each of the values in an array (of 64 bits each); it is asked once for those that are the same."""
    bits, which = np.unique(values.view(np.int64), return_inverse=True)  # of which zeros with another sign are others
    return BinaryViews.of(list(map(write, bits.view(values.dtype).tolist()))).take(which)


def base64_encode(values: BinaryViews) -> BinaryViews:
    """Their bytes in base64."""
    sizes = (values.sizes + 2) // 3 * 4
    starts, data = np.cumsum(sizes) - sizes, np.empty(int(sizes.sum()), np.uint8)
    _encode(values.data, values.starts, values.sizes, data, starts)
    return BinaryViews(data, starts, sizes)


def base64_decode(values: BinaryViews) -> tuple[BinaryViews, Any]:
    """The bytes behind values in base64, and for which (bool) there are some: ``base64_encode`` would give the same again."""
    sizes = values.sizes // 4 * 3
    starts, data = np.cumsum(sizes) - sizes, np.empty(int(sizes.sum()), np.uint8)
    are_valid = np.empty(len(values), np.bool_)
    _decode(values.data, values.starts, values.sizes, data, starts, sizes, are_valid)
    return BinaryViews(data, starts, sizes), are_valid


def _merged(parts: Iterable[Datum]) -> Iterable[Datum]:
    """The parts, of which no two that follow one another are the same bytes in all rows."""
    before = b""
    for part in parts:
        if isinstance(part, bytes):
            before += part
            continue
        if before:
            yield before
            before = b""
        yield part
    if before:
        yield before


def _array(text: bytes) -> Any:
    return np.frombuffer(text, np.uint8)


# The loops


@helper
def _digits(number: int) -> int:
    """How many digits a number has that is not negative."""
    digits = 1
    while number >= 10:
        number //= 10
        digits += 1
    return digits


@kernel(OUT_INTS, INT_ARRAY, INT)
def _add_sizes(sizes: Any, of_values: Any, fixed: int) -> None:
    for row in range(len(sizes)):
        sizes[row] += of_values[row] + _digits(of_values[row]) + fixed


@kernel(OUT_BYTES, OUT_INTS, BYTE_ARRAY)
def _put_same(data: Any, at: Any, text: Any) -> None:
    for row in range(len(at)):
        copy(data, at[row], text, 0, len(text))
        at[row] += len(text)


@kernel(OUT_BYTES, OUT_INTS, BYTE_ARRAY, INT_ARRAY, INT_ARRAY)
def _put(data: Any, at: Any, source: Any, starts: Any, sizes: Any) -> None:
    for row in range(len(at)):
        copy(data, at[row], source, starts[row], sizes[row])
        at[row] += sizes[row]


@kernel(OUT_BYTES, OUT_INTS, BYTE_ARRAY, INT_ARRAY, INT_ARRAY, BYTE_ARRAY, BYTE_ARRAY, BYTE_ARRAY)
def _put_prefixed(data: Any, at: Any, source: Any, starts: Any, sizes: Any, before: Any, between: Any, after: Any) -> None:
    for row in range(len(at)):
        out, size = at[row], sizes[row]
        copy(data, out, before, 0, len(before))
        out += len(before)
        out += _write_decimal(size, data, out)
        copy(data, out, between, 0, len(between))
        out += len(between)
        copy(data, out, source, starts[row], size)
        out += size
        copy(data, out, after, 0, len(after))
        at[row] = out + len(after)


@helper
def _write_decimal(number: int, data: Any, start: int) -> int:
    """Writes a number; returns how many characters it takes."""
    signs = 0
    if number < 0:
        data[start] = 45
        signs, number = 1, -number
    digits = _digits(number)
    for index in range(start + signs + digits - 1, start + signs - 1, -1):
        data[index] = 48 + number % 10
        number //= 10
    return signs + digits


@kernel(INT_ARRAY, OUT_BYTES, INT_ARRAY, OUT_INTS)
def _write_decimals(numbers: Any, data: Any, starts: Any, sizes: Any) -> None:
    for row in range(len(numbers)):
        sizes[row] = _write_decimal(numbers[row], data, starts[row])


@kernel(BYTE_ARRAY, INT_ARRAY, INT_ARRAY, OUT_BYTES, INT_ARRAY)
def _encode(source: Any, starts: Any, sizes: Any, data: Any, offsets: Any) -> None:
    for row in range(len(starts)):
        at, end, out = starts[row], starts[row] + sizes[row], offsets[row]
        while at < end:
            left = end - at
            bits = np.int64(source[at]) << 16
            if left > 1:
                bits |= np.int64(source[at + 1]) << 8
            if left > 2:
                bits |= np.int64(source[at + 2])
            data[out] = ALPHABET[bits >> 18]
            data[out + 1] = ALPHABET[(bits >> 12) & 63]
            data[out + 2] = ALPHABET[(bits >> 6) & 63] if left > 1 else PADDING
            data[out + 3] = ALPHABET[bits & 63] if left > 2 else PADDING
            at += 3
            out += 4


@kernel(BYTE_ARRAY, INT_ARRAY, INT_ARRAY, OUT_BYTES, INT_ARRAY, OUT_INTS, OUT_BOOLS)
def _decode(source: Any, starts: Any, sizes: Any, data: Any, offsets: Any, found: Any, are_valid: Any) -> None:
    for row in range(len(starts)):
        at, end, out = starts[row], starts[row] + sizes[row], offsets[row]
        padding = 0
        while padding < 2 and end > at and source[end - 1] == PADDING:
            padding += 1
            end -= 1
        size = sizes[row] // 4 * 3 - padding
        is_valid = sizes[row] % 4 == 0
        bits, held = np.int64(0), 0
        for index in range(at, end):
            digit = VALUES[source[index]]
            if digit > 63 or not is_valid:
                is_valid = False
                break
            bits = (bits << 6) | np.int64(digit)
            held += 6
            if held >= 8:
                held -= 8
                data[out] = (bits >> held) & 255
                out += 1
                bits &= (1 << held) - 1
        # What is left over of the last character must be zeros, or another value stands for the same bytes.
        are_valid[row] = is_valid and bits == 0
        found[row] = size if are_valid[row] else 0
