"""The rules of kickq keyspaces, KICKQ-1 to KICKQ-29: numbers, harms and meaning are those of the family's specification.

Jobs stay at the source (``refuses``) when nobody could run them right at the target: a document that is cut or unreadable
before the job has run (KICKQ-2), no known state (KICKQ-3). So do jobs that have yet to run and have lost their due time, their
runs or their limits (KICKQ-11, 22, 27), unless the user accepts what they would get instead. Every other damage is healed by
the way in which a job is carried: its hash tells the state, and it is written into exactly the places of that state. Called by
``family.py``.
"""

from __future__ import annotations

from ...rulebook import in_order
from . import keyspace, placement, record

RULES = in_order(placement.book, record.book, keyspace.book)
"""All rules in order. One number stands twice where a rule is about jobs and the keyspace, or weighs differently by state."""
