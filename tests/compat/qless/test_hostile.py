"""Whatever bytes stand in whatever key: facts, reading, rules, repairs and writing go on; what can't be read is named or kept."""

from __future__ import annotations

import time

import pytest
import redis
from ferryman.compat.qless import FAMILY
from ferryman.schema.fact import Entry
from ferryman.schema.family import Target
from ferryman.schema.rule import Severity
from ferryman.testing.keyspaces import read_keyspace
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ...support.effort import examples
from .strategies import entries

DEEP = b'{"a":' * 50_000 + b"1" + b"}" * 50_000
NESTED = b"[" * 100_000 + b"]" * 100_000
LARGE = b'"' + b"x" * 5_000_000 + b'"'


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(entries(), max_size=8))
def test_what_was_read_of_any_bytes_can_be_written(client: redis.Redis, keys: list[Entry]) -> None:
    client.flushdb()
    seen = read_keyspace(FAMILY, keys, "ql", 0)
    for subject in seen.subjects.values():
        job = FAMILY.read(subject, seen.keyspace)
        if job is None or any(finding.severity is Severity.ERROR for finding in FAMILY.incompatibilities(job)):
            continue
        for command in FAMILY.write(job, Target("ql", 0)):
            client.execute_command(*command)


@pytest.mark.parametrize("raw", [DEEP, NESTED, LARGE], ids=["deep object", "deep array", "five megabytes"])
@pytest.mark.parametrize(
    "name", ["data", "tags", "failure", "throttles", "history", "priority", "time", "retries", "ferryman", "queue"]
)
def test_a_field_of_any_size_is_kept_and_read_in_time(name: str, raw: bytes) -> None:
    fields = {b"jid": b"1", b"klass": b"K", b"queue": b"q", b"state": b"waiting", b"data": b"{}", b"priority": b"0"}
    began = time.process_time()
    record = Entry(b"ql:j:1", "hash", fields | {name.encode(): raw})
    seen = read_keyspace(FAMILY, [record, Entry(b"ql:q:q-work", "zset", [(b"1", -0.18)])], "ql", 0)
    [job] = [job for subject in seen.subjects.values() if (job := FAMILY.read(subject, seen.keyspace)) is not None]
    assert all(len(finding.detail) < 2000 for finding in seen.findings())
    extra = job.extra["qless"]
    found = job.payload if name == "data" else {**extra.get("fields", {}), **extra.get("state_fields", {})}.get(name)
    assert found == raw or (name, job.queue.encode()) == ("queue", raw)
    assert time.process_time() - began < 30


@pytest.mark.parametrize("raw", [DEEP, NESTED, LARGE], ids=["deep object", "deep array", "five megabytes"])
def test_an_entry_of_the_history_of_any_size_is_kept(raw: bytes) -> None:
    record = Entry(b"ql:j:1", "hash", {b"jid": b"1", b"state": b"waiting"})
    seen = read_keyspace(FAMILY, [record, Entry(b"ql:j:1-history", "list", [raw])], "ql", 0)
    [job] = [job for subject in seen.subjects.values() if (job := FAMILY.read(subject, seen.keyspace)) is not None]
    assert (job.history, job.extra["qless"]["history"]) == ((), [raw])
