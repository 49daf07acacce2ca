"""The rules of kue keyspaces, KUE-1 to KUE-34: numbers, harms and meaning are those of the family's specification.

A rule looks only at jobs to which it applies: a hash without a type is no job (KUE-2), and breaks no further rule but those
about its leftovers. Jobs stay at the source (``refuses``) when nobody could run them right at the target, or must not run
them again: no type (KUE-2), no known state (KUE-3), work that is done and only lacks its last step (KUE-17), a payload that
has yet to be run and can't be read (KUE-18). So do jobs that have yet to run and have lost their priority, their limits or
their due time (KUE-11, 21, 32), or what an earlier migration kept (KUE-33), unless the user accepts what they would get
instead. Every other damage is healed by the way in which a job is carried: its hash tells the state, and it is written into
exactly the indexes of that state. Called by ``family.py``.
"""

from __future__ import annotations

from ...rulebook import in_order
from . import keyspace, placement, record

RULES = in_order(placement.book, record.book, keyspace.book)
"""All rules in order. One number stands twice where a rule is about jobs and the keyspace, or weighs differently by state."""
