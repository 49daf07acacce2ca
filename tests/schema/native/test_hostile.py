"""Whatever stands in the keys of native queues: a finding or a value that is stored as it is, never an error, and never long."""

from __future__ import annotations

import time
from typing import Any

import pytest
from ferryman.schema.fact import Entry
from ferryman.schema.native import FAMILY
from ferryman.schema.native.keys import QueueKeys
from hypothesis import given, settings
from hypothesis import strategies as st

from ...support.captures import survey
from ...support.hostile import interrogate
from ...support.mending import NOW

q = QueueKeys("ferryman", "q")
names = st.sampled_from(
    [
        *(q.meta, q.waiting, q.scheduled, q.consumers, q.dead, q.done, q.wake, q.blocked),
        *(q.job("j"), q.held("c"), q.needs("j"), q.unblocks("j"), q.unique("u"), q.tag("t"), q.stats("d")),
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


@settings(max_examples=100)
@given(st.lists(entries(), max_size=14))
def test_no_bytes_at_all_make_the_family_fail(keys: list[Entry]) -> None:
    interrogate(survey(FAMILY, keys, "ferryman", NOW))
    for entry in keys:
        list(FAMILY.prefixes(entry.key, entry.redis_type))


@pytest.mark.parametrize(
    "raw", [b"[" * 100_000, b"{}\n" + b"x" * 3_000_000, b"9" * 3_000_000, b'{"fields":' * 100_000], ids=range(4)
)
def test_deep_and_large_values_are_findings_and_cost_little(raw: bytes) -> None:
    started = time.process_time()
    record = dict.fromkeys((b"message", b"score", b"deliveries", b"published_at", b"job", b"error"), raw)
    keys = [
        Entry(q.job("j"), "hash", record),
        Entry(q.scheduled, "zset", [(b"j", float("-inf")), (raw, float("inf"))]),
        Entry(q.meta, "hash", dict.fromkeys((b"schema", b"sequence", b"priority_order"), raw)),
    ]
    seen = survey(FAMILY, keys, "ferryman", NOW)
    assert seen.findings()
    interrogate(seen)
    assert time.process_time() - started < 60
