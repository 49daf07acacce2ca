"""Whatever stands in the keys of kue: a finding or a value kept as it is, never an error, and never long."""

from __future__ import annotations

import time

import pytest
from ferryman.compat.kue import FAMILY
from ferryman.schema.fact import Entry
from ferryman.testing.hostile import interrogate
from ferryman.testing.keyspaces import read_keyspace

NOW = 1_800_000_000_000
FIELDS = (
    b"type data priority state created_at promote_at max_attempts attempts backoff ttl progress result error ferryman".split()
)


@pytest.mark.parametrize(
    "raw", [b"[" * 100_000, b'{"a":' * 100_000, b"9" * 3_000_000, b"[" + b"1e999999," * 300_000 + b"1]"], ids=range(4)
)
def test_deep_and_large_values_are_findings_and_cost_little(raw: bytes) -> None:
    started = time.process_time()
    valid = {b"type": b"t", b"state": b"inactive"}
    for name in FIELDS:
        keys = [
            Entry(b"q:job:1", "hash", valid | {name: raw}),
            Entry(b"q:jobs:t:inactive", "zset", [(raw, 1.0)]),
            Entry(b"q:job:1:log", "list", [raw]),
            Entry(b"q:ids", "string", raw),
        ]
        seen = read_keyspace(FAMILY, keys, "q", NOW)
        assert seen.findings()
        interrogate(seen)
    assert time.process_time() - started < 60
