"""The kue reader against what kue's own API said about captured keyspaces, and against any bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ferryman.compat.kue import FAMILY
from ferryman.compat.kue.keys import Era
from ferryman.schema.fact import Entry, Fact, FactKind, Subject
from ferryman.schema.job import Job, State
from ferryman.schema.text import load_json
from ferryman.testing.keyspaces import read_keyspace
from hypothesis import given
from hypothesis import strategies as st

from ...support import reading
from ...support.captures import Capture, capture, captures
from ...support.reading import assert_all_read, assert_counted, jobs, popped, reading_of
from .strategies import entries

CAPTURES = captures("kue")
NOT_TYPED = {"crashed": {"27", "36"}}
"""Hashes without a type: kue's API calls them invalid, here they are jobs in an unknown state."""


def stored_field(job: Job, field: str) -> bytes | None:
    """A hash field that no canonical field speaks for."""
    raw: bytes | None = job.extra.get("kue", {}).get("fields", {}).get(field)
    return raw


each_capture = reading.each_capture("kue")
each_job = reading.each_job("kue")


@each_capture
def test_every_job_is_read_and_no_other(case: Capture) -> None:
    assert_all_read(case, jobs(case).keys() - NOT_TYPED.get(case.name, set()))


@each_capture
def test_jobs_are_counted_by_state_and_queue_as_kue_counts_them(case: Capture) -> None:
    typed = [job for job in jobs(case).values() if job.id not in NOT_TYPED.get(case.name, set())]
    assert_counted(typed, case.expected["by_canonical_state"], case.expected["by_queue"])


@each_job
def test_what_kue_says_of_a_job_is_what_the_reader_says(case: Capture, job_id: str) -> None:
    job, said = jobs(case)[job_id], case.expected["jobs_by_id"][job_id]
    assert (job.state, job.queue, job.name) == (said["canonical_state"], said["queue"], said["queue"])
    assert (job.priority, job.created_at, job.updated_at) == (said["priority"], said["created_at"], said["updated_at"])
    assert (job.started_at, job.worker, job.ttl) == (said["started_at"], said["worker"], said["ttl"])
    assert job.attempts == said["attempts_made"]
    # kue up to 0.6 leaves the field out and then allows one try.
    assert job.max_attempts == (said["attempts_max"] or 1)
    assert job.progress == said["progress"] / 100
    assert job.error == said["error"]
    assert [line.decode() for line in job.logs] == said["log"]
    assert _value(job.payload, unreadable={}) == said["payload"]
    assert _value(job.result, unreadable=None) == said["result"]


@each_job
def test_times_that_kue_keeps_in_other_words_are_derived(case: Capture, job_id: str) -> None:
    job, said = jobs(case)[job_id], case.expected["jobs_by_id"][job_id]
    match job.state:
        case State.SCHEDULED:
            # kue up to 0.8 has no promote_at: it counts the delay from the last failure, or from the start.
            assert job.due_at == (said["promote_at"] or (said["failed_at"] or said["created_at"]) + said["delay"])
        case State.COMPLETED if said["started_at"] is not None:
            assert job.finished_at == said["started_at"] + said["duration"]
        case State.COMPLETED:
            assert job.finished_at == said["updated_at"]
        case State.FAILED:
            assert job.finished_at == said["failed_at"]
        case _:
            assert job.finished_at is job.due_at is None


@each_job
def test_what_has_no_canonical_field_is_kept_byte_for_byte(case: Capture, job_id: str) -> None:
    job, said = jobs(case)[job_id], case.expected["jobs_by_id"][job_id]
    if said["remove_on_complete"] is not None:
        assert stored_field(job, "removeOnComplete") == str(said["remove_on_complete"]).encode()
    if said["progress_data"] is not None:
        assert load_json(stored_field(job, "progress_data") or b"") == said["progress_data"]
    if said["backoff"] is not None:
        text = (stored_field(job, "backoff") or b"").decode()
        assert said["backoff"] == (f"function: {text}" if text.startswith("function") else load_json(text.encode()))
    if said["failed_at"] is not None and job.state is not State.FAILED:
        assert stored_field(job, "failed_at") == str(said["failed_at"]).encode()


@pytest.mark.parametrize("case", [case for case in CAPTURES if case.name != "crashed"], ids=str)
def test_positions_are_the_order_in_which_real_workers_popped(case: Capture) -> None:
    assert popped(case) == {queue: ids for queue, ids in case.expected["pop_order"].items() if ids}


