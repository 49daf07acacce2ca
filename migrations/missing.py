"""Missing: the error for a keyspace that is not at an address, with the keyspaces that are there instead.

Called by everything that reads a whole keyspace, when it has found none.
"""

from __future__ import annotations

from collections.abc import Collection

from attrs import evolve

from ..schema.connection.address import Address
from ..schema.errors import FerrymanError, KeyspaceNotFound
from ..schema.family import Keyspace
from .detect import detect, located
from .source import Source

MOST_KEYS = 20_000
"""Keys whose names are read in search of other keyspaces."""
MOST_SECONDS = 3.0
MOST_NAMED = 5
"""Keyspaces that the error names."""


def other_prefixes(keyspace: Keyspace, *, has_content: bool) -> Collection[str] | None:
    """See KeyFamily.other_prefixes; None if the keyspace itself is there."""
    others = keyspace.family.other_prefixes(keyspace.totals)
    return others if others or not has_content else None


def not_found(source: Source, others: Collection[str] = ()) -> KeyspaceNotFound:
    """The error, which names what is there. ``others``: other prefixes that are known already."""
    error = source.nothing_found()
    found = keyspaces_at(source.address) or [_under(source.address, each) for each in sorted(others)]
    if not found:
        return error
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return KeyspaceNotFound(f"{error}. Keyspaces found there: {', '.join(found[:MOST_NAMED])}{more}")


def _under(address: Address, other: str) -> str:
    return evolve(address, prefix=address.prefix + other).display()


def keyspaces_at(address: Address) -> list[str]:
    """The URLs, for people, of the keyspaces in the same database; nothing where they can't be searched for.

    Those of the family that the address names, if there are any; else those of other systems.
    """
    try:
        found = detect(address, MOST_KEYS, MOST_SECONDS).fitting
    except FerrymanError:
        return []
    others = [each for each in found if (each.family, each.prefix) != (address.family, address.prefix)]
    of_family = [each for each in others if each.family == address.family]
    return [located(address, each) for each in of_family or others]
