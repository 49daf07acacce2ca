"""Scan: from a live server to entries, one key after the other or in ranges that many tasks read side by side.

The position of a SCAN cursor is its bit reversal: SCAN visits positions in ascending order, and a reply that leads from
position s to s' returns every key that hashes into [s, s') at that moment. So any [lo, hi) can be read on its own, whatever
the table does between the calls. Two ranges may both return a key at their common border, and SCAN itself may repeat one:
who counts must first make keys distinct, as ``entries`` does within its range and the Spark engine across ranges.

Only reads. The position of a key comes from the server's hash seed, so a restart or failover makes all ranges worthless: it
is an error, never a gap.
Called by the local engine (one serial range) and by Spark tasks (one range each).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import redis
from attrs import frozen

from ..schema.errors import ServerError
from ..schema.fact import Entry
from ..schema.family import KeyFamily
from .globs import Selection
from .reading import BATCH, read_entries
from .wire import wire

POSITIONS = 1 << 64
SCAN_COUNT = 500
"""Keys a SCAN call looks at: half a millisecond of the server's time, and hardly slower than larger pages."""

OTHER_CURSORS = ("dragonfly", "kvrocks", "upstash", "rlec", "tair")
"""First words of INFO fields of servers whose cursors have a form of their own."""


@frozen
class CursorRange:
    """The keys whose position is in [lo, hi)."""

    lo: int = 0
    hi: int = POSITIONS

    @property
    def whole(self) -> bool:
        """All keys: the one range in which the cursor's form does not matter."""
        return self.lo == 0 and self.hi == POSITIONS


EVERYTHING = CursorRange()


@frozen
class Node:
    """What a scan has to know about the server it reads from."""

    run_id: str | None
    """Changes with every start of the server; None where INFO is forbidden or does not tell."""
    ordered: bool
    """Cursors are known to be positions, so that the keyspace can be read in ranges."""


def node(client: redis.Redis) -> Node:
    """Asks the server who it is. Without the right to call INFO the answer is the careful one."""
    try:
        info: dict[str, Any] = client.info("server")
    except redis.exceptions.NoPermissionError:
        return Node(None, ordered=False)
    mode = info.get("redis_mode") or info.get("server_mode")  # Valkey 9 has renamed it
    ordered = mode == "standalone" and not any(name.startswith(OTHER_CURSORS) for name in info)
    run_id = info.get("run_id")
    return Node(str(run_id) if run_id else None, ordered and bool(run_id))


@contextlib.contextmanager
def same_server(client: redis.Redis, run_id: str | None = None) -> Iterator[None]:
    """Checks around the block that one and the same process answers, ``run_id`` if it is given. Raises ServerError if not."""
    before = node(client).run_id
    if run_id is None or run_id == before:
        yield
        if node(client).run_id == before:
            return
    raise ServerError("the server was restarted or failed over during the scan, so keys may be missing; scan again")


def ranges(number: int) -> list[CursorRange]:
    """The whole keyspace in this many ranges of equal width."""
    borders = [index * POSITIONS // number for index in range(number + 1)]
    return [CursorRange(lo, hi) for lo, hi in pairwise(borders)]


def split(client: redis.Redis, number: int) -> list[CursorRange]:
    """At most this many ranges: fewer for a small database, a single one where the server's cursors are not known."""
    useful = client.dbsize() // (20 * SCAN_COUNT) + 1
    return ranges(min(number, useful)) if node(client).ordered else [EVERYTHING]


def position(cursor: int) -> int:
    """Where SCAN stands: the cursor with its 64 bits in reverse. The same function leads back."""
    return int(f"{cursor:064b}"[::-1], 2)


def scan_range(client: redis.Redis, span: CursorRange, globs: Sequence[str], count: int = SCAN_COUNT) -> Iterator[list[bytes]]:
    """The names of the keys in the range that one of the globs fits, page by page; a name may come twice.

    Globs without a wildcard cost no scan: their keys come first, in the range that starts at 0, whether they exist or not.
    Raises ServerError when the cursors prove not to be positions after all.
    """
    selection = Selection.of(globs)
    if span.lo == 0 and selection.exact:
        yield list(selection.exact)
    if selection.match is None:
        return
    cursor = position(span.lo)
    with wire(client) as line:
        while True:
            reply = line.ask("SCAN", cursor, "MATCH", selection.match, "COUNT", count)
            following, keys = int(reply[0]), reply[1]
            keys = [key for key in keys if selection.wants(key)]
            if keys:
                yield keys
            if following == 0 or (not span.whole and position(following) >= span.hi):
                return
            if not span.whole and position(following) <= position(cursor):
                raise ServerError("this server's SCAN cursors can't be split into ranges; read it with a single partition")
            cursor = following


def entries(client: redis.Redis, family: KeyFamily, prefix: str, span: CursorRange = EVERYTHING) -> Iterator[list[Entry]]:
    """Every key of a family's keyspace in the range, each key once, large ones in several entries.

    Raises ServerError when the server was replaced during the scan; redis-py's own errors pass through.
    """
    seen: set[bytes] = set()
    with same_server(client), wire(client) as line:
        for page in scan_range(client, span, family.globs(prefix)):
            fresh = [key for key in dict.fromkeys(page) if key not in seen]
            seen.update(fresh)
            for start in range(0, len(fresh), BATCH):
                yield from read_entries(line, fresh[start : start + BATCH])
