"""Rdbwalk: where the records of a piece of a snapshot file stand, and how much each may hold, without decoding any of them.

    walk -> RECORD: where a record, its key and its value begin and end, and the words and bytes to make room for

The same walk as that of rdb_boundary.py, compiled, but for streams and modules, which that one passes. Called by rdbcolumns.py;
rdbwords.py reads the lengths, strings and numbers that records are made of with what is here.

A piece may be a wrong guess, or damaged: any byte may say anything. Compiled code does not check bounds by itself. Every
function here and in rdbwords.py is told where its bytes end, reads none from there on, believes no size before it has been
compared with what is left, and writes only where room was made for it.

Only reads. Formats: rdb.c of Redis 6 to 8 and Valkey 9.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...schema.columnar.jit import BYTE_ARRAY, INT, helper, kernel, records_of
from .columns import NO_TTL

MOST_WORDS = 1_000
"""Fields of a hash, or items of a list, that are not left to rdb-py."""
MOST_ROOM = 64 << 20
"""Bytes for decoded words that one value may ask for, besides some times its own length: damaged ones ask for anything."""
MOST_GROWTH = 88
"""LZF's longest copy is 264 bytes and takes 3."""

INVALID = -1
"""Stands for a position, or a number of words, where there is none that makes sense."""
UNKNOWN = -2
"""Stands for a position after what only rdb_boundary.py or rdb-py can pass."""

PLAIN, INTEGER, LZF = 0, 1, 2
"""How a string stands in a file."""
SHORT = 0x40
"""A byte below it is the length of the text that follows. Most strings are such; who reads many tries this before all else."""
LONGEST_INTEGER = 20
"""Characters of one of 64 bits."""

FOR_RDBPY, HASH, LIST, ZSET = 0, 1, 2, 3
"""What becomes of a record; FOR_RDBPY: it is handed to rdb-py."""

PLAIN_HASH, BINARY_ZSET, PACKED_ZSET, PACKED_HASH, QUICKLIST = 4, 5, 12, 13, 14
"""Type codes."""
EXPIRING_HASH, VALKEY_HASH = 22, 256
"""The type code of hashes whose fields expire, in Redis 7.4 before its release and in Valkey; Valkey's count as another one here,
which no byte is."""
PLAIN_NODE, PACKED_NODE = 1, 2
"""Marks of a list's nodes: a single item, a listpack of several."""

RECORD = np.dtype([(name, np.int64) for name in ("begin", "kind", "code", "key", "expiry", "value", "end", "words", "room")])
"""Where a record begins, its key, its value and its end (from the piece's start on); how many words, and how many bytes for
those that are no slices of the file, its value may need at most."""
STATE = np.dtype([(name, np.int64) for name in ("at", "db", "keys", "announced", "is_valkey")])
"""How far a walk has come, and what it has met; whether the file is one of Valkey."""

_LAYOUTS = {
    # code: what becomes of it, bytes before it, whether a number of items stands there, and what makes up each item: lengths,
    # strings, bytes (-1: a score as text); whether the strings are packed
    0: (FOR_RDBPY, 0, 0, 0, 1, 0, 0),  # string
    1: (FOR_RDBPY, 0, 1, 0, 1, 0, 0),  # list
    2: (FOR_RDBPY, 0, 1, 0, 1, 0, 0),  # set
    3: (FOR_RDBPY, 0, 1, 0, 1, -1, 0),  # zset
    PLAIN_HASH: (HASH, 0, 1, 0, 2, 0, 0),
    BINARY_ZSET: (ZSET, 0, 1, 0, 1, 8, 0),
    9: (FOR_RDBPY, 0, 0, 0, 1, 0, 0),  # hash as zipmap
    10: (FOR_RDBPY, 0, 0, 0, 1, 0, 0),  # list as ziplist
    11: (FOR_RDBPY, 0, 0, 0, 1, 0, 0),  # set as intset
    PACKED_ZSET: (ZSET, 0, 0, 0, 1, 0, 1),
    PACKED_HASH: (HASH, 0, 0, 0, 1, 0, 1),
    QUICKLIST: (LIST, 0, 1, 0, 1, 0, 1),
    16: (HASH, 0, 0, 0, 1, 0, 1),  # as listpack
    17: (ZSET, 0, 0, 0, 1, 0, 1),  # as listpack
    18: (LIST, 0, 1, 1, 1, 0, 1),  # of listpacks and plain items
    20: (FOR_RDBPY, 0, 0, 0, 1, 0, 0),  # set as listpack
    EXPIRING_HASH: (FOR_RDBPY, 0, 1, 1, 2, 0, 0),  # hashes whose fields expire, from here on
    23: (FOR_RDBPY, 0, 0, 0, 1, 0, 0),
    24: (FOR_RDBPY, 8, 1, 1, 2, 0, 0),
    25: (FOR_RDBPY, 8, 0, 0, 1, 0, 0),
    VALKEY_HASH: (FOR_RDBPY, 0, 1, 0, 2, 8, 0),
}
EXPIRING = (EXPIRING_HASH, 23, 24, 25, VALKEY_HASH)
"""Hashes whose fields may have expired."""
KIND, BEFORE, COUNTED, LENGTHS, STRINGS, AFTER, PACKED = range(7)
"""What stands where in a layout."""
LAYOUT = np.full((VALKEY_HASH + 1, 7), INVALID, np.int64)
for _code, _layout in _LAYOUTS.items():
    LAYOUT[_code] = _layout
