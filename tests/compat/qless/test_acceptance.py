"""Jobs that a glance accepts are spared the rules, and no rule finds anything in one of them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from ferryman.compat.qless import FAMILY
from ferryman.schema.fact import Entry
from ferryman.testing.keyspaces import read_keyspace
from hypothesis import event, given, settings
from hypothesis import strategies as st

from ...support.captures import Capture, captures
from ...support.effort import examples
from . import strategies
from .keyspaces import NOW, PUT, STANDING, sound


def accepted(keys: Iterable[Entry]) -> int:
    """How many jobs of a keyspace are accepted, after a check that no rule finds anything in one of them."""
    seen = read_keyspace(FAMILY, keys, "ql", NOW)
    found = [subject for subject in seen.subjects.values() if FAMILY.accepts(subject, seen.keyspace)]
    for subject in found:
        assert FAMILY.rule_findings(subject, seen.keyspace) == []
    return len(found)


scores = st.sampled_from([0.0, 5.0, 5 + PUT / 1e10, 5 - PUT / 1e10, PUT + 9e9, 1e18, float("inf"), float("-inf")])


@settings(max_examples=examples(600))
@given(
    st.sampled_from(sorted(STANDING)),
    st.dictionaries(strategies.fields, st.one_of(st.none(), strategies.texts), max_size=2),
    st.one_of(st.none(), scores),
    st.lists(strategies.entries(), max_size=2, unique_by=lambda entry: entry.key),
)
def test_no_rule_finds_anything_in_a_job_that_is_accepted(word, changed, score, others: list[Entry]) -> None:
    keys = sound(word)
    record = keys[b"ql:j:1"].value | changed
    keys[b"ql:j:1"] = Entry(b"ql:j:1", "hash", {name: value for name, value in record.items() if value is not None})
    key, redis_type, _ = STANDING[word]
    if score is not None and redis_type == "zset":
        keys[key] = Entry(key, redis_type, [(b"1", score)])
    number = accepted((keys | {entry.key: entry for entry in others}).values())
    event(f"accepted: {number}")


@given(st.lists(strategies.entries(), max_size=8, unique_by=lambda entry: entry.key))
def test_no_rule_finds_anything_in_what_is_accepted_of_any_keys(keys: list[Entry]) -> None:
    accepted(keys)


@pytest.mark.parametrize("case", captures("qless"), ids=str)
def test_no_rule_finds_anything_in_what_is_accepted_of_real_keyspaces(case: Capture) -> None:
    seen = read_keyspace(FAMILY, case.entries(), case.prefix, case.captured_at_ms)
    for subject in seen.subjects.values():
        if FAMILY.accepts(subject, seen.keyspace):
            assert FAMILY.rule_findings(subject, seen.keyspace) == []


@pytest.mark.parametrize("word", STANDING)
def test_jobs_as_qless_writes_them_are_accepted(word: str) -> None:
    assert accepted(sound(word).values()) == 1
    assert accepted(sound(word, tags=b"{}").values()) == 0, "in the set of a tag that it has not"
    assert accepted(sound(word, grace=b"1").values()) == 0
    assert accepted(sound(word, ferryman=b"{}").values()) == 0
    assert accepted(sound(word, throttles=b'["t"]').values()) == 1
    assert accepted([*sound(word).values(), Entry(b"ql:j:2-dependents", "set", [b"1"])]) == 0
