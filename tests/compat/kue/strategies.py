"""What hypothesis draws for kue: keys of any content, and jobs that kue can hold."""

from __future__ import annotations

from typing import Any

from ferryman.schema.fact import Entry
from hypothesis import strategies as st

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
    sound = draw(st.booleans())
    record = {b"type": b"t", b"state": draw(state_words), b"priority": b"0", b"data": b"{}"} if sound else {}
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
