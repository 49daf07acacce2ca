"""Tagged JSON check: what ``encode_tagged`` (tagged_json.py) has made, told of thousands of texts at once (automaton.py).

What other families keep of a job, its history and its tags are one text each, and nearly all of these are plain: names of ASCII,
each once in its mapping, and texts, whole numbers and bytes. To decode such a text and to encode it again gives the same text, so
nobody need do so. All others are read by ``decode_tagged``. tests/schema/columnar/test_tagged_json_check.py. Pure.
"""

from __future__ import annotations

from typing import Any

from ..tagged_json import MARKS
from .automaton import ERROR, Automaton, Builder, Following
from .binary_views import MOST_DIGITS, BinaryViews

DEEPEST = 9
"""Texts in which more brackets are open at once, those around bytes among them, are not plain."""
HEX = b"0123456789abcdef"


def check_tagged_json(texts: BinaryViews) -> tuple[Any, BinaryViews]:
    """Which texts (bool) are what one family keeps, or nothing, as ``encode_tagged`` has it; and the name of that family.

    The name is empty where there is none.
    """
    are_plain, (begins, ends) = _OF_FAMILY.run(texts.data, texts.starts, texts.sizes, DEEPEST)
    return are_plain, BinaryViews(texts.data, begins, (ends - 1 - begins).clip(0))


def check_texts(texts: BinaryViews) -> Any:
    """Which texts (bool) are a list of texts, of one at least, as ``encode_tagged`` has it."""
    return _OF_TEXTS.run(texts.data, texts.starts, texts.sizes, DEEPEST)[0]


def check_mappings(texts: BinaryViews) -> Any:
    """Which texts (bool) are a list of mappings, of one at least, as ``encode_tagged`` has it."""
    return _OF_MAPPINGS.run(texts.data, texts.starts, texts.sizes, DEEPEST)[0]


def _forms() -> tuple[Automaton, Automaton, Automaton]:
    """What a family keeps, and lists of texts and of mappings."""
    builder = Builder(texts=5)
    family_text, name_text, *value_texts = range(builder.texts)
    end, first, first_of_value, name, colon, after, after_item = (builder.new() for _ in range(7))
    builder.ends(end)

    # Mappings: in a value, one of another kind stands for bytes.
    builder.go(name_text, b'"', builder.name_ends(colon))
    builder.go(name, b'"', later := builder.name_begins(_name(builder, name_text)))
    closing, of_bytes, base64 = (builder.new() for _ in range(3))
    builder.go(closing, b"}", builder.pop())
    builder.words(of_bytes, [(b':"', base64)])
    builder.base64(base64, closing)
    builder.go(first, b'"', later)
    builder.go(first_of_value, b'"', builder.name_begins(_name(builder, name_text, of_bytes)))
    for state in (first, first_of_value, after):
        builder.go(state, b"}", builder.pop())
    builder.go(after, b",", name)

    # Their values, and those in lists
    first_item, item = builder.new(), builder.new()
    builder.go(after_item, b",", item)
    for state in (first_item, after_item):
        builder.go(state, b"]", builder.pop())
    for value, following, text in ((colon_value := builder.new(), after, value_texts[0]), (item, after_item, value_texts[1])):
        _text(builder, value, text, following)
        builder.words(value, [(word, following) for word in (b"null", b"true", b"false")])
        for digit in builder.whole_number(value, MOST_DIGITS, signed=True):
            builder.is_also(digit, following)
        builder.go(value, b"{", builder.push(following, first_of_value))
        builder.go(value, b"[", builder.push(following, first_item))
    builder.go(colon, b":", colon_value)
    builder.is_also(first_item, item)

    # A family, and under its name a mapping
    of_family, outer, closing_family = (builder.new() for _ in range(3))
    builder.go(family_text, b'"', builder.mark(1, of_family))
    builder.go(outer, b"}", builder.pop())
    builder.go(outer, b'"', builder.mark(0, _name(builder, family_text)))
    builder.words(of_family, [(b":{", builder.push(closing_family, first))])
    builder.go(closing_family, b"}", builder.pop())

    # Lists of one kind
    text, mapping, after_text, after_mapping = (builder.new() for _ in range(4))
    _text(builder, text, value_texts[2], after_text)
    builder.go(mapping, b"{", builder.push(after_mapping, first))
    for one, following in ((text, after_text), (mapping, after_mapping)):
        builder.go(following, b",", one)
        builder.go(following, b"]", builder.pop())

    def form(bracket: bytes, inside: int) -> Automaton:
        builder.go(start := builder.new(), bracket, builder.push(end, inside))
        return builder.build(start)

    return form(b"{", outer), form(b"[", text), form(b"[", mapping)


def _name(builder: Builder, text: int, of_bytes: int = ERROR) -> int:
    """Where a name begins. Those that mean something are errors; but that of bytes leads on where these may stand."""
    begin = builder.new()
    builder.is_also(begin, text)
    builder.words(begin, [(b'%b"' % mark.encode(), of_bytes if mark == "b64" else ERROR) for mark in MARKS], otherwise=text)
    return begin


def _text(builder: Builder, value: int, text: int, following: Following) -> None:
    """From a state on, a text, of which ``text`` is inside: only what is not printable ASCII is escaped, and in one form."""
    escape, first, second, third, control, delete = (builder.new() for _ in range(6))
    rest = [text, *(builder.new() for _ in range(3))]  # by how many digits are to come
    builder.go(value, b'"', text)
    builder.go(text, b'"', following)
    builder.go(text, b"\\", escape)
    builder.go(escape, b'"\\bfnrt', text)
    builder.go(escape, b"u", first)
    for digits in range(1, 4):
        builder.go(rest[digits], HEX, rest[digits - 1])
    builder.go(first, HEX[1:], rest[3])
    builder.go(first, b"0", second)
    builder.go(second, HEX[1:], rest[2])
    builder.go(second, b"0", third)
    builder.go(third, b"189abcdef", rest[1])
    builder.go(third, b"7", delete)
    builder.go(delete, b"f", text)
    builder.go(third, b"0", control)
    builder.go(control, b"01234567bef", text)


_OF_FAMILY, _OF_TEXTS, _OF_MAPPINGS = _forms()
