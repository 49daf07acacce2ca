"""Texts made of parts, which are numbers and other texts, thousands at once: what binary_views.py reads.

    joined(rows, [b"ZADD ", keys, b" ", decimal(scores)])    a text for each row

Called by whoever makes commands, digests or JSON of columns. tests/schema/columnar/test_build.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from attrs import frozen

from .binary_views import Texts
from .jit import compiled, copy

MOST_DECIMAL = 20
"""Characters of a number of 64 bits."""
ALPHABET = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
PADDING = ord("=")
DIGITS = np.full(256, 255, np.uint8)
"""What a character stands for in base64; 255 for one that does not."""
DIGITS[ALPHABET] = np.arange(64)


@frozen(eq=False)
class Sized:
    """Texts with their sizes in decimal digits before them: ``before``, the size, ``between``, the text, ``after``."""

    texts: Texts
    before: bytes = b""
    between: bytes = b":"
    after: bytes = b""


TextPart = bytes | Texts | Sized
"""What stands in each row: the same bytes in all, or a text of its own."""


def bulk(part: bytes | Texts) -> TextPart:
    """A word of a command as it goes over the wire."""
    return b"$%d\r\n%b\r\n" % (len(part), part) if isinstance(part, bytes) else Sized(part, b"$", b"\r\n", b"\r\n")


def joined(rows: int, parts: Iterable[TextPart]) -> Texts:
    """The parts of each row one after the other. The texts lie one after the other too, and fill their buffer."""
    those = list(_merged(parts))
    sizes = np.zeros(rows, np.int64)
    for part in those:
        match part:
            case bytes():
                sizes += len(part)
            case Texts():
                sizes += part.sizes
            case Sized():
                fixed = len(part.before) + len(part.between) + len(part.after)
                _add_sizes(sizes, part.texts.sizes, fixed)
    at = np.cumsum(sizes) - sizes
    starts, data = at.copy(), np.empty(int(sizes.sum()), np.uint8)
    for part in those:
        match part:
            case bytes():
                _put_same(data, at, _array(part))
            case Texts():
                _put(data, at, part.data, part.starts, part.sizes)
            case Sized():
                texts, around = part.texts, (_array(part.before), _array(part.between), _array(part.after))
                _put_sized(data, at, texts.data, texts.starts, texts.sizes, *around)
    return Texts(data, starts, sizes)


def arranged(parts: Sequence[Texts], rows: Sequence[Any]) -> Texts:
    """The texts of all parts in one, as from ``joined``: each in the row, of as many as there are texts, that is given for it."""
    sizes = np.empty(sum(map(len, parts)), np.int64)
    for part, those in zip(parts, rows, strict=True):
        sizes[those] = part.sizes
    starts, data = np.cumsum(sizes) - sizes, np.empty(int(sizes.sum()), np.uint8)
    for part, those in zip(parts, rows, strict=True):
        _put(data, starts[those], part.data, part.starts, part.sizes)
    return Texts(data, starts, sizes)


def where(mask: Any, part: bytes | Texts) -> Texts:
    """The part in some rows (bool), and nothing in the others."""
    if isinstance(part, bytes):
        return Texts(_array(part), np.zeros(len(mask), np.int64), np.where(mask, len(part), 0))
    return Texts(part.data, part.starts, np.where(mask, part.sizes, 0))


def grouped(texts: Texts, counts: Any) -> Texts:
    """One text for each so many that follow one another, of those that lie one after the other as ``joined`` leaves them."""
    ends = np.append(texts.starts, len(texts.data))
    lasts = np.cumsum(counts)
    starts = ends[lasts - counts]
    return Texts(texts.data, starts, ends[lasts] - starts)


def decimal(numbers: Any) -> Texts:
    """Whole numbers (int64, but for the lowest one) in decimal digits."""
    data, sizes = np.empty(len(numbers) * MOST_DECIMAL, np.uint8), np.empty(len(numbers), np.int64)
    starts = np.arange(len(numbers), dtype=np.int64) * MOST_DECIMAL
    _write_decimals(numbers, data, starts, sizes)
    return Texts(data, starts, sizes)


def binary(numbers: Any) -> Texts:
    """Numbers (int64 or float64) as their eight bytes, the lowest first."""
    data = np.ascontiguousarray(numbers, numbers.dtype.newbyteorder("<")).view(np.uint8)
    return Texts(data, np.arange(0, len(data), 8), np.full(len(numbers), 8))


def each(values: Any, write: Callable[[Any], bytes]) -> Texts:
    """What ``write`` makes of each of the values in an array (of 64 bits each); it is asked once for those that are the same."""
    bits, which = np.unique(values.view(np.int64), return_inverse=True)  # of which zeros with another sign are others
    return Texts.of(list(map(write, bits.view(values.dtype).tolist()))).take(which)


def base64(texts: Texts) -> Texts:
    """Their bytes in base64."""
    sizes = (texts.sizes + 2) // 3 * 4
    starts, data = np.cumsum(sizes) - sizes, np.empty(int(sizes.sum()), np.uint8)
    _encode(texts.data, texts.starts, texts.sizes, data, starts, ALPHABET)
    return Texts(data, starts, sizes)


def from_base64(texts: Texts) -> tuple[Texts, Any]:
    """The bytes behind texts in base64, and for which (bool) there are some: ``base64`` would give the same text again."""
    sizes = texts.sizes // 4 * 3
    starts, data = np.cumsum(sizes) - sizes, np.empty(int(sizes.sum()), np.uint8)
    are_sound = np.empty(len(texts), np.bool_)
    _decode(texts.data, texts.starts, texts.sizes, data, starts, sizes, are_sound, DIGITS)
    return Texts(data, starts, sizes), are_sound


def _merged(parts: Iterable[TextPart]) -> Iterable[TextPart]:
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


@compiled
def _digits(number: int) -> int:
    """How many digits a number has that is not negative."""
    digits = 1
    while number >= 10:
        number //= 10
        digits += 1
    return digits


@compiled
def _add_sizes(sizes: Any, of_texts: Any, fixed: int) -> None:
    for row in range(len(sizes)):
        sizes[row] += of_texts[row] + _digits(of_texts[row]) + fixed


@compiled
def _put_same(data: Any, at: Any, text: Any) -> None:
    for row in range(len(at)):
        copy(data, at[row], text, 0, len(text))
        at[row] += len(text)


@compiled
def _put(data: Any, at: Any, source: Any, starts: Any, sizes: Any) -> None:
    for row in range(len(at)):
        copy(data, at[row], source, starts[row], sizes[row])
        at[row] += sizes[row]


@compiled
def _put_sized(data: Any, at: Any, source: Any, starts: Any, sizes: Any, before: Any, between: Any, after: Any) -> None:
    for row in range(len(at)):
        place, size = at[row], sizes[row]
        copy(data, place, before, 0, len(before))
        place += len(before)
        place += _write_decimal(size, data, place)
        copy(data, place, between, 0, len(between))
        place += len(between)
        copy(data, place, source, starts[row], size)
        place += size
        copy(data, place, after, 0, len(after))
        at[row] = place + len(after)


@compiled
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


@compiled
def _write_decimals(numbers: Any, data: Any, starts: Any, sizes: Any) -> None:
    for row in range(len(numbers)):
        sizes[row] = _write_decimal(numbers[row], data, starts[row])


@compiled
def _encode(source: Any, starts: Any, sizes: Any, data: Any, places: Any, alphabet: Any) -> None:
    for row in range(len(starts)):
        at, end, place = starts[row], starts[row] + sizes[row], places[row]
        while at < end:
            left = end - at
            bits = np.int64(source[at]) << 16
            if left > 1:
                bits |= np.int64(source[at + 1]) << 8
            if left > 2:
                bits |= np.int64(source[at + 2])
            data[place] = alphabet[bits >> 18]
            data[place + 1] = alphabet[(bits >> 12) & 63]
            data[place + 2] = alphabet[(bits >> 6) & 63] if left > 1 else PADDING
            data[place + 3] = alphabet[bits & 63] if left > 2 else PADDING
            at += 3
            place += 4


@compiled
def _decode(source: Any, starts: Any, sizes: Any, data: Any, places: Any, found: Any, are_sound: Any, digits: Any) -> None:
    for row in range(len(starts)):
        at, end, place = starts[row], starts[row] + sizes[row], places[row]
        padding = 0
        while padding < 2 and end > at and source[end - 1] == PADDING:
            padding += 1
            end -= 1
        size = sizes[row] // 4 * 3 - padding
        is_sound = sizes[row] % 4 == 0
        bits, held = np.int64(0), 0
        for index in range(at, end):
            digit = digits[source[index]]
            if digit > 63 or not is_sound:
                is_sound = False
                break
            bits = (bits << 6) | np.int64(digit)
            held += 6
            if held >= 8:
                held -= 8
                data[place] = (bits >> held) & 255
                place += 1
                bits &= (1 << held) - 1
        # What is left over of the last character must be zeros, or another text stands for the same bytes.
        are_sound[row] = is_sound and bits == 0
        found[row] = size if are_sound[row] else 0
