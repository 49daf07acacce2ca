"""Counting the jobs of native queues by the lengths of their places, without reading one. Called by ``family.py``."""

from __future__ import annotations

from collections import Counter

from ..family import CountQuery
from ..job import State
from ..text import to_text
from .keys import QueueKeys, queues


def count(prefix: str, now_ms: int) -> CountQuery:
    """See KeyFamily.count. Of the queues that last; cancelled jobs, which stand among the dead, count as failed."""
    (names,) = yield [("SMEMBERS", queues(prefix))]
    all_keys = [QueueKeys(prefix, to_text(name)) for name in sorted(names or ()) if name]
    consumers = yield [("ZRANGE", keys.consumers, 0, -1) for keys in all_keys]
    found: dict[str, Counter[State]] = {}
    asked = [
        (keys.queue, state, command)
        for keys, holders in zip(all_keys, consumers, strict=True)
        for state, command in (
            (State.WAITING, ("ZCARD", keys.waiting)),
            (State.WAITING, ("ZCOUNT", keys.scheduled, "-inf", now_ms)),
            (State.SCHEDULED, ("ZCOUNT", keys.scheduled, f"({now_ms}", "+inf")),
            (State.COMPLETED, ("ZCARD", keys.done)),
            (State.FAILED, ("ZCARD", keys.dead)),
            (State.BLOCKED, ("SCARD", keys.blocked)),
            *((State.ACTIVE, ("ZCARD", keys.held(to_text(holder)))) for holder in holders or ()),
        )
    ]
    lengths = yield [command for _, _, command in asked]
    for (queue, state, _), length in zip(asked, lengths, strict=True):
        found.setdefault(queue, Counter())[state] += length or 0
    return found