def test_in_the_crashed_keyspace_workers_missed_what_the_index_lists() -> None:
    case = capture("kue", "crashed")
    listed = popped(case)
    # Job 13 waits, but its token was lost with a worker. Job 30 waits, but no worker can read its backoff. Job 28 is
    # complete, and was popped once more because the index still lists it.
    assert listed.pop("pop-token") == ["14", "13"]
    assert listed.pop("badback") == ["30"]
    expected = {queue: ids for queue, ids in case.expected["pop_order"].items() if ids}
    assert expected.pop("pop-token") == ["14"]
    assert expected.pop("double") == ["28"]
    assert listed == expected


@each_capture
def test_only_waiting_jobs_have_a_position(case: Capture) -> None:
    assert all(job.state is State.WAITING for job in jobs(case).values() if job.position is not None)


@pytest.mark.parametrize(
    ("name", "era"),
    [
        ("older-version", Era.V0_3),
        ("older-0.8.12", Era.V0_8),
        ("older-0.9.6", Era.V0_9),
        ("upgraded", Era.V0_10_3),
        ("crashed", Era.V0_10_3),
        ("healthy", Era.V0_10_3),
    ],
)
def test_the_era_is_told_from_the_keys(name: str, era: Era) -> None:
    assert Era.of(reading_of(capture("kue", name)).keyspace.totals) == era


@each_capture
def test_totals_hold_the_counters_and_registries(case: Capture) -> None:
    totals = reading_of(case).keyspace.totals
    assert totals.maxima["ids", ""] == case.expected["ids_counter"]
    assert totals.names["types"] == set(case.expected["types"])
    for queue, ids in case.expected["pop_order"].items():
        assert totals.sums["waiting", queue] >= len(ids)


def test_a_hash_without_type_is_a_job_in_an_unknown_state() -> None:
    job = jobs(capture("kue", "crashed"))["27"]
    assert (job.queue, job.state, job.result) == ("", State.UNKNOWN, b'"late"')
    assert stored_field(job, "state") == b"complete"


def test_an_index_member_without_hash_is_no_job() -> None:
    case = capture("kue", "crashed")
    assert "34" in {subject.job_id for subject in reading_of(case).subjects.values()}
    assert "34" not in jobs(case)


def test_the_backoff_of_a_function_is_kept_as_text() -> None:
    job = jobs(capture("kue", "healthy"))["119"]
    assert stored_field(job, "backoff") == b"function(attempts, delay){ return attempts * 1500 + (delay || 0); }"


def test_a_job_that_kue_would_write_the_same_way_has_no_extra() -> None:
    assert jobs(capture("kue", "healthy"))["100"].extra == {}


def one(*facts: Entry, prefix: str = "q") -> Job:
    """The only job that the entries describe."""
    seen = read_keyspace(FAMILY, facts, prefix, 0)
    [subject] = seen.subjects.values()
    job = FAMILY.read(subject, seen.keyspace)
    assert job is not None
    return job


@pytest.mark.parametrize(
    ("text", "priority"),
    [(b"2.5", 2.5), (b"-15", -15), (b"urgent", None), (b"", None), (b"1e400", None), (b"1_0", None), (b"nan", None)],
)
def test_a_priority_is_a_number_or_kept_as_text(text: bytes, priority: float | None) -> None:
    job = one(Entry(b"q:job:1", "hash", {b"type": b"t", b"state": b"inactive", b"priority": text, b"data": b"{}"}))
    assert job.priority == priority
    if priority is None:
        assert stored_field(job, "priority") == text


def test_a_delayed_job_of_kue_0_8_is_due_after_its_delay_since_the_last_failure() -> None:
    fields = {b"type": b"t", b"state": b"delayed", b"created_at": b"1000", b"failed_at": b"5000", b"delay": b"250.5"}
    job = one(Entry(b"q:job:1", "hash", fields), Entry(b"q:jobs:delayed", "zset", [(b"1", -10.0)]))
    assert job.due_at == 5250


def test_log_lines_that_arrive_in_parts_are_put_in_order() -> None:
    parts = [Entry(b"q:job:1:log", "list", [b"c"], offset=2), Entry(b"q:job:1:log", "list", [b"a", b""], offset=0)]
    assert one(Entry(b"q:job:1", "hash", {b"type": b"t"}), *parts).logs == (b"a", b"", b"c")


