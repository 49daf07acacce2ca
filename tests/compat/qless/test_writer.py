"""The qless writer: what it stores reads back as it was, on a real server, and captured keyspaces survive it key for key."""

from __future__ import annotations

import pytest
import redis
from attrs import evolve
from ferryman.compat.qless import FAMILY
from ferryman.schema.fact import Entry
from ferryman.schema.job import Job, State
from ferryman.testing.keyspaces import dump, send
from hypothesis import given

from ...support.captures import Capture, capture, captures
from ...support.roundtrip import Roundtrip, by_id, on_a_server
from . import strategies

pytestmark = pytest.mark.in_turn

NOW = 1_800_000_000_000
at = Roundtrip(FAMILY, "ql", NOW)

BROKEN = ("crashed", "crashed-reqless")
each_healthy_capture = pytest.mark.parametrize("case", [case for case in captures("qless") if case.name not in BROKEN], ids=str)


# Reading back


@on_a_server
@given(strategies.jobs(), strategies.jobs())
def test_a_newer_version_of_a_job_replaces_the_older_one(client: redis.Redis, older: Job, newer: Job) -> None:
    newer = evolve(newer, id=older.id)
    client.flushdb()
    send(client, FAMILY.write(newer, at.target))
    alone = dump(client)
    client.flushdb()
    send(client, [*FAMILY.write(older, at.target), *FAMILY.write(newer, at.target)])
    both = dump(client)
    # Registers remember queues and workers that were there.
    for key in (b"ql:queues", b"ql:workers"):
        alone.pop(key, None)
        both.pop(key, None)
    assert both == alone


# Captures

NOT_REPRODUCED = (b"ql:s:", b"ql:config", b"ql:r:", b"ql:paused_queues", b"ql:tags", b"ql:tracked", b"ql:workers", b"ql:queues")
"""Statistics, options, recurring jobs, paused queues; counters of tags that drifted, tracked jobs that are gone, and when
queues and workers were first or last seen."""


def is_reproduced(entry: Entry, case: Capture) -> bool:
    """Whether jobs alone say what stands in this key."""
    if entry.key.startswith(NOT_REPRODUCED) or entry.key.endswith(b"-recur"):
        return False
    # The maxima of throttles; heartbeats of the first weeks, and locks that they never took away.
    limits = entry.key.startswith(b"ql:th:") and entry.redis_type == "hash"
    beats = case.name in ("seed-layout", "first-core") and entry.key in (b"ql:q:test1", b"ql:q:example")
    leftover = (case.name, entry.key) in {("seed-layout", b"ql:q:test1-locks"), ("first-core", b"ql:completed")}
    return not (limits or beats or leftover)


@each_healthy_capture
def test_a_valid_keyspace_written_back_is_the_same_key_for_key(client: redis.Redis, case: Capture) -> None:
    at.of(case).store(client, at.of(case).read(case.entries()).values())
    original = {entry.key: entry for entry in case.entries() if is_reproduced(entry, case)}
    written = {key: entry for key, entry in dump(client).items() if is_reproduced(entry, case)}
    assert written.keys() == original.keys()
    for key, entry in original.items():
        value = sorted(entry.value) if entry.redis_type == "set" else entry.value
        assert (written[key].redis_type, written[key].value) == (entry.redis_type, value), key


@each_healthy_capture
def test_registers_name_what_they_named_before(client: redis.Redis, case: Capture) -> None:
    jobs = at.of(case).read(case.entries()).values()
    at.of(case).store(client, jobs)
    original, written = ({entry.key: entry for entry in entries} for entries in (case.entries(), dump(client).values()))

    def members(entries: dict[bytes, Entry], key: bytes) -> set[bytes]:
        return {member for member, _ in entries[key].value} if key in entries else set()

    queues, workers, tracked = b"ql:queues", b"ql:workers", b"ql:tracked"
    assert members(written, queues) <= members(original, queues)
    assert members(written, workers) <= members(original, workers)
    assert members(written, tracked) <= members(original, tracked)
    counters = {tag: score for tag, score in original[b"ql:tags"].value if score > 0} if b"ql:tags" in original else {}
    drifted = {"odd": {b"d"}, "older-version": {b"x y"}}.get(case.name, set())
    counted = dict(written[b"ql:tags"].value) if b"ql:tags" in written else {}
    assert {tag for tag in counters if counted.get(tag) != counters[tag]} == drifted


