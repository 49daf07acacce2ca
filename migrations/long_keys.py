"""Chunks: the items of a long list or zset, from any of them to any other, while the key changes.

An item's index shifts when items before it come or go, so indexes alone would repeat or miss its neighbours. A reader knows
therefore what it saw last and looks for that again in each reply, which also holds a few items from before: a member of a
zset by its order, which the zset itself keeps, an item of a list by the few items that stood together there.

Only reads, and no command holds the server longer than one chunk takes. Called by ``reading.py`` (a key from its second chunk
on) and ``key_splits.py`` (a split of a key).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from attrs import frozen

from ..schema.connection.pipeline import PipelineConnection, pairs

CHUNK = 10_000
"""Most members of a zset, set or hash in one entry."""
LIST_CHUNK = 1_000
"""Items of a list in one entry: lists hold whole messages."""


@frozen
class Sizes:
    """How much of a long key one command reads."""

    members: int = CHUNK
    """Of a zset, set or hash."""
    items: int = LIST_CHUNK
    """Of a list."""


WHOLE = Sizes()

Scored = tuple[bytes, float]
"""A member of a zset and its score."""
Members = TypeVar("Members", bound=Sequence[Scored])
Anchor = tuple[bytes, ...]
"""A few neighbours in a list, by which the place behind them is known again. Empty where nothing can be known by them."""

ANCHOR = 4
MARGIN = 100
"""Items of a list before the expected ones that each reply also holds: so far it may have shifted at no cost."""
REACH = 8
"""Chunks of a list, on each side of where it is expected, in which an anchor is looked for."""


def zset_chunks(
    pipe: PipelineConnection, key: bytes, sizes: Sizes, rank: int, after: Scored | None, until: Scored | None = None
) -> Iterator[list[Scored]]:
    """The members of a zset after one, up to and with another, in order; about ``rank`` stands the first of them."""

    def read(start: int, stop: int) -> list[Scored]:
        return scored(pipe.ask("ZRANGE", key, start, stop, "WITHSCORES"))

    return member_chunks(read, sizes, rank, after, until)


def member_chunks(
    read: Callable[[int, int], Members], sizes: Sizes, rank: int, after: Scored | None, until: Scored | None = None
) -> Iterator[Members]:
    """The same, where ``read`` gives the members from one rank to another, both of them included.

    Each reply starts at least one member back: when its first member is not past the last one seen, nothing between them can
    be missing; else the next try starts further back. So no member that stands still is missed or repeated.
    """
    back, size = 1, sizes.members
    while True:
        start = max(0, rank - back)
        members = read(start, start + size)
        if after is not None and start > 0 and (not members or _order(members[0]) > _order(after)):
            back = size if back == 1 else 2 * back
            continue
        first = 0 if after is None else bisect_right(members, _order(after), key=_order)
        end = len(members) if until is None else bisect_right(members, _order(until), key=_order)
        if first < end:
            yield members[first:end]  # type: ignore[misc]  # of a list or of columns a part is the same
            after = members[end - 1]
        if end < len(members) or len(members) <= size or (until is not None and after == until):
            return
        rank, back = start + len(members), 1


def scored(reply: object) -> list[Scored]:
    """The members in a reply WITHSCORES, of either version of the protocol."""
    if isinstance(reply, list) and reply and isinstance(reply[0], bytes):
        return list(zip(reply[::2], map(float, reply[1::2]), strict=True))
    return [(member, float(score)) for member, score in pairs(reply)]


def _order(item: Scored) -> tuple[float, bytes]:
    """The order of a zset: by score, then by the member's bytes."""
    return item[1], item[0]


def anchor_before(items: Sequence[bytes]) -> Anchor:
    """The anchor at the end of some items. Empty if they repeat each other, as tokens do: those are as good as one another."""
    anchor = tuple(items[-ANCHOR:])
    return anchor if len(set(anchor)) == ANCHOR else ()


def list_chunks(
    pipe: PipelineConnection, key: bytes, sizes: Sizes, index: int, after: Anchor, until: Anchor = (), count: int | None = None
) -> Iterator[list[bytes]]:
    """The items of a list behind one anchor, up to and with another; about ``index`` stands the first of them.

    ``count``: as many as these were; None = all to the end of the list. Items that stand still are read once as long as others
    come and go at the ends of the list. Where an anchor is gone, index and count decide in its place.
    """
    left, size = count, sizes.items
    while True:
        index, fresh = _seek(pipe, key, after, index, size) or (index, pipe.ask("LRANGE", key, index, index + size - 1))
        if not fresh:
            return
        if left is not None:
            end = _end_of(until, [*after, *fresh], len(after) + left)
            if end is not None:
                left = max(0, end - len(after))
            elif len(fresh) >= left:
                found = find(pipe, key, until, index + left)
                left = left if found is None else max(0, found - index)
            fresh = fresh[:left]
            left -= len(fresh)
        if fresh:
            yield fresh
        if left == 0:
            return
        index, after = index + len(fresh), anchor_before([*after, *fresh])


def find(pipe: PipelineConnection, key: bytes, anchor: Anchor, index: int, reach: int = REACH) -> int | None:
    """The index behind an anchor, or behind what stands of it, looked for around ``index``; None if nothing of it is there."""
    found = _seek(pipe, key, anchor, index, LIST_CHUNK, reach)
    return None if found is None else found[0]


def _seek(
    pipe: PipelineConnection, key: bytes, anchor: Anchor, index: int, size: int, reach: int = REACH
) -> tuple[int, list[bytes]] | None:
    """The index behind an anchor, and about ``size`` of the items there; None if nothing of the anchor is found."""
    if not anchor:
        return None
    for start, stop in _windows(index, size, reach):
        items = pipe.ask("LRANGE", key, start, stop)
        has_more = start + len(items) > stop
        end = _end_of(anchor, items, index - start)
        if end is None:
            end = _end_of_rest(anchor, items[: -len(anchor)] if has_more else items)
        if end is not None:
            behind = items[end:]
            if not behind and has_more:
                behind = pipe.ask("LRANGE", key, start + end, start + end + size - 1)
            return start + end, behind
    return None


def _windows(index: int, size: int, reach: int) -> Iterator[tuple[int, int]]:
    """First and last index of what is searched: so many and their margin, then pieces before and behind that overlap by half."""
    yield max(0, index - MARGIN), index + size - 1
    for step in range(1, reach + 1):
        before, behind = index - step * LIST_CHUNK, index + step * LIST_CHUNK
        if before > -LIST_CHUNK:
            yield max(0, before - LIST_CHUNK), before + LIST_CHUNK - 1
        yield behind - LIST_CHUNK, behind + LIST_CHUNK - 1


def _end_of(anchor: Anchor, items: Sequence[bytes], expected: int) -> int | None:
    """The position in ``items`` behind an anchor: where it is expected, or else the nearest one; None if it is not among them."""
    if not anchor:
        return None
    if expected >= len(anchor) and tuple(items[expected - len(anchor) : expected]) == anchor:
        return expected
    ends = [
        at for at, item in enumerate(items, 1) if item == anchor[-1] and tuple(items[max(0, at - len(anchor)) : at]) == anchor
    ]
    return min(ends, key=lambda end: abs(end - expected), default=None)


def _end_of_rest(anchor: Anchor, items: Sequence[bytes]) -> int | None:
    """The position behind the last item of an anchor that is still among the items; None if none is."""
    return next((items.index(item) + 1 for item in reversed(anchor) if item in items), None)
