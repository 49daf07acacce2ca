"""Counting the jobs of kue by the lengths of its indexes, without reading one. Called by ``family.py``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ...schema.family import CountQuery
from ...schema.job import State
from ...schema.text import to_text
from ...schema.waits import MOST_PRIORITIES, Waits, WaitsQuery
from ..numbers import parse_int
from .keys import EARLIEST_TIME, WORDS, layout, member_id

PROMOTED = 1000
"""Jobs that kue itself promotes in one go, and most due ones that are looked at."""


def count(prefix: str, now_ms: int) -> CountQuery:
    """See KeyFamily.count. States of one's own, which kue allows, have no canonical one and are left out.

    What of a type's delayed jobs is due stands in the index of all types alone, so the first PROMOTED due ones are asked for
    their types; those beyond, and all of kue 0.8 and older, whose index has no times, count as scheduled.
    """
    names = layout(prefix)
    (types,) = yield [("SMEMBERS", names.key("types"))]
    asked = [(to_text(queue), state, word) for queue in sorted(types or ()) for state, word in WORDS.items()]
    lengths = yield [("ZCARD", names.key("by_type", queue=queue, state=word)) for queue, _, word in asked]
    found: dict[str, Counter[State]] = {}
    for (queue, state, _), length in zip(asked, lengths, strict=True):
        found.setdefault(queue, Counter())[state] += length or 0
    delayed = names.key("by_state", state=WORDS[State.SCHEDULED])
    (due,) = yield [("ZRANGEBYSCORE", delayed, f"{EARLIEST_TIME:.0f}", now_ms, "LIMIT", 0, PROMOTED)]
    ids = [job_id for job_id in map(member_id, due or ()) if job_id is not None]
    for queue in (yield [("HGET", names.key("record", id=job_id), "type") for job_id in ids]) if ids else ():
        states = found.get(to_text(queue or b""), Counter())
        if states[State.SCHEDULED] > 0:
            states.update({State.SCHEDULED: -1, State.WAITING: 1})
    return found


def waits(prefix: str, queues: Iterable[str]) -> WaitsQuery:
    """See KeyFamily.waits. From the first job of one priority to that of the next, in the index of waiting jobs of each type."""
    names = layout(prefix)
    indexes = {queue: names.key("by_type", queue=queue, state=WORDS[State.WAITING]) for queue in queues}
    heads: dict[str, list[tuple[str, bytes]]] = {queue: [] for queue in indexes}
    walking = dict.fromkeys(indexes, "-inf")
    for _ in range(MOST_PRIORITIES + 1):
        if not walking:
            break
        found = yield [
            ("ZRANGEBYSCORE", indexes[queue], low, "+inf", "WITHSCORES", "LIMIT", 0, 1) for queue, low in walking.items()
        ]
        for queue, head in zip(list(walking), found, strict=True):
            if head:
                member, score = head
                heads[queue].append((to_text(score), member))
                walking[queue] = f"({to_text(score)}"
            else:
                del walking[queue]
    firsts = [(queue, score, member) for queue in indexes.keys() - walking.keys() for score, member in heads[queue]]
    if not firsts:
        return {}
    numbers = yield [("ZCOUNT", indexes[queue], score, score) for queue, score, _ in firsts]
    times = yield [("HGET", names.key("record", id=member_id(member) or ""), "created_at") for _, _, member in firsts]
    told: dict[str, dict[str, Waits]] = {}
    for (queue, score, _), number, created_at in zip(firsts, numbers, times, strict=True):
        told.setdefault(queue, {})[_priority(score)] = Waits(number, parse_int(created_at))
    return told


def _priority(score: str) -> str:
    """A score as ``ferryman queues`` shows a job's priority."""
    number = float(score)
    return str(int(number)) if number.is_integer() else str(number)