@pytest.mark.parametrize("name", BROKEN)
def test_a_crashed_keyspace_written_back_is_valid(client: redis.Redis, name: str) -> None:
    """Every job that can be carried is, in its one place; what stays unsound is what no writer may decide."""
    case = capture("qless", name)
    jobs = at.of(case).read(case.entries())
    carried = {job_id: job for job_id, job in jobs.items() if not at.errors(job)}
    assert jobs.keys() - carried.keys() == ({"sched-evicted"} if name == "crashed" else set())
    at.of(case).store(client, carried.values())
    left = at.of(case).findings(client)
    # Locks that are over, numbers and marks in the hash, a parent that is gone, slots that another software forgot; and long
    # locks, which look strange without the options that made them.
    as_read = {f"QLESS-{number}" for number in (11, 12, 21, 22, 24, 31, 32, 33, 36)}
    assert {finding.rule for finding in left} <= as_read
    again = at.standing(client)
    assert {job_id: evolve(job, extra={}) for job_id, job in again.items()} == {
        job_id: evolve(job, extra={}) for job_id, job in carried.items()
    }


# What a job has become since it was read


def read_one(client: redis.Redis, job: Job) -> Job:
    client.flushdb()
    send(client, FAMILY.write(job, at.target))
    [found] = (job for job in at.standing(client).values())
    return found


def held(name: str = "healthy") -> Job:
    """A job that a worker had when the keyspace was captured."""
    case = capture("qless", name)
    jobs = at.of(case).read(case.entries()).values()
    return next(job for job in jobs if job.state is State.ACTIVE and not job.tags)


def test_texts_of_an_older_state_are_not_put_into_a_newer_one(client: redis.Redis) -> None:
    job = held()
    done = read_one(client, evolve(job, state=State.COMPLETED, finished_at=NOW, lease_expires_at=None, worker=None))
    assert (done.state, done.finished_at, done.payload) == (State.COMPLETED, NOW, job.payload)
    fields = client.hgetall(f"ql:j:{job.id}")
    assert (fields[b"state"], fields[b"worker"], fields[b"expires"], fields[b"failure"]) == (b"complete", b"", b"0", b"{}")
    assert client.zscore("ql:completed", job.id) == NOW / 1000
    assert [key for key in dump(client) if key.endswith(b"-locks") or key.startswith(b"ql:w:")] == []


def test_a_requeued_job_waits_before_the_others_of_its_priority(client: redis.Redis) -> None:
    job = held()
    qless_extra = {name: value for name, value in job.extra["qless"].items() if name not in ("state", "scores", "state_fields")}
    requeued = evolve(job, state=State.WAITING, lease_expires_at=None, extra={"qless": qless_extra})
    found = read_one(client, requeued)
    assert (found.state, found.attempts) == (State.WAITING, job.attempts)
    score = client.zscore(f"ql:q:{job.queue}-work", job.id)
    assert score is not None
    # As high as any job of the priority can stand that a producer puts.
    assert job.priority - 1e-9 < score <= job.priority


def test_a_job_that_no_qless_worker_holds_waits(client: redis.Redis) -> None:
    job = Job(id="1", queue="q", name="K", state=State.ACTIVE, payload=b"{}", attempts=2, started_at=NOW)
    assert [finding.rule for finding in FAMILY.incompatibilities(job)] == ["QLESS-W9"]
    assert read_one(client, job).state is State.WAITING
    assert client.hget("ql:j:1", "remaining") == b"3"


def test_jobs_of_a_family_whose_lowest_priority_runs_first_keep_their_order(client: redis.Redis) -> None:
    order = [("a", -15, 0), ("b", -15, 1), ("c", 0, 2), ("e", 0, 3), ("d", 7, 4)]
    jobs = [
        Job(id=job_id, queue="q", name="K", state=State.WAITING, payload=b"1", priority=rank, rank=rank, position=position)
        for job_id, rank, position in order
    ]
    at.store(client, reversed(jobs))
    assert client.zrevrange("ql:q:q-work", 0, -1) == [job_id.encode() for job_id, _, _ in order]
    assert at.standing(client) == {job.id: job for job in jobs}
    assert [job.position for job in sorted(at.standing(client).values(), key=by_id)] == [0, 1, 2, 4, 3]


