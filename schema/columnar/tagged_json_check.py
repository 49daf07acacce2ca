"""Tagged JSON check: what ``encode_tagged`` (tagged_json.py) has made, told of thousands of texts at once (automaton.py).

What other families keep of a job is one text for each, and nearly all of these are plain: one family's name, and under it texts,
whole numbers and bytes in the order of their names. To decode such a text and to encode it again gives the same text, so nobody
need do so. All others are read by ``decode_tagged``. tests/schema/columnar/test_tagged_json_check.py. Pure.
"""

from __future__ import annotations

from typing import Any

from ..tagged_json import MARKS
from .automaton import ERROR, Automaton, Builder
from .binary_views import MOST_DIGITS, BinaryViews

DEEPEST = 9
"""Texts in which more brackets are open at once, those around bytes among them, are not plain."""


def check_tagged_json(texts: BinaryViews) -> tuple[Any, BinaryViews]:
    """Which texts (bool) are an ordered ``encode_tagged`` of what one family keeps, or of nothing; and the name of that family.

    The name is empty where there is none.
    """
    are_plain, (begins, ends) = _TAGGED_JSON.run(texts.data, texts.starts, texts.sizes, DEEPEST)
    return are_plain, BinaryViews(texts.data, begins, (ends - 1 - begins).clip(0))


def _tagged_json() -> Automaton:
    builder = Builder(texts=3)
    family_text, name_text, text = range(builder.texts)
    start, outer, closing, end = (builder.new() for _ in range(4))
    builder.ends(end)
    builder.go(start, b"{", builder.push(end, outer))
    first, first_of_value, name, colon, value, after = (builder.new() for _ in range(6))
    # The name of the family
    builder.go(family_text, b'"', builder.mark(1, of_family := builder.new()))
    builder.go(outer, b"}", builder.pop())
    builder.go(outer, b'"', builder.mark(0, _name(builder, family_text)))
    builder.words(of_family, [(b":{", builder.push(closing, first))])
    builder.go(closing, b"}", builder.pop())
    # Names of what it keeps
    builder.go(name_text, b'"', builder.name_ends(colon))
    builder.go(name, b'"', later := builder.name_begins(_name(builder, name_text)))
    for state in (first, first_of_value):
        builder.go(state, b"}", builder.pop())
        builder.go(state, b'"', later)
    builder.go(colon, b":", value)
    builder.go(after, b",", name)
    builder.go(after, b"}", builder.pop())
    # Values
    builder.go(value, b'"', text)
    builder.go(text, b'"', after)
    builder.words(value, [(word, after) for word in (b"null", b"true", b"false")])
    for digit in builder.whole_number(value, MOST_DIGITS, signed=True):
        builder.is_also(digit, after)
    builder.go(value, b"{", builder.push(after, first_of_value))
    of_bytes, base64 = builder.new(), builder.new()
    builder.go(first_of_value, b'"', builder.name_begins(_name(builder, name_text, of_bytes)))
    builder.words(of_bytes, [(b':"', base64)])
    builder.base64(base64, closing)
    return builder.build(start)


def _name(builder: Builder, text: int, of_bytes: int = ERROR) -> int:
    """Where a name begins. Those that mean something are errors; but that of bytes leads on where these may stand."""
    begin = builder.new()
    builder.is_also(begin, text)
    builder.words(begin, [(b'%b"' % mark.encode(), of_bytes if mark == "b64" else ERROR) for mark in MARKS], otherwise=text)
    return begin


_TAGGED_JSON = _tagged_json()
