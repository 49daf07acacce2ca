"""Odd keys: what a family's reader states of a key that begins as those of a keyspace do, and is none of them."""

from __future__ import annotations

from collections.abc import Iterator

from .fact import Entry, Fact, FactKind
from .keys import KeyMatch
from .text import to_bytes

NAMELESS = "nameless"
"""Role of an ODD fact about a key that has no pattern's form."""


def odd_key(entry: Entry, prefix: str, misfit: KeyMatch | None) -> Iterator[Fact]:
    """The ODD fact about a key that can't be read; none about a key of somebody else's.

    ``misfit``: the pattern whose form its name has, where that alone does not make it a key of this role; None: it has none's.
    """
    if misfit is not None or entry.key.startswith(to_bytes(prefix) + b":"):
        role = NAMELESS if misfit is None else misfit.role
        yield Fact(FactKind.ODD, role, entry.key, entry.redis_type, ttl_ms=entry.ttl_ms)
