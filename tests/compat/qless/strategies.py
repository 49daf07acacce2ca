"""What hypothesis draws for qless: keys of any content, and jobs that qless can hold."""

from __future__ import annotations

import json
from typing import Any

from ferryman.schema.fact import Entry
from ferryman.schema.job import Job, State
from hypothesis import strategies as st

from ...support.strategies import extra_values, lines, times, whole_numbers

WORDS = ["waiting", "scheduled", "running", "depends", "failed", "complete", "stalled", "throttled", "pending", "recur"]

numbers = st.one_of(
    st.integers(-(2**70), 2**70).map(lambda number: str(number).encode()),
    st.floats().map(lambda number: repr(number).encode()),
    st.sampled_from([b"0", b"5", b"007", b"-0", b"2.50", b"1e308", b"1" * 5000, b"inf", b"nan", b"\xff", b"", b"1795263768.55"]),
)
json_texts = st.one_of(
    st.sampled_from(
        [b"{}", b"[]", b"42", b"1e400", b'"\\ud83d"', b"null", b"NaN", '{"ü": [1, {"b": "東京"}]}'.encode(), b'["a"]']
    ),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=2)),
        max_leaves=5,
    ).map(lambda value: json.dumps(value).encode()),
)
histories = st.sampled_from(
    [
        b'[1795263768,"put",{"q":"q"}]',
        b'[1795263768,"popped",{"worker":"w"}]',
        b'[1795263768.5,"done"]',
        b'[1795263768,"failed",{"group":"g","worker":"w"}]',
        b'[1,"note","x\xff"]',
        b'[1e300,"put"]',
        b'["when","what"]',
        b"[1,2,3]",
        b'[{"q":"q","put":1,"popped":2,"worker":"w"}]',
        b'[["q",1.5,null,null,""]]',
        b"[[[[]]]]",
    ]
)
_names_in_events = st.text(st.sampled_from("q[{\xff/ü\x7f,:"), max_size=4).map(str.encode)
event_texts = st.one_of(
    histories,
    st.builds(
        lambda when, what, name, text: b'[%b,"%b",{"%b":"%b"}]' % (when, what, name, text),
        st.sampled_from([b"1795263768", b"0", b"-5", b"007", b"1.5", b"1e3", b"999999999999", b"9999999999999", b"9" * 20]),
        st.sampled_from([b"put", b"popped", b"done", b"failed", b"note"]),
        st.sampled_from([b"q", b"queue", b"worker", b"group", b"what"]),
        st.one_of(_names_in_events, st.sampled_from([b"", b"\xff", b"a\\/b", b"\\ud83d", b'"', b"\n", b"[" * 600, b"x" * 201])),
    ),
    st.sampled_from(
        [
            b'[1795263768,"done"]',
            b'[1795263769,"timed-out"]',
            b'[1795263768,"failed",{"worker":"w","group":"g"}]',
            b'[1795263768,"failed",{"group":"g"}] ',
            b'[1795263768,"popped",{"worker":"w"}]',
            b'[1795263768,"put",{"q":"q"}],[1795263768,"done"]',
        ]
    ),
)
texts = st.one_of(
    numbers,
    histories,
    json_texts,
    st.binary(max_size=12),
    st.sampled_from([b"[" * 100_000, b"waiting", b"running", b"1", b"2", b'{"group":"g","when":1,"message":7,"worker":[]}']),
)
fields = st.sampled_from(
    b"jid id klass data priority tags state worker expires queue retries remaining time failure grace scheduled throttles "
    b"history spawned_from_jid count interval backlog maximum total mean vk s0 m5 failed failures heartbeat ferryman \xff".split()
)
state_words = st.sampled_from([word.encode() for word in WORDS])
ids = st.sampled_from(["1", "2", "", "1-history", "1-dependents", "q", "q:x", "\udcff\n"])


@st.composite
def hashes(draw: st.DrawFn) -> dict[bytes, bytes]:
    """A job hash with some fields missing and some of nonsense."""
    valid = draw(st.booleans())
    record = {b"jid": b"1", b"queue": b"q", b"state": draw(state_words), b"priority": b"0", b"data": b"{}"} if valid else {}
    return record | draw(st.dictionaries(fields, texts, max_size=8))


