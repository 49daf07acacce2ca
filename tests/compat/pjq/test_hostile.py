"""Any bytes in any key: findings or kept values, never an exception, never an evaluation, in bounded time."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from ferryman.compat.pjq import FAMILY
from ferryman.schema.errors import MalformedValue
from ferryman.schema.fact import Entry, Fact, Subject
from ferryman.schema.family import Target
from ferryman.schema.job import Job, State
from ferryman.schema.rule import Severity
from ferryman.testing.hostile import interrogate
from ferryman.testing.keyspaces import read_keyspace
from hypothesis import given, settings
from hypothesis import strategies as st

from ...support.effort import examples
from .strategies import CONTAINERS, NOW_MS, OLD, WORKERS, entries, usual_type

GENEROUS_SECONDS = 10.0
any_time = settings(max_examples=examples(60))
"""Texts that cost some time are among those that are drawn."""


@any_time
@given(st.lists(entries("app:"), max_size=6))
def test_nor_under_a_prefix(keys: list[Entry]) -> None:
    interrogate(read_keyspace(FAMILY, keys, "app:", NOW_MS))


@any_time
@given(st.lists(entries(), min_size=1, max_size=6), st.randoms())
def test_the_order_of_facts_does_not_matter(keys: list[Entry], random: Any) -> None:
    hashes = [Entry(b"5", "hash", {b"json": b'{"uuid":5,"queue_name":"ffmpeg"}'})]
    seen = read_keyspace(FAMILY, {(entry.key, entry.offset): entry for entry in [*keys, *hashes]}.values(), "", NOW_MS)
    subject = seen.subjects["", "5"]
    shuffled: list[Fact] = list(subject.facts)
    random.shuffle(shuffled)
    again = Subject("5", "", tuple(shuffled))
    assert FAMILY.read(subject, seen.keyspace) == FAMILY.read(again, seen.keyspace)
    assert list(FAMILY.findings(subject, seen.keyspace)) == list(FAMILY.findings(again, seen.keyspace))


@pytest.mark.parametrize("score", [float("inf"), float("-inf"), 1e308, -1e308, 5e-324, 2.0**63, -0.0])
def test_any_score_may_stand_anywhere(score: float) -> None:
    keys = [Entry(b"u", "hash", {b"json": b"{}", b"worker_uuid": b"u", b"finished_at": b"1e308"})]
    for container in (*CONTAINERS, *WORKERS, *OLD):
        redis_type = usual_type(container)
        value: Any = [(b"u", score)] if redis_type == "zset" else [b"u"]
        keys.append(Entry(f"{container}:q".encode(), redis_type, value))
    for leave_out in range(len(keys)):
        interrogate(read_keyspace(FAMILY, keys[:leave_out] + keys[leave_out + 1 :], "", NOW_MS))


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 100_000,
        b'{"uuid":' * 100_000,
        b'{"uuid":' + b"[" * 400 + b"]" * 400 + b"}",
        b'{"uuid":"u","queue_name":"q","x":"' + b"x" * 8_000_000 + b'"}',
        b'{"x":' + b"9" * 1_000_000 + b"}",
        b"\xff" * 4_000_000,
        b'{"a":1,' * 200_000,
        json.dumps({str(number): number for number in range(200_000)}).encode(),
    ],
    ids=lambda text: f"{text[:12]!r}-{len(text)}",
)
@pytest.mark.parametrize("field", [b"json", b"started_at", b"finished_at", b"worker_uuid", b"dispatched_at", b"ferryman"])
def test_a_huge_or_deep_text_costs_bounded_time(field: bytes, text: bytes) -> None:
    started = time.process_time()
    keys = [Entry(b"u", "hash", {b"json": b"{}"} | {field: text}), Entry(b"jobs_queued:q", "list", [b"u"])]
    interrogate(read_keyspace(FAMILY, keys, "", NOW_MS))
    assert time.process_time() - started < GENEROUS_SECONDS


overflows = st.recursive(
    st.one_of(st.none(), st.integers(), st.floats(), st.text(max_size=4), st.binary(max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(st.sampled_from(["state", "fields", "scores", "found", "json", "processing", "seen"]), inner, max_size=3),
    ),
    max_leaves=8,
)


@given(overflows, st.sampled_from([State.WAITING, State.ACTIVE, State.COMPLETED]))
def test_an_extra_that_was_not_made_here_is_an_obstacle_or_harmless(extra: Any, state: State) -> None:
    job = Job(id="u", queue="q", name="", state=state, payload=b"{}", extra={"pjq": extra})
    if any(each.severity is Severity.ERROR for each in FAMILY.incompatibilities(job)):
        with pytest.raises(MalformedValue):
            FAMILY.write(job, Target("", NOW_MS))
    else:
        assert FAMILY.write(job, Target("", NOW_MS))
