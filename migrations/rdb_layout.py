"""What stands behind each type code of an RDB file.

For rdb_boundary.py, which passes over records, and columnar/rdbwalk.py, which finds them with compiled code. Since they parted,
Redis and Valkey have given the same codes to different things. Pure. Format: rdb.h and rdb.c of Redis 6 to 8 and Valkey 9.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..schema.frozen import frozen


@frozen
class Layout:
    """What a value, or a remark about the file, is made of: ``before``, then items of lengths, strings and ``after``."""

    strings: int = 0
    lengths: int = 0
    """These stand before the strings."""
    after: int = 0
    """Bytes behind the strings of an item; SCORE_TEXT."""
    before: int = 0
    """Bytes before all items."""
    is_counted: bool = False
    """A length tells how many items there are; else there is one."""


SCORE_TEXT = -1
"""Stands for the bytes of a score that is written as text."""

SELECT_DB, RESIZE_DB, END = 0xFE, 0xFB, 0xFF
MODULE, MODULE_AUX = 7, 0xF7
"""A module's value, and what one keeps beside the keys: parts that say themselves what they are."""
HASH, BINARY_ZSET, ZIPLIST_ZSET, ZIPLIST_HASH, ZIPLIST_LIST = 4, 5, 12, 13, 14
LISTPACK_HASH, LISTPACK_ZSET, LISTPACK_LIST = 16, 17, 18
EARLY_EXPIRING_HASH, EARLY_EXPIRING_LISTPACK, EXPIRING_HASH, EXPIRING_LISTPACK = 22, 23, 24, 25
"""Hashes whose fields may expire in Redis; the early ones are of 7.4 before its release."""
VALKEY_EXPIRING_HASH = 22

_PACKED = Layout(strings=1)
"""A value, or some of its items, packed into one string."""

VALUES: Mapping[int, Layout] = {
    0: Layout(strings=1),  # string
    1: Layout(strings=1, is_counted=True),  # list
    2: Layout(strings=1, is_counted=True),  # set
    3: Layout(strings=1, after=SCORE_TEXT, is_counted=True),  # zset
    HASH: Layout(strings=2, is_counted=True),
    BINARY_ZSET: Layout(strings=1, after=8, is_counted=True),
    9: _PACKED,  # hash as zipmap
    10: _PACKED,  # list as ziplist
    11: _PACKED,  # set as intset
    ZIPLIST_ZSET: _PACKED,
    ZIPLIST_HASH: _PACKED,
    ZIPLIST_LIST: Layout(strings=1, is_counted=True),
    LISTPACK_HASH: _PACKED,
    LISTPACK_ZSET: _PACKED,
    LISTPACK_LIST: Layout(strings=1, lengths=1, is_counted=True),  # of listpacks and plain items
    20: _PACKED,  # set as listpack
}
"""By type code, in files of both."""
REDIS_EXPIRING: Mapping[int, Layout] = {
    EARLY_EXPIRING_HASH: Layout(strings=2, lengths=1, is_counted=True),
    EARLY_EXPIRING_LISTPACK: _PACKED,
    EXPIRING_HASH: Layout(strings=2, lengths=1, before=8, is_counted=True),  # after the first time at which one expires
    EXPIRING_LISTPACK: Layout(strings=1, before=8),
}
VALKEY_EXPIRING: Mapping[int, Layout] = {VALKEY_EXPIRING_HASH: Layout(strings=2, after=8, is_counted=True)}
STREAMS: Mapping[int, int] = {15: 1, 19: 2, 21: 3}
"""Type code -> version: each adds something."""
REDIS_STREAMS: Mapping[int, int] = {26: 4}

REMARKS: Mapping[int, Layout] = {
    SELECT_DB: Layout(lengths=1),
    RESIZE_DB: Layout(lengths=2),  # how many keys, and how many of them expire
    0xFA: Layout(strings=2),  # about the file
    0xF5: Layout(strings=1),  # a library of functions
    0xF4: Layout(lengths=3),  # about a cluster's slot
}
"""Where a record could stand; MODULE_AUX besides."""
