"""Skim: from one record of an RDB file to the next without decoding, to find where a record begins in the middle of a file.

An RDB file has no index: records follow one another, and only who reads from the start knows where one begins. ``boundary``
guesses: from where 64 records in a row make sense, one very likely begins. It is no proof (a value may hold a whole RDB file),
which is why rdbfile.py checks every guess. ``expiring_hashes`` finds those of which only fieldttl.py knows what is left, and
what rdb-py can't pass.

What stands behind each type code, rdb_layout.py says, but for streams and modules. Redis and Valkey give the same codes to
different things: two dialects. Pure. Format: rdb.h and rdb.c of Redis 6 to 8.10 and Valkey 9.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from attrs import frozen

from ..schema.text import show
from . import rdb_layout as rdb

RUN = 64
"""Records in a row that must make sense."""
WINDOW = 1 << 17
"""Bytes in which a beginning is looked for. In a value that is longer there is none."""
LONGEST_KEY = 1 << 16
"""A record whose key is longer is not believed, and neither is one whose key is empty: a field of zeros is full of these."""


class Readable(Protocol):
    """Bytes, or a mapped file."""

    def __len__(self) -> int: ...
    def __getitem__(self, at: int, /) -> int: ...


class NoRecord(Exception):
    """What stands here is no record that is understood."""


class Unknown(Exception):
    """The same, in words that name it."""


Skip = Callable[[Readable, int], int]
"""From the position of something to the position after it. Raises NoRecord, and IndexError at the end."""


@frozen
class Dialect:
    """What type codes mean in a file."""

    values: Mapping[int, Skip]
    """Type code -> what skips a value."""
    before: Mapping[int, Skip]
    """What may stand before a record's type code."""
    remarks: Mapping[int, Skip]
    """What skips a remark about the file."""
    expiring: frozenset[int]
    """Hashes whose fields may have expired."""
    unread: frozenset[int]
    """Values and remarks that rdb-py can't pass, and that belong to no job."""

    def boundary(self, data: Readable, start: int) -> int | None:
        """A position soon after ``start`` at which a record very likely begins; None if none is found nearby.

        It stands after a run of records that made sense: should the run have begun in the middle of one, it has found its feet
        since. The end of the file is no boundary.
        """
        for guess in range(start, min(start + WINDOW, len(data))):
            code = data[guess]
            if code not in self.values and code not in self.before and code not in self.remarks:
                continue
            try:
                at = guess
                for _ in range(RUN):
                    at = self._likely_record(data, at)
            except (NoRecord, IndexError):
                continue
            return at
        return None

    def _likely_record(self, data: Readable, at: int) -> int:
        code, after_code = self.head(data, at)
        if code in self.values and not 1 < string_at(data, after_code) - after_code < LONGEST_KEY:
            raise NoRecord(code)
        return self.record(data, at)

    def head(self, data: Readable, at: int) -> tuple[int, int]:
        """The type code of the record, or remark about the file, at ``at``, and the position after it."""
        code = data[at]
        at += 1
        while code in self.before:
            at = self.before[code](data, at)
            code = data[at]
            at += 1
        return code, at

    def record(self, data: Readable, at: int) -> int:
        """The position after the record, or remark about the file, at ``at``. Raises NoRecord, and IndexError at the end."""
        code, at = self.head(data, at)
        if code in self.remarks:
            return self.remarks[code](data, at)
        if code not in self.values:
            raise NoRecord(code)
        return self.values[code](data, string_at(data, at))

    def expiring_hashes(self, data: Readable, at: int, end: int) -> list[tuple[int, int]]:
        """Where each hash whose fields may expire, and each thing ``unread``, begins and ends, from one border to another.

        Raises NoRecord, also where ``end`` is no border, and IndexError.
        """
        found = []
        head, values, remarks, special = self.head, self.values, self.remarks, self.expiring | self.unread
        while at < end:
            begin = at
            code, at = head(data, at)
            if code in values:
                at = values[code](data, string_at(data, at))
            elif code in remarks:
                at = remarks[code](data, at)
            else:
                raise NoRecord(code)
            if code in special:
                found.append((begin, at))
        if at != end:
            raise NoRecord
        return found

    def end_mark(self, data: Readable, at: int) -> int:
        """The position of the mark behind the last record, from the position of any. Raises Unknown and IndexError."""
        while data[at] != rdb.END:
            try:
                at = self.record(data, at)
            except NoRecord:
                raise Unknown(self._named(data, at)) from None
        return at

    def _named(self, data: Readable, at: int) -> str:
        try:
            code, after = self.head(data, at)
            start, end = _plain_text(data, after)
        except (NoRecord, IndexError):
            return f"what stands at byte {at} is no record"
        if code in self.values:
            return f"the value of the key {show(_slice(data, start, end), 60)} (byte {at}) is none of its type ({code})"
        reason = _UNREADABLE.get(code)
        if reason is not None:
            return f"{reason} (byte {at})"
        key = f"the key {show(_slice(data, start, end), 60)} (byte {at})"
        if self is REDIS and code in rdb.TEMPLATE_HASHES:
            return f"{key} is a hash with a template (HIMPORT), which ferryman reads from a server alone, not from a file"
        return f"{key} is of a type that ferryman does not know ({code})"


