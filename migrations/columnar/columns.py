"""Columns: many keys of one Redis type as they came from a server or a file, their values as slices of one buffer.

Made by hashes.py and rdbcolumns.py; taken by projection.py and key_rows.py. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, ClassVar, Self

import numpy as np
from attrs import frozen

from ...schema.columnar.binary_views import BinaryViews, ScratchBuffer, concat
from ...schema.columnar.field_sets import select_fields
from ...schema.connection.pipeline import mapping
from ...schema.fact import Entry
from ..rdbfile import Row

NO_TTL = -1
"""The time to live of a key that has none."""


@frozen(eq=False)
class Keys:
    """Hashes, or lists, whole: the words of one key after those of the other."""

    keys: BinaryViews
    ttls: Any
    """ms left to live of each (int64), negative for a key that stays."""
    counts: Any
    """How many words each has (int64): names and values of a hash in turn, or the items of a list."""
    words: BinaryViews

    redis_type: ClassVar[str]
    """Their Redis type."""

    def __len__(self) -> int:
        return len(self.keys)

    @classmethod
    def of(cls, keys: Sequence[bytes], ttls: Sequence[int], values: Sequence[Sequence[bytes]]) -> Self:
        """These keys, each with its words."""
        words = BinaryViews.of(chain.from_iterable(values))
        return cls(BinaryViews.of(keys), np.array(ttls, np.int64), np.array(list(map(len, values)), np.int64), words)

    @classmethod
    def concat(cls, parts: Sequence[Self], scratch: ScratchBuffer | None = None) -> Self:
        """All of these, at least one, as one; ``scratch``: as for ``concat``."""
        if len(parts) == 1:
            return parts[0]
        ttls, counts = (np.concatenate(column) for column in zip(*((part.ttls, part.counts) for part in parts), strict=True))
        return cls(concat([part.keys for part in parts]), ttls, counts, concat([part.words for part in parts], scratch))

    @property
    def size(self) -> int:
        """About how many bytes they take."""
        return len(self.words.data)

    def take(self, mask: Any) -> Self:
        """Some of the keys (bool)."""
        if mask.all():
            return self
        return type(self)(self.keys.take(mask), self.ttls[mask], self.counts[mask], self.words.take(np.repeat(mask, self.counts)))

    def begins(self) -> Any:
        """The index of each key's first word."""
        return np.cumsum(self.counts) - self.counts

    def lists(self) -> Iterator[list[bytes]]:
        """The words of each key, as Python's own."""
        words, start = self.words.to_list(), 0
        for count in self.counts.tolist():
            yield words[start : start + count]
            start += count

    def entries(self) -> Iterator[Entry]:
        """An entry for each key."""
        for key, ttl_ms, words in zip(self.keys.to_list(), self.ttls.tolist(), self.lists(), strict=True):
            yield Entry(
                key, self.redis_type, mapping(words) if self.redis_type == "hash" else words, None if ttl_ms < 0 else ttl_ms
            )


@frozen(eq=False)
class Hashes(Keys):
    """Hashes of few fields each."""

    redis_type = "hash"

    def field_values(self, names: Sequence[bytes]) -> FieldValues:
        """The values of some fields."""
        found, _, _ = select_fields(self.counts, self.words, names)
        starts, sizes = (
            np.stack([getattr(column, name) for column in found.values()], axis=1).ravel() for name in ("starts", "sizes")
        )
        return FieldValues(self.keys, BinaryViews(self.words.data, starts, sizes))


@frozen(eq=False)
class Lists(Keys):
    """Lists of few items each."""

    redis_type = "list"


@frozen(eq=False)
class FieldValues:
    """Some fields of hashes."""

    keys: BinaryViews
    values: BinaryViews
    """Of one hash after the other, as many of each; nulls for what it lacks."""

    @classmethod
    def concat(cls, parts: Sequence[FieldValues]) -> FieldValues:
        """All of these, at least one, as one."""
        return cls(concat([part.keys for part in parts]), concat([part.values for part in parts]))

    @property
    def size(self) -> int:
        """About how many bytes they take."""
        return len(self.values.data)

    def column(self, index: int) -> BinaryViews:
        """The values of one field."""
        width = len(self.values) // len(self.keys)
        return BinaryViews(self.values.data, self.values.starts[index::width], self.values.sizes[index::width])


@frozen(eq=False)
class Zset:
    """Members of one zset that follow one another, lowest score first."""

    key: bytes
    ttl_ms: int | None
    offset: int
    """How many members come before these."""
    members: BinaryViews
    scores: Any
    """float64."""

    def entry(self) -> Entry:
        """The same as Python's own."""
        members = list(zip(self.members.to_list(), self.scores.tolist(), strict=True))
        return Entry(self.key, "zset", members, self.ttl_ms, self.offset)


DecodedKeys = Hashes | Lists | Zset | Row
"""What is read of a snapshot file: rdbcolumns.py."""


def entries_of(found: DecodedKeys) -> Iterator[Entry]:
    """The entries of all of these keys."""
    match found:
        case Keys():
            yield from found.entries()
        case Zset():
            yield found.entry()
        case _:
            yield Entry(*found)
