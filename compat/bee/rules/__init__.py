"""The rules of bee keyspaces, BEE-1 to BEE-37: numbers, harms and meaning are those of the family's specification.

A record that does not name itself is no job, and breaks no further rule but those about its leftovers. Jobs stay at the source
(``refuses``) when nobody could tell where they go on (BEE-4, 6, 7), could run them (a payload that can't be read, BEE-2), or may
run them again (BEE-34). Every other damage is healed by the way in which a job is carried: its status tells the state, and it is
written into exactly the keys of that state. Called by ``family.py``.
"""

from __future__ import annotations

from ...rulebook import in_order
from . import duplicates, keyspace, links, placement, record, workers

RULES = in_order(record.book, placement.book, workers.book, duplicates.book, links.book, keyspace.book)
"""All rules in order. One number stands twice where a rule is about jobs and the keyspace, or refuses only some jobs."""
