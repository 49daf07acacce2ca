"""What hypothesis draws for any family: jobs of no system in particular, and keys of any content."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from ..schema.fact import Entry
from ..schema.job import Job, State

LINES = st.text(max_size=8)
PAYLOADS = st.sampled_from(
    [None, b"", b"{}", b'{"a":[1,null]}', b'"\xc3\xbc"', b"42", b"false", b"not JSON", b"\x80\x04\x95", b"[1,2"]
)
QUEUES = st.sampled_from(["mail", "a:b", "über ✓", "celery", "q jobs"])
IDS = st.sampled_from(["7", "4c1ff1b6-3bd2-11f1-9829-5e70f3e6c8f7", "job a:1", "ü"])
SCORES = st.one_of(st.floats(allow_nan=False), st.integers(0, 2**42).map(float))
TYPES = ("string", "list", "set", "zset", "hash", "stream")

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=5,
)
VALUES = st.one_of(
    st.integers(-(2**70), 2**70).map(lambda number: str(number).encode()),
    st.floats().map(lambda number: repr(number).encode()),
    st.sampled_from([b"", b"007", b"1e3", b"9" * 5000, b"\xff", b"[", b"[" * 100_000, b"null"]),
    st.binary(max_size=12),
    JSON.map(lambda value: json.dumps(value).encode()),
)
"""Numbers of any size, JSON of any shape and depth, and bytes that are neither."""


@st.composite
def jobs(draw: st.DrawFn, now_ms: int) -> Job:
    """A job of no system in particular: every field has what Job allows, together they need not make sense.

    None is active: who holds it differs from system to system.
    """
    times = st.one_of(st.none(), st.integers(1_500_000_000_000, 1_900_000_000_000))
    state = draw(st.sampled_from([state for state in State if state is not State.ACTIVE]))
    # A scheduled job whose time has come is a waiting one for families without a place for it.
    due = st.one_of(st.none(), st.integers(now_ms + 1, now_ms + 10**9)) if state is State.SCHEDULED else times
    queue = draw(QUEUES)
    return Job(
        id=draw(IDS),
        queue=queue,
        name=draw(st.one_of(st.just(queue), st.just("proj.tasks.add"), LINES)),
        state=state,
        priority=draw(st.one_of(st.none(), st.integers(-300, 300), st.floats(-10, 10))),
        payload=draw(PAYLOADS),
        created_at=draw(times),
        updated_at=draw(times),
        due_at=draw(due),
        started_at=draw(times),
        finished_at=draw(times),
        attempts=draw(st.one_of(st.none(), st.integers(0, 9))),
        max_attempts=draw(st.one_of(st.none(), st.integers(0, 9))),
        progress=draw(st.one_of(st.none(), st.floats(0, 1))),
        result=draw(PAYLOADS),
        error=draw(st.one_of(st.none(), LINES)),
        worker=draw(st.one_of(st.none(), LINES)),
        tags=tuple(draw(st.lists(LINES, max_size=2, unique=True))),
        depends_on=tuple(draw(st.lists(st.sampled_from(["8", "9", "x"]), max_size=2, unique=True))),
        unique_key=draw(st.one_of(st.none(), LINES)),
        ttl=draw(st.one_of(st.none(), st.integers(0, 10**7))),
        logs=tuple(draw(st.lists(st.binary(max_size=8), max_size=2))),
        history=tuple(draw(st.lists(st.dictionaries(LINES, st.integers(0, 9), max_size=2), max_size=2))),
        extra=draw(st.sampled_from([{}, {"other": {"field": b"\xff", "numbers": [1, 2.5, None]}}])),
    )


@st.composite
def entries(draw: st.DrawFn, valid: Sequence[Entry], prefix: str) -> Entry:
    """A key of a sound keyspace with a value, a type or a name that is not its own; or a key of somebody else's."""
    own = draw(st.sampled_from(valid)) if valid else Entry(prefix.encode(), "string", b"")
    garbage = st.binary(max_size=12).map(lambda raw: prefix.encode() + b":" + raw)
    key = draw(st.one_of(*[st.just(own.key)] * 4, st.binary(max_size=12), garbage))
    redis_type = draw(st.sampled_from([own.redis_type] * 5 + list(TYPES)))
    ttl_ms = draw(st.one_of(st.none(), st.integers(0, 2**50)))
    return Entry(key, redis_type, draw(_values(redis_type, own)), ttl_ms, draw(st.sampled_from([0, 0, 500])))


def _values(redis_type: str, own: Entry) -> st.SearchStrategy[Any]:
    known = own.value if redis_type == own.redis_type else None
    if redis_type in ("list", "set") and known:
        items = st.one_of(VALUES, st.sampled_from(known))
    elif redis_type == "zset" and known:
        items = st.one_of(VALUES, st.sampled_from([member for member, _ in known]))
    else:
        items = VALUES
    match redis_type:
        case "string":
            return VALUES
        case "list":
            return st.lists(items, max_size=4)
        case "set":
            return st.lists(items, max_size=4, unique=True)
        case "zset":
            return st.lists(st.tuples(items, SCORES), max_size=4, unique_by=lambda item: item[0])
        case "hash":
            changes = st.dictionaries(
                st.one_of(st.sampled_from(sorted(known or [b"f"])), st.binary(max_size=4)), VALUES, max_size=4
            )
            return changes.map(lambda change: (known or {}) | change)
    return st.none()
