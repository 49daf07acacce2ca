"""What hypothesis draws for kickq: jobs that kickq can hold, and records as some release may have left them."""

from __future__ import annotations

import json
from typing import Any

from ferryman.compat.kickq.keys import as_sent
from ferryman.schema.fact import Entry
from ferryman.schema.job import Job, State
from hypothesis import strategies as st

from ...support.strategies import extra_values, json_texts, lines, times, whole_numbers
from .keyspaces import NOW, document, record

STATES = [State.WAITING, State.SCHEDULED, State.COMPLETED, State.FAILED, State.ACTIVE]
WORDS = ["new", "queued", "delayed", "processing", "retry", "ghost", "success", "fail"]
ITEM_STATES = {
    "queued": ["delayed", "retry", "ghost"],
    "processing": ["new", "delayed", "retry", "ghost"],
}
"""What the document may say for these words; for the others the same word."""

unicode_texts = st.text(max_size=8).filter(lambda text: as_sent(text) == text)
ids = st.one_of(st.integers(1, 40).map(str), st.sampled_from(["0001", "abc:x", "ünïcode", "9007199254740991", "line\nbreak"]))
queues = st.one_of(
    st.sampled_from(["mail", "", "a:queue:b", "kickq:job:1", "state:new", "naïve ☃ 队列", "line\nbreak", "*?[a]"]), unicode_texts
)
events = st.fixed_dictionaries(
    {
        "state": st.sampled_from(["success", "fail", "ghost"]),
        "started_at": times,
        "finished_at": times,
        "error": st.one_of(st.none(), lines),
    }
)


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Any job that kickq can hold: nothing read from kickq, as it might come from another family."""
    state = draw(st.sampled_from(STATES))
    unfinished = state in (State.WAITING, State.SCHEDULED, State.ACTIVE)
    queue = draw(queues)
    extra = draw(st.dictionaries(st.sampled_from(["kue", "migration", "b64"]), st.dictionaries(lines, extra_values), max_size=2))
    payloads = json_texts.map(bytes) if unfinished else st.one_of(json_texts, st.binary(max_size=8))
    history = st.one_of(
        st.lists(events, max_size=3), st.lists(st.one_of(events, st.dictionaries(lines, extra_values, max_size=2)), max_size=2)
    )
    return Job(
        id=draw(ids),
        queue=queue,
        name=draw(st.one_of(st.just(queue), lines)),
        state=state,
        priority=draw(st.one_of(st.none(), whole_numbers, st.floats(allow_nan=False))),
        payload=draw(st.one_of(st.none(), payloads)),
        created_at=draw(times),
        updated_at=draw(times),
        due_at=draw(times),
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
        depends_on=tuple(draw(st.lists(lines, max_size=2))),
        unique_key=draw(st.one_of(st.none(), lines)),
        ttl=draw(st.one_of(st.none(), st.integers(1, 10**6), whole_numbers)),
        logs=tuple(draw(st.lists(st.binary(max_size=8), max_size=3))),
        history=tuple(draw(history)),
        extra={**extra, "kickq": {"state": "processing"}} if state is State.ACTIVE else extra,
        position=draw(st.one_of(st.none(), st.integers(0, 5))),
    )


# Records that some release of kickq, or some application beside it, may have left

any_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(0, 5),
    whole_numbers,
    st.floats(allow_nan=False, allow_infinity=False),
    lines,
    st.lists(st.integers(), max_size=2),
    st.dictionaries(lines, st.integers(), max_size=2),
)
runs = st.lists(
    st.fixed_dictionaries(
        {"count": st.integers(1, 3), "startTime": st.integers(NOW - 10**6, NOW), "processTime": st.integers(0, 10**4)},
        optional={
            "processTimeout": st.just(10_000),
            "state": st.sampled_from(["success", "fail", "ghost", "processing"]),
            "error": any_values,
            "errorMessage": any_values,
            "timeout": st.one_of(st.none(), st.just({"_idleTimeout": 120})),
        },
    ),
    max_size=3,
)
OPTIONS = ["delay", "processTimeout", "retry", "retryTimes", "retryInterval", "ghostRetry", "ghostTimes", "hotjob", "lastError"]


@st.composite
def valid_records(draw: st.DrawFn) -> list[Entry]:
    """One job in exactly its places, with a document of any content that a worker could still read."""
    job_id, queue, word = draw(ids), draw(queues), draw(st.sampled_from(WORDS))
    created_at = draw(st.integers(1_500_000_000_000, NOW))
    time = draw(st.one_of(st.integers(NOW, NOW + 10**9), st.floats(NOW, NOW + 10**9)))
    item: dict[str, Any] = {
        "id": job_id,
        "name": queue,
        "createTime": created_at,
        "updateTime": draw(st.integers(created_at, NOW)),
    }
    item["state"] = draw(st.sampled_from(ITEM_STATES.get(word, [word])))
    names = st.one_of(
        st.sampled_from([*OPTIONS, "complete", "success", "finishTime", "totalProcessTime", "hotjobPromise"]), lines
    )
    item |= {name: value for name, value in draw(st.dictionaries(names, any_values, max_size=8)).items() if name not in item}
    item |= {"data": draw(json_texts.map(json.loads).filter(_is_finite)), "runs": draw(runs)}
    item["scheduledFor"] = time
    text = json.dumps(item, ensure_ascii=draw(st.booleans()), separators=draw(st.sampled_from([(",", ":"), (" , ", ": ")])))
    fields = {b"id": job_id.encode(), b"name": queue.encode(), b"state": word.encode()}
    fields |= {b"createTime": b"%d" % created_at, b"updateTime": b"%d" % item["updateTime"]}
    fields |= draw(st.dictionaries(st.sampled_from([b"tenant", b"ferryman", b"createTime"]), st.binary(max_size=5), max_size=2))
    fields[b"itemData"] = _escaped(text)
    member = job_id.encode()
    entries = [
        Entry(b"kickq:job:" + member, "hash", fields),
        Entry(b"kickq:state:" + word.encode(), "set", [member]),
        Entry(b"kickq:time-index", "zset", [(member, draw(st.one_of(st.just(float(created_at)), st.floats(allow_nan=False))))]),
    ]
    if word in ("new", "queued"):
        entries.append(Entry(b"kickq:queue:" + queue.encode(), "list", [member]))
    elif word in ("delayed", "retry", "ghost"):
        entries.append(Entry(b"kickq:scheduled", "zset", [(member, float(time))]))
    elif word in ("success", "fail"):
        entries.append(Entry(b"kickq:scheduled-purge", "zset", [(member, float(time))]))
    return entries


def _is_finite(value: Any) -> bool:
    """Python reads 1e400 as infinity, and would not write it as JSON again."""
    return "Infinity" not in json.dumps(value)


def _escaped(text: str) -> bytes:
    """The text in UTF-8, with lone surrogates escaped as JavaScript does it."""
    return "".join(f"\\u{ord(c):04x}" if "\ud800" <= c <= "\udfff" else c for c in text).encode()


# Anything

DEEP = [b"[" * 100_000, b'{"a":' * 100_000, b'{"id":"1","name":"q","data":' + b"[" * 100_000 + b"]" * 100_000 + b"}"]
extreme_numbers = st.one_of(st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False), st.just(10**400))
hostile_values: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    extreme_numbers,
    st.text(st.characters(exclude_categories=()), max_size=6),
    st.sampled_from(
        [*WORDS, "1", [], {}, [None], [[]], {"count": {}}, [{"state": [], "startTime": {}, "error": {"a": [1e300]}}]]
    ),
)
overflows = st.one_of(
    st.binary(max_size=12),
    st.sampled_from(
        [
            b"{}",
            b'{"as_of":null}',
            b'{"as_of":"new/1","fields":{"attempts":true}}',
            b'{"as_of":null,"extra":{"kickq":{"logs":[],"own":null,"moved":[1,2,{"b64":"Ww=="},null]}}}',
            b'{"as_of":null,"extra":{"kickq":{"logs":[{"b64":"AA=="}],"own":null,"moved":[{"float":"nan"},null,null,null]}}}',
            b'{"as_of":null,"extra":{"x":{"a":' + b"[" * 490 + b"]" * 490 + b"}}}",
        ]
    ),
)
time_texts = st.one_of(st.binary(max_size=6), st.integers(-(2**70), 2**70).map(lambda number: b"%d" % number))


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """A document with some members of nonsense, or no document at all."""
    item: dict[str, Any] = draw(st.sampled_from([{}, {"id": "1", "name": "q"}, document()]))
    item = item | draw(st.dictionaries(st.sampled_from([*document(), "length", "NS", "\ud800"]), hostile_values, max_size=5))
    text = json.dumps(item).encode()
    return draw(st.one_of(st.just(text), st.just(text[:-2]), st.binary(max_size=6), st.sampled_from([b"null", *DEEP])))


@st.composite
def hashes(draw: st.DrawFn) -> dict[bytes, bytes]:
    """A job's hash with some fields missing and some of nonsense."""
    valid: dict[bytes, bytes] = record().value
    fields = valid if draw(st.booleans()) else {}
    fields = fields | {b"itemData": draw(documents()), b"state": draw(st.sampled_from([word.encode() for word in WORDS]))}
    malformed = st.one_of(st.binary(max_size=8), time_texts, overflows)
    names = st.sampled_from([*valid, b"ferryman", b"\xff"])
    return fields | draw(st.dictionaries(names, malformed, max_size=3))
