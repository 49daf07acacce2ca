"""The kue writer on real servers: what is written reads back, can be written again, and is what kue itself would have written."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis
from attrs import evolve
from ferryman.compat.kue import FAMILY
from ferryman.schema.fact import Entry
from ferryman.schema.family import Command
from ferryman.schema.job import Job, State
from ferryman.schema.rule import Severity
from ferryman.schema.totals import Totals
from ferryman.testing.keyspaces import dump, finish, send
from hypothesis import assume, given

from ...support.captures import Capture, capture, captures
from ...support.roundtrip import Roundtrip, on_a_server
from . import strategies

pytestmark = pytest.mark.in_turn

NOW = 1_800_000_000_000
at = Roundtrip(FAMILY, "q", NOW)

each_healthy_capture = pytest.mark.parametrize(
    "case", [case for case in captures("kue") if case.name not in ("crashed", "upgraded")], ids=str
)


# Reading back


@on_a_server
@given(strategies.valid_records())
def test_what_kue_wrote_is_written_back_byte_for_byte(client: redis.Redis, entries: list[Entry]) -> None:
    client.flushdb()
    [job] = at.read(entries).values()
    assume(not list(FAMILY.incompatibilities(job)))
    send(client, FAMILY.write(job, at.target))
    stored = dump(client)
    stored.pop(b"q:job:types")
    assert {key: entry.value for key, entry in stored.items()} == {entry.key: entry.value for entry in entries}


@on_a_server
@given(strategies.jobs(), strategies.jobs())
def test_a_newer_version_of_a_job_replaces_the_older_one(client: redis.Redis, older: Job, newer: Job) -> None:
    newer = evolve(newer, id=older.id, queue=older.queue)
    client.flushdb()
    send(client, FAMILY.write(newer, at.target))
    alone = dump(client)
    client.flushdb()
    send(client, [*FAMILY.write(older, at.target), *FAMILY.write(newer, at.target)])
    assert dump(client) == alone


# Captures


def round_trip(client: redis.Redis, case: Capture) -> dict[bytes, Entry]:
    """The keyspace that the jobs of a capture make when they are written."""
    at.of(case).store(client, at.of(case).read(case.entries()).values())
    return dump(client)


@each_healthy_capture
def test_a_healthy_keyspace_written_back_is_the_same_key_for_key(client: redis.Redis, case: Capture) -> None:
    original = {entry.key: entry for entry in case.entries()}
    written = round_trip(client, case)
    # Not reproduced: how long all work took, of which jobs know only a part.
    original.pop(f"{case.prefix}:stats:work-time".encode())
    assert written.keys() == original.keys()
    for key, entry in original.items():
        value = sorted(entry.value) if entry.redis_type == "set" else entry.value
        if key.endswith(b":jobs") and entry.redis_type == "list":
            # Not reproduced: tokens beyond the number of waiting jobs.
            queue = key.decode().removeprefix(f"{case.prefix}:").removesuffix(":jobs")
            value = value[: case.expected["by_state"]["inactive"]]
            waiting = f"{case.prefix}:jobs:{queue}:inactive".encode()
            value = value[: len(original[waiting].value)]
        assert (written[key].redis_type, written[key].value) == (entry.redis_type, value), key


def test_a_crashed_keyspace_written_back_is_valid(client: redis.Redis) -> None:
    """Every job that can be carried is, in its place; what stays unsound is what no writer may decide."""
    case = capture("kue", "crashed")
    jobs = {job_id: job for job_id, job in at.read(case.entries()).items() if not at.errors(job)}
    assert at.read(case.entries()).keys() - jobs.keys() == {"11", "12", "27", "33", "36"}
    at.of(case).store(client, jobs.values())
    found = at.of(case).findings(client)
    left = {(finding.rule, finding.job_id) for finding in found}
    late_or_held = {("KUE-14", "38"), ("KUE-15", "17"), ("KUE-15", "19"), ("KUE-15", "23"), ("KUE-16", "18"), ("KUE-17", "19")}
    cut_short = {("KUE-22", "24"), ("KUE-22", "25"), ("KUE-22", "26"), ("KUE-23", "20"), ("KUE-23", "21")}
    # Scores that kue wrote itself come back as they were.
    rescored = {("KUE-12", "29")}
    assert left == late_or_held | cut_short | rescored
    assert {job_id: evolve(job, extra={}) for job_id, job in at.standing(client).items()} == {
        job_id: evolve(job, extra={}) for job_id, job in jobs.items()
    }


def test_an_upgraded_keyspace_written_back_has_one_form_of_members(client: redis.Redis) -> None:
    case = capture("kue", "upgraded")
    jobs = [evolve(job, extra={}) if job.state is not State.ACTIVE else job for job in at.read(case.entries()).values()]
    at.of(case).store(client, jobs)
    members = {member for entry in dump(client).values() if entry.redis_type == "zset" for member, _ in entry.value}
    plain = {job.id.encode() for job in jobs if job.state is State.ACTIVE and job.id != "99"}
    assert {member for member in members if b"|" not in member} == plain


# What a job has become since it was read


def read_one(client: redis.Redis, job: Job) -> Job:
    client.flushdb()
    send(client, FAMILY.write(job, at.target))
    [found] = at.standing(client).values()
    return found


def test_texts_of_an_older_state_are_not_put_into_a_newer_one(client: redis.Redis) -> None:
    case = capture("kue", "healthy")
    held = at.read(case.entries())["25"]
    assert held.state is State.ACTIVE
    done = read_one(client, evolve(held, state=State.COMPLETED, finished_at=held.started_at and held.started_at + 5, result=b"1"))
    assert (done.state, done.finished_at, done.result) == (State.COMPLETED, (held.started_at or 0) + 5, b"1")
    fields = client.hgetall("q:job:25")
    assert (fields[b"duration"], fields[b"progress_data"]) == (b"5", b'{"bytes":3000}')
    assert client.zscore("q:jobs:complete", "02|25") == held.priority


def test_a_changed_priority_is_written_and_the_old_text_is_not(client: redis.Redis) -> None:
    [job] = at.read(
        [Entry(b"q:job:1", "hash", {b"type": b"t", b"state": b"inactive", b"priority": b"2.50", b"data": b"{}"})]
    ).values()
    assert read_one(client, job).priority == 2.5
    assert client.hget("q:job:1", "priority") == b"2.50"
    assert read_one(client, evolve(job, priority=3)).priority == 3
    assert client.hget("q:job:1", "priority") == b"3"


def test_a_foreign_active_job_waits_in_kue(client: redis.Redis) -> None:
    job = Job(id="1", queue="t", name="t", state=State.ACTIVE, payload=b"{}", started_at=NOW)
    assert [finding.rule for finding in FAMILY.incompatibilities(job)] == ["KUE-W9"]
    assert read_one(client, job).state is State.WAITING


def test_what_overflowed_is_dropped_when_kue_has_touched_the_job(client: redis.Redis) -> None:
    job = Job(id="1", queue="t", name="t", state=State.WAITING, payload=b"{}", updated_at=NOW, progress=0.333, tags=("a",))
    assert read_one(client, job).progress == 0.333
    client.hset("q:job:1", mapping={"progress": "50", "updated_at": str(NOW + 1)})
    [touched] = at.standing(client).values()
    assert (touched.progress, touched.tags) == (0.5, ("a",))


@pytest.mark.parametrize(
    "text", [b"{}", b"mine", b'{"fields":{"state":"failed"}}', b'{"as_of":null,"extra":{"kue":{}}}', b"[" * 9999]
)
def test_a_field_of_an_application_that_has_our_name_is_just_a_field(client: redis.Redis, text: bytes) -> None:
    fields = {b"type": b"t", b"state": b"inactive", b"priority": b"0", b"data": b"{}", b"ferryman": text}
    [job] = at.read([Entry(b"q:job:1", "hash", fields)]).values()
    assert (job.state, job.extra["kue"]["fields"]["ferryman"]) == (State.WAITING, text)
    assert read_one(client, job) == job
    assert client.hget("q:job:1", "ferryman") == text


# What kue can't hold

SIMPLE = Job(id="1", queue="t", name="t", state=State.WAITING, payload=b"{}")


@pytest.mark.parametrize(
    ("job", "rule", "severity"),
    [
        (evolve(SIMPLE, id="mail-1"), "KUE-W1", "warning"),
        (evolve(SIMPLE, id="01"), "KUE-W1", "warning"),
        (evolve(SIMPLE, id="0"), "KUE-W1", "warning"),
        (evolve(SIMPLE, id="9007199254740992"), "KUE-W1", "warning"),
        (evolve(SIMPLE, id="١"), "KUE-W1", "warning"),
        (evolve(SIMPLE, queue="", name=""), "KUE-W2", "error"),
        (evolve(SIMPLE, queue="\ud83d", name="\ud83d"), "KUE-W2", "error"),
        (evolve(SIMPLE, state=State.BLOCKED), "KUE-W3", "error"),
        (evolve(SIMPLE, state=State.CANCELLED), "KUE-W3", "error"),
        (evolve(SIMPLE, state=State.UNKNOWN), "KUE-W3", "error"),
        (evolve(SIMPLE, payload=b"\x80"), "KUE-W4", "error"),
        (evolve(SIMPLE, payload=None), "KUE-W4", "error"),
        (evolve(SIMPLE, extra={"kue": {"fields": {"delay": 5}}}), "KUE-W7", "error"),
        (evolve(SIMPLE, extra={"kue": []}), "KUE-W7", "error"),
        (evolve(SIMPLE, extra={"kue": {"fields": {"backoff": b"exponential"}}}), "KUE-W8", "warning"),
        (evolve(SIMPLE, tags=("a",)), "KUE-W6", "warning"),
        (evolve(SIMPLE, name="send"), "KUE-W6", "warning"),
        (evolve(SIMPLE, state=State.ACTIVE), "KUE-W9", "warning"),
        (evolve(SIMPLE, state=State.SCHEDULED), "KUE-W5", "warning"),
    ],
)
def test_what_kue_cant_express_is_named(job: Job, rule: str, severity: str) -> None:
    assert [(finding.rule, finding.severity) for finding in FAMILY.incompatibilities(job)] == [(rule, severity)]


@pytest.mark.parametrize("case", captures("kue"), ids=str)
def test_jobs_that_kue_made_meet_no_obstacle_in_kue(case: Capture) -> None:
    incomplete = {"11", "12", "27", "30", "32", "33", "36"} if case.name == "crashed" else set()
    for job in at.of(case).read(case.entries()).values():
        assert job.id in incomplete or list(FAMILY.incompatibilities(job)) == []


def test_jobs_whose_ids_are_no_numbers_get_some_and_keep_their_own(client: redis.Redis) -> None:
    ordered = [evolve(SIMPLE, id=f"job-{letter}", position=position, rank=0) for position, letter in enumerate("zmak")]
    requeued = evolve(SIMPLE, id="was-active", rank=0)
    jobs = [*ordered, requeued, evolve(SIMPLE, id="done", state=State.COMPLETED), evolve(SIMPLE, id="7", position=4, priority=0)]
    at.store(client, jobs)
    at.store(client, jobs)
    found = at.standing(client)
    assert {job.id for job in found.values()} == {job.id for job in jobs}
    # kue's own job runs first, then what was given back, then the others as they stood.
    waiting = sorted((job for job in found.values() if job.position is not None), key=lambda job: job.position or 0)
    assert [job.id for job in waiting] == ["7", "was-active", "job-z", "job-m", "job-a", "job-k"]
    assert client.get("q:ids") == b"7"
    assert [finding for finding in at.findings(client) if finding.severity is Severity.ERROR] == []


def test_jobs_of_another_system_run_by_rank_and_keep_their_priority(client: redis.Redis) -> None:
    # In the other system the highest priority runs first.
    jobs = [evolve(SIMPLE, id=f"p{priority}", priority=priority, rank=-priority, position=9 - priority) for priority in (1, 5, 9)]
    at.store(client, jobs)
    assert sorted(at.standing(client).values(), key=lambda job: job.position or 0) == [*reversed(jobs)]


# What is done once


def finish_for(queue: str, highest: int) -> list[Command]:
    written = Totals()
    FAMILY.tally_written(Job(id=str(highest), queue=queue, name=queue, state=State.WAITING), written)
    return FAMILY.finish(at.target, written)


@pytest.mark.parametrize(("before", "after"), [(None, b"12"), (b"5", b"12"), (b"12", b"12"), (b"400", b"400"), (b"junk", b"12")])
def test_the_id_counter_is_raised_and_never_lowered(client: redis.Redis, before: bytes | None, after: bytes) -> None:
    if before is not None:
        client.set("q:ids", before)
    send(client, finish_for("t", 12))
    assert client.get("q:ids") == after


def test_the_largest_id_keeps_all_its_digits(client: redis.Redis) -> None:
    send(client, finish_for("t", 2**53 - 1))
    assert client.get("q:ids") == b"9007199254740991"


@pytest.mark.parametrize("tokens", [0, 1, 3, 5000])
def test_there_is_a_token_for_each_waiting_job_and_no_more(client: redis.Redis, tokens: int) -> None:
    client.zadd("q:jobs:t:inactive", {f"01|{number}": 0 for number in range(3)})
    if tokens:
        client.rpush("q:t:jobs", *["1"] * tokens)
    for _ in range(2):
        send(client, finish_for("t", 1))
        assert client.lrange("q:t:jobs", 0, -1) == [b"1"] * 3


def test_a_queue_without_waiting_jobs_has_no_tokens(client: redis.Redis) -> None:
    client.rpush("q:t:jobs", "1")
    send(client, finish_for("t", 1))
    assert client.exists("q:t:jobs") == 0


def test_a_large_queue_gets_its_tokens_a_part_at_a_time(client: redis.Redis) -> None:
    client.zadd("q:jobs:t:inactive", {str(number): 0 for number in range(20_000)})
    send(client, finish_for("t", 1))
    assert client.llen("q:t:jobs") < 20_000
    finish(client, finish_for("t", 1))
    assert client.llen("q:t:jobs") == 20_000


@pytest.fixture
def popping(client: redis.Redis) -> Callable[[str], Iterator[str]]:
    """What a real worker does: a token first, then the best job."""

    def pops(queue: str) -> Iterator[str]:
        while client.lpop(f"q:{queue}:jobs"):
            index = f"q:jobs:{queue}:inactive"
            for member in client.execute_command("ZRANGE", index, 0, 0):
                client.zrem(index, member)
                yield member.decode().partition("|")[2]

    return pops


@each_healthy_capture
def test_workers_pop_written_jobs_in_the_order_of_the_original(
    client: redis.Redis, case: Capture, popping: Callable[[str], Iterator[str]]
) -> None:
    jobs = {job_id: evolve(job, extra={}) for job_id, job in at.of(case).read(case.entries()).items()}
    at.store(client, [job for job in jobs.values() if job.state is State.WAITING])
    for queue, order in case.expected["pop_order"].items():
        # Plain members put equal priorities in text order; padded ones, which are written here, in the order of creation.
        assert list(popping(queue)) == sorted(order, key=lambda job_id: (jobs[job_id].priority, int(job_id)))
