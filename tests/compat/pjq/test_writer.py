"""The pjq writer on real servers: what is written reads back, can be written again, and is what the program would write."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import redis
from attrs import evolve
from ferryman.compat.pjq import FAMILY
from ferryman.schema.fact import Entry
from ferryman.schema.job import Job, State
from ferryman.testing.keyspaces import dump
from hypothesis import assume, given

from ...support.captures import Capture, capture, captures
from ...support.roundtrip import Roundtrip, by_id, on_a_server
from . import strategies

pytestmark = pytest.mark.in_turn

NOW = strategies.NOW_MS
at = Roundtrip(FAMILY, "", NOW)


# Reading back


@on_a_server
@given(strategies.valid_records())
def test_what_a_program_wrote_is_written_back_byte_for_byte(client: redis.Redis, entries: list[Entry]) -> None:
    client.flushdb()
    [job] = at.read(entries).values()
    assume(not list(FAMILY.incompatibilities(job)))
    at.store(client, [job])
    stored = {key: entry.value for key, entry in dump(client).items()}
    assert stored == {entry.key: entry.value for entry in entries}


@on_a_server
@given(strategies.jobs(), strategies.jobs())
def test_a_newer_version_of_a_job_replaces_the_older_one(client: redis.Redis, older: Job, newer: Job) -> None:
    newer = evolve(newer, id=older.id, queue=older.queue)
    client.flushdb()
    at.store(client, [newer])
    alone = dump(client)
    client.flushdb()
    at.store(client, [older])
    at.store(client, [newer])
    assert dump(client) == alone


# Captures

CURRENT = ["healthy", "as-released", "custom-namespace", "older-version-py1"]


def is_of_workers(key: bytes) -> bool:
    return key.startswith(b"workers_")


@pytest.mark.parametrize("name", CURRENT)
def test_a_healthy_keyspace_written_back_is_the_same_key_for_key(client: redis.Redis, name: str) -> None:
    case = capture("pjq", name)
    original = {entry.key: entry for entry in case.entries()}
    at.store(client, at.read(case.entries()).values())
    written = dump(client)
    jobs_only = {key: entry.value for key, entry in original.items() if not is_of_workers(key)}
    assert {key: entry.value for key, entry in written.items() if not is_of_workers(key)} == jobs_only
    # Workers come back with the job that they have accepted. Which worker an unaccepted job was given to stands nowhere,
    # and idle ones have no job: all of them announce themselves every three seconds.
    for key, entry in written.items():
        assert set(entry.value) <= set(original[key].value)
    accepted = sum(len(entry.value) for key, entry in original.items() if key.startswith(b"jobs_processing:"))
    assert sum(len(entry.value) for key, entry in written.items() if key.startswith(b"workers_busy:")) == accepted


@pytest.mark.parametrize("name", ["older-version", "older-version-js3"])
def test_jobs_of_the_javascript_programs_are_written_for_the_current_one(client: redis.Redis, name: str) -> None:
    case = capture("pjq", name)
    jobs = {job_id: job for job_id, job in at.read(case.entries()).items() if job.state is not State.UNKNOWN}
    at.store(client, jobs.values())
    for queue, ids in case.expected["pop_order"].items():
        listed = [job_id.decode() for job_id in client.lrange(f"jobs_queued:{queue}", 0, -1)][::-1]
        leased = {job.id for job in jobs.values() if job.state is State.ACTIVE and job.queue == queue}
        # What a worker of the first program had is to be run again, before the rest.
        assert (set(listed[: len(leased)]), listed[len(leased) :]) == (leased, ids)
    assert {job_id: job.payload for job_id, job in at.standing(client).items()} == {job.id: job.payload for job in jobs.values()}


def test_a_crashed_keyspace_written_back_is_valid(client: redis.Redis) -> None:
    """Every job that can be carried is, in one place; what stays unsound is what no writer may decide."""
    case = capture("pjq", "crashed")
    jobs = {job_id: job for job_id, job in at.read(case.entries()).items() if not at.errors(job)}
    at.store(client, jobs.values())
    found = at.of(case).findings(client)
    left = {(finding.rule, finding.job_id and finding.job_id[:8]) for finding in found}
    gone = {("PJQ-11", job_id) for job_id in ("5ab6cd4d", "de380617", "7dd71003", "9c66e12a")}
    undecided = {
        ("PJQ-5", "9c66e12a"),
        ("PJQ-9", "ea6013af"),
        ("PJQ-18", "fb15c319"),
        ("PJQ-18", "21c6e351"),
        ("PJQ-19", "347a8cf4"),
    }
    late = {("PJQ-10", "1176869d"), ("PJQ-20", "b10233d3")}
    # The date stays as the worker had sent it, now beside a score.
    dated = {("PJQ-20", "d2153ef5")}
    assert left == gone | undecided | late | dated


@pytest.mark.parametrize("case", captures("pjq"), ids=str)
def test_jobs_that_a_program_made_meet_no_obstacle_in_pjq(case: Capture) -> None:
    for job in at.read(case.entries()).values():
        is_incomplete = job.state is State.UNKNOWN or job.payload is None or job.extra.get("pjq", {}).get("state") == "js_leased"
        assert is_incomplete or list(FAMILY.incompatibilities(job)) == []


@pytest.mark.parametrize("name", CURRENT)
def test_workers_get_written_jobs_in_the_order_of_the_original(client: redis.Redis, name: str) -> None:
    case = capture("pjq", name)
    at.store(client, sorted(at.read(case.entries()).values(), key=by_id))
    for queue, order in case.expected["pop_order"].items():
        assert list(_popped(client, queue)) == order


def _popped(client: redis.Redis, queue: str) -> Iterator[str]:
    while isinstance(job_id := client.rpop(f"jobs_queued:{queue}"), bytes):
        yield job_id.decode()


# What the program finds


SIMPLE = Job(id="5", queue="q", name="send", state=State.WAITING, payload=b'{"to": "a@b"}', created_at=1_795_263_767_936)


def stored(client: redis.Redis, job: Job) -> dict[bytes, bytes]:
    """The hash of a job that is alone on the server."""
    client.flushdb()
    at.store(client, [job])
    return dict(client.hgetall(job.id))


def test_a_foreign_payload_gets_what_the_program_and_its_workers_need(client: redis.Redis) -> None:
    found = stored(client, SIMPLE)
    assert json.loads(found[b"json"]) == {
        "to": "a@b",
        "uuid": "5",
        "queue_name": "q",
        "command": "send",
        "created_at": "2026-11-21T12:22:47.936000Z",
    }
    assert client.lrange("jobs_queued:q", 0, -1) == [b"5"]


@pytest.mark.parametrize("payload", [b"[1, 2]", b"42", b'"x"', b"null"])
def test_a_foreign_payload_that_is_no_object_stands_in_a_member_of_its_own(client: redis.Redis, payload: bytes) -> None:
    found = json.loads(stored(client, evolve(SIMPLE, payload=payload))[b"json"])
    assert (found["payload"], found["uuid"]) == (json.loads(payload), "5")


def test_a_payload_is_not_stored_twice(client: redis.Redis) -> None:
    found = stored(client, evolve(SIMPLE, payload=b'{"text":"%b"}' % (b"x" * 100_000)))
    assert sum(map(len, found.values())) < 101_000
    assert at.standing(client)["5"].payload == b'{"text":"%b"}' % (b"x" * 100_000)


def test_a_member_of_the_payload_that_has_the_name_of_the_id_does_not_hide_it(client: redis.Redis) -> None:
    job = evolve(SIMPLE, payload=b'{"uuid":"mine","queue_name":["r"]}')
    found = json.loads(stored(client, job)[b"json"])
    assert (found["uuid"], found["queue_name"]) == ("5", "q")
    assert at.standing(client)["5"] == job


def test_a_failed_job_says_so_in_its_payload(client: redis.Redis) -> None:
    job = evolve(SIMPLE, state=State.FAILED, error="E: ü", result=b"half", finished_at=NOW, attempts=1)
    found = json.loads(stored(client, job)[b"json"])
    assert (found["exitcode"], found["stderr"], found["stdout"]) == (1, "E: ü", "half")
    assert client.zscore("jobs_finished:q", "5") == NOW / 1000


def test_a_foreign_active_job_waits_in_pjq(client: redis.Redis) -> None:
    job = evolve(SIMPLE, state=State.ACTIVE, worker="w")
    assert [finding.rule for finding in FAMILY.incompatibilities(job)] == ["PJQ-W9"]
    stored(client, job)
    assert at.standing(client)["5"].state is State.WAITING
    assert [key for key in dump(client) if is_of_workers(key)] == []


def test_what_overflowed_is_dropped_when_the_program_has_touched_the_job(client: redis.Redis) -> None:
    job = evolve(SIMPLE, updated_at=NOW, tags=("a",), logs=(b"one",), extra={"kue": {"state": "active"}})
    found = stored(client, job)
    client.hset("5", "dispatched_at", "2026-11-21T12:22:47.936220Z")
    client.rpop("jobs_queued:q")
    client.zadd("jobs_dispatched:q", {"5": NOW / 1000})
    [touched] = at.standing(client).values()
    assert (touched.state, touched.updated_at, touched.payload) == (State.ACTIVE, NOW, found[b"json"])
    assert (touched.tags, touched.logs, touched.extra["kue"]) == (("a",), (b"one",), {"state": "active"})


def test_a_key_of_somebody_else_that_has_the_name_of_a_job_is_left_alone(client: redis.Redis) -> None:
    for command in (("SET", "5", "x"), ("RPUSH", "5", "x"), ("HSET", "5", "user", "x")):
        client.flushdb()
        client.execute_command(*command)
        before = dump(client)
        with pytest.raises(redis.exceptions.ResponseError, match=r"the key 5 is a \w+ of somebody else"):
            at.store(client, [SIMPLE])
        assert dump(client)[b"5"] == before[b"5"]


def test_a_hash_of_very_many_fields_is_written_back(client: redis.Redis) -> None:
    fields = {b"field %d" % number: b"x" for number in range(9000)}
    entries = [Entry(b"5", "hash", {b"json": b"{}", **fields}), Entry(b"jobs_queued:q", "list", [b"5"])]
    [job] = at.read(entries).values()
    assert stored(client, job) == entries[0].value


@pytest.mark.parametrize(
    "text", [b"{}", b"mine", b'{"fields":{"state":"failed"}}', b'{"as_of":null,"extra":{"pjq":{"added":1}}}', b"[" * 9999]
)
def test_a_field_of_an_application_that_has_our_name_is_just_a_field(client: redis.Redis, text: bytes) -> None:
    fields = {b"json": b'{"uuid":"5","queue_name":"q"}', b"ferryman": text}
    [job] = at.read([Entry(b"5", "hash", fields), Entry(b"jobs_queued:q", "list", [b"5"])]).values()
    assert (job.state, job.payload) == (State.WAITING, fields[b"json"])
    assert stored(client, job) == fields
    assert at.standing(client) == {"5": job}


# What a job has become since it was read


def test_texts_of_an_older_state_are_not_put_into_a_newer_one(client: redis.Redis) -> None:
    held = next(job for job in at.read(capture("pjq", "healthy").entries()).values() if job.worker and job.progress == 0.5)
    done = evolve(held, state=State.COMPLETED, finished_at=NOW, updated_at=NOW, progress=None)
    found = stored(client, done)
    assert found[b"finished_at"] == b"1800000000"
    [again] = at.standing(client).values()
    assert (again.state, again.finished_at, again.started_at, again.worker) == (
        State.COMPLETED,
        NOW,
        held.started_at,
        held.worker,
    )


def test_a_job_that_is_requeued_keeps_the_time_of_its_dispatch(client: redis.Redis) -> None:
    held = next(job for job in at.read(capture("pjq", "healthy").entries()).values() if job.lease_expires_at)
    waiting = evolve(held, state=State.WAITING, lease_expires_at=None, updated_at=None)
    assert stored(client, waiting)[b"dispatched_at"] == held.extra["pjq"]["fields"]["dispatched_at"]
    assert client.lrange(f"jobs_queued:{held.queue}", 0, -1) == [held.id.encode()]


# What pjq can't hold


@pytest.mark.parametrize(
    ("job", "rule", "severity"),
    [
        (evolve(SIMPLE, id="jobs_queued:x"), "PJQ-W1", "error"),
        (evolve(SIMPLE, id="idle_queue:"), "PJQ-W1", "error"),
        (evolve(SIMPLE, id="_ferryman.jobs_queued:q"), "PJQ-W1", "error"),
        (evolve(SIMPLE, id="\udcff"), "PJQ-W1", "error"),
        (evolve(SIMPLE, queue="\ud83d"), "PJQ-W2", "error"),
        (evolve(SIMPLE, state=State.SCHEDULED), "PJQ-W3", "error"),
        (evolve(SIMPLE, state=State.BLOCKED), "PJQ-W3", "error"),
        (evolve(SIMPLE, state=State.CANCELLED), "PJQ-W3", "error"),
        (evolve(SIMPLE, state=State.UNKNOWN), "PJQ-W3", "error"),
        (evolve(SIMPLE, payload=b"\x80"), "PJQ-W4", "error"),
        (evolve(SIMPLE, payload=None), "PJQ-W4", "error"),
        (evolve(SIMPLE, tags=("a",)), "PJQ-W6", "warning"),
        (evolve(SIMPLE, max_attempts=3), "PJQ-W6", "warning"),
        (evolve(SIMPLE, extra={"pjq": {"fields": {"json": 5}}}), "PJQ-W7", "error"),
        (evolve(SIMPLE, extra={"pjq": []}), "PJQ-W7", "error"),
        (evolve(SIMPLE, state=State.ACTIVE), "PJQ-W9", "warning"),
    ],
)
def test_what_pjq_cant_express_is_named(job: Job, rule: str, severity: str) -> None:
    assert [(finding.rule, finding.severity) for finding in FAMILY.incompatibilities(job)] == [(rule, severity)]


# What is done once


def test_written_jobs_run_before_what_stands_there(client: redis.Redis) -> None:
    client.rpush("jobs_queued:q", "new", "old")
    at.store(client, [evolve(SIMPLE, id=str(number), position=number) for number in (2, 0, 1)])
    assert client.lrange("jobs_queued:q", 0, -1) == [b"new", b"old", b"2", b"1", b"0"]


def test_until_it_is_finished_a_migration_shows(client: redis.Redis) -> None:
    for command in FAMILY.write(SIMPLE, at.target):
        client.execute_command(*command)
    [finding] = [each for each in at.findings(client) if each.rule == "PJQ-1"]
    assert "migration" in finding.detail


def test_a_large_queue_is_put_in_order_at_once(client: redis.Redis) -> None:
    at.store(client, [evolve(SIMPLE, id=str(number), position=number) for number in range(3000)])
    assert client.lrange("jobs_queued:q", 0, -1) == [b"%d" % number for number in reversed(range(3000))]
