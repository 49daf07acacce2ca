"""The places of a native queue by state, each in the order of runs. Called by ``family.py``."""

from __future__ import annotations

from ..job import State
from ..state_index import StateIndex, StateIndexQuery
from ..text import to_text
from .keys import QueueKeys


def state_indexes(prefix: str, queue: str, state: State) -> StateIndexQuery:
    """See KeyFamily.state_indexes. Cancelled jobs stand among the dead ones."""
    keys = QueueKeys(prefix, queue)
    match state:
        case State.WAITING:
            return [StateIndex(keys.waiting, "zset")]
        case State.SCHEDULED:
            return [StateIndex(keys.scheduled, "zset")]
        case State.COMPLETED:
            return [StateIndex(keys.done, "zset")]
        case State.FAILED | State.CANCELLED:
            return [StateIndex(keys.dead, "zset")]
        case State.BLOCKED:
            return [StateIndex(keys.blocked, "set")]
        case State.ACTIVE:
            (holders,) = yield [("ZRANGE", keys.consumers, 0, -1)]
            return [StateIndex(keys.held(to_text(holder)), "zset") for holder in holders or ()]
    return []
