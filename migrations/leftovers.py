"""Leftovers: the keys under a source's prefix that no migration carries, grouped by the way their names begin.

What another program keeps there, what has a type that the family can't read, and what the family has beside its jobs: statistics,
settings. Counted while a source is read (``fact_reader.py``); reported in the summary of a migration.
"""

from __future__ import annotations

import re
from collections import Counter

from ..schema.text import to_bytes, to_text

MOST_COUNTED = 500
"""Groups that one reader keeps apart; the keys of more are counted together."""
MOST_TOLD = 20
"""Groups that a summary names, those with the most keys."""
OTHERS = "(other names)"

_ID = re.compile(r"[0-9]|.*[0-9]{2}|.{25}", re.DOTALL)
_PART = re.compile(r"([^:./_|-]*)([:./_|-]*)")


def group_of(key: bytes, prefix: str) -> str:
    """How a key's name begins, up to what looks like an id, and a star for the rest: ``q:scheduler:*``. Others stay whole."""
    text = to_text(key)
    start = len(prefix) if text.startswith(prefix) else 0
    group = text[:start]
    for found in _PART.finditer(text, start):
        word, separator = found[1], found[2]
        if _ID.match(word):
            return group + "*"
        group += word + separator
    return group


def count(key: bytes, prefix: str, groups: Counter[str]) -> None:
    """Adds one key."""
    group = group_of(key, prefix)
    groups[group if group in groups or len(groups) < MOST_COUNTED else OTHERS] += 1


def largest_groups(groups: Counter[str]) -> dict[str, int]:
    """How many keys of each group there are, the largest groups first, and the rest together at the end."""
    named = sorted(((group, number) for group, number in groups.items() if group != OTHERS), key=_largest_first)
    others = groups[OTHERS] + sum(number for _, number in named[MOST_TOLD:])
    return dict(named[:MOST_TOLD]) | ({OTHERS: others} if others else {})


def _largest_first(group: tuple[str, int]) -> tuple[int, bytes]:
    return -group[1], to_bytes(group[0])
