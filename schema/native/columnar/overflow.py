"""The plain overflow of thousands of jobs at once: ``../overflow.py`` for columns. Needs the extra ``columnar``.

Most migrated jobs have an overflow in which the values stand in one order and each in one form, that of ``Overflow.encode``. An
automaton finds them there; of all other texts it says that they are not plain. Called by ``batch_prefilter.py`` and ``table.py``.
tests/schema/native/columnar/test_overflow.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from attrs import frozen

from ...columnar.automaton import DIGITS, Automaton, Builder
from ...columnar.binary_views import BinaryViews
from ...columnar.build import base64_decode, scatter
from ...columnar.jit import BYTE_ARRAY, INT_ARRAY, OUT_INTS, kernel
from ...columnar.jobtable import BinaryLists
from ...columnar.tagged_json_check import check_mappings, check_tagged_json, check_texts
from ...tagged_json import encode_tagged
from ..overflow import extra_of

WHOLE, SIGNED_OR_NULL, FRACTION, BYTES, LINES, LIST = range(6)
FIELDS = {
    "priority": SIGNED_OR_NULL,
    "updated_at": WHOLE,
    "max_attempts": WHOLE,
    "progress": FRACTION,
    "result": BYTES,
    "tags": LIST,
    "ttl": WHOLE,
    "logs": LINES,
    "history": LIST,
}
"""The fields that a plain overflow may have, in their order, with the form of each."""
NONE = -1
"""The size of a text that is not there: both of its marks are 0."""

MOST_DIGITS = 16
"""Of whole numbers: a float holds all of these."""
DEEPEST = 60
"""Brackets open at once: in deeper ones the extra is not plain."""

_BEFORE_BYTES = b'{"b64":"'


@frozen(eq=False)
class OverflowColumns:
    """The overflow of some jobs. Where it is not plain, nothing else means anything."""

    are_plain: Any
    """bool."""
    roles: BinaryViews
    scores: Any
    """The score in the place of this role (int64)."""
    _fields: Mapping[str, BinaryViews]
    _extra: BinaryViews
    """That of each."""
    _families: BinaryViews
    """The family whose it is, where it is written as ``encode_tagged`` does, and is not ``_others``."""
    _others: Any
    """Which jobs have another extra (indexes)."""
    _codes: Any
    """And which of ``_extras`` that is."""
    _extras: Sequence[Mapping[str, Any]]

    @classmethod
    def of(cls, texts: BinaryViews) -> OverflowColumns:
        """What these texts hold."""
        are_plain, marks = _OVERFLOW.run(texts.data, texts.starts, texts.sizes, DEEPEST)
        spans = [BinaryViews(texts.data, begins, ends - 1 - begins) for begins, ends in zip(marks[::2], marks[1::2], strict=True)]
        *fields, extra, roles, scores = *spans[: len(FIELDS)], *map(_there, spans[len(FIELDS) :])
        by_name = dict(zip(FIELDS, fields, strict=True))
        for name, check in (("tags", check_texts), ("history", check_mappings)):
            are_plain &= (by_name[name].sizes == NONE) | check(_there(by_name[name]))
        are_tagged, families = check_tagged_json(extra)
        others = np.flatnonzero(are_plain & ~are_tagged)
        codes, different = extra.take(others).dictionary_encode()
        extras = list(map(extra_of, different))
        are_plain[others] = np.array([each is not None for each in extras], bool)[codes]
        return cls(
            are_plain,
            roles,
            scores.parse_canonical_ints()[0],
            by_name,
            extra,
            families,
            others,
            codes,
            [each or {} for each in extras],
        )

    def has(self, name: str) -> Any:
        """Of which jobs there is a field (bool)."""
        return self._fields[name].sizes != NONE

    def are_null(self, name: str) -> Any:
        """Of which jobs it is there, and null (bool)."""
        return self._fields[name].equals(b"null")

    def whole(self, name: str) -> Any:
        """The values of a field of whole numbers (int64), where it is there."""
        return self._fields[name].parse_canonical_ints()[0]

    def fractions(self, name: str) -> Any:
        """The values of a field of fractions (float64), where it is there."""
        texts = self._fields[name]
        numbers = np.zeros(len(texts))
        is_set = texts.sizes != NONE
        numbers[is_set] = texts.take(is_set).cast_floats()
        return numbers

    def raw(self, name: str) -> tuple[BinaryViews, Any]:
        """The values of a field of bytes, and of which jobs (bool) they are written as they would be again."""
        return base64_decode(_there(self._fields[name]))

    def lines(self, name: str) -> tuple[BinaryLists, Any]:
        """The values of a field of lists, empty where it is not there, and the same of them."""
        texts = _there(self._fields[name])
        counts = np.zeros(len(texts), np.int64)
        _count(texts.data, texts.starts, texts.sizes, counts)
        items = np.zeros((2, int(counts.sum())), np.int64)
        _items(texts.data, texts.starts, texts.sizes, *items)
        found, are_valid = base64_decode(BinaryViews(texts.data, *items))
        faults = np.append(0, np.cumsum(~are_valid))
        lasts = np.cumsum(counts)
        return BinaryLists(found, counts), faults[lasts] == faults[lasts - counts]

    def encoded(self, name: str) -> BinaryViews:
        """The values of a field of texts or mappings, as ``encode_tagged`` has them; nothing where it is not there."""
        return _there(self._fields[name])

    def extra(self) -> tuple[BinaryViews, frozenset[str]]:
        """The extra of other families, as ``encode_tagged`` has it; and the names of all of these families."""
        names = {family.decode() for family in self._families.dictionary_encode()[1] if family}
        if not len(self._others):
            return self._extra, frozenset(names)
        encoded = BinaryViews.of([encode_tagged(each) for each in self._extras]).take(self._codes)
        rest = np.delete(np.arange(len(self._extra)), self._others)
        return scatter([self._extra.take(rest), encoded], [rest, self._others]), frozenset(names.union(*self._extras))


def _there(texts: BinaryViews) -> BinaryViews:
    return BinaryViews(texts.data, texts.starts, np.maximum(texts.sizes, 0))


# The form


def _overflow() -> Automaton:
    """With two marks for each of FIELDS, and then for the extra, the role and the score: behind what stands before and after."""
    builder = Builder(texts=1)
    start, first, behind = (builder.new() for _ in range(3))
    anything = _anything(builder)
    builder.words(start, [(b'{"fields":{', first)])
    names: list[tuple[bytes, int]] = []  # of the fields that may come later
    for mark, (name, kind) in zip(range(2 * len(FIELDS) - 2, -1, -2), reversed(FIELDS.items()), strict=True):
        value, comma = builder.new(), builder.new()
        builder.words(comma, names)
        opening = _field(builder, value, kind, anything, mark + 1, {b",": comma, b"}": behind})
        names.append((b'"%b":%b' % (name.encode(), opening), builder.mark(mark, value)))
    builder.words(first, names)
    builder.go(first, b"}", behind)

    mark = 2 * len(FIELDS)
    extra, role, letter, score = (builder.new() for _ in range(4))
    builder.words(behind, [(b',"extra":', builder.mark(mark, extra))])
    builder.go(extra, b"{", builder.push(behind_extra := builder.new(), anything))
    builder.go(behind_extra, b",", builder.mark(mark + 1, before_role := builder.new()))
    builder.words(before_role, [(b'"at":["', builder.mark(mark + 2, role))])
    for state in (role, letter):
        builder.go(state, b"abcdefghijklmnopqrstuvwxyz", letter)
    builder.go(letter, b'"', builder.mark(mark + 3, before_score := builder.new()))
    builder.go(before_score, b",", builder.mark(mark + 4, score))
    point = builder.mark(mark + 5, tail := builder.new())
    for digit in builder.whole_number(score, MOST_DIGITS, signed=True):
        builder.go(digit, b".", point)
    builder.words(tail, [(b'0],"native":false}', end := builder.new())])
    builder.ends(end)
    return builder.build(start)


def _field(builder: Builder, value: int, kind: int, anything: int, mark: int, later: Mapping[bytes, int]) -> bytes:
    """The value of a field, up to the mark, and what may come later; what stands before the value.

    ``anything``: what stands inside of a list.
    """
    after = builder.new()
    if kind in (BYTES, LINES):
        for byte, following in later.items():
            builder.go(after, byte, following)
        closing = builder.new()
        if kind == BYTES:
            builder.base64(value, builder.mark(mark, closing))
            builder.go(closing, b"}", after)
            return _BEFORE_BYTES
        base64, item = builder.new(), builder.new()
        builder.words(value, [(_BEFORE_BYTES, base64)])
        builder.base64(base64, closing)
        builder.go(closing, b"}", item)
        builder.go(item, b",", value)
        builder.go(item, b"]", builder.mark(mark, after))
        return b"["
    ends: list[int] = []
    if kind == LIST:
        builder.go(value, b"[", builder.push(after, anything))
    elif kind == FRACTION:
        builder.go(value, DIGITS, point := builder.new())
        builder.go(point, b".", fraction := builder.new())
        ends = builder.digits(fraction, DIGITS, 17)
    else:
        ends = builder.whole_number(value, MOST_DIGITS, signed=kind == SIGNED_OR_NULL)
        if kind == SIGNED_OR_NULL:
            builder.words(value, [(b"null", after)])
    for byte, following in later.items():
        builder.go(after, byte, builder.mark(mark, following))
    for end in ends:
        builder.is_also(end, after)
    return b""


def _anything(builder: Builder) -> int:
    """What stands inside of brackets, up to the one that closes them: any JSON, which is looked at elsewhere."""
    text, inside, escape = 0, builder.new(), builder.new()
    builder.go(inside, range(256), inside)
    builder.go(inside, b"{[", builder.push(inside, inside))
    builder.go(inside, b"}]", builder.pop())
    builder.go(inside, b'"', text)
    builder.go(text, range(256), text)
    builder.go(text, b"\\", escape)
    builder.go(text, b'"', inside)
    builder.go(escape, range(256), text)
    return inside


_OVERFLOW = _overflow()


# The loops


@kernel(BYTE_ARRAY, INT_ARRAY, INT_ARRAY, OUT_INTS)
def _count(data: Any, starts: Any, sizes: Any, counts: Any) -> None:
    for row in range(len(starts)):
        for at in range(starts[row], starts[row] + sizes[row]):
            if data[at] == 123:
                counts[row] += 1


@kernel(BYTE_ARRAY, INT_ARRAY, INT_ARRAY, OUT_INTS, OUT_INTS)
def _items(data: Any, starts: Any, sizes: Any, item_starts: Any, item_sizes: Any) -> None:
    """Finds what stands in base64 in lists of it."""
    item = 0
    for row in range(len(starts)):
        at, end = starts[row], starts[row] + sizes[row]
        while at < end:
            first = at + 8
            at = first
            while data[at] != 34:
                at += 1
            item_starts[item], item_sizes[item] = first, at - first
            item += 1
            at += 3
