"""Fieldttl: a hash whose fields expire, written anew as a plain one of the fields that are left.

Fields whose time has come are invisible on a server, also on one that loads the file later; a hash without any other is no key.
rdb-py reads all fields and tells no times, and knows nothing of Valkey's form, so such a record is written anew before rdb-py
gets it. Strings stay as they stand, packed or not. Called by rdbfile.py. Pure. Formats: rdb.c, t_hash.c, listpack.c and lzf_d.c
of Redis 7.4 to 8 and Valkey 9.
"""

from __future__ import annotations

from collections.abc import Iterator

from .rdb_boundary import REDIS, VALKEY, Dialect, NoRecord, length_at, string_at
from .rdb_layout import EARLY_EXPIRING_LISTPACK, EXPIRING_HASH, EXPIRING_LISTPACK, LISTPACK_HASH, PLAIN_HASH

GONE = b"\xfc" + bytes(8) + b"\x00"
"""The beginning of a string that had expired in 1970: what is made of a hash that has no fields left."""

_LZF = 0xC3
_HEAD = 6
"""Bytes of a listpack before its entries: its length, and their number."""
_LISTPACK_END = 0xFF
_BACK_LENGTHS = (128, 16383, 2097151, 268435455)
"""An entry that is so long takes one byte more behind it to tell how long it is."""
_MOST_COUNTED = 0xFFFF
"""Stands in a listpack for a number of entries that nobody knows."""


def living(record: bytes, dialect: Dialect, now_ms: int) -> bytes:
    """The same record with the fields that have not expired, as one that rdb-py understands. Raises NoRecord and IndexError."""
    code, key = dialect.head(record, 0)
    value = string_at(record, key)
    head, name = record[: key - 1], record[key:value]
    if dialect is REDIS and code in (EXPIRING_HASH, EXPIRING_LISTPACK):
        if int.from_bytes(record[value : value + 8], "little") > now_ms:
            return record  # the first time is still to come
        value += 8
    if dialect is REDIS and code in (EARLY_EXPIRING_LISTPACK, EXPIRING_LISTPACK):
        fields = list(_packed_fields(_text(record, value), now_ms))
        packed = b"".join(fields)
        size = (_HEAD + len(packed) + 1).to_bytes(4, "little")
        number = min(2 * len(fields), _MOST_COUNTED).to_bytes(2, "little")
        body = bytes([LISTPACK_HASH]) + name + _string(size + number + packed + bytes([_LISTPACK_END]))
    else:
        first = int.from_bytes(record[value - 8 : value], "little") if code == EXPIRING_HASH else 1
        each = _valkey_fields(record, value) if dialect is VALKEY else _redis_fields(record, value, first)
        fields = [field for field, expires in each if expires is None or expires > now_ms]
        body = bytes([PLAIN_HASH]) + name + b"\x80" + len(fields).to_bytes(4) + b"".join(fields)
    return head + body if fields else GONE + name + b"\x00"


def _redis_fields(data: bytes, at: int, first: int) -> Iterator[tuple[bytes, int | None]]:
    """Each field with its value, and when it expires (Unix ms), which is told as ms from ``first`` on, plus one."""
    number, at = length_at(data, at)
    for _ in range(number):
        ttl, at = length_at(data, at)
        end = string_at(data, string_at(data, at))
        yield data[at:end], first + ttl - 1 if ttl else None
        at = end


def _valkey_fields(data: bytes, at: int) -> Iterator[tuple[bytes, int | None]]:
    number, at = length_at(data, at)
    for _ in range(number):
        end = string_at(data, string_at(data, at))
        expires = int.from_bytes(data[end : end + 8], "little", signed=True)
        yield data[at:end], None if expires < 0 else expires
        at = end + 8


def _packed_fields(listpack: bytes, now_ms: int) -> Iterator[bytes]:
    """The entries of each field that is left, and of its value: every third entry is when they expire, or 0."""
    at = _HEAD
    while listpack[at] != _LISTPACK_END:
        start, (_, at) = at, _entry(listpack, at)
        _, at = _entry(listpack, at)
        end, (expires, at) = at, _entry(listpack, at)
        if expires == 0 or expires > now_ms:
            yield listpack[start:end]


def _entry(data: bytes, at: int) -> tuple[int, int]:
    """The number that an entry of a listpack is (0 for a text), and the position after it."""
    first = data[at]
    if first < 0x80:
        number, size = first, 1
    elif first < 0xC0:
        number, size = 0, 1 + (first & 0x3F)
    elif first < 0xE0:
        number, size = (first & 0x1F) << 8 | data[at + 1], 2
        number -= (number & 0x1000) << 1
    elif first < 0xF0:
        number, size = 0, 2 + ((first & 0x0F) << 8 | data[at + 1])
    elif first == 0xF0:
        number, size = 0, 5 + int.from_bytes(data[at + 1 : at + 5], "little")
    elif first <= 0xF4:
        size = (3, 4, 5, 9)[first - 0xF1]
        number = int.from_bytes(data[at + 1 : at + size], "little", signed=True)
    else:
        raise NoRecord(first)
    # The same length stands behind, about seven bits a byte.
    return number, at + size + 1 + sum(size >= bound for bound in _BACK_LENGTHS)


def _text(data: bytes, at: int) -> bytes:
    """A string as it is read."""
    if data[at] != _LZF:
        size, at = length_at(data, at)
        return data[at : at + size]
    stored, at = length_at(data, at + 1)
    size, at = length_at(data, at)
    return _inflated(data[at : at + stored], size)


def _inflated(packed: bytes, size: int) -> bytes:
    """What LZF has packed: runs of new bytes, and copies of earlier ones, which may overlap what they copy."""
    text, at = bytearray(), 0
    while at < len(packed) and len(text) <= size:
        control = packed[at]
        at += 1
        if control < 32:
            text += packed[at : at + control + 1]
            at += control + 1
            continue
        number = (control >> 5) + 2
        if number == 9:
            number += packed[at]
            at += 1
        start = len(text) - ((control & 31) << 8) - packed[at] - 1
        at += 1
        if start < 0:
            raise NoRecord(control)
        piece = text[start : start + number]
        text += (piece * (-(-number // len(piece))))[:number]
    if len(text) != size:
        raise NoRecord(_LZF)
    return bytes(text)


def _string(text: bytes) -> bytes:
    return b"\x80" + len(text).to_bytes(4) + text