for _code in (6, 7, 15, 19, 21, *range(26, 64), *range(0xF0, 0xF4), 0xF6, 0xF7):  # modules, streams, and what is yet to come
    LAYOUT[_code] = UNKNOWN
"""The layout of each type code; that of a remark about the file is all INVALID."""

signed: Any = np.int64
"""Makes a signed number of a byte, or of another unsigned one: of both together numba makes a float."""


@kernel(BYTE_ARRAY, records_of(STATE), INT, INT, records_of(RECORD), INT)
def walk(data: Any, state: Any, wanted: int, now_ms: int, table: Any, most_bytes: int) -> int:
    """Goes on from where the state says, and notes the living keys of one database, until the table or its bytes are full.

    How many it has noted; INVALID where it comes no further, UNKNOWN where it has noted nothing and comes no further by itself.
    """
    at, end = state[0].at, len(data)
    rows, room = 0, 0
    while at < end and rows < len(table) and room < most_bytes:
        begin = at
        code, expiry, at = _opening(data, at, end)
        if at < 0:
            return INVALID
        if code == EXPIRING_HASH and state[0].is_valkey:
            code = VALKEY_HASH
        if LAYOUT[code, KIND] == UNKNOWN:
            state[0].at = begin
            return UNKNOWN if rows == 0 else rows
        if LAYOUT[code, KIND] < 0:
            number, at = _remark(data, at, end, code) if at == begin + 1 else (0, INVALID)
            if at < 0:
                return INVALID
            if code == 0xFE:
                state[0].db = number
            elif code == 0xFB and state[0].db == wanted:
                state[0].announced += number
            continue
        key = at
        value = string_at(data, key, end)[4]
        if value < 0:
            return INVALID
        at, kind, words, needed = _measured(data, value, end, code)
        if at < 0:
            return INVALID
        if state[0].db != wanted:
            continue
        state[0].keys += 1
        if expiry != NO_TTL and expiry <= now_ms:
            continue
        record = table[rows]
        record.begin, record.kind, record.code, record.key, record.expiry = begin, kind, code, key, expiry
        record.value, record.end, record.words = value, at, words
        record.room = needed + (value - key) * MOST_GROWTH if data[key] >= 0xC0 else needed
        rows += 1
        room = at - table[0].begin if rows == 1 else room + at - table[rows - 2].end
        room += record.room if kind != FOR_RDBPY else 0
    state[0].at = at
    return rows


@helper
def _opening(data: Any, at: int, end: int) -> Any:
    """A record's type code, when it expires (Unix ms, or NO_TTL), and the position after the type code."""
    expiry = NO_TTL
    while at < end:
        code = data[at]
        at += 1
        if code == 0xFD or code == 0xFC:
            size = 4 if code == 0xFD else 8
            if size > end - at:
                break
            expiry = number_at(data, at, size) * (1000 if code == 0xFD else 1)
            if expiry < 0:
                break
            at += size
        elif code == 0xF9:
            at += 1
        elif code == 0xF8:
            at = length_at(data, at, end)[1]
            if at < 0:
                break
        else:
            return signed(code), expiry, at
    return 0, NO_TTL, INVALID


@helper
def _remark(data: Any, at: int, end: int, code: int) -> Any:
    """The first number that a remark about the file tells, if it tells numbers, and the position after it."""
    lengths, strings = 0, 0
    if code == 0xFE:  # the database of what follows
        lengths = 1
    elif code == 0xFB:  # how many keys it has, and how many of them expire
        lengths = 2
    elif code == 0xF4:  # about a cluster's slot
        lengths = 3
    elif code == 0xFA:  # about the file
        strings = 2
    elif code == 0xF5:  # a library of functions
        strings = 1
    else:
        return 0, INVALID
    first = 0
    for index in range(lengths):
        number, at = length_at(data, at, end)
        if at < 0:
            return 0, INVALID
        if index == 0:
            first = number
    for _ in range(strings):
        at = string_at(data, at, end)[4]
        if at < 0:
            return 0, INVALID
    return first, at


