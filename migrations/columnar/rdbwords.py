"""Rdbwords: the words of hashes, lists and zsets in a snapshot file, as slices of one buffer, and the scores of zsets.

    decode -> keys and values of the records that rdbwalk.py has found: plain strings where they stand, all else written behind
    bits, is_ascending -> scores, of the words that are some

What is written: numbers as text, and what LZF has packed. Values are plain strings one after the other, or packed into one
string as a listpack or ziplist. A value that is not exactly as servers write it has no words, and is not guessed at.

Called by rdbcolumns.py. The rules of rdbwalk.py for bytes that may say anything hold here as well. numba makes a function anew
when its own file has changed, not when rdbwalk.py or rdb_layout.py has: whoever changes these touches this one as well. Formats:
listpack.c, ziplist.c and lzf_d.c of Redis 6 to 8 and Valkey 9.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...schema.columnar.jit import (
    BYTE_ARRAY,
    FLOAT_ARRAY,
    INT,
    INT_ARRAY,
    OUT_BYTES,
    OUT_INTS,
    helper,
    kernel,
    records_of,
    signed,
)
from ..rdb_layout import BINARY_ZSET, LISTPACK_HASH
from .rdbwalk import (
    COUNTED,
    INTEGER,
    INVALID,
    LAYOUT,
    LENGTHS,
    LIST,
    LONGEST_INTEGER,
    PACKED,
    PLAIN,
    PLAIN_NODE,
    RECORD,
    SHORT,
    STRINGS,
    length_at,
    number_at,
    string_at,
)

FIRST_OF_LISTPACKS = LISTPACK_HASH
"""From this type code on, what is packed is a listpack and no ziplist."""


@kernel(OUT_BYTES, INT, records_of(RECORD), OUT_INTS, OUT_INTS, OUT_INTS, OUT_INTS, OUT_INTS)
def decode(
    data: Any, free: int, records: Any, key_starts: Any, key_sizes: Any, counts: Any, starts: Any, sizes: Any
) -> tuple[int, int]:
    """Fills in the key of each record, how many words it has, and these; how many all have, and where there is room now.

    A record that can't be decoded here has INVALID words.
    """
    word = 0
    for row in range(len(records)):
        record = records[row]
        counts[row] = INVALID
        key_starts[row], key_sizes[row], at, room = _text(data, record.key, record.value, free)
        if at != record.value:
            continue
        most = min(word + record.words, len(starts))
        last, room = _value(data, record.code, at, record.end, room, starts, sizes, word, most)
        if last < 0 or (record.kind != LIST and (last - word) % 2):
            continue
        counts[row] = last - word
        word, free = last, room
    return word, free


@helper
def _value(data: Any, code: int, at: int, end: int, free: int, starts: Any, sizes: Any, word: int, most: int) -> Any:
    """Fills in the words of a value; how many there are now, and where there is room now."""
    number = 1
    if LAYOUT[code, COUNTED]:
        number, at = length_at(data, at, end)
    if at < 0:
        return INVALID, free
    lengths, strings, packed = LAYOUT[code, LENGTHS], LAYOUT[code, STRINGS], LAYOUT[code, PACKED]
    node = 0
    for _ in range(number):
        if lengths:
            node, at = length_at(data, at, end)
            if at < 0:
                return INVALID, free
        for _ in range(strings):
            if not packed and at < end and data[at] < SHORT and word < most:
                starts[word], sizes[word] = at + 1, data[at]
                at += 1 + signed(data[at])
                word += 1
                continue
            start, size, at, free = _text(data, at, end, free)
            if at < 0 or word >= most:
                return INVALID, free
            if not packed or node == PLAIN_NODE:
                starts[word], sizes[word] = start, size
                word += 1
            elif code < FIRST_OF_LISTPACKS:
                word, free = _ziplist(data, start, start + size, free, starts, sizes, word, most)
            else:
                word, free = _listpack(data, start, start + size, free, starts, sizes, word, most)
            if word < 0:
                return INVALID, free
        if code == BINARY_ZSET:
            if word >= most or end - at < 8:
                return INVALID, free
            starts[word], sizes[word] = at, 8
            word += 1
            at += 8
    return (word, free) if at == end else (INVALID, free)


@helper
def _listpack(data: Any, start: int, end: int, free: int, starts: Any, sizes: Any, word: int, most: int) -> Any:
    """Fills in the words of a listpack; how many there are now, and where there is room now."""
    first, at, last = word, start + 6, end - 1
    if at > last or data[last] != 0xFF or _unsigned(data, start, 4) != end - start:
        return INVALID, free
    while at < last:
        form, before, size = _listpack_entry(data, at, last)
        if form < 0 or size > last - at - before or word >= most or len(data) - free < LONGEST_INTEGER:
            return INVALID, free
        starts[word], sizes[word] = at + before, size
        if form == INTEGER:
            number = number_at(data, at + before, size)
            if before == 0:
                number = signed(data[at])
                if size == 2:
                    number = (number & 0x1F) << 8 | signed(data[at + 1])
                    number -= (number & 0x1000) << 1
            starts[word], sizes[word] = free, _write_number(data, free, number)
            free += sizes[word]
        word += 1
        at = _after_back_length(data, at + before + size, last, before + size)
        if at < 0:
            return INVALID, free
    number = _unsigned(data, start + 4, 2)
    return (word, free) if at == last and (number == word - first or number == 0xFFFF) else (INVALID, free)


@helper
def _listpack_entry(data: Any, at: int, end: int) -> Any:
    """Of an entry: whether it is PLAIN or an INTEGER, how many bytes stand before its own, how many these are.

    A short number stands in the bytes that tell what it is; then none stand before.
    """
    first = signed(data[at])
    if first < 0x80:
        return INTEGER, 0, 1
    if first < 0xC0:
        return PLAIN, 1, first & 0x3F
    if first < 0xE0:
        return INTEGER, 0, 2
    if first < 0xF0:
        return (PLAIN, 2, (first & 0x0F) << 8 | signed(data[at + 1])) if at + 1 < end else (INVALID, 0, 0)
    if first == 0xF0:
        return (PLAIN, 5, _unsigned(data, at + 1, 4)) if at + 4 < end else (INVALID, 0, 0)
    if first <= 0xF3:
        return INTEGER, 1, first - 0xEF
    return (INTEGER, 1, 8) if first == 0xF4 else (INVALID, 0, 0)


@helper
def _after_back_length(data: Any, at: int, end: int, length: int) -> int:
    """The position after what tells the length of the entry before it, if it tells that it is this one."""
    size = 1 if length <= 127 else 2 if length < 16383 else 3 if length < 2097151 else 4 if length < 268435455 else 5
    if size > end - at:
        return INVALID
    for index in range(size):
        byte = (length >> (7 * (size - 1 - index))) & 127
        if data[at + index] != (byte | 128 if index else byte):
            return INVALID
    return at + size


@helper
def _ziplist(data: Any, start: int, end: int, free: int, starts: Any, sizes: Any, word: int, most: int) -> Any:
    """Fills in the words of a ziplist; how many there are now, and where there is room now."""
    first, at, last = word, start + 10, end - 1
    if at > last or data[last] != 0xFF or _unsigned(data, start, 4) != end - start:
        return INVALID, free
    entry, previous = at, 0
    while at < last:
        entry = at
        previous_size, size = signed(data[at]), 1
        if previous_size == 0xFE and at + 4 < last:
            previous_size, size = _unsigned(data, at + 1, 4), 5
        at += size
        if previous_size != previous or at >= last:
            return INVALID, free
        form, before, size = _ziplist_entry(data, at, last)
        if form < 0 or size > last - at - before or word >= most or len(data) - free < LONGEST_INTEGER:
            return INVALID, free
        starts[word], sizes[word] = at + before, size
        if form == INTEGER:
            number = number_at(data, at + before, size) if size else signed(data[at]) - 0xF1
            starts[word], sizes[word] = free, _write_number(data, free, number)
            free += sizes[word]
        word += 1
        at += before + size
        previous = at - entry
    number = _unsigned(data, start + 8, 2)
    is_whole = (number == word - first or number == 0xFFFF) and _unsigned(data, start + 4, 4) == entry - start
    return (word, free) if is_whole else (INVALID, free)


@helper
def _ziplist_entry(data: Any, at: int, end: int) -> Any:
    """Of an entry: whether it is PLAIN or an INTEGER, how many bytes stand before its own, how many these are.

    The smallest numbers have none of their own.
    """
    first = signed(data[at])
    if first < 0x40:
        return PLAIN, 1, first
    if first < 0x80:
        return (PLAIN, 2, (first & 0x3F) << 8 | signed(data[at + 1])) if at + 1 < end else (INVALID, 0, 0)
    if first == 0x80:
        if at + 4 >= end:
            return INVALID, 0, 0
        size = signed(0)
        for index in range(at + 1, at + 5):
            size = size << 8 | signed(data[index])
        return PLAIN, 5, size
    if 0xF1 <= first <= 0xFD:
        return INTEGER, 1, 0
    size = 2 if first == 0xC0 else 4 if first == 0xD0 else 8 if first == 0xE0 else 3 if first == 0xF0 else 1
    return (INTEGER, 1, size) if size > 1 or first == 0xFE else (INVALID, 0, 0)


@helper
def _unsigned(data: Any, at: int, size: int) -> Any:
    """A number that has no sign, as ``number_at``."""
    number = signed(0)
    for index in range(size - 1, -1, -1):
        number = number << 8 | signed(data[at + index])
    return number


# One string


@helper
def _write_number(data: Any, at: int, number: int) -> int:
    """Writes a number's decimal text, for which there must be room, and says how long it is."""
    left = np.uint64(number)
    start = at
    if number < 0:
        left = np.uint64(0) - left
        data[at] = 45
        at += 1
    digits, power = 1, left
    while power >= np.uint64(10):
        power //= np.uint64(10)
        digits += 1
    for index in range(at + digits - 1, at - 1, -1):
        data[index] = np.uint8(48) + np.uint8(left % np.uint64(10))
        left //= np.uint64(10)
    return at + digits - start