def test_failed_jobs_are_listed_with_the_newest_first_in_whatever_order_they_are_written(client: redis.Redis) -> None:
    jobs = [
        Job(id=f"j{number}", queue="q", name="K", state=State.FAILED, finished_at=1000 * number, error="E: x")
        for number in range(30)
    ]
    at.store(client, sorted(jobs, key=lambda job: hash((job.id, 3))))
    assert client.lrange("ql:f:E", 0, -1) == [f"j{number}".encode() for number in range(29, -1, -1)]
    assert client.hgetall("ql:s:stats:0:q") == {b"failed": b"30", b"failures": b"30"}


def test_what_overflowed_is_dropped_when_qless_has_touched_the_job(client: redis.Redis) -> None:
    job = Job(id="1", queue="q", name="K", state=State.WAITING, payload=b"{}", progress=0.3, unique_key="u", history=())
    assert read_one(client, job) == job
    client.hset("ql:j:1", mapping={"time": "1800000001.5", "state": "waiting", "worker": "w"})
    client.rpush("ql:j:1-history", '[1800000001,"popped",{"worker":"w"}]')
    [touched] = at.standing(client).values()
    assert (touched.progress, touched.unique_key, touched.attempts) == (None, "u", 1)


@pytest.mark.parametrize(
    "text", [b"{}", b"mine", b'{"fields":{"state":"failed"}}', b'{"as_of":null,"extra":{"qless":{}}}', b"[" * 9999]
)
def test_a_field_of_an_application_that_has_our_name_is_just_a_field(client: redis.Redis, text: bytes) -> None:
    fields = {
        b"jid": b"1",
        b"queue": b"q",
        b"klass": b"K",
        b"state": b"waiting",
        b"priority": b"0",
        b"data": b"{}",
        b"ferryman": text,
    }
    [job] = at.read([Entry(b"ql:j:1", "hash", fields)]).values()
    assert (job.state, job.extra["qless"]["fields"]["ferryman"]) == (State.WAITING, text)
    assert read_one(client, job) == job
    assert client.hget("ql:j:1", "ferryman") == text


# What qless can't hold

SIMPLE = Job(id="1", queue="q", name="K", state=State.WAITING, payload=b"{}")


@pytest.mark.parametrize(
    ("job", "rule", "severity"),
    [
        (evolve(SIMPLE, id="\ud83d"), "QLESS-W1", "error"),
        (evolve(SIMPLE, queue="\ud83d"), "QLESS-W1", "error"),
        (evolve(SIMPLE, state=State.CANCELLED), "QLESS-W3", "error"),
        (evolve(SIMPLE, state=State.UNKNOWN), "QLESS-W3", "error"),
        (evolve(SIMPLE, payload=b"\x80"), "QLESS-W4", "error"),
        (evolve(SIMPLE, payload=b"false"), "QLESS-W4", "error"),
        (evolve(SIMPLE, payload=None), "QLESS-W4", "error"),
        (evolve(SIMPLE, state=State.SCHEDULED), "QLESS-W5", "warning"),
        (evolve(SIMPLE, unique_key="u"), "QLESS-W6", "warning"),
        (evolve(SIMPLE, ttl=5), "QLESS-W6", "warning"),
        (evolve(SIMPLE, extra={"qless": []}), "QLESS-W7", "error"),
        (evolve(SIMPLE, extra={"qless": {"fields": {"data": 5}}}), "QLESS-W7", "error"),
        (evolve(SIMPLE, state=State.BLOCKED), "QLESS-W8", "error"),
        (evolve(SIMPLE, state=State.ACTIVE), "QLESS-W9", "warning"),
        (evolve(SIMPLE, name=""), "QLESS-W10", "warning"),
    ],
)
def test_what_qless_cant_express_is_named(job: Job, rule: str, severity: str) -> None:
    assert [(finding.rule, finding.severity) for finding in FAMILY.incompatibilities(job)] == [(rule, severity)]


@pytest.mark.parametrize("case", captures("qless"), ids=str)
def test_jobs_that_qless_made_meet_no_obstacle_in_qless(case: Capture) -> None:
    for job in at.of(case).read(case.entries()).values():
        assert job.id == "sched-evicted" or list(FAMILY.incompatibilities(job)) == []
