"""BinaryViews: byte strings as slices of one buffer, and what is asked of millions of them at once.

As Arrow's array of binary views, but with all views in two arrays of numbers. A list of bytes costs an allocation for each value
before anything is known of it. Here a reply of a server, or a piece of a file, stays as it came: values are told by where they
begin and how long they are, and loops over them are machine code (jit.py). What a loop can't decide it leaves to the functions of
text.py and compat/numbers.py, one value at a time: both always give the same answer. tests/schema/columnar/test_binary_views.py.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import field, frozen

from ..text import is_json
from .jit import (
    BYTE_ARRAY,
    INT,
    INT_ARRAY,
    OUT_BOOLS,
    OUT_BYTES,
    OUT_FLOATS,
    OUT_INTS,
    OUT_OFFSETS,
    Kernel,
    copy,
    helper,
    kernel,
    same,
)
from .json_check import are_plain_json

NULL = -1
NO_NUMBER = -1
MOST_DIGITS = 18
"""So many are no more than 64 bits hold, whichever they are."""
_POWERS = np.array([float(f"1e{power}") for power in range(23)])
"""Powers of ten that a float holds exactly."""
MOST_BYTES = 2**31 - 1
"""Most bytes of an Arrow array of binary values."""


@frozen(eq=False)
class BinaryViews:
    """Byte strings in ``data`` (uint8), each from one of ``starts`` on and one of ``sizes`` long (both int64).

    A size of NULL stands for none: that is no number, no JSON, and equal to no value. ``to_arrow`` and ``to_list`` tell which
    these are; ``dictionary_encode`` and an index take them for empty ones.
    """

    data: Any
    starts: Any = field(converter=np.ascontiguousarray)
    sizes: Any = field(converter=np.ascontiguousarray)

    def __len__(self) -> int:
        return len(self.starts)

    @classmethod
    def of(cls, values: Iterable[bytes | None]) -> BinaryViews:
        """These values."""
        return cls.from_arrow(pa.array(values, pa.binary()))

    @classmethod
    def from_arrow(cls, array: pa.Array) -> BinaryViews:
        """The values of a binary array, which is not copied."""
        _, offsets, data = array.buffers()
        bounds = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
        sizes = np.diff(bounds)
        if array.null_count:
            sizes[array.is_null().to_numpy(zero_copy_only=False)] = NULL
        return cls(np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8), bounds[:-1], sizes)

    def take(self, rows: Any) -> BinaryViews:
        """Some of them: indexes, or a mask."""
        return BinaryViews(self.data, self.starts[rows], self.sizes[rows])

    def slice(self, start: int, end: int) -> BinaryViews:
        """Those from one index up to another."""
        return BinaryViews(self.data, self.starts[start:end], self.sizes[start:end])

    def to_arrow(self) -> pa.Array:
        """A binary array of them. Raises OverflowError where that can't hold so many bytes."""
        are_null = self.sizes == NULL
        has_nulls = bool(are_null.any())
        sizes = np.where(are_null, 0, self.sizes) if has_nulls else self.sizes
        total = int(sizes.sum())
        if total > MOST_BYTES:
            raise OverflowError(f"{total} bytes are too many for one column")
        dense, offsets = np.empty(total, np.uint8), np.empty(len(self) + 1, np.int32)
        _gather(self.data, self.starts, sizes, dense, offsets)
        valid = pa.py_buffer(np.packbits(~are_null, bitorder="little")) if has_nulls else None
        return pa.Array.from_buffers(pa.binary(), len(self), [valid, pa.py_buffer(offsets), pa.py_buffer(dense)])

    def to_list(self) -> list[bytes]:
        """They as Python's own; None for a null."""
        values: list[bytes] = self.to_arrow().to_pylist()
        return values

    def __getitem__(self, index: int) -> bytes:
        start = self.starts[index]
        return bytes(self.data[start : start + max(self.sizes[index], 0)])

    def fill(self, found: Any, kernel: Kernel, *others: Any) -> Any:
        """The array, in which a kernel has put something for each value."""
        kernel(self.data, self.starts, self.sizes, found, *others)
        return found

    def parse_ints(self) -> Any:
        """The number behind each value of up to MOST_DIGITS plain digits (int64), NO_NUMBER for all others."""
        return self.fill(np.empty(len(self), np.int64), _parse_ints)

    def map_ints(self, read: Callable[[bytes], int | None], nothing: int) -> Any:
        """What ``read`` makes of each value (int64), ``nothing`` for None. It is asked only of those that are no plain digits."""
        numbers = self.parse_ints()
        others = numbers == NO_NUMBER
        numbers[others] = nothing
        for index in np.flatnonzero(others & (self.sizes != NULL)).tolist():
            value = read(self[index])
            if value is not None:
                numbers[index] = value
        return numbers

    def parse_canonical_ints(self) -> tuple[Any, Any]:
        """The whole number of up to MOST_DIGITS digits behind each value (int64), and which (bool) are how it is written."""
        numbers, are_canonical = np.zeros(len(self), np.int64), np.zeros(len(self), np.bool_)
        _parse_canonical_ints(self.data, self.starts, self.sizes, numbers, are_canonical)
        return numbers, are_canonical

    def parse_floats(self) -> Any:
        """``float`` of each value of few digits, perhaps with a point among them (float64); NaN for all others."""
        return self.fill(np.full(len(self), np.nan), _parse_floats)

    def cast_floats(self) -> Any:
        """``float`` of each value (float64). Raises ValueError where one is no number."""
        numbers = self.parse_floats()
        for index in np.flatnonzero(np.isnan(numbers)).tolist():
            numbers[index] = float(self[index])
        return numbers

    def int_between(self, before: bytes, after: bytes = b"") -> Any:
        """The positive number that each value has between these two (int64), NO_NUMBER for a value that is made otherwise."""
        return self.fill(np.empty(len(self), np.int64), _int_between, _array(before), _array(after))

    def dictionary_encode(self) -> tuple[Any, list[bytes]]:
        """A code for each value (int64), and the value for each code, in the order in which they first stand here."""
        codes, firsts = np.empty((2, len(self)), np.int64)
        size, row, known = 64, 0, 0
        while row < len(self):
            slots = np.full(size, -1)
            row, known = _dictionary_encode(self.data, self.starts, self.sizes, codes, firsts, slots, row, known)
            size *= 4
        return codes, [self[index] for index in firsts[:known]]

    def equals(self, value: bytes) -> Any:
        """Whether each is this one."""
        return self.fill(np.empty(len(self), np.bool_), _equals, _array(value))

    def are_json(self) -> Any:
        """Whether ``is_json`` is true of each."""
        result = are_plain_json(self.data, self.starts, self.sizes)
        for index in np.flatnonzero(~result & (self.sizes != NULL)).tolist():
            result[index] = is_json(self[index])
        return result


