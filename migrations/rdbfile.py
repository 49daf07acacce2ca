"""RdbFile: the keys of a snapshot file, in pieces that many tasks can decode side by side.

    pieces -> decode -> entries

An RDB file can't be entered in the middle by looking it up; ``rdb_boundary.boundary`` guesses where records begin, and decoding
proves it: a piece is handed to the decoder with the file's own header before it and an end mark with eight letters behind it.
A decoder that starts at a true beginning and comes to exactly that end mark has shown that the next piece begins truly as
well; the first one does, so the proof runs through the file. Where it fails, the piece is joined with the next, and nothing of
it counts: ``decode`` gives a piece out when it is proven, and whoever takes what is ``unproven`` has to throw it away. Memory is
bounded by PIECE, or by the largest single key.

Only reads. Decoding is rdb-py's, and hashes whose fields expire are written anew for it (fieldttl.py). Streams and modules are no
data of any queue here; they are counted, not read. Called by the local engine and by Spark tasks, which decode most of a file in
columns (columnar/rdbcolumns.py). Whether a file is what its server wrote, its checksum tells (checksum.py).

rdb-py makes room for a packed text of any size, and ends the process when there is none. So where a size is found that no text
has, another process tries first, whether it is one or the bytes only look like it.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

from ..schema.errors import ServerError, UsageError
from ..schema.fact import Entry
from . import aof, rdb_layout
from .checksum import NONE, SIZE, crc64, joined
from .fieldttl import living
from .rdb_boundary import REDIS, VALKEY, NoRecord, Unknown

HEADER = 9
"""Bytes of the magic word and version."""
PIECE = 32 << 20
"""Bytes of a file that are decoded at once."""
BYTES_A_KEY = 400
"""What a key takes in a file, roughly: for dividing the work, nothing else."""
FACTS = 4096
"""Bytes at the start of a file within which it speaks of itself."""
END = bytes([rdb_layout.END])
FIELDS_EXPIRE = 12
"""Redis's version of files from which on a hash's fields can expire."""
NEWEST = 15
"""Redis's newest version of files whose every record is known: that of Redis 8.10."""
FOR_RDBPY = b"REDIS0013"
"""The newest header that rdb-py knows. What came later it never sees."""
MARK_SIZE = 40
STREAM_MARK = re.compile(rb"[0-9a-f]{%d}" % MARK_SIZE)
"""Behind a snapshot that went to a replica, or to redis-cli, without a file of its own."""
_CODES = tuple(re.escape(bytes([code])) for code in (rdb_layout.SELECT_DB, rdb_layout.RESIZE_DB))
CHANGE_OF_DB = re.compile(rb"%b[\x00-\x3f]%b" % _CODES, re.DOTALL)
"""What a file says where the keys of another database begin, and may hold elsewhere by chance."""
IMPOSSIBLE = re.compile(rb"\xc3(?:[\x00-\x3f]|[\x40-\x7f].|\x80.{4}|\x81.{8})(?:\x80[\x40-\xff]|\x81)", re.DOTALL)
"""A packed text that says that it has 1 GB or more, or bytes that look so by chance."""
TRIAL = "import sys, rdb\nfor item in rdb.RdbDecoder(sys.argv[1]): pass"
PROOF = b"FERRYMAN"
"""Stands where the checksum of a whole file stands: whoever reads it there has read to the end of the piece."""

Part = tuple[int, int] | bytes
"""A part of a file, from its first byte to the one after its last, or what is to be read instead of one."""
Row = tuple[bytes, str, Any, int | None]
"""What makes an Entry: key, Redis type, value, ms left to live."""


@frozen
class Piece:
    """A part of a file that begins and ends, as far as is known, between two records."""

    start: int
    end: int
    db: int
    """The database to which its first records belong, as far as is known."""


@define
class Decoded:
    """What a piece held."""

    rows: list[Row] = field(factory=list)
    """The keys of the wanted database that had not expired: a server that loads the file drops those that have."""
    last_db: int = 0
    """The database to which the first records of the next piece belong."""
    announced: int = 0
    """How many keys the wanted database has, as far as this piece tells."""
    keys: int = 0
    """Keys of the wanted database in this piece that could be read, expired ones too."""