def _plain_text(data: Readable, at: int) -> tuple[int, int]:
    """Where a string that is stored as it is begins and ends; of another one, all that stands for it."""
    end = string_at(data, at)
    return (length_at(data, at)[1] if data[at] < 0xC0 else at), end


def _slice(data: Readable, start: int, end: int) -> bytes:
    return bytes(data[index] for index in range(start, min(end, start + 100)))


def _inside(data: Readable, at: int) -> int:
    if at > len(data):
        raise IndexError(at)
    return at


def length_at(data: Readable, at: int) -> tuple[int, int]:
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


def string_at(data: Readable, at: int) -> int:
    """The position after a string."""
    first = data[at]
    if first in _INTEGERS:
        return _inside(data, at + 1 + _INTEGERS[first])
    if first == _LZF:
        packed, at = length_at(data, at + 1)
        size, at = length_at(data, at)
        if not 0 < packed <= size:
            raise NoRecord(first)
        return _inside(data, at + packed)
    size, at = length_at(data, at)
    return _inside(data, at + size)


def _many(each: Skip, *more: Skip) -> Skip:
    """So many items as a length says, each made of these parts."""

    def skip(data: Readable, at: int) -> int:
        number, at = length_at(data, at)
        if number > len(data) - at:
            raise NoRecord
        for _ in range(number):
            at = each(data, at)
            for skip_next in more:
                at = skip_next(data, at)
        return at

    return skip


def _all(*skips: Skip) -> Skip:
    if len(skips) == 1:
        return skips[0]

    def skip(data: Readable, at: int) -> int:
        for skip_next in skips:
            at = skip_next(data, at)
        return at

    return skip


def _double(data: Readable, at: int) -> int:
    """A score as text; 253 to 255 stand for what has no digits."""
    size = data[at]
    return _inside(data, at + 1 + (0 if size >= 253 else size))


def _bytes(size: int) -> Skip:
    return lambda data, at: _inside(data, at + size)


def _plain_length(data: Readable, at: int) -> int:
    return length_at(data, at)[1]


def _skip(layout: rdb.Layout) -> Skip:
    before: list[Skip] = [_bytes(layout.before)] * bool(layout.before)
    each: list[Skip] = [*[_plain_length] * layout.lengths, *[string_at] * layout.strings]
    if layout.after:
        each.append(_double if layout.after == rdb.SCORE_TEXT else _bytes(layout.after))
    return _all(*before, *([_many(*each)] if layout.is_counted else each))


_MODULE_PARTS: Mapping[int, Skip] = {1: _plain_length, 2: _plain_length, 3: _bytes(4), 4: _bytes(8), 5: string_at}
"""What modules write: signed and unsigned numbers, floats, doubles, strings."""


