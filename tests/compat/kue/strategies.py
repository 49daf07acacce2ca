"""What hypothesis draws for kue: keys of any content, and jobs that kue can hold."""

from __future__ import annotations

from typing import Any

from ferryman.compat.kue.keys import padded
from ferryman.compat.numbers import parse_number
from ferryman.schema.fact import Entry
from ferryman.schema.job import Job, State
from hypothesis import strategies as st

from ...support.strategies import extra_values, json_texts, lines, times, whole_numbers

WORDS = ["inactive", "delayed", "active", "complete", "failed"]

numbers = st.one_of(
    st.integers(-(2**70), 2**70).map(lambda number: str(number).encode()),
    st.floats().map(lambda number: repr(number).encode()),
    st.sampled_from([b"0", b"1", b"007", b"-0", b"2.50", b"1e3", b"1" * 5000, b"undefined", b"urgent", b"\xff", b""]),
)
texts = st.one_of(
    numbers,
    st.binary(max_size=12),
    st.sampled_from([b"{}", b"[", b"[" * 100_000, b"true", b"null", b'{"a":1}', b"function(){}", b"inactive", b"1", b"01|1"]),
)
fields = st.sampled_from(
    b"type data priority state created_at updated_at promote_at delay max_attempts attempts backoff ttl removeOnComplete "
    b"progress progress_data started_at workerId duration result error failed_at ferryman tenant \xff".split()
)
state_words = st.sampled_from([word.encode() for word in WORDS])


@st.composite
def hashes(draw: st.DrawFn) -> dict[bytes, bytes]:
    """A job hash with some fields missing and some of nonsense."""
    valid = draw(st.booleans())
    record = {b"type": b"t", b"state": draw(state_words), b"priority": b"0", b"data": b"{}"} if valid else {}
    return record | draw(st.dictionaries(fields, texts, max_size=8))


@st.composite
def entries(draw: st.DrawFn, prefix: str) -> Entry:
    """Any key that a kue keyspace could hold, and many that it could not."""
    job_id = draw(st.sampled_from(["1", "2", "12", "9999999999999999", "01", "x"]))
    word = draw(st.sampled_from([*WORDS, "paused"]))
    name = draw(
        st.sampled_from(
            [
                f"{prefix}:job:{job_id}",
                f"{prefix}:job:{job_id}:log",
                f"{prefix}:jobs",
                f"{prefix}:jobs:{word}",
                f"{prefix}:jobs:t:{word}",
                f"{prefix}:t:jobs",
                f"{prefix}:ids",
                f"{prefix}:job:types",
                f"{prefix}:search:word:RST",
                f"{prefix}:search:object:{job_id}",
                f"{prefix}:searchtmpkey",
                f"{prefix}:settings",
                f"{prefix}:stats:work-time",
                "promotion:lock",
            ]
        )
    )
    key = draw(
        st.one_of(
            st.just(name.encode()), st.binary(max_size=12), st.binary(max_size=12).map(lambda raw: f"{prefix}:".encode() + raw)
        )
    )
    redis_type = draw(st.sampled_from(["string", "list", "set", "zset", "hash", "stream"]))
    ttl_ms = draw(st.one_of(st.none(), st.integers(0, 2**50)))
    return Entry(key, redis_type, draw(_value(redis_type)), ttl_ms, draw(st.sampled_from([0, 500])))


def _value(redis_type: str) -> st.SearchStrategy[Any]:
    match redis_type:
        case "string":
            return texts
        case "list":
            return st.lists(texts, max_size=4)
        case "set":
            return st.lists(texts, max_size=4, unique=True)
        case "zset":
            scores = st.one_of(st.floats(allow_nan=False), st.integers(0, 2**41).map(float))
            return st.lists(st.tuples(texts, scores), max_size=4, unique_by=lambda item: item[0])
        case "hash":
            return hashes()
    return st.none()


# Jobs

names = st.one_of(
    st.sampled_from(["mail", "a:inactive", "jobs", "search:word:x", "überweisung ✓", 'sync "o\'brien"', "line\nbreak", "*?[a]"]),
    st.binary(min_size=1, max_size=8).map(lambda raw: raw.decode("utf-8", "surrogateescape")),
)


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Any job that kue can hold: nothing read from kue, as it might come from another family."""
    state = draw(st.sampled_from([State.WAITING, State.SCHEDULED, State.COMPLETED, State.FAILED, State.ACTIVE]))
    unfinished = state in (State.WAITING, State.SCHEDULED, State.ACTIVE)
    queue = draw(names)
    extra = draw(
        st.dictionaries(st.sampled_from(["qless", "migration", "b64"]), st.dictionaries(lines, extra_values), max_size=2)
    )
    return Job(
        id=str(draw(st.integers(1, 40))),
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
        progress=draw(st.one_of(st.none(), st.floats(0, 1), st.sampled_from([0.77, 1.0]))),
        result=draw(st.one_of(st.none(), json_texts, st.binary(max_size=8))),
        error=draw(st.one_of(st.none(), lines)),
        worker=draw(st.one_of(st.none(), lines)),
        lease_expires_at=draw(times),
        tags=tuple(draw(st.lists(lines, max_size=2))),
        depends_on=tuple(draw(st.lists(lines, max_size=2))),
        unique_key=draw(st.one_of(st.none(), lines)),
        ttl=draw(st.one_of(st.none(), whole_numbers)),
        logs=tuple(draw(st.lists(st.binary(max_size=8), max_size=3))),
        history=tuple(draw(st.lists(st.dictionaries(lines, extra_values, max_size=2), max_size=2))),
        extra={**extra, "kue": {"state": "active"}} if state is State.ACTIVE else extra,
    )


@st.composite
def valid_records(draw: st.DrawFn) -> list[Entry]:
    """One job as some version of kue may have left it: hash, indexes with any scores, log."""
    job_id = str(draw(st.integers(1, 10**15)))
    word, queue = draw(state_words), draw(names).encode("utf-8", "surrogateescape")
    record = draw(st.dictionaries(fields, texts.filter(lambda raw: len(raw) < 1000), max_size=10))
    record |= {b"type": queue, b"state": word, b"data": draw(json_texts)}
    record[b"priority"] = draw(numbers.filter(lambda raw: parse_number(raw) is not None))
    for name in (b"result", b"progress_data", b"backoff"):
        if name in record:
            record[name] = draw(json_texts)
    member = draw(st.sampled_from([job_id, padded(job_id)])).encode()
    scores = st.floats(allow_nan=False)
    keys = (b"q:jobs", b"q:jobs:" + word, b"q:jobs:" + queue + b":" + word)
    index_entries = [Entry(key, "zset", [(member, draw(scores))]) for key in keys]
    log = draw(st.lists(st.binary(max_size=5), max_size=3))
    logs = [Entry(f"q:job:{job_id}:log".encode(), "list", log)] if log else []
    return [Entry(f"q:job:{job_id}".encode(), "hash", record), *index_entries, *logs]
