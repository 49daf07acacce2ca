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
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Any, Protocol

import redis
from attrs import evolve, field, frozen
from redis.exceptions import MovedError

from ..schema.connection.pipeline import PipelineConnection, open_pipeline
from ..schema.errors import ServerError
from ..schema.fact import Entry
from ..schema.family import KeyFamily
from .globs import Selection
from .reading import Guess, no_guess, read_all
from .throttle import UNTHROTTLED, Throttle

POSITIONS = 1 << 64
SCAN_COUNT = 500
"""Keys a SCAN call looks at: half a millisecond of the server's time, and hardly slower than larger pages."""

OTHER_CURSORS = ("dragonfly", "kvrocks", "upstash", "rlec", "tair")
"""First words of INFO fields of servers whose cursors have a form of their own."""
SLOT_BITS = 14
SLOTS = 1 << SLOT_BITS


def position(cursor: int) -> int:
    """Where SCAN stands: the cursor with its 64 bits in reverse. The same function leads back."""
    return int(f"{cursor:064b}"[::-1], 2)


class Span(Protocol):
    """A part of a node's keys that can be scanned on its own."""

    @property
    def first(self) -> int:
        """The cursor with which it begins."""

    @property
    def has_start(self) -> bool:
        """Whether it is the part in which a node's keys begin."""

    def is_past(self, cursor: int) -> bool:
        """Whether a cursor that the server has given leads out of it."""

    def advances(self, cursor: int, following: int) -> bool:
        """Whether the second cursor comes after the first, if cursors are what they are taken for."""


@frozen
class CursorRange:
    """The keys whose position is in [lo, hi)."""

    lo: int = 0
    hi: int = POSITIONS

    @property
    def whole(self) -> bool:
        """All keys: the one range in which the cursor's form does not matter."""
        return self.lo == 0 and self.hi == POSITIONS

    @property
    def first(self) -> int:
        return position(self.lo)

    @property
    def has_start(self) -> bool:
        return self.lo == 0

    def is_past(self, cursor: int) -> bool:
        return not self.whole and position(cursor) >= self.hi

    def advances(self, cursor: int, following: int) -> bool:
        return self.whole or position(following) > position(cursor)


@frozen
class SlotRange:
    """The keys of the slots [lo, hi) of a cluster's node that keeps each slot's keys apart: Redis since 7.4, Valkey since 8.

    Its cursors end in the slot; the bits before it are a cursor within the slot. ``within``: of a single slot, the keys in this
    range of positions alone.
    """

    lo: int
    hi: int
    has_start: bool = False
    within: CursorRange = field(factory=CursorRange)

    @property
    def first(self) -> int:
        return position(self.within.lo) << SLOT_BITS | self.lo

    def is_past(self, cursor: int) -> bool:
        slot, inner = cursor % SLOTS, cursor >> SLOT_BITS
        return slot >= self.hi or (slot == self.lo and self.within.is_past(inner))

    def advances(self, cursor: int, following: int) -> bool:
        before, after = (each % SLOTS for each in (cursor, following))
        return after > before or (after == before and position(following >> SLOT_BITS) > position(cursor >> SLOT_BITS))


EVERYTHING = CursorRange()


class Cursors(StrEnum):
    """What a server's cursors are."""

    POSITIONS = "positions"
    SLOTS = "slots"
    """A position within a slot, then the slot."""
    UNKNOWN = "unknown"
    """Good for nothing but to go on with; the keyspace can't be read in parts."""


@frozen
class Node:
    """What a scan has to know about the server it reads from."""

    run_id: str | None
    """Changes with every start of the server; None where INFO is forbidden or does not tell."""
    cursors: Cursors


def node(client: redis.Redis) -> Node:
    """Asks the server who it is. Without the right to call INFO the answer is the careful one."""
    try:
        info: dict[str, Any] = client.info("server")
    except redis.exceptions.NoPermissionError:
        return Node(None, Cursors.UNKNOWN)
    run_id = info.get("run_id")
    return Node(str(run_id), _cursors(info)) if run_id else Node(None, Cursors.UNKNOWN)


def nothing_expires(client: redis.Redis, db: int) -> bool:
    """Whether no key of a database had a time to live just now: none need be asked of those that are read next."""
    try:
        info: dict[str, Any] = client.info("keyspace")
    except redis.exceptions.NoPermissionError:
        return False
    numbers = info.get(f"db{db}")
    return isinstance(numbers, dict) and numbers.get("expires") == 0


