"""Leftovers: the keys under a source's prefix that no migration carries, grouped by the way their names begin.

What another program keeps there, what has a type that the family can't read, and what the family has beside its jobs: statistics,
settings. Counted while a source is read (``intake.py``), within its totals; told by the summary of a migration.
"""

from __future__ import annotations

import re
from collections import Counter

from ..schema.text import to_bytes, to_text
from ..schema.totals import Totals

MEASURE = "left behind"
"""Among the sums of the totals, by group."""

MOST_COUNTED = 500
"""Groups that one reader keeps apart; the keys of more are counted together."""
MOST_TOLD = 20
"""Groups that a summary names, those with the most keys."""
OTHERS = "(other names)"

_WORD = re.compile(r"[^\W\d_]{1,24}", re.ASCII)
_PART = re.compile(r"([^:./_|-]*)([:./_|-]*)")


def group_of(key: bytes, prefix: str) -> str:
    """How a key's name begins, up to what looks like an id, and a star for the rest: ``q:scheduler:*``. Other names stay whole."""
    text = to_text(key)
    start = len(prefix) if text.startswith(prefix) else 0
    group = text[:start]
    for found in _PART.finditer(text, start):
        word, separator = found[1], found[2]
        if word and not _WORD.fullmatch(word):
            return group + "*"
        group += word + separator
    return group


def count(key: bytes, prefix: str, totals: Totals) -> None:
    """Adds one key."""
    group = group_of(key, prefix)
    if (MEASURE, group) not in totals.sums and sum(measure == MEASURE for measure, _ in totals.sums) >= MOST_COUNTED:
        group = OTHERS
    totals.count(MEASURE, group)


def left_behind(totals: Totals) -> dict[str, int]:
    """How many keys of each group there are, the largest groups first, and the rest together at the end."""
    groups = Counter({label: number for (measure, label), number in totals.sums.items() if measure == MEASURE})
    others = groups.pop(OTHERS, 0)
    told = sorted(groups.items(), key=lambda item: (-item[1], to_bytes(item[0])))
    others += sum(number for _, number in told[MOST_TOLD:])
    return dict(told[:MOST_TOLD]) | ({OTHERS: others} if others else {})
