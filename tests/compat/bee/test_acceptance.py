"""Jobs that a glance accepts are spared the rules, and no rule finds anything in one of them."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest
from ferryman.compat.bee import FAMILY
from ferryman.schema.fact import Entry
from ferryman.testing.keyspaces import read_keyspace
from hypothesis import event, given, settings
from hypothesis import strategies as st

from ...support.captures import Capture, captures
from ...support.effort import examples
from . import strategies

NOW = 1_800_000_000_000
OPTIONS = {"priority": 0, "delay": 0, "dependencies": {}, "retries": 5, "retryDelay": 30_000, "ttl": 1_800_000}
STORIES = {
    "queued": "submitted queued",
    "new": "submitted delayed",
    "retried": "submitted queued popped exception delayed",
    "completed": "submitted queued popped completed",
    "failed": "submitted queued popped failed",
}
SETS = {"queued": ("queue", -60_000), "new": ("delayed", 60_000), "retried": ("delayed", 60_000)}


def sound(status: str, **more: bytes) -> dict[bytes, Entry]:
    """The keys of a job that bee has written, by their names."""
    history = [{"event": name, "timestamp": NOW - 90_000} for name in STORIES[status].split()]
    fields = {
        b"jid": b"1",
        b"queue": b"t",
        b"data": b"[]",
        b"status": status.encode(),
        b"options": json.dumps(OPTIONS).encode(),
        b"worker": b"",
        b"submitted": b"%d" % (NOW - 90_000),
        b"retries": b"1",
        b"tags": b'["1"]',
        b"hash": b"x",
        b"history": json.dumps(history).encode(),
        **{name.encode(): value for name, value in more.items()},
    }
    role, after = SETS.get(status, ("expires", 60_000))
    keys = [
        Entry(b"bee:h:jobs:1", "hash", fields),
        Entry(b"bee:ss:%b:t" % role.encode(), "zset", [(b"1", float(NOW + after))]),
        Entry(b"bee:l:hashes:t:x", "list", [b"1"]),
        Entry(b"bee:s:tags:1", "set", [b"1"]),
    ]
    return {entry.key: entry for entry in keys}


def accepted(keys: Iterable[Entry]) -> int:
    """How many jobs of a keyspace are accepted, after a check that no rule finds anything in one of them."""
    seen = read_keyspace(FAMILY, keys, "bee", NOW)
    found = [subject for subject in seen.subjects.values() if FAMILY.accepts(subject, seen.keyspace)]
    for subject in found:
        assert FAMILY.rule_findings(subject, seen.keyspace) == []
    return len(found)


fields = st.sampled_from([*strategies.FIELDS, b"parent"])
times = st.sampled_from([0.0, 1e11, float(NOW - 6000), float(NOW + 2000), 1e18, float("inf"), float("-inf")])


@settings(max_examples=examples(600))
@given(
    st.sampled_from(sorted(STORIES)),
    st.dictionaries(fields, st.one_of(st.none(), strategies.texts), max_size=2),
    st.one_of(st.none(), times),
    st.lists(strategies.entries(), max_size=2, unique_by=lambda entry: entry.key),
)
def test_no_rule_finds_anything_in_a_job_that_is_accepted(status, changed, score, others: list[Entry]) -> None:
    keys = sound(status)
    record = keys[b"bee:h:jobs:1"].value | changed
    keys[b"bee:h:jobs:1"] = Entry(b"bee:h:jobs:1", "hash", {name: value for name, value in record.items() if value is not None})
    if score is not None:
        key = next(key for key in keys if key.startswith(b"bee:ss:"))
        keys[key] = Entry(key, "zset", [(b"1", score)])
    number = accepted((keys | {entry.key: entry for entry in others}).values())
    event(f"accepted: {number}")


@given(st.lists(strategies.entries(), max_size=8, unique_by=lambda entry: entry.key))
def test_no_rule_finds_anything_in_what_is_accepted_of_any_keys(keys: list[Entry]) -> None:
    accepted(keys)


@pytest.mark.parametrize("case", captures("bee"), ids=str)
def test_no_rule_finds_anything_in_what_is_accepted_of_real_keyspaces(case: Capture) -> None:
    seen = read_keyspace(FAMILY, case.entries(), case.prefix, case.captured_at_ms)
    for subject in seen.subjects.values():
        if FAMILY.accepts(subject, seen.keyspace):
            assert FAMILY.rule_findings(subject, seen.keyspace) == []


@pytest.mark.parametrize("status", STORIES)
def test_jobs_as_bee_writes_them_are_accepted(status: str) -> None:
    assert accepted(sound(status).values()) == 1
    assert accepted(sound(status, tags=b"{}").values()) == 0, "in the set of a tag that it has not"
    family = Entry(b"bee:s:2:children", "set", [b"1"])
    assert accepted([*sound(status, parent=b"2").values(), family]) == 1
    assert accepted([*sound(status).values(), family]) == 0
    assert accepted(sound(status, ferryman=b"{}").values()) == 0
    assert accepted(sound(status, dependants=b'["2"]').values()) == 1
