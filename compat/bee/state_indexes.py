"""The sorted sets of a bee queue by state, each in the order of runs. Called by ``family.py``."""

from __future__ import annotations

from ...schema.job import State
from ...schema.state_index import StateIndex, StateIndexQuery, known
from .keys import layout

ROLES = {
    State.WAITING: "queue",
    State.SCHEDULED: "delayed",
    State.ACTIVE: "locks",
}
"""Jobs that have ended stand in no index once they are expired or duplicates, those that wait for others never."""


def state_indexes(prefix: str, queue: str, state: State) -> StateIndexQuery | None:
    """See KeyFamily.state_indexes."""
    role = ROLES.get(state)
    return None if role is None else known([StateIndex(layout(prefix).key(role, queue=queue), "zset")])
