"""JSON check: whether texts are JSON, told of thousands at once (automaton.py). Called by binary_views.py.

Never says so of a text of which ``is_json`` (text.py) does not. It may not say so of what is unusual: numbers of many digits, or
deep nesting. tests/schema/columnar/test_json_check.py. Pure.
"""

from __future__ import annotations

from typing import Any

from ..text import MAX_JSON_DEPTH
from .automaton import DIGITS, Automaton, Builder
from .jit import BYTE_ARRAY, INT_ARRAY, OUT_BOOLS, helper, kernel

MOST_DIGITS = 18
"""Numbers of more digits are unusual."""
DEEPEST = 60
"""Deeper JSON is unusual."""

_HEX, _BLANKS = b"0123456789abcdefABCDEF", b" \n\r\t"


def _json() -> Automaton:
    """RFC 8259. What a value is goes by what may follow it: the end, or more in its object or list."""
    builder = Builder(texts=4)
    end, first_name, name, colon, first_item = (builder.new() for _ in range(5))
    of_object, of_list = builder.new(), builder.new()
    value, item, member = (builder.new() for _ in range(3))
    for state in (end, first_name, name, colon, first_item, of_object, of_list, value, item, member):
        builder.go(state, _BLANKS, state)
    builder.ends(end)
    name_text, *texts = range(builder.texts)
    _string(builder, name_text, colon)
    builder.go(name, b'"', name_text)
    builder.go(first_name, b'"', name_text)
    builder.go(first_name, b"}", builder.pop())
    builder.go(colon, b":", member)
    builder.go(of_object, b",", name)
    builder.go(of_object, b"}", builder.pop())
    builder.go(of_list, b",", item)
    builder.go(of_list, b"]", builder.pop())
    for before, text, after in zip((value, member, item), texts, (end, of_object, of_list), strict=True):
        _string(builder, text, after)
        builder.go(before, b'"', text)
        builder.go(before, b"{", builder.push(after, first_name))
        builder.go(before, b"[", builder.push(after, first_item))
        builder.words(before, [(word, after) for word in (b"true", b"false", b"null")])
        _number(builder, before, after)
    builder.is_also(first_item, item)
    builder.go(first_item, b"]", builder.pop())
    return builder.build(value)


def _string(builder: Builder, text: int, following: int) -> None:
    """Within a string, up to its end."""
    builder.go(text, b"\x7f", text)
    builder.go(text, b'"', following)
    builder.go(text, b"\\", escape := builder.new())
    builder.go(escape, b'"\\/bfnrt', text)
    builder.go(escape, b"u", code := builder.new())
    for _ in range(3):
        builder.go(code, _HEX, later := builder.new())
        code = later
    builder.go(code, _HEX, text)
    # UTF-8 (RFC 3629, section 4)
    one, two, three = (builder.new() for _ in range(3))
    for state, later in ((one, text), (two, one), (three, two)):
        builder.go(state, range(0x80, 0xC0), later)
    builder.go(text, range(0xC2, 0xE0), one)
    builder.go(text, range(0xE0, 0xF0), two)
    builder.go(text, range(0xF0, 0xF5), three)
    for lead, seconds, later in (
        (0xE0, range(0xA0, 0xC0), one),
        (0xED, range(0x80, 0xA0), one),
        (0xF0, range(0x90, 0xC0), two),
        (0xF4, range(0x80, 0x90), two),
    ):
        builder.go(text, [lead], second := builder.new())
        builder.go(second, seconds, later)


def _number(builder: Builder, state: int, following: int) -> None:
    """A number of no more than MOST_DIGITS digits, and as many behind its point."""
    wholes = builder.whole_number(state, MOST_DIGITS, signed=False)
    builder.go(state, b"-", minus := builder.new())
    builder.go(minus, b"0", wholes[0])
    builder.go(minus, b"123456789", wholes[1])
    point, exponent, sign = (builder.new() for _ in range(3))
    fractions, exponents = builder.digits(point, DIGITS, MOST_DIGITS), builder.digits(sign, DIGITS, 2)
    builder.go(exponent, b"+-", sign)
    builder.go(exponent, DIGITS, exponents[0])
    for each in wholes:
        builder.go(each, b".", point)
    for each in (*wholes, *fractions):
        builder.go(each, b"eE", exponent)
    for each in (*wholes, *fractions, *exponents):
        builder.is_also(each, following)


_JSON = _json()


def are_plain_json(data: Any, starts: Any, sizes: Any) -> Any:
    """Whether each value (as in BinaryViews) is JSON of no unusual kind."""
    result, _ = _JSON.run(data, starts, sizes, DEEPEST)
    _drop_deep(data, starts, sizes, result)
    return result


@kernel(BYTE_ARRAY, INT_ARRAY, INT_ARRAY, OUT_BOOLS)
def _drop_deep(data: Any, starts: Any, sizes: Any, result: Any) -> None:
    """No longer says so of texts in which brackets are nested deeper than text.py reads: it counts those in strings too."""
    for row in range(len(starts)):
        if result[row] and sizes[row] > MAX_JSON_DEPTH:
            result[row] = _depth(data, starts[row], starts[row] + sizes[row]) <= MAX_JSON_DEPTH


@helper
def _depth(data: Any, at: int, end: int) -> int:
    """How deep brackets are nested. Or more, where that is few."""
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
