"""Counting the jobs of kue by the lengths of its indexes, without reading one. Called by ``family.py``."""

from __future__ import annotations

from collections import Counter

from ...schema.family import Asking
from ...schema.job import State
from ...schema.text import to_text
from .keys import WORDS, layout


def count(prefix: str) -> Asking:
    """See KeyFamily.count. States of one's own, which kue allows, have no canonical one and are left out."""
    names = layout(prefix)
    (types,) = yield [("SMEMBERS", names.key("types"))]
    asked = [(to_text(queue), state, word) for queue in sorted(types or ()) for state, word in WORDS.items()]
    lengths = yield [("ZCARD", names.key("by_type", queue=queue, state=word)) for queue, _, word in asked]
    found: dict[str, Counter[State]] = {}
    for (queue, state, _), length in zip(asked, lengths, strict=True):
        found.setdefault(queue, Counter())[state] += length or 0
    return found