@helper
def _measured(data: Any, at: int, end: int, code: int) -> Any:
    """Of a value: the position after it, what becomes of it, and how many words and bytes it may need at most."""
    start = at
    kind, packed = LAYOUT[code, KIND], LAYOUT[code, PACKED]
    lengths, strings, more = LAYOUT[code, LENGTHS], LAYOUT[code, STRINGS], LAYOUT[code, AFTER]
    at += LAYOUT[code, BEFORE]
    number = 1
    if LAYOUT[code, COUNTED]:
        number, at = length_at(data, at, end)
    if at < 0 or number > end - at:
        return INVALID, kind, 0, 0
    words, room = 0, 0
    for _ in range(number):
        for _ in range(lengths):
            node, at = length_at(data, at, end)
            # Of a node of another kind rdb-py does not find the end, and reads what follows as whatever it may be.
            if at < 0 or (kind == LIST and node != PLAIN_NODE and node != PACKED_NODE):
                return INVALID, kind, 0, 0
        for _ in range(strings):
            if not packed and at < end and data[at] < SHORT:
                at += 1 + signed(data[at])
                words += 1
                continue
            form, _, _, size, at = string_at(data, at, end)
            if at < 0:
                return INVALID, kind, 0, 0
            # What is packed takes at least two bytes for each word, and no number grows to more than twice as many.
            words += size // 2 + 1 if packed else 1
            room += (size if form != PLAIN else 0) + (2 * size if packed else 0)
        if more > 0:
            at += more
            words += 1
        elif more < 0:
            at = _text_of_score(data, at, end)
        if at < 0 or at > end:
            return INVALID, kind, 0, 0
    if kind != ZSET:
        most = 2 * MOST_WORDS if kind == HASH else MOST_WORDS
        if words > most and (not packed or number > most):
            kind = FOR_RDBPY
        words = min(words, most)
    if number == 0 or room > MOST_ROOM + 4 * (at - start):
        kind = FOR_RDBPY
    return at, kind, words, room


@helper
def _text_of_score(data: Any, at: int, end: int) -> int:
    """The position after a score as text; 253 to 255 stand for what has no digits."""
    if at >= end:
        return INVALID
    return at + 1 if data[at] >= 253 else at + 1 + data[at]


# What records are made of


@helper
def length_at(data: Any, at: int, end: int) -> Any:
    """A length and the position after it; lengths of encoded strings are not among them."""
    if at >= end:
        return 0, INVALID
    first = signed(data[at])
    if first < SHORT:
        return first, at + 1
    size = 1 if first < 0x80 else 4 if first == 0x80 else 8 if first == 0x81 else 0
    if size == 0 or size > end - at - 1:
        return 0, INVALID
    number = first & 0x3F if size == 1 else 0
    for index in range(at + 1, at + 1 + size):
        number = number << 8 | signed(data[index])
    return (number, at + 1 + size) if number >= 0 else (0, INVALID)


@helper
def string_at(data: Any, at: int, end: int) -> Any:
    """Of a string: its form, where its bytes begin, how many they are, as many as it may have decoded, the position after it."""
    if at < end and data[at] >= 0xC0:
        first = data[at]
        if first <= 0xC2:
            size = 1 << (first - 0xC0)
            return INTEGER, at + 1, size, LONGEST_INTEGER, at + 1 + size if size < end - at else INVALID
        if first != 0xC3:
            return LZF, at, 0, 0, INVALID
        stored, at = length_at(data, at + 1, end)
        if at < 0:
            return LZF, at, 0, 0, INVALID
        size, at = length_at(data, at, end)
        if at < 0 or stored > end - at or not 0 < size <= stored * MOST_GROWTH:
            return LZF, at, 0, 0, INVALID
        return LZF, at, stored, size, at + stored
    size, at = length_at(data, at, end)
    if at < 0 or size > end - at:
        return PLAIN, at, 0, 0, INVALID
    return PLAIN, at, size, size, at + size


@helper
def number_at(data: Any, at: int, size: int) -> Any:
    """A signed number of so many bytes, which must be there; the lowest stands first."""
    number = signed(0)
    for index in range(size):
        number |= signed(data[at + index]) << signed(8 * index)
    unused = signed(64 - 8 * size)
    return (number << unused) >> unused
