"""Rdbcolumns: the keys of a piece of a snapshot file as columns (columns.py), at a fraction of what a Python value of each costs.

    unproven -> _tables: where each record stands, and whether the piece ends between two (rdbwalk.py)
             -> _Chunk: the words of hashes, short lists and zsets, as slices of one buffer (rdbwords.py)
             -> _rows: all else, by rdb-py

Gives what ``RdbFile.unproven`` gives. Before anything is given out, the whole piece is walked over without decoding;
rdb_boundary.py helps over streams and the values of modules. Where something stands of which only rdb-py knows what it means, it
gets the whole piece; where a value is not exactly as servers write it, or is a hash whose fields expire, it gets that value. So
unusual values have one decoder, which is rdb-py. What makes no sense is not shown to rdb-py, which would make room for whatever
size it reads, and ends the process when there is none.

Only reads. Called by Spark tasks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from attrs import define

from ...schema.columnar.binary_views import BinaryViews
from ..rdb_boundary import VALKEY, NoRecord
from ..rdb_layout import ARRAY, BINARY_ZSET, HASH_TEMPLATE, MODULE, REDIS_STREAMS
from ..rdbfile import END, Decoded, NotAPiece, Part, Piece, RdbFile, Row
from .columns import NO_TTL, Hashes, Lists, Zset
from .rdbwalk import EXPIRING, FOR_RDBPY, HASH, INVALID, LIST, LONGEST_INTEGER, RECORD, STATE, UNKNOWN, ZSET, walk
from .rdbwords import bits, decode, is_ascending

MOST_KEYS = 5_000
"""Keys that are decoded at once …"""
MOST_BYTES = 8 << 20
"""… unless they need so many bytes earlier."""
MOST_MEMBERS = 10_000
"""Members of a zset that are given out at once."""

UNREAD = frozenset({MODULE, *REDIS_STREAMS, ARRAY, HASH_TEMPLATE})
"""Codes of streams, arrays, modules' values and the templates of hashes."""
DIGITS_OF_SCORE = re.compile(rb"-?(\d+(\.\d+)?(e[+-]?\d+)?|inf)")
"""A score's text of which Python's float makes what every other reader makes."""


def unproven(
    file: RdbFile, piece: Piece, db: int, now_ms: int, decoded: Decoded | None = None
) -> Iterator[Hashes | Lists | Zset | Row]:
    """As ``RdbFile.unproven``, but hashes and short lists of many keys come together as columns, and zsets as columns of members.

    All else comes as rows. None of it counts unless the last is followed by no NotAPiece.
    """
    decoded = decoded or Decoded()
    seen = Decoded()
    try:
        for _ in _tables(file, piece, db, now_ms, seen):
            pass
    except _NeedsRdbPy:
        yield from file.unproven(piece, db, now_ms, decoded)
        return
    for table in _tables(file, piece, db, now_ms, Decoded()):
        for_rdbpy = [table[table["kind"] == FOR_RDBPY]]
        if len(for_rdbpy[0]) < len(table):
            chunk = _Chunk.of(file, piece, table[table["kind"] != FOR_RDBPY], now_ms)
            yield from chunk.decoded()
            for_rdbpy += chunk.undecoded
        yield from _rows(file, piece, np.concatenate(for_rdbpy), now_ms)
    decoded.keys, decoded.last_db = seen.keys, seen.last_db
    decoded.announced += seen.announced


class _NeedsRdbPy(Exception):
    """Something in the piece is understood by rdb-py at most."""


def _tables(file: RdbFile, piece: Piece, db: int, now_ms: int, decoded: Decoded) -> Iterator[Any]:
    """The living keys of a database in a piece, as arrays of RECORD. Raises NotAPiece and _NeedsRdbPy."""
    length = piece.end - piece.start
    if piece.end == file.length:
        length -= len(END) + file.checksum
        if length < 0 or file.data[piece.start + length] != END[0]:
            raise NotAPiece("no end mark stands at the end of the file")
    elif not file.checksum:
        raise NotAPiece("nothing proves a piece of a file that has no checksum")
    state = np.zeros(1, STATE)
    state["db"], state["is_valkey"] = piece.db, file.dialect is VALKEY
    while state["at"][0] < length:
        table = np.empty(MOST_KEYS, RECORD)
        rows = _noted(file, piece.start, length, state, db, now_ms, table)
        if rows == UNKNOWN:
            state["at"] = _after_unread(file, piece.start + int(state["at"][0])) - piece.start
            continue
        if rows == INVALID:
            raise NotAPiece(f"somewhere after byte {piece.start + state['at'][0]} stands no record")
        if rows:
            yield table[:rows]
    if state["at"][0] != length:
        raise NotAPiece("the piece ends inside a record")
    decoded.keys, decoded.last_db, decoded.announced = (int(state[name][0]) for name in ("keys", "db", "announced"))


def _after_unread(file: RdbFile, at: int) -> int:
    """The position after what is UNREAD. Raises NotAPiece and _NeedsRdbPy."""
    try:
        if file.dialect.head(file.data, at)[0] in UNREAD:
            return file.dialect.record(file.data, at)
    except (NoRecord, IndexError):
        raise NotAPiece(f"what stands at byte {at} is no record") from None
    raise _NeedsRdbPy


