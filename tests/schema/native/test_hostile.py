"""Whatever stands in the keys of native queues: a finding or a value that is stored as it is, never an error, and never long."""

from __future__ import annotations

import time

import pytest
from ferryman.schema.fact import Entry
from ferryman.schema.native import FAMILY
from ferryman.schema.native.keys import QueueKeys
from ferryman.testing.hostile import interrogate
from ferryman.testing.keyspaces import read_keyspace

from ...support.mending import NOW

q = QueueKeys("ferryman", "q")


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
    seen = read_keyspace(FAMILY, keys, "ferryman", NOW)
    assert seen.findings()
    interrogate(seen)
    assert time.process_time() - started < 60
