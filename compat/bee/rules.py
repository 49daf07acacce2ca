"""The rules of bee keyspaces, BEE-1 to BEE-34: numbers, harms and meaning are those of the family's specification.

A record that does not name itself is no job, and breaks no further rule but those about its leftovers. Jobs stay at the source
(``refuses``) when nobody could tell where they go on (BEE-4, 6, 7), could run them (a payload that can't be read, BEE-2), or may
run them again (BEE-34). Every other damage is healed by the way in which a job is carried: its status tells the state, and it is
written into exactly the keys of that state. Called by ``family.py``.
"""

from __future__ import annotations

from . import hash_rules, keyspace_rules, link_rules, place_rules, record_rules, worker_rules

RULES = tuple(
    sorted(
        (
            *record_rules.book.rules,
            *place_rules.book.rules,
            *worker_rules.book.rules,
            *hash_rules.book.rules,
            *link_rules.book.rules,
            *keyspace_rules.book.rules,
        ),
        key=lambda rule: int(rule.id.removeprefix("BEE-")),
    )
)
"""All rules in order. One number stands twice where a rule is about jobs and the keyspace, or refuses only some jobs."""
