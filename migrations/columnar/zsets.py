"""Zsets: the members of long zsets as columns, chunk by chunk (migrations/long_keys.py).

    all of a chunk have one score, most likely -> names alone, and the scores of the first and the last, at one moment
    else                                       -> names and scores

A zset of jobs by priority has a few scores for millions of members, and a server needs twice as long to write a score as to find
and send a member. Where the first and the last of a chunk have the same score, all between them have it too.

Only reads. Called by snapshot.py, longkeys.py and index_scan.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
import redis
from attrs import define, frozen

from ...schema.columnar.binary_views import BinaryViews
from ..key_splits import KeySplit, member_at
from ..long_keys import Scored, Sizes, member_chunks, scored
from ..reading import is_wrong_type, numbered
from .columns import Zset
from .resp_views import RespReader, UnexpectedReply


@frozen(eq=False)
class _Members(Sequence[Scored]):
    """Members, lowest score first."""

    names: BinaryViews
    scores: Any
    """float64."""

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, at: int) -> Scored: ...
    @overload
    def __getitem__(self, at: slice) -> _Members: ...
    def __getitem__(self, at: int | slice) -> Scored | _Members:
        if isinstance(at, int):
            return self.names[at], float(self.scores[at])
        start, end, _ = at.indices(len(self))
        return _Members(self.names.slice(start, end), self.scores[start:end])


def read_zset(replies: RespReader, key: bytes, ttl_ms: int | None, sizes: Sizes) -> Iterator[Zset]:
    """All members of a zset; none if the key is none any more."""
    return read_members(replies, KeySplit(key, "zset", ttl_ms, 0, 0, 0, 1), sizes)


def read_members(replies: RespReader, split: KeySplit, sizes: Sizes) -> Iterator[Zset]:
    """The members of a split of a zset, as from ``read_split``."""
    read = _Reader(replies, split.key).read
    chunks = member_chunks(read, sizes, split.offset, member_at(split.after), member_at(split.until))
    try:
        for offset, members in numbered(split.offset, chunks):
            yield Zset(split.key, split.ttl_ms, offset, members.names, members.scores)
    except redis.exceptions.ResponseError as error:
        if not is_wrong_type(error):
            raise


@define
class _Reader:
    """Reads a zset from one rank to another."""

    replies: RespReader
    key: bytes
    scores_equal: bool = True
    """Whether the next members have one score, most likely."""

    def read(self, start: int, stop: int) -> _Members:
        """Both ends are included. Raises ResponseError where there is no zset."""
        members = self._read_equal_scores(start, stop) if self.scores_equal else None
        if members is None:
            members = self._with_scores(start, stop)
            tail = members.scores[-1 - len(members) // 10 :]
            self.scores_equal = bool((tail == tail[-1:]).all())
        return members

    def _read_equal_scores(self, start: int, stop: int) -> _Members | None:
        """None unless all have one score."""
        first, last = b"%d" % start, b"%d" % stop
        ranks = (first, last), (first, first, b"WITHSCORES"), (last, last, b"WITHSCORES"), (b"-1", b"-1", b"WITHSCORES")
        try:
            names, lowest, highest, of_all = self.replies.transaction(*(("ZRANGE", self.key, *each) for each in ranks))
        except UnexpectedReply:
            return None
        highest = highest if len(highest) else of_all  # the zset ends before
        if not len(names) or lowest[1] != highest[1]:
            return None
        return _Members(names, np.full(len(names), float(lowest[1])))

    def _with_scores(self, start: int, stop: int) -> _Members:
        words = b"%d" % start, b"%d" % stop, b"WITHSCORES"
        self.replies.ask(BinaryViews.of([self.key]), (b"ZRANGE", *words))
        try:
            _, pairs = self.replies.arrays(1)
        except UnexpectedReply:
            # An error, most likely, which is raised here.
            found = scored(self.replies.pipe.ask("ZRANGE", self.key, *words))
            return _Members(BinaryViews.of(name for name, _ in found), np.array([score for _, score in found], np.float64))
        return _Members(pairs.take(slice(0, None, 2)), pairs.take(slice(1, None, 2)).cast_floats())
