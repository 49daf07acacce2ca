"""The indexes of a qless queue by state, each in the order of runs. Called by ``family.py``."""

from __future__ import annotations

from ...schema.job import State
from ...schema.state_index import StateIndex, StateIndexQuery, known
from .keys import layout

ROLES = {
    State.WAITING: ("work",),
    State.SCHEDULED: ("scheduled",),
    State.ACTIVE: ("locks",),
    State.BLOCKED: ("depends", "throttled"),
    State.CANCELLED: (),
}
"""Completed jobs stand in one index for all queues, failed ones in one for each group."""


def state_indexes(prefix: str, queue: str, state: State) -> StateIndexQuery | None:
    """See KeyFamily.state_indexes."""
    roles = ROLES.get(state)
    if roles is None:
        return None
    names = layout(prefix)
    return known([StateIndex(names.key(role, queue=queue), "zset", runs_from_tail=role == "work") for role in roles])