class NotAPiece(Exception):
    """The piece does not begin or does not end between two records."""


class RdbFile:
    """One snapshot file, mapped into memory. Raises UsageError for what is no RDB file that can be read."""

    def __init__(self, path: str | Path, *, is_checked: bool = True) -> None:
        """``is_checked``: whether whoever reads it whole computes its checksum, and compares it."""
        self.path = Path(path)
        try:
            with self.path.open("rb") as file:
                # An empty file can't be mapped.
                self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if self.path.stat().st_size else b""
                """All bytes of the file. ``close`` fails as long as a view of them is held."""
        except OSError as error:
            raise UsageError(f"{self.path}: {error.strerror or error}") from None
        self.dialect = VALKEY if self.data[:6] == b"VALKEY" else REDIS
        self.version = 0
        """Redis's version of the file; 0 for Valkey's."""
        self._header = self._checked_header()
        self._fields_expire = self.dialect is VALKEY or int(self._header[5:]) >= FIELDS_EXPIRE
        self.checksum = SIZE if self._header >= b"REDIS0005" else 0
        """Bytes after the end mark of the whole file."""
        self.is_checked = is_checked and self.checksum > 0
        self.length = self._true_length()
        """How many bytes the snapshot has; what stands behind it in the file is none of it."""
        self.facts = self._facts()
        """What the file says of itself: ``redis-ver``, ``ctime`` … Values are bytes."""
        self.announced = self.keys = 0
        """What ``entries`` has met: keys that the file announces, and keys that could be read."""
        self.passed = 0
        """Up to which byte ``entries`` has come."""

    def close(self) -> None:
        """Lets go of the file."""
        if isinstance(self.data, mmap.mmap):
            self.data.close()

    def __enter__(self) -> RdbFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _checked_header(self) -> bytes:
        """The header in a form that the decoder knows."""
        magic = bytes(self.data[:HEADER])
        if magic[:5] == b"REDIS" and magic[5:].isdigit() and int(magic[5:]) >= 1:
            self.version = int(magic[5:])
            return min(magic, FOR_RDBPY)
        if magic[:6] == b"VALKEY" and magic[6:].isdigit():
            # Valkey has numbers of its own since 9.0; what queues use is written as in version 11 of Redis.
            return b"REDIS0011"
        aof.must_not_begin(self.path, magic)
        if magic[:5] == b"REDIS":
            raise UsageError(f"{self.path}: RDB version {magic[5:].decode('ascii', 'replace')!r} is not a number above 0")
        raise UsageError(f"{self.path}: no RDB file (it does not begin with REDIS or VALKEY)")

    def _facts(self) -> dict[str, bytes]:
        facts: dict[str, bytes] = {}
        with contextlib.suppress(ValueError):  # the end of what is looked at
            for item in self._items([(HEADER, min(HEADER + FACTS, self.length))], b""):
                if item["type"] != "aux_field":
                    break
                facts[item["key"].decode("utf-8", "replace")] = item["value"]
        return facts

    def _true_length(self) -> int:
        """Up to where the snapshot reaches: servers look no further than its end mark.

        Raises UsageError where more that belongs to it follows, and ServerError where it has no end.
        """
        size = len(self.data)
        for behind in (b"", self.data[-MARK_SIZE:]):
            end = size - len(behind)
            at = end - self.checksum - len(END)
            if at >= HEADER and self.data[at] == END[0] and (not behind or STREAM_MARK.fullmatch(behind)):
                aof.must_stand_alone(self.path)
                return end
        try:
            end = self.dialect.end_mark(self.data, HEADER) + len(END) + self.checksum
        except (Unknown, IndexError) as error:
            raise self._cut_short(HEADER, str(error) if isinstance(error, Unknown) else "it ends inside a record") from None
        if end > size:
            raise self._cut_short(HEADER, "its checksum is not complete")
        self._must_be_all(end)
        return end

    def _must_be_all(self, end: int) -> None:
        """Raises UsageError where more that belongs to it follows the end of the snapshot."""
        aof.must_not_follow(self.path, self.data, end)
        if self.data[end : end + HEADER].startswith((b"REDIS", b"VALKEY")):
            raise UsageError(f"{self.path}: another snapshot follows the first one at byte {end}; give each in a file of its own")

    @property
    def written_at_ms(self) -> int:
        """When the snapshot was taken, Unix ms; the file's own time where it does not say."""
        ctime = self.facts.get("ctime", b"")
        return int(ctime) * 1000 if ctime.isdigit() else int(self.path.stat().st_mtime * 1000)

    @property
    def size(self) -> int:
        """About how many keys the file holds, by its length."""
        return self.length // BYTES_A_KEY + 1

    # Pieces

    def pieces(self, number: int = 1) -> list[Piece]:
        """The file in at least this many pieces, if it is large enough, and none much larger than PIECE if it can be helped.

        A piece is a guess until it is decoded.
        """
        size = self.length
        number = max(number, -(-size // PIECE))
        borders = [HEADER]
        for index in range(1, number):
            cut = HEADER + index * (size - HEADER) // number
            found = self.dialect.boundary(self.data, max(cut, borders[-1]))
            if found is not None and borders[-1] < found < size:
                borders.append(found)
        db, pieces = 0, []
        for start, end in pairwise([*borders, size]):
            pieces.append(Piece(start, end, db))
            db = self._likely_db(start, end, db)
        return pieces

    def _likely_db(self, start: int, end: int, db: int) -> int:
        """The database at the end of a piece that begins in ``db``: a guess, from what looks like a change of databases."""
        with memoryview(self.data) as view, view[start:end] as piece:
            for change in CHANGE_OF_DB.finditer(piece):
                db = change[0][1]
        return db

    @staticmethod
    def joined(pieces: Sequence[Piece], wrong: Collection[int]) -> list[Piece]:
        """The pieces with ``wrong`` ones, by index, made one with their neighbours.

        A false border makes the pieces on both sides of it wrong, so neighbours that are wrong become one; a single one, which
        is only told from a true one by its end, becomes one with the next.
        """
        joined: list[Piece] = []
        index = 0
        while index < len(pieces):
            last = index
            while last + 1 in wrong and index in wrong:
                last += 1
            if index in wrong and last == index:
                last = min(index + 1, len(pieces) - 1)
            joined.append(Piece(pieces[index].start, pieces[last].end, pieces[index].db))
            index = last + 1
        return joined

    # Decoding

    def decode(self, piece: Piece, db: int, now_ms: int) -> Decoded:
        """The keys of one database in a piece. Raises NotAPiece when its borders prove wrong, and nothing else."""
        decoded = Decoded()
        decoded.rows.extend(self.unproven(piece, db, now_ms, decoded))
        return decoded

    def unproven(self, piece: Piece, db: int, now_ms: int, decoded: Decoded | None = None) -> Iterator[Row]:
        """The same one by one. None of them counts unless the last is followed by no NotAPiece.

        ``decoded``: takes the counts that ``decode`` returns beside the rows.
        """
        return self.rows(self._parts(piece, now_ms), piece.db, db, now_ms, decoded or Decoded())

    def _parts(self, piece: Piece, now_ms: int) -> list[Part]:
        """A piece as parts for ``rows``. Raises NotAPiece."""
        if not self._fields_expire:
            return [(piece.start, piece.end)]
        last = piece.end - self.checksum - len(END) if piece.end == self.length else piece.end
        try:
            found = self.dialect.expiring_hashes(self.data, piece.start, last)
        except (NoRecord, IndexError):
            raise NotAPiece("something in it is no record") from None
        parts: list[Part] = []
        at = piece.start
        for start, end in found:
            parts += [(at, start), self.living(start, end, now_ms)]
            at = end
        return [*parts, (at, piece.end)]

    def living(self, start: int, end: int, now_ms: int) -> bytes:
        """The record, of a hash whose fields may expire, without those that have; nothing of what is no data of any queue.

        Raises NotAPiece.
        """
        try:
            if self.dialect.head(self.data, start)[0] in self.dialect.unread:
                return b""
            return living(bytes(self.data[start:end]), self.dialect, now_ms)
        except (NoRecord, IndexError):
            raise NotAPiece(f"the hash at byte {start} is none") from None

    def rows(self, parts: Sequence[Part], first_db: int, db: int, now_ms: int, decoded: Decoded) -> Iterator[Row]:
        """As ``unproven``, of parts, decoded as if nothing stood between them.

        ``first_db``: the database to which the first records belong. A header goes before the parts, and behind them the proof,
        unless the last one is the end of the file.
        """
        current, proven, keys = first_db, False, 0
        is_end = not isinstance(parts[-1], bytes) and parts[-1][1] == self.length
        try:
            for item in self._items(parts, b"" if is_end else END + PROOF):
                item_type = item["type"]
                if item_type in _VALUES:
                    if current != db:
                        continue
                    keys += 1
                    redis_type, value = _VALUES[item_type]
                    expiry = item["expiry"]
                    if expiry is None:
                        yield item["key"], redis_type, value(item), None
                    elif expiry > now_ms:
                        yield item["key"], redis_type, value(item), expiry - now_ms
                elif item_type == "checksum":
                    proven = len(item["checksum"]) == self.checksum if is_end else item["checksum"] == PROOF
                elif item_type == "select_db":
                    current = item["db"]
                elif item_type == "resize_db" and current == db:
                    decoded.announced += item["db_size"]
        except ValueError as error:
            raise NotAPiece(str(error)) from None
        decoded.keys, decoded.last_db = keys, current
        if not proven:
            raise NotAPiece("the piece ends inside a record")

    def entries(self, db: int, now_ms: int) -> Iterator[list[Entry]]:
        """Every key of one database, one piece after the other. Raises ServerError for a file that is cut short or damaged.

        The last piece is given out when the checksum of the whole file is right.
        """
        pieces = self.pieces()
        current = pieces[0].db
        index = crc = 0
        while index < len(pieces):
            piece = Piece(pieces[index].start, pieces[index].end, current)
            try:
                decoded = self.decode(piece, db, now_ms)
            except NotAPiece as error:
                is_last = index + 1 == len(pieces)
                pieces = [*pieces[:index], self._ended(piece, str(error))] if is_last else self.joined(pieces, {index})
                continue
            crc = self.crc_after(crc, piece, self.crc(piece))
            if piece.end == self.length:
                self.must_match(crc)
            current = decoded.last_db
            self.announced += decoded.announced
            self.keys += decoded.keys
            self.passed = piece.end
            if decoded.rows:
                yield [Entry(*row) for row in decoded.rows]
            index += 1

    def _ended(self, piece: Piece, reason: str) -> Piece:
        """The last piece up to where the snapshot ends, if that is not where its end was seen.

        Raises ServerError where it is, and UsageError where more that belongs to it follows.
        """
        try:
            end = self.dialect.end_mark(self.data, piece.start) + len(END) + self.checksum
        except (Unknown, IndexError):
            end = self.length
        if end >= self.length:
            raise self.damaged(piece, reason)
        self._must_be_all(end)
        self.length = end
        return Piece(piece.start, end, piece.db)

    def damaged(self, piece: Piece, reason: str) -> ServerError:
        """The error for a piece that can't be decoded although it begins truly."""
        try:
            self.dialect.end_mark(self.data, piece.start)
        except Unknown as unknown:
            reason = str(unknown)
        except IndexError:
            reason = "it ends inside a record"
        if self.is_checked and NONE != self._stored_crc() == crc64(self.data, 0, self.length - self.checksum):
            return ServerError(
                f"{self.path}: its checksum is right, but ferryman can't read it: {reason}. Nothing of it counts. {self._advice}"
            )
        return self._cut_short(piece.start, reason)

    @property
    def is_newer(self) -> bool:
        """Whether a newer server has written it than ferryman knows: it is read if all of its records are known."""
        return self.version > NEWEST

    @property
    def _advice(self) -> str:
        """What to do with a file that can't be read."""
        if not self.is_newer:
            return "Read the server itself with ferryman://"
        return (
            f"It has RDB version {self.version}, and this version of ferryman knows 1 to {NEWEST}: read the server itself with "
            "ferryman://, or use a newer ferryman"
        )

    def _cut_short(self, at: int, reason: str) -> ServerError:
        return ServerError(
            f"{self.path}: cut short or damaged somewhere from byte {at} on ({reason}); nothing of it counts. "
            + (self._advice if self.is_newer else "Check it with redis-check-rdb, or take a new snapshot")
        )

    # Checksum

    def crc(self, piece: Piece) -> int:
        """The checksum of a piece; of the last one only up to where that of the file stands. 0 where nobody compares it."""
        return crc64(self.data, *self._checked(piece)) if self.is_checked else 0

    def crc_after(self, crc: int, piece: Piece, crc_of_piece: int) -> int:
        """The checksum up to the end of a piece, by that of all before it and its own."""
        start, end = self._checked(piece)
        return joined(crc, crc_of_piece, end - start) if self.is_checked else 0

    def _checked(self, piece: Piece) -> tuple[int, int]:
        return 0 if piece.start == HEADER else piece.start, min(piece.end, self.length - self.checksum)

    def must_match(self, crc: int) -> None:
        """Raises ServerError where the file says that it has another checksum. A server can be told to write none."""
        stored = self._stored_crc() if self.is_checked else NONE
        if stored not in (NONE, crc):
            raise ServerError(
                f"{self.path}: damaged somewhere in its {self.length} bytes: their checksum is {crc:016x}, and the one written "
                f"behind them {stored:016x}; nothing of it counts. Take a new snapshot, or look at it with redis-check-rdb; "
                "--no-checksum (checksum=false for Spark) reads it as it is"
            )

    def must_be_whole(self) -> None:
        """Reads all of it, and raises ServerError where its checksum is wrong."""
        if self.is_checked:
            self.must_match(crc64(self.data, 0, self.length - self.checksum))

    def _stored_crc(self) -> int:
        return int.from_bytes(self.data[self.length - self.checksum : self.length], "little")

    def _items(self, parts: Sequence[Part], behind: bytes) -> Iterator[dict[str, Any]]:
        """What the decoder makes of a file of these parts, and of what is to stand behind them. Raises ValueError."""
        try:
            from rdb import RdbDecoder
        except ImportError:
            raise UsageError("reading RDB files needs rdb-py: pip install 'ferryman[rdb]'") from None
        with tempfile.NamedTemporaryFile(prefix="ferryman-", suffix=".rdb") as file:
            file.write(self._header)
            with memoryview(self.data) as view:
                for each in parts:
                    if isinstance(each, bytes):
                        file.write(each)
                        continue
                    with view[slice(*each)] as span:
                        file.write(span)
            file.write(behind)
            file.flush()
            with memoryview(self.data) as view:
                if any(IMPOSSIBLE.search(each) if isinstance(each, bytes) else IMPOSSIBLE.search(view, *each) for each in parts):
                    _try(file.name)
            yield from RdbDecoder(file.name)


def _try(path: str) -> None:
    """Raises ValueError where the decoder would end this process."""
    with_packages = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    trial = subprocess.run([sys.executable, "-c", TRIAL, path], capture_output=True, env=with_packages, check=False)
    if trial.returncode < 0:
        raise ValueError("a size is written there that nothing has")


_VALUES: Mapping[str, tuple[str, Callable[[Mapping[str, Any]], Any]]] = {
    "hash": ("hash", itemgetter("values")),
    "string": ("string", itemgetter("value")),
    "list": ("list", itemgetter("values")),
    "set": ("set", itemgetter("members")),
    "sorted_set": ("zset", lambda item: [(member, score) for score, member in sorted(item["values"])]),
}
"""Redis type, and the value of an Entry, by the decoder's word for it. All its other words are remarks about the file."""
