"""The list of a kickq queue; all else stands in sets of all queues. Called by ``family.py``."""

from __future__ import annotations

from ...schema.job import State
from ...schema.state_index import StateIndex, StateIndexQuery, known
from .keys import layout


def state_indexes(prefix: str, queue: str, state: State) -> StateIndexQuery | None:
    """See KeyFamily.state_indexes."""
    if state is State.WAITING:
        return known([StateIndex(layout(prefix).key("queue", queue=queue), "list")])
    return known([]) if state in (State.CANCELLED, State.BLOCKED) else None