@st.composite
def entries(draw: st.DrawFn, prefix: str = "ql") -> Entry:
    """Any key that a qless keyspace could hold, and many that it could not."""
    one = draw(ids)
    index = draw(st.sampled_from(["-work", "-locks", "-scheduled", "-depends", "-recur", "-throttled", ""]))
    name = draw(
        st.sampled_from(
            [
                f"{prefix}:j:{one}",
                f"{prefix}:j:{one}-history",
                f"{prefix}:j:{one}-dependencies",
                f"{prefix}:j:{one}-dependents",
                f"{prefix}:q:{one}{index}",
                f"{prefix}:q:q{index}",
                f"{prefix}:r:{one}",
                f"{prefix}:queues",
                f"{prefix}:paused_queues",
                f"{prefix}:workers",
                f"{prefix}:w:{one}:jobs",
                f"{prefix}:failures",
                f"{prefix}:f:{one}",
                f"{prefix}:completed",
                f"{prefix}:tracked",
                f"{prefix}:t:{one}",
                f"{prefix}:tags",
                f"{prefix}:s:stats:1:{one}",
                f"{prefix}:s:wait:1:{one}",
                f"{prefix}:config",
                f"{prefix}:th:{one}",
                f"{prefix}:th:{one}-locks",
                f"{prefix}:th:{one}-pending",
                f"{prefix}:qp:priorities",
                "qmore:dynamic",
            ]
        )
    ).encode("utf-8", "surrogateescape")
    key = draw(
        st.one_of(st.just(name), st.binary(max_size=12), st.binary(max_size=12).map(lambda raw: f"{prefix}:".encode() + raw))
    )
    redis_type = draw(st.sampled_from(["string", "list", "set", "zset", "zset", "hash", "hash", "stream"]))
    ttl_ms = draw(st.one_of(st.none(), st.integers(0, 2**50)))
    return Entry(key, redis_type, draw(_value(redis_type)), ttl_ms, draw(st.sampled_from([0, 500])))


def _value(redis_type: str) -> st.SearchStrategy[Any]:
    members = st.one_of(texts, ids.map(lambda text: text.encode("utf-8", "surrogateescape")))
    match redis_type:
        case "string":
            return texts
        case "list":
            return st.lists(st.one_of(histories, members), max_size=4)
        case "set":
            return st.lists(members, max_size=4, unique=True)
        case "zset":
            scores = st.one_of(st.floats(allow_nan=False), st.floats(1.7e9, 1.8e9), st.floats(-1, 1))
            return st.lists(st.tuples(members, scores), max_size=4, unique_by=lambda item: item[0])
        case "hash":
            return hashes()
    return st.none()


# Jobs

names = st.one_of(
    st.sampled_from(["mail", "a-work", "x:y", "ql:q:z", "überweisung ✓", 'sync "o\'brien"', "line\nbreak", "*?[a]", "/"]),
    st.binary(min_size=1, max_size=8).map(lambda raw: raw.decode("utf-8", "surrogateescape")),
)
events = st.one_of(
    st.dictionaries(st.one_of(lines, st.sampled_from(["what", "when", "about", "q"])), extra_values, max_size=3),
    st.fixed_dictionaries({"what": st.sampled_from(["put", "popped", "done", "note"]), "when": st.integers(0, 2**40)}),
    st.fixed_dictionaries({"what": st.just("put"), "when": st.integers(0, 2**40), "q": names}),
)
log_lines = st.one_of(st.binary(max_size=8), st.sampled_from([b"put", b"done", b"timed-out", b"failed", b""]))


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Any job that qless can hold: nothing read from qless, as it might come from another family."""
    word = {State.ACTIVE: "running"}
    state = draw(st.sampled_from([State.WAITING, State.SCHEDULED, State.COMPLETED, State.FAILED, State.ACTIVE, State.BLOCKED]))
    unfinished = state not in (State.COMPLETED, State.FAILED)
    queue = draw(names)
    extra = draw(st.dictionaries(st.sampled_from(["kue", "migration", "b64"]), st.dictionaries(lines, extra_values), max_size=2))
    payload = json_texts.filter(lambda raw: raw != b"false")
    return Job(
        id=f"job{draw(st.integers(1, 40))}",
        queue=queue,
        name=draw(names),
        state=state,
        priority=draw(st.one_of(st.none(), whole_numbers, st.floats(allow_nan=False))),
        payload=draw(payload if unfinished else st.one_of(st.none(), payload, st.binary(max_size=8))),
        created_at=draw(times),
        updated_at=draw(times),
        due_at=draw(times if state is not State.SCHEDULED else whole_numbers),
        started_at=draw(times),
        finished_at=draw(times),
        attempts=draw(st.one_of(st.none(), st.integers(0, 5), whole_numbers)),
        max_attempts=draw(st.one_of(st.none(), st.integers(0, 5), whole_numbers)),
        progress=draw(st.one_of(st.none(), st.floats(0, 1))),
        result=draw(st.one_of(st.none(), json_texts, st.binary(max_size=8))),
        error=draw(st.one_of(st.none(), lines, st.sampled_from(["Error: timeout", "a: b: c", ": x", "x: "]))),
        worker=draw(st.one_of(st.none(), lines)),
        lease_expires_at=draw(times),
        tags=tuple(draw(st.lists(lines, max_size=2))),
        depends_on=tuple(draw(st.lists(names, min_size=1 if state is State.BLOCKED else 0, max_size=2))),
        unique_key=draw(st.one_of(st.none(), lines)),
        ttl=draw(st.one_of(st.none(), whole_numbers)),
        logs=tuple(draw(st.lists(log_lines, max_size=3))),
        history=tuple(draw(st.lists(events, max_size=3))),
        extra={**extra, "qless": {"state": word[state]}} if state in word else extra,
    )