def _noted(file: RdbFile, start: int, length: int, state: Any, db: int, now_ms: int, table: Any) -> int:
    # A file can't be closed as long as an array shows its bytes: none may live when something is given out.
    rows: int = walk(np.frombuffer(file.data, np.uint8, length, start), state, db, now_ms, table, MOST_BYTES)
    return rows


def _rows(file: RdbFile, piece: Piece, records: Any, now_ms: int) -> Iterator[Row]:
    """These records as rdb-py decodes them. Raises NotAPiece."""
    if not len(records):
        return
    begins, ends = (piece.start + records[name] for name in ("begin", "end"))
    parts: list[Part] = list(zip(begins.tolist(), ends.tolist(), strict=True))
    for row in np.flatnonzero(np.isin(records["code"], EXPIRING)).tolist():
        parts[row] = file.living(int(begins[row]), int(ends[row]), now_ms)
    decoded = Decoded()
    # No record names its database: all of these are of the wanted one, whichever that is.
    yield from file.rows(parts, piece.db, piece.db, now_ms, decoded)
    if decoded.keys != len(records):
        raise NotAPiece("rdb-py finds other records here")


@define(eq=False)
class _Chunk:
    """Some records of a piece that follow one another, in a buffer with room behind them for what is no slice of the file."""

    buffer: Any
    records: Any
    """Their positions are those in the buffer."""
    free: int
    """Where in the buffer the room begins that is left."""
    shift: int
    """The buffer's place in the piece."""
    now_ms: int
    undecoded: list[Any]
    """Records that are not decoded here, by their places in the piece."""

    @classmethod
    def of(cls, file: RdbFile, piece: Piece, records: Any, now_ms: int) -> _Chunk:
        """These records, which nobody else needs."""
        shift, end = int(records["begin"][0]), int(records["end"][-1])
        buffer = np.empty(end - shift + int(records["room"].sum()) + LONGEST_INTEGER, np.uint8)
        buffer[: end - shift] = np.frombuffer(file.data, np.uint8, end - shift, piece.start + shift)
        _move(records, -shift)
        return cls(buffer, records, end - shift, shift, now_ms, [])

    def decoded(self) -> Iterator[Hashes | Lists | Zset]:
        """What they hold; ``undecoded`` is complete afterwards."""
        for kind, columns in ((HASH, Hashes), (LIST, Lists)):
            records, keys, counts, words = self._words(kind)
            if len(keys):
                yield columns(keys, self._ttls(records), counts, words)
        yield from self._zsets()

    def _words(self, kind: int) -> tuple[Any, BinaryViews, Any, BinaryViews]:
        """The records of a kind that can be decoded here, their keys, how many words each has, and the words."""
        records = self.records[self.records["kind"] == kind]
        keys, words = (
            BinaryViews(self.buffer, *np.empty((2, size), np.int64)) for size in (len(records), int(records["words"].sum()))
        )
        counts = np.empty(len(records), np.int64)
        used, self.free = decode(self.buffer, self.free, records, keys.starts, keys.sizes, counts, words.starts, words.sizes)
        good = counts > 0
        self._leave(records[~good])
        return records[good], keys.take(good), counts[good], words.slice(0, used)

    def _zsets(self) -> Iterator[Zset]:
        records, keys, counts, words = self._words(ZSET)
        ttls = self._ttls(records).tolist()
        first = 0
        for index, count in enumerate(counts.tolist()):
            members, texts = words.take(slice(first, first + count, 2)), words.take(slice(first + 1, first + count, 2))
            first += count
            is_binary = records["code"][index] == BINARY_ZSET
            scores = texts.fill(np.empty(len(texts), np.int64), bits).view(np.float64) if is_binary else _scores(texts)
            if np.isnan(scores).any():
                self._leave(records[index : index + 1])
                continue
            members, scores = _ascending(members, scores, is_reversed=is_binary)
            for offset in range(0, len(members), MOST_MEMBERS):
                end = offset + MOST_MEMBERS
                ttl_ms = None if ttls[index] == NO_TTL else ttls[index]
                yield Zset(keys[index], ttl_ms, offset, members.slice(offset, end), scores[offset:end])

    def _ttls(self, records: Any) -> Any:
        return np.where(records["expiry"] == NO_TTL, NO_TTL, records["expiry"] - self.now_ms)

    def _leave(self, records: Any) -> None:
        left = records.copy()
        _move(left, self.shift)
        self.undecoded.append(left)


def _move(records: Any, by: int) -> None:
    for name in ("begin", "key", "value", "end"):
        records[name] += by


def _scores(texts: BinaryViews) -> Any:
    """Scores by their texts; NaN for what does not look like one."""
    scores = texts.parse_floats()
    for index in np.flatnonzero(np.isnan(scores)).tolist():
        text = texts[index]
        if DIGITS_OF_SCORE.fullmatch(text):
            scores[index] = float(text)
    return scores


def _ascending(members: BinaryViews, scores: Any, *, is_reversed: bool) -> tuple[BinaryViews, Any]:
    """Members and scores in a server's order. ``is_reversed``: they most likely stand the other way round."""
    order: Any = slice(None, None, -1 if is_reversed else 1)
    starts, sizes, likely = (np.ascontiguousarray(each[order]) for each in (members.starts, members.sizes, scores))
    if is_ascending(members.data, starts, sizes, likely):
        return BinaryViews(members.data, starts, sizes), likely
    numbers = scores.tolist()
    order = np.array(sorted(range(len(numbers)), key=lambda index: (numbers[index], members[index])), np.int64)
    return members.take(order), scores[order]
