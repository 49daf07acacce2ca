"""The plain overflow of thousands of jobs at once: ``../overflow.py`` for columns. Needs the extra ``spark``.

Most migrated jobs have an overflow in which the values stand in one order and each in one form, that of ``Overflow.encode``. A
loop finds them there; of all other texts it says that they are not plain. tests/schema/native/columnar/test_overflow.py. Called
by ``batch_prefilter.py`` and ``table.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from attrs import frozen

from ...columnar.binary_views import BinaryViews, has, starts_with
from ...columnar.build import base64_decode, scatter
from ...columnar.jit import BYTE_ARRAY, INT_ARRAY, OUT_BOOLS, OUT_INTS, OUT_TABLE, helper, kernel, same
from ...columnar.jobtable import BinaryLists
from ...columnar.json_check import after_digits
from ...columnar.tagged_json_check import BYTES as BEFORE_BYTES
from ...columnar.tagged_json_check import after_bytes, check_tagged_json
from ...tagged_json import encode_tagged
from ..overflow import extra_of

WHOLE, SIGNED, FRACTION, BYTES, LINES = range(5)
FIELDS = {
    "priority": SIGNED,
    "updated_at": WHOLE,
    "max_attempts": WHOLE,
    "progress": FRACTION,
    "result": BYTES,
    "ttl": WHOLE,
    "logs": LINES,
}
"""The fields that a plain overflow may have, in their order, with the form of each."""
NONE = -1
"""Stands for the size of a text that is not there."""

_KINDS = np.array(list(FIELDS.values()), np.int64)
_NAMES = [f'"{name}":'.encode() for name in FIELDS]
_ENDS = np.cumsum([0, *map(len, _NAMES)])
_HEAD, _MIDDLE, _AT, _TAIL = (
    np.frombuffer(text, np.uint8) for text in (b'{"fields":{', b'},"extra":', b',"at":["', b'.0],"native":false}')
)
_ALL_NAMES = np.frombuffer(b"".join(_NAMES), np.uint8)


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
    """The family whose it is, where it is written as an ordered ``encode_tagged``, and is not ``_others``."""
    _others: Any
    """Which jobs have another extra (indexes)."""
    _codes: Any
    """And which of ``_extras`` that is."""
    _extras: Sequence[Mapping[str, Any]]

    @classmethod
    def of(cls, texts: BinaryViews) -> OverflowColumns:
        """What these texts hold."""
        spans = np.zeros((2, len(FIELDS) + 3, len(texts)), np.int64)
        are_plain = np.zeros(len(texts), np.bool_)
        texts.fill(are_plain, _walk, spans[0], spans[1])
        *fields, extra, roles, scores = (BinaryViews(texts.data, *found) for found in spans.transpose(1, 0, 2))
        are_tagged, families = check_tagged_json(extra)
        others = np.flatnonzero(are_plain & ~are_tagged)
        codes, different = extra.take(others).dictionary_encode()
        extras = list(map(extra_of, different))
        are_plain[others] = np.array([each is not None for each in extras], bool)[codes]
        by_name = dict(zip(FIELDS, fields, strict=True))
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

    def extra(self) -> tuple[BinaryViews, frozenset[str]]:
        """The extra of other families, as an ordered ``encode_tagged``; and the names of all of these families."""
        names = {family.decode() for family in self._families.dictionary_encode()[1] if family}
        if not len(self._others):
            return self._extra, frozenset(names)
        encoded = BinaryViews.of([encode_tagged(each, ordered=True) for each in self._extras]).take(self._codes)
        rest = np.delete(np.arange(len(self._extra)), self._others)
        return scatter([self._extra.take(rest), encoded], [rest, self._others]), frozenset(names.union(*self._extras))


def _there(texts: BinaryViews) -> BinaryViews:
    return BinaryViews(texts.data, texts.starts, np.maximum(texts.sizes, 0))


# The loops


@helper
def _number(data: Any, at: int, end: int) -> int:
    """Where the number ends that begins here, of at most 16 digits, without zeros before it; -1 for none."""
    first = at
    at = after_digits(data, at, end)
    return at if 0 < at - first <= 16 and (data[first] != 48 or at - first == 1) else -1


@helper
def _value(data: Any, at: int, end: int, kind: int) -> Any:
    """Where the value begins and ends that stands here, and where what comes after it does; -1, -1, -1 for none."""
    nothing = (-1, -1, -1)
    if kind in (WHOLE, SIGNED):
        first = at
        if kind == SIGNED and at < end and data[at] == 45:
            at += 1
        stop = _number(data, at, end)
        if stop < 0 or (at > first and data[at] == 48):
            return nothing
        return first, stop, stop
    if kind == FRACTION:
        stop = at + 2
        if stop >= end or not 48 <= data[at] <= 57 or data[at + 1] != 46:
            return nothing
        stop = after_digits(data, stop, end)
        return (at, stop, stop) if 1 <= stop - at - 2 <= 17 else nothing
    if kind == BYTES:
        after = after_bytes(data, at, end)
        return (at + len(BEFORE_BYTES), after - 2, after) if after >= 0 else nothing
    if at >= end or data[at] != 91:
        return nothing
    first = at + 1
    at = first
    while True:
        at = after_bytes(data, at, end)
        if at < 0 or at >= end:
            return nothing
        if data[at] == 93:
            return first, at, at + 1
        if data[at] != 44:
            return nothing
        at += 1


@kernel(BYTE_ARRAY, INT_ARRAY, INT_ARRAY, OUT_BOOLS, OUT_TABLE, OUT_TABLE)
def _walk(data: Any, starts: Any, sizes: Any, are_plain: Any, found_starts: Any, found_sizes: Any) -> None:
    fields = len(_KINDS)
    for row in range(len(starts)):
        at, end = starts[row], starts[row] + sizes[row]
        for field in range(fields):
            found_sizes[field, row] = NONE
        if not starts_with(data, at, end, _HEAD):
            continue
        at += len(_HEAD)
        is_first, is_valid = True, True
        for field in range(fields):
            name, size = _ENDS[field], _ENDS[field + 1] - _ENDS[field]
            begin = at
            if not is_first and begin < end and data[begin] == 44:
                begin += 1
            if (not is_first and begin == at) or begin + size > end or not same(data, begin, _ALL_NAMES, name, size):
                continue
            first, stop, after = _value(data, begin + size, end, _KINDS[field])
            if after < 0:
                is_valid = False
                break
            found_starts[field, row], found_sizes[field, row] = first, stop - first
            at, is_first = after, False
        if not is_valid or not starts_with(data, at, end, _MIDDLE):
            continue
        at += len(_MIDDLE)
        # The extra of others may have any form: what comes after it is found from the end.
        stop = end - len(_TAIL)
        if stop <= at or not has(data, stop, _TAIL):
            continue
        number = stop
        while number > at and 48 <= data[number - 1] <= 57:
            number -= 1
        if _number(data, number, stop) != stop:
            continue
        if data[number - 1] == 45 and data[number] != 48:
            number -= 1
        word = number - 2
        if word <= at or data[word] != 34 or data[word + 1] != 44:
            continue
        last = word
        while word > at and 97 <= data[word - 1] <= 122:
            word -= 1
        if word == last or word - len(_AT) <= at or not has(data, word - len(_AT), _AT):
            continue
        found_starts[fields, row], found_sizes[fields, row] = at, word - len(_AT) - at
        found_starts[fields + 1, row], found_sizes[fields + 1, row] = word, last - word
        found_starts[fields + 2, row], found_sizes[fields + 2, row] = number, stop - number
        are_plain[row] = True


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
