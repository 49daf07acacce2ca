"""Zsets: the members of long zsets as columns, chunk by chunk (migrations/chunks.py).

Only reads. Called by snapshot.py and longkeys.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import overload

import redis
from attrs import frozen

from ..migrations.chunks import Scored, Sizes, member_chunks, scored
from ..migrations.keyparts import KeyPart, member_at
from ..migrations.reading import is_wrong_type, numbered
from ..schema.texts import Texts
from .columns import Zset
from .replies import Odd, Replies


@frozen(eq=False)
class _Members(Sequence[Scored]):
    """Members and their scores in turn, as a server sends them."""

    words: Texts

    def __len__(self) -> int:
        return len(self.words) // 2

    @overload
    def __getitem__(self, at: int) -> Scored: ...
    @overload
    def __getitem__(self, at: slice) -> _Members: ...
    def __getitem__(self, at: int | slice) -> Scored | _Members:
        if isinstance(at, int):
            at = range(len(self))[at]
            return self.words[2 * at], float(self.words[2 * at + 1])
        start, end, _ = at.indices(len(self))
        return _Members(self.words.part(2 * start, 2 * end))


def read_zset(replies: Replies, key: bytes, ttl_ms: int | None, sizes: Sizes) -> Iterator[Zset]:
    """All members of a zset; none if the key is none any more."""
    return read_members(replies, KeyPart(key, "zset", ttl_ms, 0, 0, 0, 1), sizes)


def read_members(replies: Replies, part: KeyPart, sizes: Sizes) -> Iterator[Zset]:
    """The members of a part of a zset, as from ``read_part``."""
    chunks = member_chunks(partial(_read, replies, part.key), sizes, part.offset, member_at(part.after), member_at(part.until))
    try:
        for offset, members in numbered(part.offset, chunks):
            names, scores = (members.words.take(slice(first, None, 2)) for first in (0, 1))
            yield Zset(part.key, part.ttl_ms, offset, names, scores.floats())
    except redis.exceptions.ResponseError as error:
        if not is_wrong_type(error):
            raise


def _read(replies: Replies, key: bytes, start: int, stop: int) -> _Members:
    words = b"%d" % start, b"%d" % stop, b"WITHSCORES"
    replies.ask(Texts.of([key]), (b"ZRANGE", *words))
    try:
        _, members = replies.arrays(1)
    except Odd:
        # An error, most likely, which is raised here.
        told = scored(replies.line.ask("ZRANGE", key, *words))
        members = Texts.of(word for member, score in told for word in (member, repr(score).encode()))
    return _Members(members)
