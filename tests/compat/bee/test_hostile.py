"""Whatever stands in the keys of bee: a finding or a value kept as it is, never an error, and never long."""

from __future__ import annotations

import json
import time

import pytest
from ferryman.compat.bee import FAMILY
from ferryman.compat.bee.keys import OPTIONS
from ferryman.schema.fact import Entry
from ferryman.testing.hostile import interrogate
from ferryman.testing.keyspaces import read_keyspace

from .strategies import DEEP

NOW = 1_800_000_000_000


SHAPES = [
    *(None, True, 0, -1.5, 1e300, 10**400, "", "x", [], {}, [None], [[]], [{}], {"a": []}, ["\ud800"]),
    *([{"event": []}], [{"event": {}}], [{"event": "popped", "timestamp": value} for value in ("x", 1e300, [], None, True)]),
    *(dict.fromkeys(OPTIONS, value) for value in (None, True, "5", "x", [], {}, 1e300, -1)),
]


@pytest.mark.parametrize("status", ["new", "queued", "running", "completed", "duplicate", "expired"])
@pytest.mark.parametrize("field", ["data", "options", "tags", "history", "result", "dependants", "duplicate", "hash", "retries"])
def test_json_of_any_shape_is_read_and_written(status: str, field: str) -> None:
    valid = {"jid": "1", "queue": "t", "data": "[]", "options": "{}", "status": status, "history": '[{"event":"queued"}]'}
    for shape in SHAPES:
        fields = {name.encode(): text.encode() for name, text in {**valid, field: json.dumps(shape)}.items()}
        index_entries = [
            Entry(f"bee:ss:{role}:t".encode(), "zset", [(b"1", 1.8e12)]) for role in ("queue", "delayed", "locks", "expires")
        ]
        interrogate(read_keyspace(FAMILY, [Entry(b"bee:h:jobs:1", "hash", fields), *index_entries], "bee", NOW))
        interrogate(read_keyspace(FAMILY, [Entry(b"bee:h:jobs:1", "hash", fields), *index_entries[1:2]], "bee", NOW))


def test_deep_and_large_values_are_findings_and_cost_little() -> None:
    """A JSON text nested 100,000 deep, and fields of several MB, in every place that is decoded."""
    large = json.dumps([{"event": "queued", "timestamp": number} for number in range(60_000)]).encode()
    started = time.process_time()
    for raw in (DEEP, b'{"a":' * 100_000, large, b"9" * 3_000_000, b"[" + b"1e999999," * 300_000 + b"1]"):
        fields = dict.fromkeys((b"data", b"options", b"tags", b"history", b"result", b"dependants"), raw)
        record = Entry(b"bee:h:jobs:1", "hash", {b"jid": b"1", b"queue": b"t", b"status": b"queued", b"retries": raw, **fields})
        seen = read_keyspace(FAMILY, [record, Entry(b"bee:str:hive:options", "string", raw)], "bee", NOW)
        interrogate(seen)
        assert {"BEE-2", "BEE-5", "BEE-28"} <= {finding.rule for finding in seen.findings()}
    assert time.process_time() - started < 60
