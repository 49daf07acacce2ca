"""Each transition of a keyspace of pjq in use: the whole keyspace before and after it, key by key."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import redis
from ferryman.compat.pjq.client import PjqClient
from ferryman.compat.pjq.live import PjqLive
from ferryman.schema.connection.call import run as send
from ferryman.schema.errors import KeyspaceRefused, MalformedValue, PublishRefused, UsageError
from ferryman.schema.live import Failure, NewJob
from ferryman.transport.settings import Settings
from kombu import Connection

from ...support.foreign_keys import everything, seen, side_keys
from ...support.pjq_program import Program, accepted, done, run
from ...support.servers import Server

pytestmark = pytest.mark.in_turn

NOW = 1_795_262_501_573
ISO = "2026-11-21T12:01:41.573000Z"
S = NOW / 1000
LATER = NOW + 2_000
QUEUE = "thumbs: large/ü"
Q, D, P, G, F = (f"jobs_{name}:{QUEUE}".encode() for name in ("queued", "dispatched", "processing", "progress", "finished"))


@pytest.fixture
def pjq(client: redis.Redis) -> PjqClient:
    return PjqClient(client, consumer="ours")


@pytest.fixture
def program(client: redis.Redis) -> Program:
    return Program(client, NOW)


def job(job_id: str = "a", **more: Any) -> dict[str, Any]:
    return {"uuid": job_id, "queue_name": QUEUE, **more}


def text(**members: Any) -> bytes:
    return json.dumps(members, separators=(",", ":")).encode()


def put_all(pjq: PjqClient, *ids: str) -> None:
    for job_id in ids:
        pjq.put(QUEUE, {"created_at": ISO}, job_id=job_id, now=NOW)


# Putting


def test_a_job_of_ours_is_stored_as_a_producer_of_the_program_stores_it(pjq: PjqClient, client: redis.Redis) -> None:
    payload = {"args": [], "größe": 2**70, "part": 0.1, "created_at": ISO}
    pjq.put(QUEUE, payload, name="ffmpeg", job_id="a", now=NOW)
    ours = seen(client)
    client.flushdb()
    run(Program(client, NOW).add_job({**payload, "uuid": "a", "queue_name": QUEUE, "command": "ffmpeg"}))
    assert ours == seen(client)


def test_a_job_without_a_time_gets_that_of_the_server(pjq: PjqClient, client: redis.Redis) -> None:
    pjq.put(QUEUE, job_id="a", payload={}, now=NOW)
    assert seen(client) == {Q: (b"a",), b"a": {b"json": text(uuid="a", queue_name=QUEUE, created_at=ISO)}}


@pytest.mark.parametrize(
    ("now", "iso"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (951_782_400_000, "2000-02-29T00:00:00Z"),
        (1_709_164_799_999, "2024-02-28T23:59:59.999000Z"),
        (4_107_542_400_000, "2100-03-01T00:00:00Z"),
        (1_798_761_599_000, "2026-12-31T23:59:59Z"),
    ],
)
def test_times_are_written_as_the_program_writes_them(pjq: PjqClient, client: redis.Redis, now: int, iso: str) -> None:
    pjq.put(QUEUE, {}, job_id="a", now=now)
    assert json.loads(client.hget("a", "json") or b"")["created_at"] == iso


def test_jobs_run_in_the_order_in_which_they_were_put(pjq: PjqClient, client: redis.Redis) -> None:
    put_all(pjq, "a", "b", "c")
    assert seen(client)[Q] == (b"c", b"b", b"a")
    assert [each.id for each in pjq.peek(QUEUE, 2)] == ["a", "b"]
    assert [each.id for each in pjq.take(QUEUE, 3, now=NOW)] == ["a", "b", "c"]


def test_the_id_is_that_in_the_payload_if_no_other_is_given(pjq: PjqClient) -> None:
    assert pjq.put(QUEUE, {"uuid": "mine"}) == "mine"


def test_a_publication_makes_one_job_however_often_it_is_sent(pjq: PjqClient, client: redis.Redis) -> None:
    first = pjq.put(QUEUE, {"n": 1}, publication="p-7", now=NOW)
    before = everything(client)
    assert pjq.put(QUEUE, {"n": 1}, publication="p-7", now=LATER) == first
    assert everything(client) == before
    assert pjq.put(QUEUE, {"n": 1}, publication="p-8") != first


def test_what_celery_knows_of_a_job_stands_in_a_field_that_the_program_leaves_alone(pjq: PjqClient, client: redis.Redis) -> None:
    pjq.put(QUEUE, {}, job_id="a", extra={"task": "mail.send", "id": "t"}, now=NOW)
    assert json.loads(client.hget("a", "ferryman") or b"") == {"task": "mail.send", "id": "t"}
    assert json.loads(pjq.take(QUEUE, now=NOW)[0].extra or b"")["task"] == "mail.send"


@pytest.mark.parametrize(
    ("new", "what"),
    [
        (NewJob(QUEUE, b"{}", delay_ms=1), "can't delay"),
        (NewJob(QUEUE, b"{}", options={"attempts": 3}), "attempts"),
        (NewJob(QUEUE, b"[1]"), "JSON object"),
        (NewJob(QUEUE, b"{"), "JSON object"),
        (NewJob(QUEUE, b'{"x":NaN}'), "NaN"),
        (NewJob(QUEUE, b"{}", id="jobs_queued:x"), "name of its key"),
        (NewJob(QUEUE, b'{"uuid":"b"}', id="a"), "uuid"),
        (NewJob(QUEUE, b'{"queue_name":"other"}'), "queue_name"),
        (NewJob("\udcff", b"{}"), "UTF-8"),
        (NewJob(QUEUE, b"{}", publication="p"), "publication"),
    ],
)
def test_what_pjq_can_not_express_is_refused_before_anything_is_sent(new: NewJob, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        PjqLive().put(new)


def test_a_name_that_is_taken_is_no_id(pjq: PjqClient, client: redis.Redis) -> None:
    client.set("taken", "by somebody")
    with pytest.raises(UsageError, match="taken"):
        pjq.put(QUEUE, {}, job_id="taken")
    assert seen(client) == {b"taken": b"by somebody"}


# Taking


def test_a_job_that_is_taken_stands_where_the_program_puts_one_that_it_dispatches(pjq: PjqClient, client: redis.Redis) -> None:
    put_all(pjq, "a")
    (taken,) = pjq.take(QUEUE, now=LATER)
    assert seen(client) == {
        D: {b"a": LATER / 1000},
        b"a": {b"json": text(created_at=ISO, uuid="a", queue_name=QUEUE), b"dispatched_at": b"2026-11-21T12:01:43.573000Z"},
    }
    assert json.loads(taken.payload) == job(created_at=ISO, dispatched_at="2026-11-21T12:01:43.573000Z")
    assert (taken.queue, taken.name, taken.attempts, taken.max_attempts, taken.deliveries) == (QUEUE, None, 0, None, 1)


def test_a_longer_lease_dates_the_dispatch_so_that_it_ends_with_the_lease(client: redis.Redis, program: Program) -> None:
    pjq = PjqClient(client, consumer="ours", lease_ms=30_000)
    put_all(pjq, "a")
    pjq.take(QUEUE, now=NOW)
    assert seen(client)[D] == {b"a": S + 21}
    program.now_ms = NOW + 29_999
    run(program.worker_idle("w", QUEUE))
    assert not program.assigned
    program.now_ms = NOW + 30_000
    run(program.worker_idle("w", QUEUE))
    assert [each["uuid"] for _, each in program.assigned] == ["a"]


def test_nobody_of_ours_is_ever_among_the_workers_that_get_jobs_by_message(pjq: PjqClient, client: redis.Redis) -> None:
    put_all(pjq, "a", "b")
    pjq.complete(pjq.take(QUEUE, now=NOW)[0], now=NOW)
    pjq.take(QUEUE, now=NOW)
    assert not [key for key in seen(client) if key.startswith(b"workers_")]


def test_jobs_are_selected_by_task_else_command_else_queue(pjq: PjqClient, client: redis.Redis) -> None:
    pjq.put(QUEUE, {"command": "x"}, job_id="task", extra={"task": "send"})
    pjq.put(QUEUE, {"command": "send"}, job_id="command")
    pjq.put(QUEUE, {"command": 5}, job_id="queue")
    pjq.put(QUEUE, {"command": "other"}, job_id="other")
    names = PjqLive()
    taken = send(client, names.take(QUEUE, "ours", 9, 9000, tasks=["send"]))
    assert [each.id for each in taken.jobs] == ["task", "command"]
    assert set(taken.unknown) == {QUEUE, "other"}
    assert [each.id for each in pjq.take(QUEUE, 9, tasks=[QUEUE])] == ["queue"]
    assert pjq.size(QUEUE).waiting == 1


@pytest.mark.parametrize("text", [b'{"cut', b"[1]", b"null", b'{"x":"\xff"}', b'{"x":"\xed\xa0\x80"}', b"", b"17", None])
def test_what_no_worker_could_read_stays_and_is_in_nobodys_way(pjq: PjqClient, client: redis.Redis, text: bytes | None) -> None:
    if text is not None:
        client.hset("bad", "json", text)
    client.lpush(Q, "bad")
    put_all(pjq, "good")
    assert [each.id for each in pjq.take(QUEUE, 5, now=NOW)] == ["good"]
    assert seen(client)[Q] == (b"bad",)


@pytest.mark.parametrize("text", [b'{"x":NaN}', '{"x":"größe"}'.encode(), b' { "x" : { "}" : "\\"" } } ', b"{}", b'{"x":[1]}'])
def test_what_the_program_could_read_is_run(pjq: PjqClient, client: redis.Redis, text: bytes) -> None:
    client.hset("a", "json", text)
    client.lpush(Q, "a")
    (taken,) = pjq.take(QUEUE, now=NOW)
    assert json.loads(taken.payload) == json.loads(text.decode()) | {"dispatched_at": ISO} or b"NaN" in text
    assert pjq.complete(taken, now=NOW) == "completed"
    stored = client.hget("a", "json") or b""
    assert stored.startswith(text.rstrip(b" }")[:9])
    assert json.loads(stored.decode())["exitcode"] == 0


def test_a_key_of_another_type_under_a_jobs_name_stays_as_it_is(pjq: PjqClient, client: redis.Redis) -> None:
    client.set("text", "of somebody")
    client.lpush(Q, "text")
    assert pjq.take(QUEUE, now=NOW) == ()
    assert seen(client) == {Q: (b"text",), b"text": b"of somebody"}


def test_a_container_of_another_type_is_named(pjq: PjqClient, client: redis.Redis) -> None:
    assert pjq.take(QUEUE, now=NOW) == ()
    client.set(Q, "no list")
    with pytest.raises(MalformedValue, match="jobs_queued"):
        pjq.take(QUEUE, now=NOW)


def test_more_jobs_for_others_than_one_call_looks_at_hide_none(pjq: PjqClient, client: redis.Redis) -> None:
    client.hset("other", "json", text(**job("other", command="other")))
    for job_id in range(2500):
        client.hset(f"o{job_id}", "json", text(**job(f"o{job_id}", command="other")))
        client.lpush(Q, f"o{job_id}")
    pjq.put(QUEUE, {}, name="mine", job_id="mine")
    calls = 0
    taken: tuple[Any, ...] = ()
    while not taken and calls < 5:
        answer = send(client, pjq.live.take(QUEUE, "ours", 1, 9000, tasks=["mine"], now=NOW))
        taken, calls = answer.jobs, calls + 1
        assert taken or answer.more
    assert [each.id for each in taken] == ["mine"]
    assert calls == 3
    pjq.complete(taken[0])
    pjq._queues.add(QUEUE)
    pjq.close()
    assert side_keys(client) == []


def test_what_stands_behind_many_jobs_for_others_is_not_looked_for_from_the_beginning_each_time(
    pjq: PjqClient, client: redis.Redis
) -> None:
    for number in range(1500):
        client.hset(f"o{number}", "json", b"{}")
    client.lpush(Q, *(f"o{number}" for number in range(1500)))
    for number in range(5):
        pjq.put(QUEUE, {}, name="mine", job_id=f"m{number}", now=NOW)
    answers = [pjq.take(QUEUE, tasks=["mine"], now=NOW) for _ in range(6)]
    assert [[each.id for each in taken] for taken in answers] == [[], ["m0"], ["m1"], ["m2"], ["m3"], ["m4"]]
    assert pjq.take(QUEUE, tasks=["mine"], now=NOW) == ()
    assert client.llen(Q) == 1500


def test_large_jobs_for_others_are_looked_at_a_few_at_a_time(pjq: PjqClient, client: redis.Redis) -> None:
    large = text(command="other", x="y" * 1_000_000)
    for number in range(12):
        client.hset(f"o{number}", "json", large)
        client.lpush(Q, f"o{number}")
    put_all(pjq, "mine")
    answers = [send(client, pjq.live.take(QUEUE, "ours", 1, 9000, tasks=[QUEUE], now=NOW)) for _ in range(3)]
    assert [(len(each.jobs), each.more) for each in answers] == [(0, True), (0, True), (1, False)]
    assert client.llen(Q) == 12


def test_large_jobs_are_purged_a_few_at_a_time(pjq: PjqClient, client: redis.Redis) -> None:
    for number in range(40):
        client.hset(f"o{number}", "json", text(**job(f"o{number}", x="y" * 1_000_000)))
        client.lpush(Q, f"o{number}")
    purged = send(client, pjq.live.purge(QUEUE))
    assert (purged.jobs, purged.more) == (17, True)
    assert pjq.purge(QUEUE) == 23
    assert seen(client) == {}


def test_a_consumer_that_leaves_in_the_middle_of_its_round_leaves_nothing(pjq: PjqClient, client: redis.Redis) -> None:
    for number in range(1100):
        client.hset(f"o{number}", "json", b"{}")
    client.lpush(Q, *(f"o{number}" for number in range(1100)))
    assert pjq.take(QUEUE, tasks=["mine"], now=NOW) == ()
    assert any(b":cursors:" in key for key in side_keys(client))
    pjq.close(now=NOW)
    assert side_keys(client) == []


def test_after_each_round_a_consumer_begins_with_what_runs_next(pjq: PjqClient, client: redis.Redis) -> None:
    for number in range(1100):
        client.hset(f"o{number}", "json", b"{}")
    client.lpush(Q, *(f"o{number}" for number in range(1100)))
    assert pjq.take(QUEUE, tasks=["mine"], now=NOW) == ()
    client.hset("mine", "json", b'{"command":"mine"}')
    client.rpush(Q, "mine")
    assert pjq.take(QUEUE, tasks=["mine"], now=NOW) == ()
    assert [each.id for each in pjq.take(QUEUE, tasks=["mine"], now=NOW)] == ["mine"]


def test_a_name_is_recognised_however_the_payload_spells_it(pjq: PjqClient, client: redis.Redis) -> None:
    for number in range(100):
        client.hset(f"o{number}", "json", b'{"command":"other"}')
    client.lpush(Q, *(f"o{number}" for number in range(100)))
    pjq.put(QUEUE, {}, name="größe/1", job_id="mine", now=NOW)
    assert b"gr\\u00f6" in (client.hget("mine", "json") or b"")
    assert [each.id for each in pjq.take(QUEUE, tasks=["größe/1"], now=NOW)] == ["mine"]


def test_a_job_that_was_added_twice_runs_twice_but_not_at_once(pjq: PjqClient, client: redis.Redis, program: Program) -> None:
    run(program.add_job(job(n=1)))
    run(program.add_job(job(n=2)))
    (first,) = pjq.take(QUEUE, 5, now=NOW)
    assert json.loads(first.payload)["n"] == 2
    assert PjqClient(client, consumer="other").take(QUEUE, 5, now=NOW) == ()
    assert pjq.complete(first, now=NOW) == "completed"
    (second,) = pjq.take(QUEUE, 5, now=NOW)
    assert second.deliveries == 2
    pjq.complete(second, now=NOW)
    assert seen(client)[F] == {b"a": S}


# Ending


def ended_by_the_program(client: redis.Redis, exitcode: int, stdout: str, stderr: str) -> dict[bytes, Any]:
    """The keyspace after the same run by a worker of the program, all at one moment."""
    client.flushdb()
    program = Program(client, NOW)
    run(program.add_job(job(created_at=ISO, x=1)))
    run(program.worker_idle("ours", QUEUE))
    begun = accepted(program.assigned[0][1], program)
    run(program.job_accepted("ours", begun))
    run(program.job_finished("ours", done(begun, program, exitcode, stdout, stderr)))
    return {key: value for key, value in seen(client).items() if not key.startswith(b"workers_")}


def test_a_completed_job_looks_as_if_a_worker_of_the_program_had_done_it(pjq: PjqClient, client: redis.Redis) -> None:
    pjq.put(QUEUE, job(created_at=ISO, x=1), now=NOW)
    assert pjq.complete(pjq.take(QUEUE, now=NOW)[0], {"frames": [1], "ok": "✓"}, now=NOW) == "completed"
    ours = seen(client)
    assert ours == ended_by_the_program(client, 0, '{"frames":[1],"ok":"✓"}', "")


def test_a_failed_job_looks_as_if_a_worker_of_the_program_had_failed(pjq: PjqClient, client: redis.Redis) -> None:
    pjq.put(QUEUE, job(created_at=ISO, x=1), now=NOW)
    failure = Failure("bröken 'pipe'", "bröken 'pipe'\nTraceback …", "RuntimeError")
    assert pjq.fail(pjq.take(QUEUE, now=NOW)[0], failure, now=NOW) == "failed"
    ours = seen(client)
    assert ours == ended_by_the_program(client, 1, "", "bröken 'pipe'\nTraceback …")


def test_a_job_that_a_late_worker_shows_as_running_is_finished_as_well(
    pjq: PjqClient, client: redis.Redis, program: Program
) -> None:
    run(program.add_job(job()))
    run(program.job_accepted("late", accepted(job(), program)))
    assert (P in seen(client), Q in seen(client)) == (True, True)
    assert pjq.complete(pjq.take(QUEUE, now=NOW)[0], now=NOW) == "completed"
    assert set(seen(client)) == {F, b"a"}


def test_members_that_an_earlier_run_has_left_are_replaced_in_their_places(pjq: PjqClient, client: redis.Redis) -> None:
    client.hset(
        "a", "json", b'{"stdout":"{[\\"old","n":12345678901234567890,"exitcode":[3,{"}":1}],"finished_at":"yesterday","x":{}}'
    )
    client.lpush(Q, "a")
    pjq.complete(pjq.take(QUEUE, now=NOW)[0], "new", now=LATER)
    assert client.hget("a", "json") == (
        b'{"stdout":"\\"new\\"","n":12345678901234567890,"exitcode":0,"finished_at":1795262503.573,"x":{},'
        b'"dispatched_at":"2026-11-21T12:01:41.573000Z","started_at":"2026-11-21T12:01:41.573000Z","stderr":""}'
    )


@pytest.mark.parametrize("end", ["complete", "fail", "retry", "requeue", "progress", "heartbeat"])
@pytest.mark.parametrize("loss", ["accepted", "readmitted", "dispatched", "removed", "finished"])
def test_a_job_that_others_have_by_now_is_left_as_it_is(
    pjq: PjqClient, client: redis.Redis, program: Program, end: str, loss: str
) -> None:
    run(program.add_job(job()))
    (taken,) = pjq.take(QUEUE, now=NOW)
    program.now_ms = NOW + 9_000
    match loss:
        case "accepted":
            run(program.job_accepted("w", accepted(job(), program)))
        case "readmitted":
            run(program._tend(QUEUE))
        case "dispatched":
            run(program.worker_idle("w", QUEUE))
        case "removed":
            client.delete(D, "a")
        case "finished":
            run(program.job_accepted("w", accepted(job(), program)))
            run(program.job_finished("w", done(job(), program)))
    before = seen(client)
    late = NOW + 9_001
    match end:
        case "complete":
            assert pjq.complete(taken, 1, now=late) == "lost"
        case "fail":
            assert pjq.fail(taken, "x", now=late) == "lost"
        case "retry":
            assert pjq.retry(taken, 5, now=late) == "lost"
        case "requeue":
            assert not pjq.requeue(taken, now=late)
        case "progress":
            assert not pjq.progress(taken, 1, 2, now=late)
        case "heartbeat":
            pjq.heartbeat(QUEUE, now=late)
            assert not [key for key in side_keys(client) if b":held:" in key or b":leases:" in key]
    assert seen(client) == before
    assert pjq.held(QUEUE) == ()
    pjq.close(now=late)
    assert seen(client) == before
    assert side_keys(client) == []


def test_a_job_whose_hash_is_gone_is_taken_out_before_it_can_kill_the_program(pjq: PjqClient, client: redis.Redis) -> None:
    put_all(pjq, "a")
    (taken,) = pjq.take(QUEUE, now=NOW)
    client.delete("a")
    assert pjq.complete(taken, 1, now=NOW) == "lost"
    assert seen(client) == {}


def test_a_job_is_retried_behind_all_others_and_its_attempts_are_counted(pjq: PjqClient, client: redis.Redis) -> None:
    put_all(pjq, "a", "b")
    (first,) = pjq.take(QUEUE, now=NOW)
    assert pjq.retry(first, now=NOW) == "waiting"
    assert seen(client)[Q] == (b"a", b"b")
    again = pjq.take(QUEUE, 2, now=NOW)[1]
    assert (again.id, again.attempts, again.deliveries) == ("a", 1, 2)
    pjq.complete(again, now=NOW)
    assert set(client.hkeys("a")) == {b"json", b"dispatched_at", b"started_at", b"finished_at", b"worker_uuid"}


@pytest.mark.parametrize("delay_ms", [1, 8_999, 9_000, 180_000])
@pytest.mark.parametrize("by", ["take", "timers", "program"])
def test_a_delayed_retry_comes_back_when_the_delay_is_over_whoever_brings_it(
    pjq: PjqClient, client: redis.Redis, program: Program, delay_ms: int, by: str
) -> None:
    put_all(pjq, "a", "b")
    (taken,) = pjq.take(QUEUE, now=NOW)
    assert pjq.retry(taken, delay_ms, now=NOW) == "scheduled"
    assert pjq.held(QUEUE) == ()
    size = pjq.size(QUEUE, now=NOW)
    assert (size.waiting, size.scheduled, size.held) == (1, 1, 0)
    assert size.next_due_ms is not None
    assert abs(size.next_due_ms - NOW - delay_ms) <= 1

    def tend(now: int) -> None:
        program.now_ms = now
        match by:
            case "take":
                send(client, pjq.live.take(QUEUE, "ours", 0, 9000, now=now))
            case "timers":
                pjq.run_timers(now=now)
            case "program":
                run(program._tend(QUEUE))

    tend(NOW + delay_ms - 1)
    assert seen(client)[Q] == (b"b",)
    tend(NOW + delay_ms)
    assert seen(client)[Q] == (b"b", b"a")
    (again,) = pjq.take(QUEUE, now=NOW + delay_ms)
    assert (again.id, again.attempts) == ("a", 1)
    pjq.complete(again, now=NOW + delay_ms)
    pjq.close(now=NOW + delay_ms)
    assert side_keys(client) == []


def test_a_retry_with_another_payload_stays_the_same_job(pjq: PjqClient, client: redis.Redis) -> None:
    pjq.put(QUEUE, {"n": 1, "created_at": ISO}, name="send", job_id="a", now=NOW)
    pjq.take(QUEUE, now=NOW)
    call = pjq.live.retry(QUEUE, "ours", "a", 0, failure=Failure("x"), payload=b'{"n":2}', extra=b'{"task":"t"}', now=NOW)
    assert send(client, call) == "waiting"
    assert json.loads(client.hget("a", "json") or b"") == job(n=2, command="send", created_at=ISO)
    assert client.hget("a", "ferryman") == b'{"task":"t"}'


def test_what_a_migration_has_left_in_the_field_stays_there(pjq: PjqClient, client: redis.Redis) -> None:
    kept = b'{"as_of":"x","fields":{"ttl":1}}'
    put_all(pjq, "a")
    client.hset("a", "ferryman", kept)
    (taken,) = pjq.take(QUEUE, now=NOW)
    assert taken.extra is None
    send(client, pjq.live.retry(QUEUE, "ours", "a", 0, failure=Failure("x"), extra=b'{"task":"t"}', now=NOW))
    assert client.hget("a", "ferryman") == kept


def test_progress_is_nothing_that_the_program_keeps_of_a_dispatched_job(pjq: PjqClient, client: redis.Redis) -> None:
    put_all(pjq, "a")
    (taken,) = pjq.take(QUEUE, now=NOW)
    before = everything(client)
    assert pjq.progress(taken, 1, 2, now=NOW)
    assert everything(client) == before


def test_the_next_look_is_due_when_the_first_lease_ends(pjq: PjqClient, client: redis.Redis, program: Program) -> None:
    take = pjq.live.take

    def due(now: int, lease_ms: int = 60_000) -> int:
        return send(client, take(QUEUE, "ours", 0, lease_ms, now=now)).next_event_ms - now

    assert due(NOW) == 60_000
    run(program.add_job(job()))
    run(program.worker_idle("w", QUEUE))
    assert due(NOW + 1_000) == 8_001
    send(client, take(QUEUE, "other", 0, 3_000, now=NOW + 1_000))
    assert due(NOW + 1_000) == 3_000


# Giving back


def test_jobs_that_are_given_back_run_next_in_their_order(pjq: PjqClient, client: redis.Redis) -> None:
    put_all(pjq, "a", "b", "c", "d")
    taken = pjq.take(QUEUE, 3, now=NOW)
    pjq.heartbeat(QUEUE, now=LATER)
    live = pjq.live
    assert send(client, live.requeue(QUEUE, "ours", ["b", "x", "b", "c"], now=LATER)) == (True, False, True, True)
    assert seen(client)[Q] == (b"d", b"c", b"b")
    assert send(client, live.release(QUEUE, "ours", None, now=LATER)) == 1
    assert seen(client)[Q] == (b"d", b"c", b"b", b"a")
    assert pjq.complete(taken[0], now=LATER) == "lost"
    assert [each.id for each in pjq.take(QUEUE, 9, now=LATER)] == ["a", "b", "c", "d"]
    pjq.close(now=LATER)
    assert seen(client)[Q] == (b"d", b"c", b"b", b"a")
    assert D not in seen(client)
    assert side_keys(client) == []


# Lost consumers


@pytest.mark.parametrize("by", ["take", "timers", "program"])
def test_jobs_of_a_lost_consumer_run_next_in_their_order(pjq: PjqClient, client: redis.Redis, program: Program, by: str) -> None:
    put_all(pjq, "z", "m", "a", "d")
    pjq.take(QUEUE, 3, now=NOW)
    pjq.heartbeat(QUEUE, now=LATER)
    late = LATER + 9_001
    other = PjqClient(client, consumer="other")
    match by:
        case "timers":
            other.run_timers(now=late - 2)
            assert seen(client)[Q] == (b"d",)
            other.run_timers(now=late)
        case "program":
            program.now_ms = late
            run(program._tend(QUEUE))
    taken = other.take(QUEUE, 9, now=late)
    assert [(each.id, each.deliveries) for each in taken] == [("z", 2), ("m", 2), ("a", 2), ("d", 1)]
    for each in taken:
        other.complete(each, now=late)
    pjq.close(now=late)
    other.close(now=late)
    assert side_keys(client) == []
    assert set(client.hkeys("a")) == set(client.hkeys("d"))


def test_a_lease_that_is_renewed_is_not_taken_back_for_as_long_as_that_is_done(pjq: PjqClient, program: Program) -> None:
    put_all(pjq, "a")
    (taken,) = pjq.take(QUEUE, now=NOW)
    for moment in range(NOW, NOW + 60_000, 3_000):
        assert pjq.heartbeat(QUEUE, now=moment)
        program.now_ms = moment + 2_999
        run(program.worker_idle("w", QUEUE))
    assert not program.assigned
    assert pjq.complete(taken, now=NOW + 60_000) == "completed"


def test_a_consumer_that_has_lapsed_is_told_so(pjq: PjqClient, client: redis.Redis) -> None:
    put_all(pjq, "a")
    pjq.take(QUEUE, now=NOW)
    PjqClient(client).run_timers(now=NOW + 9_000)
    assert not pjq.heartbeat(QUEUE, now=NOW + 9_001)


def test_a_delayed_retry_that_the_program_has_given_to_its_own_worker_leaves_nothing_of_ours(
    pjq: PjqClient, client: redis.Redis, program: Program
) -> None:
    put_all(pjq, "a")
    pjq.retry(pjq.take(QUEUE, now=NOW)[0], 5_000, now=NOW)
    program.now_ms = NOW + 5_000
    run(program.worker_idle("w", QUEUE))
    begun = accepted(program.assigned[0][1], program)
    run(program.job_accepted("w", begun))
    run(program.job_finished("w", done(begun, program)))
    pjq.close(now=program.now_ms)
    pjq.run_timers(now=program.now_ms)
    assert side_keys(client) == []


def test_the_timers_fail_a_job_that_has_cost_too_many_workers(client: redis.Redis) -> None:
    put_all(PjqClient(client), "a")
    now = NOW
    for number in range(3):
        pjq = PjqClient(client, consumer=f"c{number}", delivery_limit=2)
        assert len(pjq.take(QUEUE, now=now)) == 1
        now += 9_001
        pjq.run_timers(now=now)
    assert set(seen(client)) == {F, b"a"}
    assert side_keys(client) == []


@pytest.mark.parametrize("by", ["ours", "program"])
def test_a_job_that_costs_a_worker_each_time_fails_in_the_end(client: redis.Redis, program: Program, by: str) -> None:
    put_all(PjqClient(client), "a")
    now, runs = NOW, 0
    for number in range(9):
        pjq = PjqClient(client, consumer=f"c{number}", delivery_limit=2)
        runs += len(pjq.take(QUEUE, now=now))
        now += 9_001
        if by == "program":
            program.now_ms = now
            run(program._tend(QUEUE))
    assert runs == 3
    stored = json.loads(client.hget("a", "json") or b"")
    assert (stored["exitcode"], stored["stderr"].split(":")[0]) == (1, "delivery_limit")
    assert not {Q, D, P} & seen(client).keys()
    assert client.zscore(F, "a")


def test_dispatches_of_the_program_that_nobody_accepts_go_back_without_limit(pjq: PjqClient, program: Program) -> None:
    run(program.add_job(job()))
    for number in range(9):
        run(program.worker_idle(f"w{number}", QUEUE))
        assert len(program.assigned) == number + 1
        program.now_ms += 9_000
        pjq.run_timers(now=program.now_ms)
        send(pjq.server, pjq.live.take(QUEUE, "ours", 0, 9000, delivery_limit=1, now=program.now_ms))
    assert pjq.size(QUEUE).waiting == 1


def test_silent_workers_are_forgotten_as_the_program_forgets_them(pjq: PjqClient, client: redis.Redis, program: Program) -> None:
    run(program.worker_idle("silent", QUEUE))
    run(program.add_job(job("a")))
    run(program.job_accepted("silent", accepted(job("a"), program)))
    program.now_ms = LATER
    run(program.worker_idle("alive", QUEUE))
    send(client, pjq.live.take(QUEUE, "ours", 0, 9000, now=NOW + 9_000))
    ours = seen(client)
    assert ours[f"workers_idle:{QUEUE}".encode()] == {b"alive"}
    assert f"workers_busy:{QUEUE}".encode() not in ours
    assert ours[P] == {b"a": S}
    program.now_ms = NOW + 9_000
    run(program._tend(QUEUE))
    assert seen(client) == ours


# Looking, removing


def test_a_waiting_job_is_cancelled_without_a_trace(pjq: PjqClient, client: redis.Redis) -> None:
    put_all(pjq, "a", "b")
    assert pjq.cancel(QUEUE, "a") == "waiting"
    assert seen(client).keys() == {Q, b"b"}
    assert pjq.cancel(QUEUE, "a") is None


def test_a_job_at_work_is_not_cancelled(pjq: PjqClient, client: redis.Redis, program: Program) -> None:
    run(program.worker_idle("w", QUEUE))
    run(program.add_job(job("theirs")))
    put_all(pjq, "a")
    pjq.take(QUEUE, now=NOW)
    before = everything(client)
    assert pjq.cancel(QUEUE, "a") == "held"
    assert pjq.cancel(QUEUE, "theirs") == "held"
    run(program.job_accepted("w", accepted(job("theirs"), program)))
    assert pjq.cancel(QUEUE, "theirs") == "held"
    assert everything(client)[D] == {b"a": S}
    assert before[b"a"] == everything(client)[b"a"]


def test_a_delayed_retry_is_cancelled(pjq: PjqClient, client: redis.Redis) -> None:
    put_all(pjq, "a")
    pjq.retry(pjq.take(QUEUE, now=NOW)[0], 5_000, now=NOW)
    assert pjq.cancel(QUEUE, "a", "waiting") is None
    assert pjq.cancel(QUEUE, "a", "scheduled") == "scheduled"
    assert seen(client) == {}


def test_finished_jobs_are_removed_by_their_role(pjq: PjqClient, client: redis.Redis) -> None:
    put_all(pjq, "done", "failed")
    first, second = pjq.take(QUEUE, 2, now=NOW)
    pjq.complete(first, now=NOW)
    pjq.fail(second, "x", now=NOW)
    assert pjq.cancel(QUEUE, "failed", "done") is None
    assert pjq.cancel(QUEUE, "failed") == "dead"
    assert pjq.cancel(QUEUE, "done", "done") == "done"
    assert seen(client) == {}


def test_a_job_that_was_added_again_when_it_had_ended_is_cancelled_and_stays_ended(
    pjq: PjqClient, client: redis.Redis, program: Program
) -> None:
    run(program.add_job(job()))
    pjq.complete(pjq.take(QUEUE, now=NOW)[0], now=NOW)
    run(program.add_job(job()))
    assert pjq.cancel(QUEUE, "a") == "waiting"
    assert set(seen(client)) == {F, b"a"}


def test_a_job_that_another_queue_has_as_well_keeps_its_hash(pjq: PjqClient, client: redis.Redis, program: Program) -> None:
    run(program.add_job(job("a")))
    run(program.add_job({"uuid": "a", "queue_name": "other"}))
    assert pjq.cancel(QUEUE, "a") == "waiting"
    assert seen(client).keys() == {b"a", b"jobs_queued:other"}


def test_purging_removes_what_waits_and_what_is_delayed_and_nothing_else(
    pjq: PjqClient, client: redis.Redis, program: Program
) -> None:
    put_all(pjq, "held", "late", "a", "b")
    pjq.retry(pjq.take(QUEUE, 2, now=NOW)[1], 5_000, now=NOW)
    run(program.add_job(job("b")))
    assert send(client, pjq.live.purge(QUEUE, limit=1)).jobs == 1
    assert send(client, pjq.live.purge(QUEUE, limit=1)).more
    assert b"b" in seen(client)
    assert pjq.purge(QUEUE) == 2
    assert seen(client).keys() == {D, b"held"}
    assert pjq.held(QUEUE) == ("held",)


@pytest.mark.parametrize(("prefix", "own"), [("", "a"), ("app:", "app::a")])
def test_jobs_are_found_by_the_ids_of_their_tasks(client: redis.Redis, prefix: str, own: str) -> None:
    pjq = PjqClient(client, prefix=prefix, consumer="ours")
    put_all(pjq, "a", "b", "c")
    pjq.put(QUEUE, {}, job_id="d", extra={"task": "t", "id": "uuid-d"})
    found = send(client, pjq.live.find(QUEUE, [own, "uuid-d", "no"]))
    assert [(each.id, each.task) for each in found.jobs] == [("d", "uuid-d"), ("a", own)]
    assert not found.more
    part = send(client, pjq.live.find(QUEUE, [own], seen=2, limit=1))
    assert (part.jobs, part.scanned, part.more) == ((), 1, True)
    pjq.retry(pjq.take(QUEUE, now=NOW)[0], 20_000, now=NOW)
    assert [each.id for each in send(client, pjq.live.find(QUEUE, [own], "scheduled")).jobs] == ["a"]


def test_a_job_is_seen_in_each_of_its_states(pjq: PjqClient) -> None:
    pjq.put(QUEUE, {"x": 1}, name="send", job_id="a", now=NOW)

    def state() -> str:
        found = pjq.get("a")
        assert found is not None
        assert (found.id, found.queue, found.name) == ("a", QUEUE, "send")
        return found.state.value

    assert state() == "waiting"
    (taken,) = pjq.take(QUEUE, now=NOW)
    assert state() == "active"
    pjq.complete(taken, {"y": 2}, now=LATER)
    assert state() == "completed"
    found = pjq.get("a")
    assert found is not None
    assert (found.result, found.worker, found.finished_at) == (b'{"y":2}', "ours", LATER)
    assert pjq.get("b") is None


# Before the first write


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (("LPUSH", "job_queue:x", "a"), "first JavaScript program"),
        (("ZADD", "idle_queue:x", 1, "w"), "first JavaScript program"),
        (("SET", "jobs_queued:x", "a"), "is a string where pjq has a list"),
        (("LPUSH", "jobs_dispatched:x", "a"), "is a list where pjq has a zset"),
    ],
)
def test_a_keyspace_that_can_not_be_served_is_refused_and_left_as_it_is(
    pjq: PjqClient, client: redis.Redis, command: tuple[Any, ...], reason: str
) -> None:
    client.execute_command(*command)
    before = everything(client)
    for call in (lambda: pjq.put("x", {}), lambda: pjq.take("x"), lambda: pjq.run_timers()):
        with pytest.raises(KeyspaceRefused, match=reason):
            call()
    assert everything(client) == before


def test_programs_of_two_eras_in_one_keyspace_are_refused(pjq: PjqClient, client: redis.Redis) -> None:
    client.zadd("workers_idle:x", {"w": 1})
    client.sadd("workers_busy:y", "w")
    with pytest.raises(KeyspaceRefused, match="JavaScript"):
        pjq.put("x", {})


def test_the_later_javascript_programs_are_served(pjq: PjqClient, client: redis.Redis) -> None:
    client.zadd(f"workers_idle:{QUEUE}", {"w": NOW})
    client.hset("a", "json", json.dumps(job(titel="Größe"), ensure_ascii=False))
    client.lpush(Q, "a")
    (taken,) = pjq.take(QUEUE, now=NOW)
    pjq.complete(taken, now=NOW)
    assert client.zscore(F, "a") == S
    assert client.zscore(f"workers_idle:{QUEUE}", "w") == NOW


def test_keys_of_others_in_the_same_database_do_not_matter(pjq: PjqClient, client: redis.Redis) -> None:
    client.set("celery-task-meta-1", "x")
    client.zadd("q:jobs", {"1": 1})
    assert pjq.put(QUEUE, {}, job_id="a") == "a"


def test_a_replica_is_refused(pjq: PjqClient) -> None:
    with pytest.raises(KeyspaceRefused, match="replica"):
        pjq.live.look().parse([b"ok", [1, []]])


# Names, sizes, and a full server


@pytest.mark.parametrize("prefix", ["app:", "{pjq}", "größe*?[x]:"])
@pytest.mark.parametrize("queue", ["", "a:b", 'größe/"q" \n', "x" * 500])
def test_whatever_the_names_all_keys_stand_where_they_must(client: redis.Redis, prefix: str, queue: str) -> None:
    pjq = PjqClient(client, prefix=prefix, side_prefix="side")
    first, second = "ä : b", "\udcff"
    for job_id in (first, second):
        client.hset(prefix.encode() + job_id.encode("utf-8", "surrogateescape"), "json", b"{}")
        client.lpush(f"{prefix}jobs_queued:{queue}", job_id.encode("utf-8", "surrogateescape"))
    pjq.put(queue, {"n": 1}, job_id="third", now=NOW)
    taken = pjq.take(queue, 9, now=NOW)
    assert [each.id for each in taken] == [first, second, "third"]
    pjq.complete(taken[0], now=NOW)
    pjq.retry(taken[1], 1, now=NOW)
    assert pjq.requeue(taken[2], now=NOW)
    pjq.run_timers(now=NOW + 1)
    assert pjq.size(queue).waiting == 2
    pjq.close(now=NOW)
    assert all(key.startswith(prefix.encode()) for key in everything(client))


def test_no_more_payload_comes_at_once_than_is_wanted_but_one_job_at_least(pjq: PjqClient, client: redis.Redis) -> None:
    for job_id in ("a", "b", "c"):
        pjq.put(QUEUE, {"x": "y" * 1000}, job_id=job_id)
    call = pjq.live.take(QUEUE, "ours", 9, 9000, fetch_bytes=2500)
    assert [each.id for each in send(client, call).jobs] == ["a", "b"]
    assert [each.id for each in send(client, pjq.live.take(QUEUE, "ours", 9, 9000, fetch_bytes=1)).jobs] == ["c"]


def test_a_full_server_can_be_drained_and_takes_no_new_job(pjq: PjqClient, client: redis.Redis) -> None:
    put_all(pjq, "a", "b", "c", "d")
    client.config_set("maxmemory", 1)
    try:
        with pytest.raises(PublishRefused):
            pjq.put(QUEUE, {}, job_id="e")
        first, second, third = pjq.take(QUEUE, 3, now=NOW)
        assert pjq.heartbeat(QUEUE, now=NOW)
        assert pjq.complete(first, now=NOW) == "completed"
        assert pjq.fail(second, "x", now=NOW) == "failed"
        assert pjq.requeue(third, now=NOW)
        assert pjq.cancel(QUEUE, "d") == "waiting"
        pjq.run_timers(now=NOW)
        assert pjq.purge(QUEUE) == 1
    finally:
        client.config_set("maxmemory", 0)
    assert set(seen(client)) == {F, b"a", b"b"}


# Under Celery


@pytest.mark.parametrize(("given", "lease"), [("", 9.0), ("&lease=30", 9.0), ("&lease=5", 5.0)])
def test_a_worker_asks_for_no_longer_lease_than_the_program_gives(given: str, lease: float) -> None:
    settings = Settings.of(Connection(f"ferryman://localhost/0?family=pjq{given}"))
    assert settings.lease == lease


def test_a_payload_with_numbers_that_only_python_writes_reaches_its_task(server: Server, client: redis.Redis) -> None:
    client.hset("a", "json", b'{"uuid":"a","queue_name":"mail","load":NaN,"most":-Infinity}')
    client.lpush("jobs_queued:mail", "a")
    with Connection(server.url(family="pjq")) as connection, connection.SimpleQueue("mail") as queue:
        message = queue.get(timeout=60)
        (job, *_), _, _ = message.decode()
        message.ack()
    assert math.isnan(job["load"])
    assert job["most"] == -math.inf
    assert json.loads(client.hget("a", "json") or b"")["exitcode"] == 0
