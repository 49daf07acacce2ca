"""The containers of a pjq queue by state, each in the order of runs. Called by ``family.py``."""

from __future__ import annotations

from ...schema.job import State
from ...schema.state_index import StateIndex, StateIndexQuery, known
from .keys import LISTS, layout

ROLES = {
    State.WAITING: LISTS,
    State.ACTIVE: ("processing", "dispatched", "js_leased"),
    State.COMPLETED: ("finished",),
    State.FAILED: ("finished",),
}


def state_indexes(prefix: str, queue: str, state: State) -> StateIndexQuery:
    """See KeyFamily.state_indexes."""
    names = layout(prefix)
    return known(
        [
            StateIndex(names.key(role, queue=queue), "list" if role in LISTS else "zset", runs_from_tail=role in LISTS)
            for role in ROLES.get(state, ())
        ]
    )
