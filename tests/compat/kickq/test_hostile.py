"""Whatever stands in the keys of kickq: a finding or a value kept as it is, never an error, and never long."""

from __future__ import annotations

import time
from typing import Any

import pytest
from ferryman.compat.kickq import FAMILY
from ferryman.schema.fact import Entry, Subject
from ferryman.testing.hostile import interrogate
from ferryman.testing.keyspaces import read_keyspace
from hypothesis import given, settings
from hypothesis import strategies as st

from ...support.effort import examples
from .keyspaces import NOW, record
from .strategies import DEEP, hashes, time_texts

ids = st.sampled_from([b"1", b"2", b"0001", b"99999999999999999999", b"a:\xff", b"\n"])


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    """Any key that a kickq keyspace could hold, and many that it could not."""
    names = [
        *(b"kickq:job:1", b"kickq:job:2", b"kickq:job:a:\xff", b"kickq:queue:", b"kickq:queue:mail", b"kickq:queue:\xff"),
        *(b"kickq:state:new", b"kickq:state:retry", b"kickq:state:paused", b"kickq:scheduled", b"kickq:scheduled-purge"),
        *(b"kickq:time-index", b"kickq:id", b"kickq:ferryman:staged:mail", b"kickq:lock", b"other"),
    ]
    binary = st.binary(max_size=8)
    key = draw(st.one_of(st.sampled_from(names), binary, binary.map(lambda raw: b"kickq:" + raw)))
    redis_type = draw(st.sampled_from([*_usual(key), "string", "list", "set", "zset", "hash", "stream"]))
    ttl_ms = draw(st.one_of(st.none(), st.integers(0, 2**50)))
    return Entry(key, redis_type, draw(_value(redis_type)), ttl_ms, draw(st.sampled_from([0, 500])))


def _usual(key: bytes) -> list[str]:
    """The right type for a key, more often than the others."""
    kinds = {b"job": "hash", b"queue": "list", b"state": "set", b"id": "string"}
    return [kinds.get(key.split(b":")[1], "zset")] * 8 if key.startswith(b"kickq:") else []


def _value(redis_type: str) -> st.SearchStrategy[Any]:
    members = st.one_of(ids, st.binary(max_size=6))
    match redis_type:
        case "string":
            return time_texts
        case "list":
            return st.lists(members, max_size=5)
        case "set":
            return st.lists(members, max_size=5, unique=True)
        case "zset":
            scores = st.one_of(st.floats(allow_nan=False), st.integers(NOW - 10**6, NOW + 10**6).map(float))
            return st.lists(st.tuples(members, scores), max_size=5, unique_by=lambda item: item[0])
        case "hash":
            return hashes()
    return st.none()


@settings(max_examples=examples(200))
@given(st.lists(entries(), max_size=12), st.integers(0, 2**53))
def test_no_bytes_at_all_make_the_family_fail(keys: list[Entry], now_ms: int) -> None:
    interrogate(read_keyspace(FAMILY, keys, "kickq", now_ms))
    for entry in keys:
        list(FAMILY.prefixes(entry.key, entry.redis_type))


@settings(max_examples=examples(60))
@given(hashes(), st.lists(entries(), max_size=5), st.randoms())
def test_the_order_of_facts_does_not_matter(fields: dict[bytes, bytes], keys: list[Entry], random: Any) -> None:
    keys = [entry for entry in keys if entry.key != b"kickq:job:1"]
    unique = {entry.key: entry for entry in [*keys, Entry(b"kickq:job:1", "hash", fields)]}
    seen = read_keyspace(FAMILY, unique.values(), "kickq", NOW)
    subject = seen.subjects["", "1"]
    shuffled = list(subject.facts)
    random.shuffle(shuffled)
    again = Subject("1", "", tuple(shuffled))
    assert FAMILY.read(subject, seen.keyspace) == FAMILY.read(again, seen.keyspace)
    assert list(FAMILY.findings(subject, seen.keyspace)) == list(FAMILY.findings(again, seen.keyspace))


LARGE = b"x" * 5_000_000


@pytest.mark.parametrize(
    "raw",
    [
        *DEEP,
        LARGE,
        b'{"id":"1","name":"mail","data":"' + LARGE + b'"}',
        b'{"id":"1","name":"mail","' + LARGE + b'":1}',
        b'{"id":"1","name":"mail","runs":[' + b"{}," * 200_000 + b"{}]}",
        b'{"id":"1","name":"mail","lastError":' + b"9" * 4000 + b',"createTime":' + b"9" * 4000 + b"}",
        b'{"id":"1","name":"mail","createTime":1e999,"delay":-1e999}',
        b'{"id":"1"' + b"," * 1_000_000,
    ],
    ids=lambda raw: repr(raw[:40]),
)
def test_deep_and_large_documents_cost_little(raw: bytes) -> None:
    started = time.process_time()
    keys = [record(raw=raw, state=b"retry"), Entry(b"kickq:queue:mail", "list", [b"1"])]
    interrogate(read_keyspace(FAMILY, keys, "kickq", NOW))
    interrogate(read_keyspace(FAMILY, [record(raw=raw, state=b"success")], "kickq", NOW))
    assert time.process_time() - started < 20


def test_large_fields_beside_the_document_cost_little() -> None:
    started = time.process_time()
    for name in (b"ferryman", b"name", b"state", b"createTime", b"tenant"):
        for raw in (LARGE, b"9" * 5_000_000, DEEP[0], b'{"as_of":' * 100_000):
            entry = record()
            interrogate(read_keyspace(FAMILY, [Entry(entry.key, "hash", {**entry.value, name: raw})], "kickq", NOW))
    assert time.process_time() - started < 40


def test_a_list_with_one_id_a_hundred_thousand_times_costs_little() -> None:
    started = time.process_time()
    interrogate(read_keyspace(FAMILY, [record(), Entry(b"kickq:queue:mail", "list", [b"1"] * 100_000)], "kickq", NOW))
    assert time.process_time() - started < 20
