"""Skim: from one record of an RDB file to the next without decoding, to find where a record begins in the middle of a file.

An RDB file has no index: records follow one another, and only who reads from the start knows where one begins. ``boundary``
guesses: from where 64 records in a row make sense, one very likely begins. It is no proof (a value may hold a whole RDB file),
which is why rdbfile.py checks every guess. Pure. Format: rdb.h and rdb.c of Redis 6 to 8 and Valkey 9.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

RUN = 64
"""Records in a row that must make sense."""
WINDOW = 1 << 17
"""Bytes in which a beginning is looked for. In a value that is longer there is none."""
LONGEST_KEY = 1 << 16
"""A record whose key is longer is not believed, and neither is one whose key is empty: a field of zeros is full of these."""

SELECT_DB = 0xFE
RESIZE_DB = 0xFB


class Readable(Protocol):
    """Bytes, or a mapped file."""

    def __len__(self) -> int: ...
    def __getitem__(self, at: int, /) -> int: ...


class NoRecord(Exception):
    """What stands here is no record that is understood."""


def boundary(data: Readable, start: int) -> int | None:
    """A position soon after ``start`` at which a record very likely begins; None if none is found nearby.

    It stands after a run of records that made sense: should the run have begun in the middle of one, it has found its feet
    since. The end of the file is no boundary.
    """
    for guess in range(start, min(start + WINDOW, len(data))):
        if data[guess] not in _PLAUSIBLE:
            continue
        try:
            at = guess
            for _ in range(RUN):
                at = record(data, at)
        except (NoRecord, IndexError):
            continue
        return at
    return None


def record(data: Readable, at: int) -> int:
    """The position after the record, or the remark about the file, at ``at``. Raises NoRecord, and IndexError at the end."""
    code = data[at]
    at += 1
    while code in _BEFORE_RECORDS:
        at = _BEFORE_RECORDS[code](data, at)
        code = data[at]
        at += 1
    if code in _REMARKS:
        return _REMARKS[code](data, at)
    skip = _VALUES.get(code)
    if skip is None:
        raise NoRecord(code)
    after_key = _string(data, at)
    if not 1 < after_key - at < LONGEST_KEY:
        raise NoRecord(code)
    return skip(data, after_key)


def _inside(data: Readable, at: int) -> int:
    if at > len(data):
        raise IndexError(at)
    return at


def _length(data: Readable, at: int) -> tuple[int, int]:
    """A length and the position after it; lengths of encoded strings are not among them."""
    first = data[at]
    match first >> 6:
        case 0:
            return first & 0x3F, at + 1
        case 1:
            return (first & 0x3F) << 8 | data[at + 1], at + 2
        case 2 if first == 0x80:
            return _number(data, at + 1, 4), at + 5
        case 2 if first == 0x81:
            return _number(data, at + 1, 8), at + 9
    raise NoRecord(first)


def _number(data: Readable, at: int, size: int) -> int:
    number = 0
    for index in range(at, at + size):
        number = number << 8 | data[index]
    return number


_INTEGERS = {0xC0: 1, 0xC1: 2, 0xC2: 4}
"""Strings that are whole numbers, by their first byte: how many bytes follow."""
_LZF = 0xC3


def _string(data: Readable, at: int) -> int:
    first = data[at]
    if first in _INTEGERS:
        return _inside(data, at + 1 + _INTEGERS[first])
    if first == _LZF:
        packed, at = _length(data, at + 1)
        size, at = _length(data, at)
        if not 0 < packed <= size:
            raise NoRecord(first)
        return _inside(data, at + packed)
    size, at = _length(data, at)
    return _inside(data, at + size)


def _many(each: Callable[[Readable, int], int], *more: Callable[[Readable, int], int]) -> Callable[[Readable, int], int]:
    """A value of so many items as its length says, each made of these parts."""

    def skip(data: Readable, at: int) -> int:
        number, at = _length(data, at)
        if number == 0:  # Redis keeps no empty values
            raise NoRecord
        for _ in range(number):
            at = each(data, at)
            for part in more:
                at = part(data, at)
        return at

    return skip


def _double(data: Readable, at: int) -> int:
    """A score as text; 253 to 255 stand for what has no digits."""
    size = data[at]
    return _inside(data, at + 1 + (0 if size >= 253 else size))


def _bytes(size: int) -> Callable[[Readable, int], int]:
    return lambda data, at: _inside(data, at + size)


def _plain_length(data: Readable, at: int) -> int:
    return _length(data, at)[1]


def _lengths(number: int) -> Callable[[Readable, int], int]:
    def skip(data: Readable, at: int) -> int:
        for _ in range(number):
            at = _plain_length(data, at)
        return at

    return skip


def _strings(number: int) -> Callable[[Readable, int], int]:
    def skip(data: Readable, at: int) -> int:
        for _ in range(number):
            at = _string(data, at)
        return at

    return skip


_VALUES: Mapping[int, Callable[[Readable, int], int]] = {
    0: _string,
    1: _many(_string),  # list
    2: _many(_string),  # set
    3: _many(_string, _double),  # zset
    4: _many(_string, _string),  # hash
    5: _many(_string, _bytes(8)),  # zset with binary scores
    9: _string,  # hash as zipmap; from here on values packed into one string, where no other form is named
    10: _string,  # list as ziplist
    11: _string,  # set as intset
    12: _string,  # zset as ziplist
    13: _string,  # hash as ziplist
    14: _many(_string),  # list of ziplists
    16: _string,  # hash as listpack
    17: _string,  # zset as listpack
    18: _many(_plain_length, _string),  # list of listpacks and plain items
    20: _string,  # set as listpack
}
"""Type code -> what skips its value. Streams, modules and hashes whose fields expire are left out: where they stand, the next
beginning is looked for behind them."""

_BEFORE_RECORDS: Mapping[int, Callable[[Readable, int], int]] = {
    0xFD: _bytes(4),  # expires, seconds
    0xFC: _bytes(8),  # expires, ms
    0xF9: _bytes(1),  # how often used
    0xF8: _plain_length,  # how long not used
}
_REMARKS: Mapping[int, Callable[[Readable, int], int]] = {
    SELECT_DB: _plain_length,
    RESIZE_DB: _lengths(2),
    0xFA: _strings(2),  # about the file
    0xF4: _lengths(3),  # about a cluster's slot
    0xF5: _strings(1),  # a library of functions
}
_PLAUSIBLE = frozenset({*_VALUES, *_BEFORE_RECORDS, *_REMARKS})
"""The bytes with which something that is understood begins."""
