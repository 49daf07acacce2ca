"""JSON check: whether texts are JSON, told of thousands at once (jit.py). Called by binary_views.py.

Never says so of a text of which ``is_json`` (text.py) does not. It may not say so of what is unusual: numbers of many digits, or
deep nesting. A finite automaton reads a text byte by byte, by a table that is made here; only brackets need more than a
state. The same as code, with a branch for each case, takes numba twice as long to compile and more.
tests/schema/columnar/test_json_check.py. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np

from ..text import MAX_JSON_DEPTH
from .jit import BYTE_ARRAY, INT_ARRAY, OUT_BOOLS, WIDTH, helper, kernel, plain_bytes

MOST_DIGITS = 18
"""Numbers of more digits are unusual."""
DEEPEST = 60
"""Deeper JSON is unusual."""


# The automaton: a state after each byte

_OPEN_OBJECT, _OPEN_LIST, _CLOSE_OBJECT, _CLOSE_LIST, _COMMA, _ERROR = range(250, 256)
"""What stands in the table instead of a state where that depends on the brackets that are open; and where there is none."""
_TEXT, _NAME_TEXT, _VALUE, _FIRST_ITEM, _FIRST_NAME, _NAME, _COLON, _END = range(8)
"""Within a string, or one that is a name; before a value, the first of a list or ``]``, the first name or ``}``, a later name, a
colon; behind a value."""
_DIGITS, _HEX, _BLANKS = b"0123456789", b"0123456789abcdefABCDEF", b" \n\r\t"


class _Table:
    """The state that follows each state and byte, while it is made."""

    def __init__(self) -> None:
        self.rows = [[_ERROR] * 256 for _ in range(_END + 1)]
        self.ends = {_END}
        """States in which a value may end with the text."""

    def new(self) -> int:
        """One more state."""
        self.rows.append([_ERROR] * 256)
        return len(self.rows) - 1

    def go(self, state: int, values: Iterable[int], following: int) -> None:
        """From a state to another with each of these bytes."""
        for byte in values:
            self.rows[state][byte] = following

    def spell(self, state: int, word: bytes, following: int) -> None:
        """From a state to another with these bytes, one after the other."""
        for byte in word[:-1]:
            self.go(state, [byte], later := self.new())
            state = later
        self.go(state, word[-1:], following)

    def may_end(self, state: int) -> None:
        """A value may end in this state, which goes on as one behind a value."""
        self.ends.add(state)
        self.rows[state] = [one if one != _ERROR else other for one, other in zip(self.rows[state], self.rows[_END], strict=True)]

    def digits(self, state: int, first: bytes, most: int) -> list[int]:
        """From a state on, up to so many digits, the first of them one of these; the states behind each."""
        states = [self.new() for _ in range(most)]
        self.go(state, first, states[0])
        for one, other in pairwise(states):
            self.go(one, _DIGITS, other)
        return states

    def string(self, text: int, following: int) -> None:
        """Within a string, up to its end."""
        self.go(text, range(32, 128), text)
        self.go(text, b'"', following)
        self.go(text, b"\\", escape := self.new())
        self.go(escape, b'"\\/bfnrt', text)
        self.go(escape, b"u", code := self.new())
        for _ in range(3):
            self.go(code, _HEX, later := self.new())
            code = later
        self.go(code, _HEX, text)
        # UTF-8 (RFC 3629, section 4)
        one, two, three = (self.new() for _ in range(3))
        for state, following in ((one, text), (two, one), (three, two)):
            self.go(state, range(0x80, 0xC0), following)
        self.go(text, range(0xC2, 0xE0), one)
        self.go(text, range(0xE0, 0xF0), two)
        self.go(text, range(0xF0, 0xF5), three)
        for lead, seconds, following in (
            (0xE0, range(0xA0, 0xC0), one),
            (0xED, range(0x80, 0xA0), one),
            (0xF0, range(0x90, 0xC0), two),
            (0xF4, range(0x80, 0x90), two),
        ):
            self.go(text, [lead], second := self.new())
            self.go(second, seconds, following)

    def number(self, state: int) -> None:
        """A number of no more than MOST_DIGITS digits, and as many behind its point."""
        self.go(state, b"-", minus := self.new())
        self.go(minus, b"0", zero := self.new())
        wholes = [zero, *self.digits(minus, b"123456789", MOST_DIGITS)]
        self.go(state, _DIGITS, wholes[1])
        self.go(state, b"0", zero)
        point, exponent, sign = (self.new() for _ in range(3))
        fractions, exponents = self.digits(point, _DIGITS, MOST_DIGITS), self.digits(sign, _DIGITS, 2)
        self.go(exponent, b"+-", sign)
        self.go(exponent, _DIGITS, exponents[0])
        for whole in wholes:
            self.go(whole, b".", point)
        for each in (*wholes, *fractions):
            self.go(each, b"eE", exponent)
        for each in (*wholes, *fractions, *exponents):
            self.may_end(each)


def _automaton() -> tuple[Any, Any]:
    """The table (uint8), 256 bytes for each state; and in which states (bool) a text may end."""
    table = _Table()
    for state in (_VALUE, _FIRST_ITEM, _FIRST_NAME, _NAME, _COLON, _END):
        table.go(state, _BLANKS, state)
    for byte, following in zip(b"}],", (_CLOSE_OBJECT, _CLOSE_LIST, _COMMA), strict=True):
        table.go(_END, [byte], following)
    for byte, following in zip(b'"{[', (_TEXT, _OPEN_OBJECT, _OPEN_LIST), strict=True):
        table.go(_VALUE, [byte], following)
    for word in (b"true", b"false", b"null"):
        table.spell(_VALUE, word, _END)
    table.number(_VALUE)
    table.string(_TEXT, _END)
    table.string(_NAME_TEXT, _COLON)
    table.go(_NAME, b'"', _NAME_TEXT)
    table.go(_FIRST_NAME, b'"', _NAME_TEXT)
    table.go(_FIRST_NAME, b"}", _CLOSE_OBJECT)
    table.go(_COLON, b":", _VALUE)
    table.rows[_FIRST_ITEM] = [_FIRST_ITEM if following == _VALUE else following for following in table.rows[_VALUE]]
    table.go(_FIRST_ITEM, b"]", _CLOSE_LIST)
    states = range(len(table.rows))
    return np.array(table.rows, np.uint8).reshape(-1), np.array([state in table.ends for state in states])


_NEXT, _MAY_END = _automaton()


def are_plain_json(data: Any, starts: Any, sizes: Any) -> Any:
    """Whether each value (as in BinaryViews) is JSON of no unusual kind."""
    result = np.empty(len(starts), np.bool_)
    _are_plain_json(data, starts, sizes, _NEXT, _MAY_END, np.empty(DEEPEST, np.bool_), result)
    return result


@kernel(BYTE_ARRAY, INT_ARRAY, INT_ARRAY, BYTE_ARRAY, OUT_BOOLS, OUT_BOOLS, OUT_BOOLS)
def _are_plain_json(data: Any, starts: Any, sizes: Any, following: Any, may_end: Any, stack: Any, result: Any) -> None:
    """``stack``: of each bracket that is open, whether it is one of an object."""
    for row in range(len(starts)):
        at, end = starts[row], starts[row] + sizes[row]
        state, depth = _VALUE, 0
        while at < end and state != _ERROR:
            while state <= _NAME_TEXT and at + WIDTH <= end:
                plain = plain_bytes(data, at)
                at += plain
                if plain < WIDTH:
                    break
            if at == end:
                break
            state = following[state << 8 | data[at]]
            at += 1
            if state < _OPEN_OBJECT:
                continue
            if state <= _OPEN_LIST and depth < len(stack):
                stack[depth] = state == _OPEN_OBJECT
                state = _FIRST_NAME if stack[depth] else _FIRST_ITEM
                depth += 1
            elif state == _COMMA and depth > 0:
                state = _NAME if stack[depth - 1] else _VALUE
            elif _CLOSE_OBJECT <= state <= _CLOSE_LIST and depth > 0 and stack[depth - 1] == (state == _CLOSE_OBJECT):
                depth -= 1
                state = _END
            else:
                state = _ERROR
        result[row] = depth == 0 and state < _OPEN_OBJECT and may_end[state] and _depth(data, starts[row], end) <= MAX_JSON_DEPTH


@helper
def _depth(data: Any, at: int, end: int) -> int:
    """How deep brackets are nested, as text.py counts them: those in strings too. Or more, where that is few."""
    if end - at <= MAX_JSON_DEPTH:
        return end - at
    opening = 0
    for index in range(at, end):
        opening += data[index] == 91 or data[index] == 123
    if opening <= MAX_JSON_DEPTH:
        return opening
    depth = deepest = 0
    for index in range(at, end):
        if data[index] == 91 or data[index] == 123:
            depth += 1
            deepest = max(deepest, depth)
        elif data[index] == 93 or data[index] == 125:
            depth -= 1
    return deepest


@helper
def after_digits(data: Any, at: int, end: int) -> int:
    """The position after decimal digits, of which there may be none."""
    while at < end and 48 <= data[at] <= 57:
        at += 1
    return at