def _cursors(info: Mapping[str, Any]) -> Cursors:
    mode = info.get("redis_mode") or info.get("server_mode")  # Valkey 9 has renamed it
    if any(name.startswith(OTHER_CURSORS) for name in info):
        return Cursors.UNKNOWN
    if mode == "standalone":
        return Cursors.POSITIONS
    if mode != "cluster":
        return Cursors.UNKNOWN
    valkey, redis_itself = (_version(str(info.get(name, ""))) for name in ("valkey_version", "redis_version"))
    return Cursors.SLOTS if valkey >= (8,) or (not valkey and redis_itself >= (7, 4)) else Cursors.POSITIONS


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())


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
    """The whole keyspace in this many ranges of equal width, whose borders also have room for a slot beside them in a cursor."""
    borders = [(index * POSITIONS // number) >> SLOT_BITS << SLOT_BITS for index in range(number + 1)]
    return [CursorRange(lo, hi) for lo, hi in pairwise(borders)]


def split(client: redis.Redis, number: int) -> list[CursorRange]:
    """At most this many ranges: fewer for a small database, a single one where the server's cursors are not positions."""
    useful = client.dbsize() // (20 * SCAN_COUNT) + 1
    return ranges(min(number, useful)) if node(client).cursors is Cursors.POSITIONS else [EVERYTHING]


def split_slots(pipe: PipelineConnection, slots: Sequence[int], number: int) -> list[SlotRange]:
    """The keys of these slots, which one node owns, in about this many spans with about as many keys each.

    A slot with many keys (all of a queue may be in one) is split in itself.
    """
    counts = dict(zip(slots, pipe.call(("CLUSTER", "COUNTKEYSINSLOT", slot) for slot in slots), strict=True))
    for count in counts.values():
        if isinstance(count, Exception):
            raise count
    share = max(sum(counts.values()) // number, 20 * SCAN_COUNT)
    spans: list[SlotRange] = []
    first, held = min(slots), 0
    for slot in sorted(slots):
        if counts[slot] >= 2 * share:
            if held:
                spans.append(SlotRange(first, slot))
            spans += [SlotRange(slot, slot + 1, within=within) for within in ranges(counts[slot] // share)]
            first, held = slot + 1, 0
            continue
        held += counts[slot]
        if held >= share:
            spans.append(SlotRange(first, slot + 1))
            first, held = slot + 1, 0
    if held or not spans:
        spans.append(SlotRange(first, SLOTS))
    return [evolve(spans[0], has_start=True), *spans[1:]]


def scan_range(
    client: redis.Redis,
    span: Span,
    globs: Sequence[str],
    count: int = SCAN_COUNT,
    passed: Callable[[int], None] | None = None,
    redis_type: str | None = None,
) -> Iterator[list[bytes]]:
    """The names of the keys in the range that one of the globs fits, page by page; a name may come twice.

    ``redis_type``: leave out keys of other Redis types where SCAN itself can do that. ``passed`` is called with each cursor up to
    which all pages have been given out. Globs without a wildcard cost no scan: their keys come first, in the span that has the
    start. Raises ServerError when the cursors prove not to be positions after all.
    """
    selection = Selection.of(globs)
    if span.has_start and selection.exact and (there := _there(client, selection.exact)):
        yield there
    if selection.match is None:
        return
    cursor = span.first
    words = ("MATCH", selection.match, "COUNT", count, *(("TYPE", redis_type) if redis_type else ()))
    with open_pipeline(client) as pipe:
        while True:
            reply = pipe.ask("SCAN", cursor, *words)
            following, keys = int(reply[0]), selection.wanted(reply[1])
            if keys:
                yield keys
            if passed:
                passed(following)
            if following == 0 or span.is_past(following):
                return
            if not span.advances(cursor, following):
                raise ServerError("this server's SCAN cursors can't be split into ranges; read it with a single partition")
            cursor = following


def _there(client: redis.Redis, names: Sequence[bytes]) -> list[bytes]:
    """Those of the keys that the server has, and those of which it does not tell."""
    with open_pipeline(client) as pipe:
        replies = pipe.call(("EXISTS", name) for name in names)
    return [name for name, answer in zip(names, replies, strict=True) if answer != 0 and not isinstance(answer, MovedError)]


def entries(
    client: redis.Redis,
    family: KeyFamily,
    prefix: str,
    span: Span = EVERYTHING,
    throttle: Throttle = UNTHROTTLED,
    passed: Callable[[int], None] | None = None,
    is_hash: Guess = no_guess,
) -> Iterator[list[Entry]]:
    """Every key of a family's keyspace in the range, each key once, large ones in several entries.

    ``passed`` is called with each cursor up to which all has been read; ``is_hash`` is as for ``read_entries``. Raises
    ServerError when the server was replaced during the scan; redis-py's own errors pass through.
    """
    seen: set[bytes] = set()
    pace = throttle.pace()
    with same_server(client), open_pipeline(client) as pipe:
        for page in scan_range(client, span, family.globs(prefix), throttle.page(SCAN_COUNT), passed):
            fresh = [key for key in dict.fromkeys(page) if key not in seen]
            seen.update(fresh)
            yield from read_all(pipe, fresh, pace, is_hash)
