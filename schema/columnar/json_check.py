"""JSON check: whether texts are JSON, told of thousands at once (jit.py). Called by binary_views.py.

Never says so of a text of which ``is_json`` (text.py) does not. It may not say so of what is unusual: numbers of many digits, or
deep nesting. tests/schema/columnar/test_json_check.py. Pure.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..text import MAX_JSON_DEPTH
from .jit import BYTE_ARRAY, INT_ARRAY, OUT_BOOLS, WIDTH, helper, kernel, opening_brackets, plain_bytes

MOST_DIGITS = 18
"""Numbers of more digits are unusual."""
DEEPEST = 60
"""Deeper JSON is unusual."""
_PLAIN = np.array([31 < byte < 128 and byte not in b'"\\' for byte in range(256)])
"""Whether a byte of a JSON string stands for itself."""


def are_plain_json(data: Any, starts: Any, sizes: Any) -> Any:
    """Whether each value (as in BinaryViews) is JSON of no unusual kind."""
    result = np.empty(len(starts), np.bool_)
    _are_plain_json(data, starts, sizes, np.empty(DEEPEST, np.bool_), result)
    return result


@kernel(BYTE_ARRAY, INT_ARRAY, INT_ARRAY, OUT_BOOLS, OUT_BOOLS)
def _are_plain_json(data: Any, starts: Any, sizes: Any, stack: Any, result: Any) -> None:
    for row in range(len(starts)):
        end = starts[row] + sizes[row]
        result[row] = _depth(data, starts[row], end) <= MAX_JSON_DEPTH and _is_json(data, starts[row], end, stack)


@helper
def _depth(data: Any, at: int, end: int) -> int:
    """How deep brackets are nested, as text.py counts them: those in strings too. Or more, where that is few."""
    if end - at <= MAX_JSON_DEPTH:
        return end - at
    opening, index = 0, at
    while index + WIDTH <= end:
        opening += opening_brackets(data, index)
        index += WIDTH
    if opening + end - index <= MAX_JSON_DEPTH:
        return opening + end - index
    depth = deepest = 0
    for index in range(at, end):
        if data[index] == 91 or data[index] == 123:
            depth += 1
            deepest = max(deepest, depth)
        elif data[index] == 93 or data[index] == 125:
            depth -= 1
    return deepest


@helper
def _blank(data: Any, at: int, end: int) -> int:
    """The position of what follows white space."""
    while at < end and (data[at] == 32 or data[at] == 10 or data[at] == 13 or data[at] == 9):
        at += 1
    return at


@helper
def _is_json(data: Any, at: int, end: int, stack: Any) -> bool:
    """Whether this is JSON of no unusual kind. ``stack``: of each bracket that is open, whether it is one of an object."""
    depth = 0
    wants_value = True
    while True:
        at = _blank(data, at, end)
        if at >= end:
            return depth == 0 and not wants_value
        byte = data[at]
        if wants_value:
            if byte == 34:
                at = _string(data, at + 1, end)
                wants_value = False
            elif byte == 123 or byte == 91:
                if depth == len(stack):
                    return False
                is_object = byte == 123
                following = _blank(data, at + 1, end)
                if following < end and data[following] == (125 if is_object else 93):
                    at = following + 1
                    wants_value = False
                else:
                    stack[depth] = is_object
                    depth += 1
                    at = _name(data, at + 1, end) if is_object else at + 1
            else:
                at = _scalar(data, at, end)
                wants_value = False
            if at < 0:
                return False
        else:
            if depth == 0:
                return False
            if byte == 44:
                at = _name(data, at + 1, end) if stack[depth - 1] else at + 1
                if at < 0:
                    return False
                wants_value = True
            elif byte == (125 if stack[depth - 1] else 93):
                depth -= 1
                at += 1
            else:
                return False


@helper
def _name(data: Any, at: int, end: int) -> int:
    """The position after the name of a member and its colon; -1 where there is none."""
    at = _blank(data, at, end)
    if at >= end or data[at] != 34:
        return -1
    at = _string(data, at + 1, end)
    if at < 0:
        return -1
    at = _blank(data, at, end)
    return at + 1 if at < end and data[at] == 58 else -1


@helper
def _string(data: Any, at: int, end: int) -> int:
    """The position after the string whose first quotation mark stands before this one; -1 for one that is unusual."""
    while at < end:
        while at + WIDTH <= end:
            plain = plain_bytes(data, at)
            at += plain
            if plain < WIDTH:
                break
        if at == end:
            return -1
        byte = data[at]
        if _PLAIN[byte]:
            at += 1
            continue
        if byte == 34:
            return at + 1
        if byte < 32:
            return -1
        if byte == 92:
            if at + 1 >= end:
                return -1
            escaped = data[at + 1]
            if escaped == 117:
                if at + 6 > end:
                    return -1
                for index in range(at + 2, at + 6):
                    digit = data[index] | 32
                    if not (48 <= data[index] <= 57 or 97 <= digit <= 102):
                        return -1
                at += 6
            elif escaped in (34, 47, 92, 98, 102, 110, 114, 116):
                at += 2
            else:
                return -1
        else:
            at = _utf8(data, at, end)
            if at < 0:
                return -1
    return -1


@helper
def _utf8(data: Any, at: int, end: int) -> int:
    """The position after a character of several bytes; -1 where there is none."""
    byte = data[at]
    if 194 <= byte <= 223:
        more, least, most = 1, 128, 191
    elif 224 <= byte <= 239:
        more, least, most = 2, 160 if byte == 224 else 128, 159 if byte == 237 else 191
    elif 240 <= byte <= 244:
        more, least, most = 3, 144 if byte == 240 else 128, 143 if byte == 244 else 191
    else:
        return -1
    if at + more >= end or not least <= data[at + 1] <= most:
        return -1
    for index in range(at + 2, at + 1 + more):
        if not 128 <= data[index] <= 191:
            return -1
    return at + 1 + more


@helper
def _scalar(data: Any, at: int, end: int) -> int:
    """The position after a number, true, false or null; -1 for all else, and for numbers of many digits."""
    byte = data[at]
    if byte == 116 and at + 4 <= end:
        return at + 4 if data[at + 1] == 114 and data[at + 2] == 117 and data[at + 3] == 101 else -1
    if byte == 102 and at + 5 <= end:
        is_false = data[at + 1] == 97 and data[at + 2] == 108 and data[at + 3] == 115 and data[at + 4] == 101
        return at + 5 if is_false else -1
    if byte == 110 and at + 4 <= end:
        return at + 4 if data[at + 1] == 117 and data[at + 2] == 108 and data[at + 3] == 108 else -1
    if byte == 45:
        at += 1
    first = at
    at = after_digits(data, at, end)
    if at == first or at > first + MOST_DIGITS or (data[first] == 48 and at > first + 1):
        return -1
    if at < end and data[at] == 46:
        first = at + 1
        at = after_digits(data, first, end)
        if at == first or at > first + MOST_DIGITS:
            return -1
    if at < end and (data[at] == 101 or data[at] == 69):
        at += 1
        if at < end and (data[at] == 43 or data[at] == 45):
            at += 1
        first = at
        at = after_digits(data, first, end)
        if at == first or at > first + 2:
            return -1
    return at


@helper
def after_digits(data: Any, at: int, end: int) -> int:
    """The position after decimal digits, of which there may be none."""
    while at < end and 48 <= data[at] <= 57:
        at += 1
    return at
