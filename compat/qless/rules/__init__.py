"""The rules of qless keyspaces, QLESS-1 to QLESS-37: numbers, harms and meaning are those of the family's specification.

Jobs stay at the source (``refuses``) when nobody could run them right at the target: no id or no known state (QLESS-2), data
that has yet to be run and can't be read (QLESS-25). Every other damage is healed by the way in which a job is carried: its
hash tells the state, and it is written into exactly the place of that state. Called by ``family.py``.
"""

from __future__ import annotations

from ...rulebook import in_order
from . import keyspace, links, placement, record, scopes

RULES = in_order(placement.book, record.book, links.book, scopes.book, keyspace.book)
"""All rules in order. One number stands twice where it has cases of different weight."""
