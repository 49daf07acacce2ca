"""The rules of pjq keyspaces, PJQ-1 to PJQ-28: numbers, harms and meaning are those of the family's specification.

A rule looks only at jobs to which it applies: without a payload a job breaks PJQ-2 or PJQ-4 and no rule about what its hash
says. Jobs stay at the source (``refuses``) when nobody could run them (PJQ-1 to PJQ-4), or when nothing tells whether they
have run (PJQ-17). Every other damage is healed by the way in which a job is carried: it goes over once, in the state to which
it came furthest. Called by ``family.py``.
"""

from __future__ import annotations

from ...rulebook import in_order
from . import keyspace, placement, record, workers

RULES = in_order(record.book, placement.book, workers.book, keyspace.book)
"""All rules in order. One number stands twice where a rule is about jobs and the keyspace, or weighs differently by state."""
