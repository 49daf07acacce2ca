"""Tagged JSON check: what ``encode_tagged`` (tagged_json.py) has made, told of thousands of texts at once.

What other families keep of a job is one text for each, and nearly all of these are plain: one family's name, and under it texts,
whole numbers and bytes in the order of their names. To decode such a text and to encode it again gives the same text, so nobody
need do so. A loop tells which are plain; all others are read by ``decode_tagged``.
tests/schema/columnar/test_tagged_json_check.py. Pure.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .binary_views import MOST_DIGITS, BinaryViews, has, starts_with
from .build import DIGITS, PADDING
from .jit import BYTE_ARRAY, INT_ARRAY, OUT_BOOLS, OUT_INTS, helper, kernel
from .json_check import after_digits

DEEPEST = 8
"""Deeper texts are not plain."""


def check_tagged_json(texts: BinaryViews) -> tuple[Any, BinaryViews]:
    """Which texts (bool) are an ordered ``encode_tagged`` of what one family keeps, or of nothing; and the name of that family.

    The name is empty where there is none.
    """
    are_plain, names = np.zeros(len(texts), np.bool_), np.zeros((2, len(texts)), np.int64)
    _walk(texts.data, texts.starts, texts.sizes, are_plain, *names, np.empty(2 * DEEPEST, np.int64))
    return are_plain, BinaryViews(texts.data, *names)


BYTES = np.frombuffer(b'{"b64":"', np.uint8)
"""How tagged JSON begins what stands for bytes."""
_B64, _FLOAT, _PLAIN = (np.frombuffer(mark, np.uint8) for mark in (b"b64", b"float", b"plain"))
_NULL, _TRUE, _FALSE = (np.frombuffer(word, np.uint8) for word in (b"null", b"true", b"false"))


@kernel(BYTE_ARRAY, INT_ARRAY, INT_ARRAY, OUT_BOOLS, OUT_INTS, OUT_INTS, OUT_INTS)
def _walk(data: Any, starts: Any, sizes: Any, are_plain: Any, name_starts: Any, name_sizes: Any, lasts: Any) -> None:
    for row in range(len(starts)):
        are_plain[row] = _is_plain(data, starts[row], starts[row] + sizes[row], lasts)
        if are_plain[row] and sizes[row] > 2:
            name_starts[row], name_sizes[row] = lasts[0], lasts[1]


@helper
def _is_plain(data: Any, at: int, end: int, lasts: Any) -> bool:
    """Whether this is plain tagged JSON. ``lasts``: of each mapping that is open, where the latest name stands, and its size, one
    after the other."""
    depth = 0
    while True:
        # A value stands here, or should: a mapping of one name, in which is a mapping, in which is anything.
        if at >= end:
            return False
        byte = data[at]
        if byte == 123 and depth > 1 and starts_with(data, at, end, BYTES):
            at = after_bytes(data, at, end)
        elif byte == 123:
            if depth == DEEPEST or at + 1 >= end:
                return False
            at += 1
            if data[at] == 125:
                at += 1
            else:
                lasts[2 * depth], lasts[2 * depth + 1] = at, -1
                depth += 1
                at = _name(data, at, end, lasts, 2 * depth - 2)
                if at < 0:
                    return False
                continue
        elif depth < 2:
            return False
        elif byte == 34:
            at = _text(data, at + 1, end)
        else:
            at = _word(data, at, end)
        # A value has ended.
        while depth and 0 <= at < end and data[at] == 125:
            depth -= 1
            at += 1
        if at < 0 or depth == 0:
            return at == end
        if at >= end or data[at] != 44 or depth == 1:
            return False
        at = _name(data, at + 1, end, lasts, 2 * depth - 2)
        if at < 0:
            return False


@helper
def _text(data: Any, at: int, end: int) -> int:
    """The position after the text whose first quotation mark stands before this one; -1 if JSON escapes some of it."""
    while at < end and 32 <= data[at] <= 126 and data[at] != 92:
        if data[at] == 34:
            return at + 1
        at += 1
    return -1


@helper
def _name(data: Any, at: int, end: int, lasts: Any, last: int) -> int:
    """The position after a name and its colon; -1 if there is none, or one that has to stand elsewhere, or means something."""
    first = at + 1
    if at >= end or data[at] != 34:
        return -1
    at = _text(data, first, end)
    if at < 0 or at >= end or data[at] != 58:
        return -1
    size = at - 1 - first
    for mark in (_B64, _FLOAT, _PLAIN):
        if size == len(mark) and has(data, first, mark):
            return -1
    before, length = lasts[last], lasts[last + 1]
    shared = 0
    while shared < min(size, length) and data[before + shared] == data[first + shared]:
        shared += 1
    is_first = length < 0
    is_behind = shared < size and (shared == length or data[before + shared] < data[first + shared])
    lasts[last], lasts[last + 1] = first, size
    return at + 1 if is_first or is_behind else -1


@helper
def after_bytes(data: Any, at: int, end: int) -> int:
    """The position after bytes as ``encode_tagged`` writes them; -1 where it writes others, or none stand here."""
    if not starts_with(data, at, end, BYTES):
        return -1
    at += len(BYTES)
    first = at
    while at < end and DIGITS[data[at]] < 64:
        at += 1
    # What is left over of the last character is zeros.
    bits = DIGITS[data[at - 1]]
    padding = 0
    while at < end and data[at] == PADDING and padding < 2:
        at += 1
        padding += 1
    if (at - first) % 4 or (padding == 1 and bits & 3) or (padding == 2 and bits & 15) or at - first < padding:
        return -1
    return at + 2 if at + 1 < end and data[at] == 34 and data[at + 1] == 125 else -1


@helper
def _word(data: Any, at: int, end: int) -> int:
    """The position after a whole number of few digits, true, false or null; -1 for all else."""
    for word in (_NULL, _TRUE, _FALSE):
        if starts_with(data, at, end, word):
            return at + len(word)
    is_negative = data[at] == 45
    if is_negative:
        at += 1
    first = at
    at = after_digits(data, at, end)
    if not 0 < at - first <= MOST_DIGITS or (data[first] == 48 and (at - first > 1 or is_negative)):
        return -1
    return at
