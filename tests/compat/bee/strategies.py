"""What hypothesis draws for bee: keys of any content, and jobs that bee can hold."""

from __future__ import annotations

import json
from typing import Any

from ferryman.schema.fact import Entry
from ferryman.schema.job import Job, State
from ferryman.schema.text import to_bytes, to_text
from hypothesis import strategies as st

from ...support.strategies import extra_values, lines, times, whole_numbers

STATUSES = ["new", "queued", "running", "completed", "failed", "retried", "duplicate", "canceled", "expired"]
IDS = ["1", "2", "a:b", "\udcff", ""]
FIELDS = (
    b"jid queue data options worker status submitted retries tags history parent hash duplicate dependants result failedReason "
    b"failed_reason ferryman tenant"
).split()
DEEP = b"[" * 100_000
EVENTS = [
    "submitted",
    "queued",
    "popped",
    "completed",
    "exception",
    "failed",
    "delayed",
    "duplicate",
    "canceled",
    "dependancyWaiting",
]

numbers = st.one_of(
    st.integers(-(2**70), 2**70).map(lambda number: str(number).encode()),
    st.floats().map(lambda number: repr(number).encode()),
    st.sampled_from([b"0", b"007", b"1e3", b"1" * 5000, b"high", b"\xff", b""]),
)
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=5,
)
options = st.dictionaries(
    st.sampled_from(["ttl", "retries", "retryDelay", "delay", "priority", "dependencies", "timeout"]), json_values, max_size=7
)
histories = st.lists(
    st.one_of(
        json_values,
        st.fixed_dictionaries({"event": st.one_of(st.sampled_from(EVENTS), json_values), "timestamp": json_values}),
        st.fixed_dictionaries({"event": st.just("delayed"), "till": json_values}),
    ),
    max_size=4,
)
texts = st.one_of(
    numbers,
    st.binary(max_size=12),
    st.sampled_from([b"{}", b"[", DEEP, b"null", b'["1","2"]', b'{"a":1}', b"[1,{}]", b'"\\ud83d"', *map(str.encode, STATUSES)]),
    st.one_of(json_values, options, histories).map(lambda value: json.dumps(value).encode()),
    st.sampled_from(IDS).map(lambda name: name.encode("utf-8", "surrogateescape")),
)


@st.composite
def hashes(draw: st.DrawFn) -> dict[bytes, bytes]:
    """A record with some fields missing and some of nonsense."""
    record: dict[bytes, bytes] = {}
    if draw(st.booleans()):
        record = {
            b"jid": b"1",
            b"queue": b"t",
            b"data": b"[]",
            b"status": draw(st.sampled_from(STATUSES)).encode(),
            b"options": json.dumps(draw(options)).encode(),
            b"history": json.dumps(draw(histories)).encode(),
        }
    return record | draw(st.dictionaries(st.one_of(st.sampled_from(FIELDS), st.binary(max_size=4)), texts, max_size=8))


@st.composite
def entries(draw: st.DrawFn, prefix: str = "bee") -> Entry:
    """Any key that a bee keyspace could hold, and many that it could not."""
    job_id, queue = draw(st.sampled_from(IDS)), draw(st.sampled_from(["t", "", "a:b"]))
    patterns = [
        *(f"h:jobs:{job_id}", "h:jobs:bee:h:jobs:1", f"s:{job_id}:children", f"s:dependencies:{job_id}"),
        *(f"ss:{role}:{queue}" for role in ("queue", "delayed", "locks", "expires", "bees")),
        *(f"l:hashes:{queue}:x", "s:tags:1", "s:tags:x:children", f"s:locks:h:1:u:{queue}", f"str:lock-waits:h:1:u:t:{job_id}"),
        *("str:hive:options", "scripts"),
    ]
    name = f"{prefix}:{draw(st.sampled_from(patterns))}".encode("utf-8", "surrogateescape")
    garbage = st.binary(max_size=12)
    key = draw(st.one_of(*[st.just(name)] * 4, garbage, garbage.map(lambda raw: f"{prefix}:".encode() + raw)))
    kinds = {"h:jobs": "hash", ":s:": "set", ":ss:": "zset", ":l:": "list", ":str:": "string", "scripts": "hash"}
    usual = next((kind for part, kind in kinds.items() if part.encode() in key), "string")
    redis_type = draw(st.sampled_from([usual] * 5 + ["string", "list", "set", "zset", "hash", "stream"]))
    ttl_ms = draw(st.one_of(st.none(), st.none(), st.integers(0, 2**50)))
    return Entry(key, redis_type, draw(_value(redis_type)), ttl_ms, draw(st.sampled_from([0, 0, 500])))


