"""Layout: what stands in an RDB file behind each type code of a record, and behind each remark about the file.

The one table of it. rdb_boundary.py and columnar/rdbwalk.py make of it what passes records, the one in Python and the other
compiled; fieldttl.py, rdbfile.py and columnar/ call codes by these names. Streams and what modules write are no such layouts:
only rdb_boundary.py passes them. Pure. Format: rdb.h and rdb.c of Redis 6 to 8.10 and Valkey 9.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen


@frozen
class Layout:
    """Bytes, then a number of items where they are counted, then these: lengths, strings and bytes of each, in this order."""

    strings: int = 0
    lengths: int = 0
    after: int = 0
    """Bytes behind the strings; SCORE_TEXT: a score as text."""
    before: int = 0
    is_counted: bool = False


SCORE_TEXT = -1

STRING, LIST, SET, ZSET, PLAIN_HASH, BINARY_ZSET, MODULE = 0, 1, 2, 3, 4, 5, 7
ZIPMAP_HASH, ZIPLIST_LIST, INTSET, ZIPLIST_ZSET, ZIPLIST_HASH, QUICKLIST = 9, 10, 11, 12, 13, 14
LISTPACK_HASH, LISTPACK_ZSET, LISTPACK_LIST, LISTPACK_SET = 16, 17, 18, 20
EARLY_EXPIRING_HASH, EARLY_EXPIRING_LISTPACK, EXPIRING_HASH, EXPIRING_LISTPACK = 22, 23, 24, 25
"""Hashes whose fields expire; the early ones are of Redis 7.4 before its release."""
VALKEY_HASH = 22
"""The same of Valkey: since they parted, it and Redis have given the same codes to different things."""
STREAMS = {15: 1, 19: 2, 21: 3}
REDIS_STREAMS = {**STREAMS, 26: 4, 27: 5}
"""Type code -> version of what stands there."""
ARRAY = 28
"""An array, since Redis 8.8."""
TEMPLATE_HASHES = range(29, 33)
"""Hashes whose field names are in a template, since Redis 8.10. Commands of their own make them: no supported queue has them."""

SELECT_DB, RESIZE_DB, ABOUT_FILE, MODULE_DATA, FUNCTIONS, SLOT = 0xFE, 0xFB, 0xFA, 0xF7, 0xF5, 0xF4
EXPIRY_S, EXPIRY_MS, FREQUENCY, IDLE, MODULE_NOTES = 0xFD, 0xFC, 0xF9, 0xF8, 0xF3
HASH_TEMPLATE = 0xF2
"""The field names of hashes that name this template, in files of Redis."""
SLOT_IMPORT, EARLY_FUNCTIONS = 0xF3, 0xF6
"""What can't be passed: a slot that was being moved, in Valkey's files, and functions as before the release of Redis 7.0."""
END = 0xFF

_ONE_STRING = (STRING, ZIPMAP_HASH, ZIPLIST_LIST, INTSET, ZIPLIST_ZSET, ZIPLIST_HASH, LISTPACK_HASH, LISTPACK_ZSET, LISTPACK_SET)
VALUES: Mapping[int, Layout] = {
    **dict.fromkeys(_ONE_STRING, Layout(1)),
    **dict.fromkeys((LIST, SET, QUICKLIST), Layout(1, is_counted=True)),  # strings of a quicklist are ziplists
    ZSET: Layout(1, after=SCORE_TEXT, is_counted=True),
    PLAIN_HASH: Layout(2, is_counted=True),
    BINARY_ZSET: Layout(1, after=8, is_counted=True),
    LISTPACK_LIST: Layout(1, 1, is_counted=True),  # of listpacks and plain items, which the length tells apart
}
"""By type code, in files of both."""
REDIS_EXPIRING: Mapping[int, Layout] = {
    EARLY_EXPIRING_HASH: Layout(2, 1, is_counted=True),
    EARLY_EXPIRING_LISTPACK: Layout(1),
    EXPIRING_HASH: Layout(2, 1, before=8, is_counted=True),  # after the first time
    EXPIRING_LISTPACK: Layout(1, before=8),
}
VALKEY_EXPIRING: Mapping[int, Layout] = {VALKEY_HASH: Layout(2, after=8, is_counted=True)}
"""Hashes whose fields may have expired."""

BEFORE: Mapping[int, Layout] = {
    EXPIRY_S: Layout(before=4),
    EXPIRY_MS: Layout(before=8),
    FREQUENCY: Layout(before=1),
    IDLE: Layout(lengths=1),
}
"""What may stand before a record's type code: when it expires, how often it is used, for how long it was not."""
REMARKS: Mapping[int, Layout] = {
    SELECT_DB: Layout(lengths=1),  # the database of what follows
    RESIZE_DB: Layout(lengths=2),  # how many keys it has, and how many of them expire
    ABOUT_FILE: Layout(2),
    FUNCTIONS: Layout(1),  # a library of functions
    SLOT: Layout(lengths=3),  # about a cluster's slot
}
