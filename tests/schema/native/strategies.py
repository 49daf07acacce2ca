"""What hypothesis draws for native queues: keys of any content."""

from __future__ import annotations

from typing import Any

from ferryman.schema.fact import Entry
from ferryman.schema.native.keys import QueueKeys
from hypothesis import strategies as st

q = QueueKeys("ferryman", "q")
names = st.sampled_from(
    [
        *(q.meta, q.waiting, q.scheduled, q.consumers, q.dead, q.done, q.wake, q.blocked),
        *(q.job("j"), q.held("c"), q.needs("j"), q.unblocks("j"), q.unique("u"), q.tag("t"), q.times, q.history, q.slots(10)),
        *(b"ferryman:queues", b"ferryman:exchange:e", b"ferryman:fanout:{f}", b"ferryman:{%}:meta", b"ferryman:notes"),
    ]
)
fields = st.sampled_from(
    b"message payload name score deliveries delivered_at consumer published_at due_at job reason error schema sequence "
    b"priority_order expires routes".split()
)
texts = st.one_of(
    st.binary(max_size=12),
    st.sampled_from(
        [b"1", b"-1", b"9" * 400, b"nan", b"{}\nbody", b'{"headers":1}\n', b'{"fields":{"tags":[1]}}', b"[" * 100_000]
    ),
)
ids = st.one_of(st.sampled_from([b"j", b"c", b""]), st.binary(max_size=8))


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    """Any key under the prefix, some of the wrong type."""
    values: dict[str, st.SearchStrategy[Any]] = {
        "string": texts,
        "list": st.lists(texts, max_size=3),
        "set": st.lists(ids, max_size=3, unique=True),
        "zset": st.lists(st.tuples(ids, st.floats(allow_nan=False)), max_size=3, unique_by=lambda item: item[0]),
        "hash": st.dictionaries(st.one_of(fields, st.binary(max_size=6)), texts, max_size=8),
        "stream": st.none(),
    }
    redis_type = draw(st.sampled_from(sorted(values)))
    key = draw(st.one_of(names, st.binary(max_size=12).map(b"ferryman:".__add__)))
    return Entry(key, redis_type, draw(values[redis_type]), draw(st.one_of(st.none(), st.integers(0, 2**50))))