def _value(redis_type: str) -> st.SearchStrategy[Any]:
    scores = st.one_of(st.floats(allow_nan=False), st.integers(0, 2**42).map(float))
    match redis_type:
        case "string":
            return texts
        case "list":
            return st.lists(texts, max_size=4)
        case "set":
            return st.lists(texts, max_size=4, unique=True)
        case "zset":
            return st.lists(st.tuples(texts, scores), max_size=4, unique_by=lambda item: item[0])
        case "hash":
            return hashes()
    return st.none()


# Jobs

names = st.sampled_from(["mail", "a:b", "", "日次 ✓", 'sync "o\'brien"', "line\nbreak", "*?[a]"])
json_texts = st.one_of(
    st.sampled_from([b"{}", b"[]", b"42", b"null", b'[{"a\\/b": 1e+15}]', '{"ü": [1, {"b": "東京"}]}'.encode()]),
    json_values.map(lambda value: json.dumps(value, allow_nan=True).encode()).filter(
        lambda raw: b"N" not in raw and b"I" not in raw
    ),
)
events = st.fixed_dictionaries(
    {"event": st.sampled_from(EVENTS)},
    optional={"timestamp": st.one_of(whole_numbers, st.floats(allow_nan=False)), "hive": lines},
)
STATES = [State.WAITING, State.SCHEDULED, State.COMPLETED, State.FAILED, State.CANCELLED, State.BLOCKED, State.ACTIVE]


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Any job that bee can hold: nothing read from bee, as it might come from another family."""
    state = draw(st.sampled_from(STATES))
    unfinished = state in (State.WAITING, State.SCHEDULED, State.ACTIVE, State.BLOCKED)
    queue = draw(names)
    extra = draw(st.dictionaries(st.sampled_from(["qless", "migration"]), st.dictionaries(lines, extra_values), max_size=2))
    history = st.lists(st.one_of(events, st.dictionaries(lines, extra_values, max_size=2)), max_size=3)
    ids = lines.map(lambda text: to_text(to_bytes(text)))  # as they come from keys
    needs = st.lists(st.one_of(st.just("nobody"), ids), min_size=state is State.BLOCKED, max_size=2)
    return Job(
        id=draw(st.sampled_from(["7", "a:b", "ü", "dd9bc61a-e5a9-11f1-bafb-352044702426"])),
        queue=queue,
        name=draw(st.one_of(st.just(queue), lines)),
        state=state,
        priority=draw(st.one_of(st.none(), whole_numbers, st.floats(allow_nan=False))),
        payload=draw(json_texts if unfinished else st.one_of(st.none(), json_texts, st.binary(max_size=8))),
        created_at=draw(times),
        updated_at=draw(times),
        due_at=draw(times if state is not State.SCHEDULED else whole_numbers),
        started_at=draw(times),
        finished_at=draw(times),
        attempts=draw(st.one_of(st.none(), st.integers(0, 5), whole_numbers)),
        max_attempts=draw(st.one_of(st.none(), st.integers(0, 5), whole_numbers)),
        progress=draw(st.one_of(st.none(), st.floats(0, 1))),
        result=draw(st.one_of(st.none(), json_texts, st.binary(max_size=8))),
        error=draw(st.one_of(st.none(), lines)),
        worker=draw(st.one_of(st.none(), lines)),
        lease_expires_at=draw(times),
        tags=tuple(draw(st.lists(lines, max_size=2))),
        depends_on=tuple(draw(needs)),
        unique_key=draw(st.one_of(st.none(), lines)),
        ttl=draw(st.one_of(st.none(), whole_numbers)),
        logs=tuple(draw(st.lists(st.binary(max_size=8), max_size=2))),
        history=tuple(draw(history)),
        extra={**extra, "bee": {"state": "running"}} if state is State.ACTIVE else extra,
        position=draw(st.one_of(st.none(), st.integers(0, 10**6))) if state is State.WAITING else None,
        rank=draw(st.one_of(st.none(), st.integers(-256, 255))),
    )
