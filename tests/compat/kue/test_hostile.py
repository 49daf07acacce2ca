"""Whatever stands in the keys of kue: a finding or a value kept aside, never an error, and never long."""

from __future__ import annotations

import time

import pytest
from ferryman.compat.kue import FAMILY
from ferryman.schema.fact import Entry
from hypothesis import given, settings
from hypothesis import strategies as st

from ...support.captures import survey
from ...support.hostile import interrogate
from .strategies import entries

NOW = 1_800_000_000_000
FIELDS = (
    b"type data priority state created_at promote_at max_attempts attempts backoff ttl progress result error ferryman".split()
)


@settings(max_examples=60)
@given(st.lists(entries("q"), max_size=14))
def test_no_bytes_at_all_make_the_family_fail(keys: list[Entry]) -> None:
    interrogate(survey(FAMILY, keys, "q", NOW))
    for entry in keys:
        list(FAMILY.prefixes(entry.key, entry.redis_type))


@pytest.mark.parametrize(
    "raw", [b"[" * 100_000, b'{"a":' * 100_000, b"9" * 3_000_000, b"[" + b"1e999999," * 300_000 + b"1]"], ids=range(4)
)
def test_deep_and_large_values_are_findings_and_cost_little(raw: bytes) -> None:
    started = time.process_time()
    sound = {b"type": b"t", b"state": b"inactive"}
    for name in FIELDS:
        keys = [
            Entry(b"q:job:1", "hash", sound | {name: raw}),
            Entry(b"q:jobs:t:inactive", "zset", [(raw, 1.0)]),
            Entry(b"q:job:1:log", "list", [raw]),
            Entry(b"q:ids", "string", raw),
        ]
        seen = survey(FAMILY, keys, "q", NOW)
        assert seen.findings()
        interrogate(seen)
    assert time.process_time() - started < 60