def _module_parts(data: Readable, at: int) -> int:
    """All that a module has written, up to its end mark."""
    while True:
        opcode, at = length_at(data, at)
        if opcode == 0:
            return at
        if opcode not in _MODULE_PARTS:
            raise NoRecord(opcode)
        at = _MODULE_PARTS[opcode](data, at)


def _stream_id(data: Readable, at: int) -> int:
    """An entry's id as a string, which is never packed."""
    if data[at] != 16:
        raise NoRecord(data[at])
    return at + 17


def _stream(version: int) -> Skip:
    """Entries, where they end, consumer groups with what is pending, and the ids of producers (Redis 8.6 and later).

    Since Redis 8.8 a group also has the ids of the entries that a consumer has released.
    """
    number = _plain_length
    since_2, since_3 = (number,) * (version >= 2), (_bytes(8),) * (version >= 3)
    pending = _many(_bytes(24), number)
    consumers = _many(string_at, _bytes(8), *since_3, _many(_bytes(16)))
    released = (_many(_bytes(16)),) * (version >= 5)
    groups = _many(string_at, number, number, *since_2, pending, consumers, *released)
    producers = (number, number, _many(string_at, _many(string_at, number, number)), number, number) * (version >= 4)
    return _all(_many(_stream_id, string_at), number, number, number, *since_2 * 5, groups, *producers)


_ARRAY_ITEMS: Mapping[int, Skip] = {0: string_at, 1: _bytes(8), 2: _bytes(8), 3: string_at}
"""By their tag: a string, a whole number, a float, a short string."""


def _array(data: Readable, at: int) -> int:
    """The number of items, where the next one is inserted if that is known, and each item with its index and its tag."""
    number, at = length_at(data, at)
    has_cursor, at = length_at(data, at)
    if has_cursor > 1 or number > len(data) - at:
        raise NoRecord
    if has_cursor:
        at = _plain_length(data, at)
    for _ in range(number):
        tag, at = length_at(data, _plain_length(data, at))
        if tag not in _ARRAY_ITEMS:
            raise NoRecord(tag)
        at = _ARRAY_ITEMS[tag](data, at)
    return at


def _skips(layouts: Mapping[int, rdb.Layout]) -> dict[int, Skip]:
    return {code: _skip(layout) for code, layout in layouts.items()}


def _dialect(
    expiring: Mapping[int, rdb.Layout], streams: Mapping[int, int], before: dict[int, Skip], unread: Mapping[int, Skip]
) -> Dialect:
    """``unread``: as in Dialect, by code."""
    of_code = {code: _stream(version) for code, version in streams.items()}
    of_code[rdb.MODULE] = _all(_plain_length, _module_parts)  # after the module's id
    remarks = {code: skip for code, skip in unread.items() if code >= rdb.HASH_TEMPLATE}
    values = _skips({**rdb.VALUES, **expiring}) | of_code | {code: unread[code] for code in unread if code not in remarks}
    return Dialect(values, _skips(rdb.BEFORE) | before, _REMARKS | remarks, frozenset(expiring), frozenset(unread))


_REMARKS: dict[int, Skip] = {
    **_skips(rdb.REMARKS),
    rdb.MODULE_DATA: _all(_plain_length, _plain_length, _plain_length, _module_parts),  # what a module keeps beside its keys
}
_UNREADABLE: Mapping[int, str] = {
    rdb.SLOT_IMPORT: "a slot was just being moved to this node, so its keys may stand in two snapshots",
    rdb.EARLY_FUNCTIONS: "a library of functions is written as before the release of Redis 7.0",
}

_NOTES = {rdb.MODULE_NOTES: _many(_bytes(4), _module_parts)}  # what modules note of a key
_UNREAD = {27: _stream(5), rdb.ARRAY: _array, rdb.HASH_TEMPLATE: _all(_plain_length, _many(string_at))}
REDIS = _dialect(rdb.REDIS_EXPIRING, rdb.REDIS_STREAMS, _NOTES, _UNREAD)
VALKEY = _dialect(rdb.VALKEY_EXPIRING, rdb.STREAMS, {}, {})