def test_keys_of_others_are_left_alone() -> None:
    for key in (b"q2:job:1", b"{q}:job:1", b"qjob", b"other:lock", b"q"):
        assert list(FAMILY.facts(Entry(key, "hash", {b"type": b"t"}), "q")) == []


@pytest.mark.parametrize(
    ("key", "redis_type", "role"),
    [
        (b"q:job:5", "string", "record"),
        (b"q:job:05", "hash", "nameless"),
        (b"q:unique:mail", "string", "nameless"),
        (b"q:jobs:mail:inactive", "list", "by_type"),
        (b"promotion:lock", "list", "lock"),
        (b"q:ids", "stream", "ids"),
    ],
)
def test_a_key_of_ours_that_makes_no_sense_is_odd(key: bytes, redis_type: str, role: str) -> None:
    value: Any = b"" if redis_type == "string" else {} if redis_type == "hash" else [] if redis_type == "list" else None
    [fact] = FAMILY.facts(Entry(key, redis_type, value), "q")
    assert (fact.kind, fact.role, fact.job_id) == (FactKind.ODD, role, None)


@pytest.mark.parametrize(
    ("key", "redis_type", "role", "queue"),
    [
        (b"q:jobs:x:inactive:active", "zset", "by_type", "x:inactive"),
        (b"q:jobs:jobs", "list", "tokens", "jobs"),
        (b"q:jobs:jobs", "zset", "by_state", None),
        (b"q:search:word:x:jobs", "list", "tokens", "search:word:x"),
        (b"q:job:5:jobs", "list", "tokens", "job:5"),
        (b"q:jobs:\xff\n:delayed", "zset", "by_type", "\udcff\n"),
    ],
)
def test_a_type_may_have_any_name(key: bytes, redis_type: str, role: str, queue: str | None) -> None:
    [fact] = FAMILY.facts(Entry(key, redis_type, [(b"01|1", 0.0)] if redis_type == "zset" else [b"1"]), "q")
    assert (fact.role, fact.queue) == (role, queue)


def test_the_locks_belong_to_every_prefix() -> None:
    [fact] = FAMILY.facts(Entry(b"promotion:lock", "string", b"x", ttl_ms=1500), "acme:jobs-v2")
    assert (fact.kind, fact.role, fact.ttl_ms) == (FactKind.TOKEN, "lock", 1500)
    assert {"promotion:lock", "activeJobsTTL:lock"} < set(FAMILY.globs("q"))


@given(st.lists(entries("q"), max_size=12), st.integers(0, 2**53))
def test_no_bytes_at_all_make_the_family_fail(keys: list[Entry], now_ms: int) -> None:
    seen = read_keyspace(FAMILY, keys, "q", now_ms)
    seen.findings()
    for subject in seen.subjects.values():
        job = FAMILY.read(subject, seen.keyspace)
        if job is not None:
            assert job.id == subject.job_id
            list(FAMILY.incompatibilities(job))
    assert type(seen.keyspace.totals).from_json(seen.keyspace.totals.to_json()) == seen.keyspace.totals


@given(st.lists(entries("q"), min_size=1, max_size=4), st.randoms())
def test_the_order_of_facts_does_not_matter(keys: list[Entry], random: Any) -> None:
    record = Entry(b"q:job:1", "hash", {b"type": b"t", b"state": b"inactive"})
    keys = [record, *(entry for entry in keys if entry.key != record.key)]
    seen = read_keyspace(FAMILY, {(entry.key, entry.offset): entry for entry in keys}.values(), "q", 0)
    subject = seen.subjects["", "1"]
    shuffled: list[Fact] = list(subject.facts)
    random.shuffle(shuffled)
    again = Subject("1", "", tuple(shuffled))
    assert FAMILY.read(subject, seen.keyspace) == FAMILY.read(again, seen.keyspace)
    assert list(FAMILY.findings(subject, seen.keyspace)) == list(FAMILY.findings(again, seen.keyspace))


def _value(raw: bytes | None, unreadable: Any) -> Any:
    """JSON as the API shows it; what can't be parsed it leaves out, or replaces by a default."""
    try:
        return None if raw is None and unreadable is None else json.loads(raw or b"")
    except ValueError:
        return unreadable
