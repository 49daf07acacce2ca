"""Rdbwalk: where the records of a piece of a snapshot file stand, and how much each may hold, without decoding any of them.

    walk -> RECORD: where a record, its key and its value begin and end, and the words and bytes to make room for

The same walk as that of rdb_boundary.py by the same table (rdb_layout.py), compiled, but for streams and modules, which that one
passes. Called by rdbcolumns.py; rdbwords.py reads the lengths, strings and numbers that records are made of with what is here.
numba makes a function anew when its own file has changed: whoever changes rdb_layout.py touches this one as well.

A piece may be a wrong guess, or damaged: any byte may say anything. Compiled code does not check bounds by itself. Every
function here and in rdbwords.py is told where its bytes end, reads none from there on, believes no size before it has been
compared with what is left, and writes only where room was made for it.

Only reads. Formats: rdb.c of Redis 6 to 8.10 and Valkey 9.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...schema.columnar.jit import BYTE_ARRAY, INT, helper, kernel, records_of, signed
from .. import rdb_layout as rdb
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

FOR_RDBPY, HASH, LIST, ZSET, REMARK = range(5)
"""What becomes of a record; FOR_RDBPY: it is handed to rdb-py; REMARK: it is none, but says something about the file."""

VALKEY_HASH = 256
"""Stands here for rdb.VALKEY_HASH, which is a type code of Redis as well: no byte is it."""
EXPIRING = (*rdb.REDIS_EXPIRING, VALKEY_HASH)
"""Hashes whose fields may have expired."""
PLAIN_NODE, PACKED_NODE = 1, 2
"""Marks of a list's nodes: a single item, a listpack of several."""

RECORD = np.dtype([(name, np.int64) for name in ("begin", "kind", "code", "key", "expiry", "value", "end", "words", "room")])
"""Where a record begins, its key, its value and its end (from the piece's start on); how many words, and how many bytes for
those that are no slices of the file, its value may need at most."""
STATE = np.dtype([(name, np.int64) for name in ("at", "db", "keys", "announced", "is_valkey")])
"""How far a walk has come, and what it has met; whether the file is one of Valkey."""

KIND, BEFORE, COUNTED, LENGTHS, STRINGS, AFTER, PACKED = range(7)
"""What stands where in a row of LAYOUT: what becomes of it, a layout, and whether the strings are packed."""
_PLAIN = {rdb.PLAIN_HASH: HASH, rdb.BINARY_ZSET: ZSET}
_PACKED = {rdb.ZIPLIST_HASH: HASH, rdb.LISTPACK_HASH: HASH, rdb.ZIPLIST_ZSET: ZSET, rdb.LISTPACK_ZSET: ZSET}
_PACKED |= {rdb.QUICKLIST: LIST, rdb.LISTPACK_LIST: LIST}
_KINDS = {**_PLAIN, **_PACKED, **dict.fromkeys(rdb.REMARKS, REMARK)}
_LAYOUTS = {**rdb.VALUES, **rdb.REDIS_EXPIRING, VALKEY_HASH: rdb.VALKEY_EXPIRING[rdb.VALKEY_HASH], **rdb.REMARKS}
# Modules, streams, arrays, template hashes, and what is yet to come.
_UNKNOWN = [6, rdb.MODULE, *rdb.REDIS_STREAMS, *range(rdb.ARRAY, 64), *range(0xF0, 0xF4), rdb.EARLY_FUNCTIONS, rdb.MODULE_DATA]
LAYOUT = np.full((VALKEY_HASH + 1, 7), INVALID, np.int64)
LAYOUT[_UNKNOWN] = UNKNOWN
for _code, _each in _LAYOUTS.items():
    _made_of = (_each.before, _each.is_counted, _each.lengths, _each.strings, _each.after)
    LAYOUT[_code] = (_KINDS.get(_code, FOR_RDBPY), *_made_of, _code in _PACKED)
"""The layout of each type code; all INVALID for what is none."""


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
        if code == rdb.VALKEY_HASH and state[0].is_valkey:
            code = VALKEY_HASH
        if LAYOUT[code, KIND] == UNKNOWN:
            state[0].at = begin
            return UNKNOWN if rows == 0 else rows
        is_remark = LAYOUT[code, KIND] == REMARK
        if LAYOUT[code, KIND] == INVALID or (is_remark and at != begin + 1):
            return INVALID
        key = at
        value = at if is_remark else string_at(data, key, end)[4]
        if value < 0:
            return INVALID
        at, kind, words, needed = _measured(data, value, end, code)
        if at < 0:
            return INVALID
        if code == rdb.SELECT_DB:
            state[0].db = length_at(data, value, end)[0]
        elif code == rdb.RESIZE_DB and state[0].db == wanted:
            state[0].announced += length_at(data, value, end)[0]
        if is_remark or state[0].db != wanted:
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
        if code == rdb.EXPIRY_S or code == rdb.EXPIRY_MS:
            size = 4 if code == rdb.EXPIRY_S else 8
            if size > end - at:
                break
            expiry = number_at(data, at, size) * (1000 if code == rdb.EXPIRY_S else 1)
            if expiry < 0:
                break
            at += size
        elif code == rdb.FREQUENCY:
            at += 1
        elif code == rdb.IDLE:
            at = length_at(data, at, end)[1]
            if at < 0:
                break
        else:
            return signed(code), expiry, at
    return 0, NO_TTL, INVALID


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
        elif more == rdb.SCORE_TEXT:
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
