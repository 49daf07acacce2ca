"""The indexes of a kue type by state, each in the order of runs. Called by ``family.py``."""

from __future__ import annotations

from ...schema.job import State
from ...schema.state_index import StateIndex, StateIndexQuery, known
from .keys import WORDS, layout


def state_indexes(prefix: str, queue: str, state: State) -> StateIndexQuery:
    """See KeyFamily.state_indexes."""
    word = WORDS.get(state)
    return known([] if word is None else [StateIndex(layout(prefix).key("by_type", queue=queue, state=word), "zset")])