def concat(parts: Sequence[BinaryViews], scratch: ScratchBuffer | None = None) -> BinaryViews:
    """All of these, at least one, as one. ``scratch``: where they stand then, until the next ones do."""
    if len(parts) == 1:
        return parts[0]
    shifts = np.cumsum([0, *(len(part.data) for part in parts)]).tolist()
    data = np.empty(shifts[-1], np.uint8) if scratch is None else scratch.take(shifts[-1])
    np.concatenate([part.data for part in parts], out=data)
    return BinaryViews(
        data,
        np.concatenate([part.starts + shift for part, shift in zip(parts, shifts, strict=False)]),
        np.concatenate([part.sizes for part in parts]),
    )


class ScratchBuffer:
    """Memory that is used again and again: to get new memory from the system takes longer than to fill it."""

    def __init__(self) -> None:
        self._data = np.empty(0, np.uint8)

    def take(self, size: int) -> Any:
        """So many bytes, which were given out before."""
        if size > len(self._data):
            self._data = np.empty(size + size // 4, np.uint8)
        return self._data[:size]


def _array(text: bytes) -> Any:
    return np.frombuffer(text, np.uint8)


# The loops


@kernel(BYTE_ARRAY, INT_ARRAY, INT_ARRAY, OUT_BYTES, OUT_OFFSETS)
def _gather(data: Any, starts: Any, sizes: Any, dense: Any, offsets: Any) -> None:
    at = 0
    offsets[0] = 0
    for row in range(len(starts)):
        copy(dense, at, data, starts[row], sizes[row])
        at += sizes[row]
        offsets[row + 1] = at


@helper
def _parse_int(data: Any, start: int, end: int) -> int:
    if not 0 < end - start <= MOST_DIGITS:
        return NO_NUMBER
    number = 0
    for index in range(start, end):
        digit = data[index]
        if digit < 48 or digit > 57:
            return NO_NUMBER
        number = number * 10 + (digit - 48)
    return number


@kernel(BYTE_ARRAY, INT_ARRAY, INT_ARRAY, OUT_INTS)
def _parse_ints(data: Any, starts: Any, sizes: Any, numbers: Any) -> None:
    for row in range(len(starts)):
        numbers[row] = _parse_int(data, starts[row], starts[row] + sizes[row])


@kernel(BYTE_ARRAY, INT_ARRAY, INT_ARRAY, OUT_INTS, OUT_BOOLS)
def _parse_canonical_ints(data: Any, starts: Any, sizes: Any, numbers: Any, are_canonical: Any) -> None:
    for row in range(len(starts)):
        at, end = starts[row], starts[row] + sizes[row]
        is_negative = at < end and data[at] == 45
        if is_negative:
            at += 1
        number = _parse_int(data, at, end)
        if number != NO_NUMBER and (data[at] != 48 or (end - at == 1 and not is_negative)):
            numbers[row] = -number if is_negative else number
            are_canonical[row] = True


@kernel(BYTE_ARRAY, INT_ARRAY, INT_ARRAY, OUT_FLOATS)
def _parse_floats(data: Any, starts: Any, sizes: Any, numbers: Any) -> None:
    """The float for each value of few digits, for which one division gives the nearest."""
    for row in range(len(starts)):
        at, end = starts[row], starts[row] + sizes[row]
        is_negative = at < end and data[at] == 45
        if is_negative:
            at += 1
        first, point, number = at, end, 0
        while at < end and at - first <= 15 and (48 <= data[at] <= 57 or (data[at] == 46 and point == end and at > first)):
            if data[at] == 46:
                point = at
            else:
                number = number * 10 + (data[at] - 48)
            at += 1
        if at == end and at > first and point != end - 1:
            value = number / _POWERS[end - point - 1 if point < end else 0]
            numbers[row] = -value if is_negative else value


@helper
def has(data: Any, start: int, text: Any) -> Any:
    """Whether a value stands at a position, with all of its bytes among those of ``data``."""
    return same(data, start, text, 0, len(text))


@kernel(BYTE_ARRAY, INT_ARRAY, INT_ARRAY, OUT_INTS, BYTE_ARRAY, BYTE_ARRAY)
def _int_between(data: Any, starts: Any, sizes: Any, numbers: Any, before: Any, after: Any) -> None:
    for row in range(len(starts)):
        first, end = starts[row] + len(before), starts[row] + sizes[row] - len(after)
        numbers[row] = NO_NUMBER
        if first < end and data[first] != 48 and has(data, starts[row], before) and has(data, end, after):
            numbers[row] = _parse_int(data, first, end)


@kernel(BYTE_ARRAY, INT_ARRAY, INT_ARRAY, OUT_BOOLS, BYTE_ARRAY)
def _equals(data: Any, starts: Any, sizes: Any, result: Any, value: Any) -> None:
    for row in range(len(starts)):
        result[row] = sizes[row] == len(value) and has(data, starts[row], value)


@helper
def fnv1a(data: Any, start: int, size: int) -> Any:
    """The FNV-1a hash (uint64) of the value at a position."""
    found = np.uint64(14695981039346656037)
    for index in range(start, start + size):
        found = (found ^ np.uint64(data[index])) * np.uint64(1099511628211)
    return found


@kernel(BYTE_ARRAY, INT_ARRAY, INT_ARRAY, OUT_INTS, OUT_INTS, OUT_INTS, INT, INT)
def _dictionary_encode(
    data: Any, starts: Any, sizes: Any, codes: Any, firsts: Any, slots: Any, row: int, known: int
) -> tuple[int, int]:
    """Goes on from a row, with so many codes known, until the table is half full; the row it stands at, and those known."""
    for code in range(known):
        slots[_slot(data, starts, sizes, firsts, slots, firsts[code])] = code
    while row < len(starts) and 2 * known <= len(slots):
        at = _slot(data, starts, sizes, firsts, slots, row)
        if slots[at] < 0:
            firsts[known] = row
            slots[at] = known
            known += 1
        codes[row] = slots[at]
        row += 1
    return row, known


@helper
def _slot(data: Any, starts: Any, sizes: Any, firsts: Any, slots: Any, row: int) -> Any:
    """Where in a table, whose size is a power of two, the code of a value stands, or would."""
    start, size = starts[row], max(sizes[row], 0)
    found = fnv1a(data, start, size)
    at = np.int64((found ^ (found >> np.uint64(32))) & np.uint64(len(slots) - 1))
    while slots[at] >= 0:
        first = firsts[slots[at]]
        if max(sizes[first], 0) == size and same(data, starts[first], data, start, size):
            break
        at = (at + 1) & (len(slots) - 1)
    return at