@helper
def _inflate(data: Any, at: int, end: int, to: int, room: int) -> bool:
    """Writes what LZF has packed from one position up to another; whether that is exactly as long as there is room."""
    first, last = to, to + room
    while at < end:
        control = signed(data[at])
        at += 1
        if control < 32:
            size, source = control + 1, at
            at += size
            if at > end:
                return False
        else:
            size = (control >> 5) + 2
            if size == 9 and at < end:
                size += signed(data[at])
                at += 1
            if at >= end:
                return False
            source = to - ((control & 31) << 8) - signed(data[at]) - 1
            at += 1
            if source < first:
                return False
        if size > last - to:
            return False
        # Byte by byte, as a copy may overlap what it copies. Unsigned indexes are faster: they can't count from the end.
        back = np.uint64(to - source)
        for index in range(np.uint64(to), np.uint64(to + size)):
            data[index] = data[index - back]
        to += size
    return to == last


@helper
def _text(data: Any, at: int, end: int, free: int) -> Any:
    """A string decoded: where its text begins and how long it is; the position after the string; where there is room now."""
    form, start, stored, size, at = string_at(data, at, end)
    if at < 0 or form == PLAIN:
        return start, stored, at, free
    if size > len(data) - free:
        return start, 0, INVALID, free
    if form == INTEGER:
        size = _write_number(data, free, number_at(data, start, stored))
    elif not _inflate(data, start, start + stored, free, size):
        return start, 0, INVALID, free
    return free, size, at, free + size


# Scores


@kernel(BYTE_ARRAY, INT_ARRAY, INT_ARRAY, OUT_INTS)
def bits(data: Any, starts: Any, _sizes: Any, found: Any) -> None:
    """Fills in the eight bytes at each position."""
    for row in range(len(starts)):
        found[row] = number_at(data, starts[row], 8)


@kernel(BYTE_ARRAY, INT_ARRAY, INT_ARRAY, FLOAT_ARRAY)
def is_ascending(data: Any, starts: Any, sizes: Any, scores: Any) -> bool:
    """Whether no member stands before one with a lower score, or with the same and a lower text."""
    for row in range(1, len(starts)):
        if scores[row - 1] > scores[row]:
            return False
        if scores[row - 1] == scores[row] and _is_after(data, starts[row - 1], sizes[row - 1], starts[row], sizes[row]):
            return False
    return True


@helper
def _is_after(data: Any, one: int, one_size: int, other: int, other_size: int) -> bool:
    for index in range(min(one_size, other_size)):
        if data[one + index] != data[other + index]:
            return bool(data[one + index] > data[other + index])
    return bool(one_size > other_size)
