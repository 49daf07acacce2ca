"""The bee reader against what bee's own API said about captured keyspaces, and against keys that are hard to tell apart."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from ferryman.compat.bee import FAMILY
from ferryman.schema.fact import Entry, FactKind, Subject, join
from ferryman.schema.job import State
from ferryman.testing.keyspaces import read_keyspace
from hypothesis import given, settings
from hypothesis import strategies as st

from ...support import reading
from ...support.captures import Capture, capture
from ...support.effort import examples
from ...support.reading import assert_all_read, assert_counted, jobs, reading_of
from .strategies import entries


@cache
def keys(case: Capture) -> dict[bytes, Entry]:
    return {entry.key: entry for entry in case.entries()}


each_capture = reading.each_capture("bee")
each_job = reading.each_job("bee")


@each_capture
def test_every_job_is_read_and_no_other(case: Capture) -> None:
    assert_all_read(case, jobs(case))


@each_capture
def test_jobs_are_counted_by_state_and_queue(case: Capture) -> None:
    assert_counted(jobs(case).values(), case.expected["by_state"], case.expected["by_queue"])


@each_job
def test_what_bee_says_of_a_job_is_what_the_reader_says(case: Capture, job_id: str) -> None:
    job, said = jobs(case)[job_id], case.expected["jobs_by_id"][job_id]
    assert (job.state, job.queue, job.name) == (said["state"], said["queue"], said["queue"])
    assert (job.created_at, job.worker) == (said["submitted"], said["worker"] or None)
    # While a job waits for the end of its original, that one alone holds their key.
    assert job.unique_key == (None if said["duplicate_of"] and said["state"] == "blocked" else said["hash"])
    assert job.attempts == said["popped"]
    assert job.max_attempts == (None if said.get("retries_max") is None else said["retries_max"] + 1)
    assert job.tags == tuple(tag for tag in said["tags"] if tag is not None)
    assert _as_lua_says(job.payload) == _as_lua_says(json.dumps(said["payload"]).encode())
    assert _as_lua_says(job.result) == _as_lua_says(None if said["result"] is None else json.dumps(said["result"]).encode())
    assert job.error == said["error"]
    assert [entry["event"] for entry in job.history] == said["events"]
    if "priority" in said:
        assert job.priority == (None if said["priority"] in ("high", "urgent") else float(said["priority"]))


@each_job
def test_a_scheduled_job_is_due_when_bee_says(case: Capture, job_id: str) -> None:
    job, said = jobs(case)[job_id], case.expected["jobs_by_id"][job_id]
    if job.state is State.SCHEDULED and said["delayed_till"] is not None:
        assert job.due_at == int(said["delayed_till"])
    assert (job.due_at is not None) == (job.state is State.SCHEDULED)


@each_capture
def test_jobs_run_in_the_order_in_which_bee_popped_them(case: Capture) -> None:
    for queue, order in case.expected["pop_order"].items():
        standing = [job for job in jobs(case).values() if job.queue == queue and job.position is not None]
        popped = [job_id for job_id in order if job_id is not None]  # None: a ghost came out
        assert [job.id for job in sorted(standing, key=lambda job: job.position or 0)] == popped
    assert {job.rank for job in jobs(case).values()} == {0}


@each_capture
def test_blocked_jobs_name_what_they_wait_for(case: Capture) -> None:
    for job in jobs(case).values():
        entry = keys(case).get(f"bee:s:dependencies:{job.id}".encode())
        said = case.expected["jobs_by_id"][job.id]
        if job.state is State.BLOCKED:
            needs = sorted(raw.decode() for raw in entry.value) if entry else [said["duplicate_of"]]
            assert list(job.depends_on) == needs


@each_capture
def test_every_byte_of_a_record_is_in_the_job(case: Capture) -> None:
    """Each field is a canonical field's own text, or kept, or what the writer makes of the job; rebuilt, it is the same."""
    from ferryman.compat.bee.passthrough import Passthrough

    for job in jobs(case).values():
        assert Passthrough.of(job).record(job).fields == keys(case)[f"bee:h:jobs:{job.id}".encode()].value


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("healthy", "head of the repository (2014-01-13)"),
        ("older-version-0.0.3", "0.0.3 or older"),
        ("older-version-0.0.5", "0.0.4 or 0.0.5"),
    ],
)
def test_a_keyspace_tells_which_version_wrote_it(name: str, version: str) -> None:
    assert FAMILY.version(reading_of(capture("bee", name)).keyspace) == version


def test_an_upgraded_keyspace_names_both_versions() -> None:
    old = capture("bee", "older-version-0.0.3").entries()
    seen = read_keyspace(FAMILY, [*old, *capture("bee", "healthy").entries()], "bee", 0)
    assert FAMILY.version(seen.keyspace) == "0.0.3 or older, then head of the repository (2014-01-13)"


def test_live_workers_are_counted_by_queue() -> None:
    counts = FAMILY.consumers(reading_of(capture("bee", "healthy")).keyspace)
    assert counts == {"Image.Resize": 1, "flow:child": 1, "flow:parent": 1, "mail:bulk send": 1, 'reports.日次 "Q"': 1}
    crashed = reading_of(capture("bee", "crashed")).keyspace
    assert FAMILY.consumers(crashed)["crash.alone"] == 0
    assert "crash.alone" in FAMILY.queues(crashed)


