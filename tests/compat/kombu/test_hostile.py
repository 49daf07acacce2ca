"""Whatever stands in the keys of kombu: a finding or a value kept as it is, never an error, and never long."""

from __future__ import annotations

import json
import time

import pytest
from ferryman.compat.kombu import FAMILY
from ferryman.compat.kombu.writer import record_for
from ferryman.schema.fact import Entry
from ferryman.schema.totals import Totals
from ferryman.testing.hostile import interrogate
from ferryman.testing.keyspaces import read_keyspace

from ...support.mending import NOW

DEEP = "[" * 100_000


@pytest.mark.parametrize(
    "raw",
    [
        DEEP.encode(),
        b'{"properties":' + DEEP.encode(),
        b'{"properties":{"delivery_tag":"1","delivery_info":{"exchange":"","routing_key":"x"},"priority":1e999999},"body":""}',
        b'{"properties":{"delivery_tag":' + b"9" * 100_000,
        b"[" + b'{"body":1},' * 300_000 + b"1]",
        b"9" * 3_000_000,
        b"[" + (b"9" * 3_999 + b",") * 8_000 + b"1]",
    ],
    ids=range(7),
)
def test_deep_and_large_values_are_findings_and_cost_little(raw: bytes) -> None:
    started = time.process_time()
    keys = [
        Entry(b"celery", "list", [raw]),
        Entry(b"unacked", "hash", {b"1": raw, raw: b"[]"}),
        Entry(b"unacked_index", "zset", [(raw, float("inf"))]),
        Entry(b"_kombu.binding.celery", "set", [raw]),
    ]
    seen = read_keyspace(FAMILY, keys, "", NOW)
    assert seen.findings()
    interrogate(seen)
    assert FAMILY.prefilter("", NOW).items(keys[0], Totals()) == [None]
    assert time.process_time() - started < 60


def test_a_large_header_is_carried() -> None:
    """Some MB under ferryman's own header name, which is not what it puts there."""
    job = next(FAMILY.generate(1, 1, NOW))
    message = json.loads(record_for(job, NOW).text)
    message["headers"]["ferryman"] = "[" * 3_000_000
    interrogate(read_keyspace(FAMILY, [Entry(b"celery", "list", [json.dumps(message).encode()])], "", NOW))
