"""The pjq reader against captured keyspaces of all its programs, and against single keys."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from ferryman.compat.pjq import FAMILY
from ferryman.schema.fact import Entry, FactKind
from ferryman.schema.job import Job, State
from ferryman.testing.keyspaces import read_keyspace

from ...support import reading
from ...support.captures import Capture, capture, captures
from ...support.reading import assert_all_read, assert_counted, jobs, popped, reading_of

CAPTURES = captures("pjq")


each_capture = reading.each_capture("pjq")
each_job = reading.each_job("pjq")


@each_capture
def test_every_job_is_read_and_no_other(case: Capture) -> None:
    assert_all_read(case, jobs(case))


@each_capture
def test_jobs_are_counted_by_state_and_queue_as_the_programs_ledger_counts_them(case: Capture) -> None:
    assert_counted(jobs(case).values(), case.expected["by_state"], case.expected["by_queue"])


@each_job
def test_what_the_ledger_says_of_a_job_is_what_the_reader_says(case: Capture, job_id: str) -> None:
    job, said = jobs(case)[job_id], case.expected["jobs_by_id"][job_id]
    assert (job.state, job.queue, job.priority) == (said["state"], said["queue"], said["priority"])
    payload = said["payload"]
    if payload is None:
        assert job.payload is None
    else:
        assert json.loads(job.payload or b"") == payload
        assert job.name == payload.get("command", "")
    assert job.due_at is None
    assert (job.tags, job.depends_on) == ((), ())
    if "progress" in said:
        assert job.progress == (said["progress"] if said["progress"] <= 1 else None)
    if case.name != "crashed":
        assert job.attempts == int("dispatched_at" in said or "leased_at" in said)
    if "worker" in said:
        assert job.worker == said["worker"]
    if job.state in (State.COMPLETED, State.FAILED):
        assert job.result == (None if payload.get("stdout") is None else payload["stdout"].encode())
        assert job.error == (payload.get("stderr") if job.state is State.FAILED else None)


@each_job
def test_times_are_read_to_the_millisecond(case: Capture, job_id: str) -> None:
    job, said = jobs(case)[job_id], case.expected["jobs_by_id"][job_id]
    if "started_at" in said:
        assert job.started_at == pytest.approx(_ms(said["started_at"]), abs=1)
    if "finished_at" in said:
        assert job.finished_at == pytest.approx(float(said["finished_at"]) * 1000, abs=1)
        assert job.updated_at == job.finished_at
    if said.get("native_state") == "dispatched":
        leased_until = _ms(said["dispatched_at"]) + 9000
        assert job.lease_expires_at == pytest.approx(leased_until, abs=2)
    else:
        assert job.lease_expires_at is None or case.name == "crashed"
    if job.payload is not None and "created_at" in said["payload"]:
        assert job.created_at == pytest.approx(_ms(said["payload"]["created_at"]), abs=1)


def _ms(text: str) -> float:
    return datetime.fromisoformat(text).timestamp() * 1000


@pytest.mark.parametrize("case", [case for case in CAPTURES if case.name != "crashed"], ids=str)
def test_positions_are_the_order_in_which_real_workers_got_the_jobs(case: Capture) -> None:
    assert popped(case) == {queue: ids for queue, ids in case.expected["pop_order"].items() if ids}


def test_in_the_crashed_keyspace_the_jobs_that_wait_have_their_places() -> None:
    case = capture("pjq", "crashed")
    listed = popped(case)
    # Nobody can run these: a sorted set stands in the way of one queue, and no program reads the other any more.
    assert listed.pop("w-js3-idle") == ["ad2aed04-f6f2-410d-8e7c-1167d2c93ad7"]
    assert len(listed.pop("w-js1")) == 2
    for queue, ids in case.expected["pop_order"].items():
        # The drained order holds jobs that were taken back first, and one job twice.
        waiting = [job_id for job_id in dict.fromkeys(ids) if jobs(case)[job_id].state is State.WAITING]
        assert listed.get(queue, []) == waiting, queue


@each_capture
def test_only_waiting_jobs_have_a_position(case: Capture) -> None:
    assert all(job.state is State.WAITING for job in jobs(case).values() if job.position is not None)


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("healthy", "py-2 or py-3 (October 2017 and later)"),
        ("older-version", "js-1 (September 2017)"),
        ("older-version-js3", "js-2 or js-3 (September and October 2017)"),
        ("older-version-py1", "py-1 to py-3 (October 2017 and later)"),
    ],
)
def test_the_program_is_told_from_the_keys(name: str, version: str) -> None:
    assert FAMILY.version(reading_of(capture("pjq", name)).keyspace) == version


def test_several_programs_may_have_left_their_keys() -> None:
    version = FAMILY.version(reading_of(capture("pjq", "crashed")).keyspace)
    assert version is not None
    assert [word for word in version.split() if "-" in word] == ["js-1", "js-2", "js-3", "py-2", "py-3"]


def test_live_workers_are_counted_by_queue() -> None:
    case = capture("pjq", "healthy")
    expected = {**case.expected["idle_workers"], **case.expected["busy_workers"]}
    assert FAMILY.consumers(reading_of(case).keyspace) == expected


def test_keyspaces_are_recognised_by_their_containers() -> None:
    for case in CAPTURES:
        found = [list(FAMILY.prefixes(entry.key, entry.redis_type)) for entry in case.entries()]
        assert any(prefixes == [""] for prefixes in found)
        assert all(prefixes in ([], [""]) for prefixes in found)


# What has no canonical field


def test_every_byte_of_a_hash_that_no_canonical_field_speaks_for_is_kept() -> None:
    case = capture("pjq", "crashed")
    bad = jobs(case)["8d2b0c1b-6d2b-4249-8b1e-82c4475a1342"]
    assert bad.payload is None
    assert b"Gr\xf6\xdfe" in bad.extra["pjq"]["fields"]["json"]
    assert bad.extra["pjq"]["scores"] == {"dispatched": 1795263751.022796}
    twice = jobs(case)["5ab6cd4d-fb17-4dd3-869d-203ec22ebdd2"]
    assert twice.extra["pjq"]["found"]["places"] == [
        ["queued", "w-late-accept", 1],
        ["processing", "w-late-accept", 1795263761.869389],
        ["progress", "w-late-accept", 0.0],
    ]
    assert jobs(case)["ea6013af-d1fc-41d5-85b3-ea4d1c48f612"].extra["pjq"]["scores"]["progress"] == 42.0
    assert "ttl" in jobs(case)["84a88045-416d-46f6-ad14-d64c3d9e1d35"].extra["pjq"]["found"]
    assert jobs(case)["c33ff187-82f6-4c62-ad8c-d4396991c237"].extra["pjq"]["found"] == {"layout": "js-1"}


def test_a_job_that_the_writer_would_write_the_same_way_has_no_extra() -> None:
    waiting = [job for job in jobs(capture("pjq", "healthy")).values() if job.state is State.WAITING and not job.attempts]
    assert waiting
    assert all(job.extra == {} for job in waiting)


# Single keys


def one(*entries: Entry, prefix: str = "") -> Job:
    """The only job that the entries describe."""
    [job] = read_keyspace(FAMILY, entries, prefix, 0).jobs()
    return job


def record(text: bytes, **more: bytes) -> Entry:
    return Entry(b"u", "hash", {b"json": text, **{name.encode(): value for name, value in more.items()}})


QUEUED = Entry(b"jobs_queued:q", "list", [b"u"])
FINISHED = Entry(b"jobs_finished:q", "zset", [(b"u", 5.0)])


@pytest.mark.parametrize(
    ("text", "payload"),
    [
        (b'{"a":NaN}', b'{"a":NaN}'),
        (b' {"a":1,"a":2}\n', b' {"a":1,"a":2}\n'),
        (b'{"a":-Infinity,"n":123456789012345678901234567890}', b'{"a":-Infinity,"n":123456789012345678901234567890}'),
        (b'{"a":"\\ud83d"}', b'{"a":"\\ud83d"}'),
        (b'{"a":"\t"}', None),
        (b'\xef\xbb\xbf{"a":1}', None),
        (b"[]", None),
        (b"", None),
        (b'{"a":' * 100_000, None),
    ],
)
def test_a_payload_is_what_the_python_program_can_read(text: bytes, payload: bytes | None) -> None:
    job = one(record(text), QUEUED)
    assert (job.payload, job.state) == (payload, State.WAITING)
    if payload is None:
        assert job.extra["pjq"]["fields"]["json"] == text


@pytest.mark.parametrize(
    ("exitcode", "state"),
    [(b"0", "completed"), (b"null", "completed"), (b"0.0", "completed"), (b"1", "failed"), (b'"0"', "failed"), (b"-9", "failed")],
)
def test_a_finished_job_failed_if_its_exit_code_says_so(exitcode: bytes, state: str) -> None:
    job = one(record(b'{"exitcode":%b,"stderr":"e","stdout":"o"}' % exitcode, finished_at=b"5"), FINISHED)
    assert (job.state, job.result, job.error) == (state, b"o", "e" if state == "failed" else None)


@pytest.mark.parametrize(
    ("text", "finished_at"),
    [(b"1795262502", 1795262502000), (b"1795262501.5445511", 1795262501545), (b"2026-11-21T12:22:42.687022Z", 1795263762687)],
)
def test_the_end_of_a_job_is_a_number_of_seconds_or_a_date(text: bytes, finished_at: int) -> None:
    assert one(record(b"{}", finished_at=text)).finished_at == finished_at


def test_an_end_that_is_no_time_is_that_of_the_set() -> None:
    assert one(record(b"{}", finished_at=b"soon"), FINISHED).finished_at == 5000


def test_a_member_named_priority_orders_nothing() -> None:
    job = one(record(b'{"priority":9}'), QUEUED)
    assert (job.priority, job.rank, job.position) == (None, None, 0)


def test_a_queue_may_have_any_name() -> None:
    for queue in ("", "a:b", " x ", 'q"', "n\nl", "jobs_queued:", "\udcff"):
        key = b"jobs_queued:" + queue.encode("utf-8", "surrogateescape")
        assert one(record(b"{}"), Entry(key, "list", [b"u"])).queue == queue


def test_what_the_first_program_left_runs_before_what_came_later() -> None:
    hashes = [Entry(name, "hash", {b"json": b"{}"}) for name in (b"a", b"b", b"c", b"d")]
    lists = [Entry(b"job_queue:q", "list", [b"b", b"a"]), Entry(b"jobs_queued:q", "list", [b"d", b"c"])]
    found = {job.id: job for job in read_keyspace(FAMILY, [*hashes, *lists], "", 0).jobs()}
    assert {job.id: job.position for job in found.values()} == {"a": 0, "b": 1, "c": 2, "d": 3}


def test_a_long_list_that_arrives_in_parts_is_put_in_order() -> None:
    hashes = [Entry(name, "hash", {b"json": b"{}"}) for name in (b"a", b"b", b"c")]
    parts = [Entry(b"jobs_queued:q", "list", [b"a"], offset=2), Entry(b"jobs_queued:q", "list", [b"c", b"b"], offset=0)]
    found = {job.id: job for job in read_keyspace(FAMILY, [*hashes, *parts], "", 0).jobs()}
    assert {job.id: job.position for job in found.values()} == {"a": 0, "b": 1, "c": 2}


def test_keys_of_others_are_left_alone() -> None:
    values: list[tuple[bytes, str, Any]] = [
        (b"session:1", "hash", {b"user": b"x"}),
        (b"celery", "list", [b"{}"]),
        (b"q:job:1", "hash", {b"type": b"mail"}),
        (b"counter", "string", b"1"),
        (b"jobs_queued", "list", [b"u"]),
    ]
    for key, redis_type, value in values:
        assert list(FAMILY.facts(Entry(key, redis_type, value), "")) == []


def test_a_container_under_another_prefix_tells_the_prefix_and_no_job() -> None:
    [fact] = FAMILY.facts(Entry(b"app:x:jobs_queued:q", "list", [b"u"]), "app:")
    assert (fact.kind, fact.job_id, fact.values) == (FactKind.TOKEN, None, (b"x:",))
    assert fact.role in FAMILY.ambiguous_roles


def test_a_container_of_the_wrong_type_is_odd_and_never_a_job() -> None:
    [fact] = FAMILY.facts(Entry(b"jobs_queued:q", "hash", {b"json": b"{}"}), "")
    assert (fact.kind, fact.role, fact.queue, fact.job_id) == (FactKind.ODD, "queued", "q", None)


def test_under_a_prefix_only_what_has_it_counts() -> None:
    entries = [Entry(b"app:u", "hash", {b"json": b"{}"}), Entry(b"app:jobs_queued:q", "list", [b"u"]), record(b"{}"), QUEUED]
    assert one(*entries, prefix="app:").queue == "q"