def test_a_keyspace_is_recognised_by_its_records() -> None:
    key = b"bee:h:jobs:0a2e8290-e5a9-11f1-bafb-352044702426"
    assert list(FAMILY.prefixes(key, "hash")) == ["bee"]
    assert not list(FAMILY.prefixes(key, "string"))
    assert not list(FAMILY.prefixes(b"bee:scripts", "hash"))


# What jobs tell each other


def record(job_id: str, **fields: str) -> Entry:
    values = {"jid": job_id, "queue": "t", "data": "[]", "options": "{}", **fields}
    return Entry(f"bee:h:jobs:{job_id}".encode(), "hash", {name.encode(): value.encode() for name, value in values.items()})


@pytest.mark.parametrize(
    ("status", "history", "state"),
    [
        ("running", "{}", State.BLOCKED),
        ("retried", "{}", State.BLOCKED),
        ("completed", "{}", State.COMPLETED),
        ("failed", "{}", State.FAILED),
        ("canceled", "{}", State.CANCELLED),
        ("expired", '[{"event":"failed"}]', State.FAILED),
        ("duplicate", "{}", State.UNKNOWN),
        ("paused", "{}", State.UNKNOWN),
    ],
)
def test_a_duplicate_is_in_the_state_that_its_original_gives_it(status: str, history: str, state: State) -> None:
    keys = [record("1", status=status, history=history), record("2", status="duplicate", duplicate="1")]
    for order in (keys, keys[::-1]):
        seen = read_keyspace(FAMILY, order, "bee", 0)
        job = FAMILY.read(seen.subjects["", "2"], seen.keyspace)
        assert job is not None
        assert job.state is state
        assert job.depends_on == (("1",) if state is State.BLOCKED else ())


def test_without_an_answer_a_duplicate_is_in_no_known_state_and_no_rule_guesses() -> None:
    entry = record("2", status="duplicate", duplicate="1", tags="{}", history="{}", worker="", submitted="1", retries="0")
    subject = join([fact for fact in FAMILY.facts(entry, "bee") if fact.job_id == "2"])
    keyspace = read_keyspace(FAMILY, [], "bee", 0).keyspace
    job = FAMILY.read(subject, keyspace)
    assert job is not None
    assert job.state is State.UNKNOWN
    assert {finding.rule for finding in FAMILY.findings(subject, keyspace)} == {"BEE-3"}


# Names


@pytest.mark.parametrize(
    ("key", "redis_type", "role", "job_id"),
    [
        (b"bee:s:tags:a:children", "set", "tag", "7"),
        (b"bee:s:tags:", "set", "tag", "7"),
        (b"bee:s:locks:h:1:u:q:children", "set", "held", "7"),
        (b"bee:s:dependencies:x:children", "set", "dependencies", "x:children"),
        (b"bee:s:x:children", "set", "children", "7"),
        (b"bee:ss:queue:", "zset", "queue", "7"),
        (b"bee:ss:queue:a:b\n\xff", "zset", "queue", "7"),
        (b"bee:l:hashes:a:b:c", "list", "hashes", "7"),
        (b"bee:str:lock-waits:h:1:u:a:b:7", "string", "lock_waits", "7"),
        (b"bee:h:jobs:bee:h:jobs:7", "hash", "record", "bee:h:jobs:7"),
    ],
)
def test_a_name_may_hold_anything(key: bytes, redis_type: str, role: str, job_id: str) -> None:
    values: dict[str, Any] = {"zset": [(b"7", 1.0)], "string": b"1", "hash": {}}
    fact = next(FAMILY.facts(Entry(key, redis_type, values.get(redis_type, [b"7"])), "bee"))
    assert (fact.role, fact.job_id) == (role, job_id)


def test_keys_of_others_are_left_alone_and_unknown_ones_named() -> None:
    assert not list(FAMILY.facts(Entry(b"beehive:x", "string", b""), "bee"))
    [fact] = FAMILY.facts(Entry(b"bee:x", "string", b""), "bee")
    assert fact.kind is FactKind.ODD
    [fact] = FAMILY.facts(Entry(b"bee:h:jobs:1", "string", b""), "bee")
    assert (fact.kind, fact.role) == (FactKind.ODD, "record")


@settings(max_examples=examples(40))
@given(st.lists(entries(), min_size=1, max_size=6), st.randoms())
def test_the_order_of_facts_does_not_matter(keys: list[Entry], random: Any) -> None:
    unique = {(entry.key, entry.offset): entry for entry in [*keys, record("1", status="queued")]}.values()
    seen = read_keyspace(FAMILY, unique, "bee", 0)
    for subject in seen.subjects.values():
        shuffled = list(subject.facts)
        random.shuffle(shuffled)
        again = Subject(subject.job_id, "", tuple(shuffled))
        # A hash that comes in two parts is two records of one key: their order is the server's.
        if len(list(subject.of_kind(FactKind.RECORD))) < 2:
            assert FAMILY.read(subject, seen.keyspace) == FAMILY.read(again, seen.keyspace)
            found = [finding.rule for finding in FAMILY.findings(subject, seen.keyspace)]
            assert found == [finding.rule for finding in FAMILY.findings(again, seen.keyspace)]


def _as_lua_says(raw: bytes | None) -> Any:
    """A value as bee's scripts, which have 14 digits and one kind of empty table, would hand it out."""
    return None if raw is None else _like_lua(json.loads(raw))


def _like_lua(value: Any) -> Any:
    match value:
        case list():
            return [_like_lua(each) for each in value] or {}
        case dict():
            return {name: _like_lua(each) for name, each in value.items()}
        case bool():
            return value
        case int() | float():
            return float(f"{value:.14g}")
    return value
