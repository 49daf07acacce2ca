"""What ferryman does to a keyspace of qless that qless itself has no word for, key by key; and what it refuses to do.

What qless does as well is compared with its own cores in ``tests/interop/qless/``.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis
from attrs import evolve
from ferryman.compat.qless.live import Core, QlessLive
from ferryman.schema.connection.call import Call, run
from ferryman.schema.errors import PublishRefused, UsageError
from ferryman.schema.live import Failure, ForeignDelivery, NewJob
from ferryman.schema.native.scripts.results import Removed, Renewed, Role

from ...support.dumps import findings
from ...support.foreign_keys import everything, seen, side_keys

pytestmark = pytest.mark.in_turn

NOW = 1_795_000_000_125
LEASE = 30_000
LIVE = QlessLive()
BOOM = Failure("boom", "boom\nTraceback", "ValueError")


@pytest.fixture
def send(client: redis.Redis) -> Any:
    """Sends a call."""
    return lambda call: run(client, call)


def put(send: Any, job_id: str, now: int = NOW, queue: str = "mail", **fields: Any) -> str:
    name = fields.pop("name", "shop.Send")
    made: str = send(LIVE.put(NewJob(queue, fields.pop("payload", b'{"n": 1}'), name, id=job_id, **fields), now=now))
    return made


def take(send: Any, n: int = 1, now: int = NOW, worker: str = "w", queue: str = "mail", **options: Any) -> list[ForeignDelivery]:
    return list(send(LIVE.take(queue, worker, n, LEASE, now=now, **options)).jobs)


def ids(jobs: list[ForeignDelivery]) -> list[str]:
    return [job.id for job in jobs]


# Put


def test_a_publication_that_is_repeated_makes_one_job(client: redis.Redis, send: Any) -> None:
    assert put(send, "j1", publication="p-1") == "j1"
    before = everything(client)
    assert put(send, "j1", NOW + 5_000, publication="p-1") == "j1"
    assert everything(client) == before
    assert put(send, "j2", publication="p-2") == "j2"


@pytest.mark.parametrize("core", ["unified", "reqless"])
def test_a_publication_stands_beside_a_job_of_its_id_that_is_not_over(client: redis.Redis, send: Any, core: Core) -> None:
    live = QlessLive(core=core)
    for n, expected in enumerate(("uuid", "uuid-2", "uuid-3"), 1):
        assert send(live.put(NewJob("mail", b"1", "t", id="uuid", publication=f"p-{n}"), now=NOW + n)) == expected
    (first,) = send(live.take("mail", "w", 1, LEASE, now=NOW)).jobs
    send(live.complete("mail", "w", [(first.id, None)], now=NOW))
    assert first.id == "uuid"
    assert send(live.put(NewJob("mail", b"1", "t", id="uuid", publication="p-4"), now=NOW)) == "uuid"
    assert client.zcard("ql:completed") == 0


def test_what_celery_knows_of_a_job_stands_in_its_record(client: redis.Redis, send: Any) -> None:
    extra = b'{"task": "shop.send", "id": "j1"}'
    put(send, "j1", extra=extra)
    assert client.hget("ql:j:j1", "ferryman") == extra
    (job,) = take(send, tasks=["shop.send"])
    assert (job.extra, job.name, job.attempts, job.max_attempts) == (extra, "shop.Send", 0, 6)


@pytest.mark.parametrize("payload", [b"false", b" false ", b"{", b""])
def test_data_that_qless_does_not_take_is_refused_before_the_first_write(payload: bytes) -> None:
    with pytest.raises(UsageError, match="data"):
        LIVE.put(NewJob("mail", payload))


@pytest.mark.parametrize(
    "options",
    [{"ttl": 1}, {"retries": -1}, {"retries": 1.5}, {"tags": "one"}, {"depends": [1]}],
    ids=lambda options: next(iter(options)),
)
def test_options_that_qless_does_not_have_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        LIVE.put(NewJob("mail", b"1", options=options))


def test_the_core_of_2013_takes_no_delay_together_with_dependencies(client: redis.Redis, send: Any) -> None:
    put(send, "first")
    before = everything(client)
    with pytest.raises(UsageError, match="delay together with dependencies"):
        put(send, "second", delay_ms=1000, options={"depends": ["first"]})
    assert everything(client) == before


# Take


def test_only_known_tasks_are_taken_and_others_stay_where_they_are(client: redis.Redis, send: Any) -> None:
    put(send, "theirs", name="theirs")
    put(send, "ours", name="ours")
    put(send, "envelope", name="theirs", extra=b'{"task": "ours"}')
    put(send, "nameless", name="")
    before = client.zscore("ql:q:mail-work", "theirs")
    assert sorted(ids(take(send, 10, tasks=["ours"]))) == ["envelope", "ours"]
    assert ids(take(send, 10, tasks=["mail"])) == ["nameless"]
    assert take(send, 10, tasks=[]) == []
    assert client.zrange("ql:q:mail-work", 0, -1, withscores=True) == [(b"theirs", before)]


def test_a_known_task_behind_thousands_of_others_is_found(client: redis.Redis, send: Any) -> None:
    with client.pipeline() as pipeline:
        for n in range(2_500):
            pipeline.hset(
                f"ql:j:t{n}", mapping={"jid": f"t{n}", "klass": "theirs", "data": "1", "state": "waiting", "queue": "mail"}
            )
            pipeline.zadd("ql:q:mail-work", {f"t{n}": 1})
        pipeline.execute()
    put(send, "ours", name="ours")
    taken = [take(send, 1, tasks=["ours"]) for _ in range(3)]
    assert [ids(jobs) for jobs in taken] == [[], [], ["ours"]]
    assert client.zcard("ql:q:mail-work") == 2_500


def test_a_lost_job_of_a_task_that_nobody_here_knows_is_left_to_others(client: redis.Redis, send: Any) -> None:
    put(send, "theirs", name="theirs")
    take(send, worker="gone")
    for now in (NOW + 61_000, NOW + 80_000):
        assert take(send, 5, now, tasks=["ours"]) == []
    assert client.hmget("ql:j:theirs", "state", "grace", "remaining") == [b"running", b"1", b"5"]
    (job,) = take(send, 1, NOW + 80_000, worker="theirs")
    assert (job.id, job.attempts) == ("theirs", 1)


def test_damaged_jobs_are_in_nobodys_way(client: redis.Redis, send: Any) -> None:
    put(send, "sound")
    client.zadd("ql:q:mail-work", {"no-record": 9, "stub": 8, "wrong-type": 7, "no-data": 6})
    client.zadd("ql:q:mail-locks", {"gone": 1})
    client.zadd("ql:q:mail-scheduled", {"gone": 1})
    client.zadd("ql:q:mail-recur", {"gone": 1})
    client.hset("ql:j:stub", "state", "waiting")
    client.set("ql:j:wrong-type", "1")
    client.hset("ql:j:no-data", mapping={"jid": "no-data", "klass": "x", "state": "waiting", "queue": "mail"})
    assert ids(take(send, 5)) == ["sound"]
    assert client.lrange("ql:f:mail-damaged", 0, -1) == [b"no-data"]
    assert client.zrange("ql:q:mail-work", 0, -1) == [b"wrong-type", b"stub"]
    assert not client.exists("ql:q:mail-scheduled", "ql:q:mail-recur", "ql:j:gone")
    assert client.zrange("ql:q:mail-locks", 0, -1) == [b"sound"]


def test_numbers_that_are_none_stop_nobody(client: redis.Redis, send: Any) -> None:
    put(send, "odd")
    client.hset("ql:j:odd", mapping={"priority": "inf", "retries": "1.5", "remaining": "1.5"})
    assert ids(take(send, 1, worker="gone")) == ["odd"]
    take(send, 1, NOW + 61_000)
    assert take(send, 1, NOW + 80_000) == []
    assert client.hget("ql:j:odd", "state") == b"failed"


def test_no_more_data_is_read_than_there_is_room_for(send: Any) -> None:
    for n in range(3):
        put(send, f"j{n}", NOW + n, payload=json.dumps("x" * 100).encode())
    taken = send(LIVE.take("mail", "w", 3, LEASE, fetch_bytes=250, now=NOW))
    assert [job.id for job in taken.jobs] == ["j0", "j1"]
    assert taken.more
    assert [job.id for job in send(LIVE.take("mail", "w", 3, LEASE, fetch_bytes=1, now=NOW)).jobs] == ["j2"]


def test_a_call_says_when_to_take_again(send: Any) -> None:
    put(send, "later", delay_ms=7_000)
    assert send(LIVE.take("mail", "w", 1, LEASE, now=NOW)).next_event_ms == NOW + 7_000
    put(send, "now")
    assert send(LIVE.take("mail", "w", 1, LEASE, now=NOW)).more
    assert not send(LIVE.take("mail", "w", 1, LEASE, now=NOW)).more


def test_nobody_is_told_to_come_before_a_job_is_due(client: redis.Redis, send: Any) -> None:
    """Due times are of microseconds, and clients sleep whole ms: they would find nothing."""
    put(send, "later", delay_ms=7_000)
    client.zadd("ql:q:mail-scheduled", {"later": (NOW + 7_000) / 1000 + 0.000_3})
    assert send(LIVE.take("mail", "w", 1, LEASE, now=NOW)).next_event_ms == NOW + 7_001
    assert send(LIVE.size("mail", now=NOW)).next_due_ms == NOW + 7_001
    assert take(send, 1, NOW + 7_000) == []
    assert ids(take(send, 1, NOW + 7_001)) == ["later"]


def test_a_paused_queue_gives_nothing_and_nothing_is_written_there(client: redis.Redis, send: Any) -> None:
    put(send, "j1")
    client.sadd("ql:paused_queues", "mail")
    before = seen(client)
    assert take(send) == []
    assert seen(client) == before


def test_locks_last_for_the_heartbeat_and_the_lease_at_least(client: redis.Redis, send: Any) -> None:
    put(send, "j1")
    client.hset("ql:config", "heartbeat", 2)
    take(send)
    assert client.zscore("ql:q:mail-locks", "j1") == (NOW + LEASE) / 1000
    client.hset("ql:config", "mail-heartbeat", 100)
    send(LIVE.renew("mail", "w", LEASE, now=NOW + 1_000))
    assert client.zscore("ql:q:mail-locks", "j1") == client.zscore("ql:w:w:jobs", "j1") == (NOW + 101_000) / 1000


@pytest.mark.parametrize(
    ("data", "payload"),
    [
        ('{"kwargs":{"a":1},"args":{},"task":"t"}', {"task": "t", "args": [], "kwargs": {"a": 1}}),
        ('{"args":{}}', {"args": {}}),
        ('{"x":"\\"args\\":{}"}', {"x": '"args":{}'}),
    ],
)
def test_arguments_that_lua_has_made_an_object_are_a_list_again(
    client: redis.Redis, send: Any, data: str, payload: dict[str, Any]
) -> None:
    """As the original's heartbeat and fail write data."""
    put(send, "j1")
    client.hset("ql:j:j1", "data", data)
    (job,) = take(send)
    assert json.loads(job.payload) == payload


# Ends


def test_a_task_that_raises_has_failed_for_good_under_its_queue_and_exception(client: redis.Redis, send: Any) -> None:
    put(send, "j1")
    take(send)
    assert send(LIVE.fail("mail", "w", "j1", BOOM, now=NOW)) == "failed"
    assert client.lrange("ql:f:mail-ValueError", 0, -1) == [b"j1"]
    failure = json.loads(client.hget("ql:j:j1", "failure") or b"")
    assert failure == {"group": "mail-ValueError", "message": "boom\nTraceback", "when": NOW // 1000, "worker": "w"}
    assert client.hget("ql:j:j1", "data") == b'{"n": 1}', "no data given: none written anew"


def test_retry_counts_the_attempt_and_keeps_the_job(send: Any) -> None:
    put(send, "j1", options={"attempts": 2})
    take(send)
    extra = b'{"task": "t", "retries": 1}'
    assert send(LIVE.retry("mail", "w", "j1", 3_000, failure=BOOM, payload=b"[2]", extra=extra, now=NOW)) == "scheduled"
    assert take(send, now=NOW + 2_999) == []
    (job,) = take(send, now=NOW + 3_000)
    assert (job.id, job.attempts, job.max_attempts, job.payload, job.extra) == ("j1", 1, 2, b"[2]", extra)
    assert send(LIVE.retry("mail", "w", "j1", 0, failure=BOOM, now=NOW + 4_000)) == "failed"


@pytest.mark.parametrize("core", ["unified", "final", "reqless"])
@pytest.mark.parametrize("group", [None, "given"])
def test_a_retry_without_an_attempt_left_fails_the_job_as_the_original_does(
    client: redis.Redis, send: Any, core: Core, group: str | None
) -> None:
    live = QlessLive(core=core)
    put(send, "j1", options={"attempts": 1})
    take(send)
    failure = evolve(BOOM, group=group)
    assert send(live.retry("mail", "w", "j1", 0, failure=failure, now=NOW)) == "failed"
    found = json.loads(client.hget("ql:j:j1", "failure") or b"")
    wanted = ("given", "boom\nTraceback") if group else ("failed-retries-mail", 'Job exhausted retries in queue "mail"')
    assert (found["group"], found["message"]) == wanted
    assert client.lrange(f"ql:f:{wanted[0]}", 0, -1) == [b"j1"]


@pytest.mark.parametrize("core", ["unified", "final", "reqless"])
def test_a_tracked_job_is_reported_as_completed_before_the_log_says_so(client: redis.Redis, send: Any, core: Core) -> None:
    live = QlessLive(core=core)
    put(send, "j1")
    take(send)
    client.zadd("ql:tracked", {"j1": 1})
    with client.pubsub(ignore_subscribe_messages=True) as listener:
        listener.psubscribe("ql:*")
        send(live.complete("mail", "w", [("j1", None)], now=NOW))
        heard = []
        while len(heard) < 2:
            message = listener.get_message(timeout=10)
            heard += [message["channel"]] if message else []
    assert heard == [b"ql:completed", b"ql:log"]


@pytest.mark.parametrize("core", ["unified", "final", "reqless"])
def test_a_job_that_is_given_back_waits_again_as_if_it_had_never_been_begun(client: redis.Redis, send: Any, core: Core) -> None:
    live = QlessLive(core=core)
    for n in range(3):
        send(live.put(NewJob("mail", b"1", "t", id=f"j{n}"), now=NOW + n * 2_000))
    send(live.take("mail", "w", 1, LEASE, now=NOW + 10_000))
    assert send(live.requeue("mail", "w", ["j0", "j1"], now=NOW + 11_000)) == (True, False)
    fields = client.hmget("ql:j:j0", "state", "worker", "expires", "remaining", "queue")
    assert fields == [b"waiting", b"", b"0", b"5", b"mail"]
    assert not client.exists("ql:q:mail-locks", "ql:w:w:jobs", "ql:th:ql:q:mail-locks")
    history = [json.loads(entry)[1] for entry in client.lrange("ql:j:j0-history", 0, -1)]
    assert history == ["put", "popped"]
    assert [job.id for job in send(live.take("mail", "w", 3, LEASE, now=NOW + 12_000)).jobs] == ["j0", "j1", "j2"]


def test_a_consumer_that_leaves_gives_all_back_and_is_no_worker_any_more(client: redis.Redis, send: Any) -> None:
    for n in range(4):
        put(send, f"j{n}")
    take(send, 3)
    assert send(LIVE.release("mail", "w", ["j3"], now=NOW)) == 1
    assert send(LIVE.release("mail", "w", [], now=NOW)) == 0
    assert send(LIVE.forget("mail", "w", now=NOW)) == 2
    assert client.zcard("ql:q:mail-work") == 4
    assert not client.exists("ql:workers")
    assert side_keys(client) == []


@pytest.mark.parametrize("end", ["complete", "fail", "retry", "requeue", "progress"])
@pytest.mark.parametrize("meanwhile", ["cancel", "move", "takeover"])
def test_the_end_of_a_job_that_is_another_ones_is_refused_and_writes_nothing(
    client: redis.Redis, send: Any, end: str, meanwhile: str
) -> None:
    put(send, "j1")
    take(send)
    if meanwhile == "cancel":
        send(LIVE.call("remove", "j1", NOW, ("", "any", "", "j1"), list))
    elif meanwhile == "move":
        put(send, "j1", queue="other")
    else:
        take(send, 1, NOW + 61_000, worker="other")
        assert ids(take(send, 1, NOW + 80_000, worker="other")) == ["j1"]
    before = everything(client)
    calls: dict[str, tuple[Call[Any], Any]] = {
        "complete": (LIVE.complete("mail", "w", [("j1", b"1")], now=NOW), ("lost",)),
        "fail": (LIVE.fail("mail", "w", "j1", BOOM, now=NOW), "lost"),
        "retry": (LIVE.retry("mail", "w", "j1", 0, failure=BOOM, now=NOW), "lost"),
        "requeue": (LIVE.requeue("mail", "w", ["j1"], now=NOW), (False,)),
        "progress": (LIVE.progress("mail", "w", "j1", 1, 2, now=NOW), False),
    }
    call, refused = calls[end]
    assert send(call) == refused
    assert send(LIVE.held("mail", "w")) == ()
    assert everything(client) == before


def test_progress_is_one_entry_of_the_history(client: redis.Redis, send: Any) -> None:
    put(send, "j1")
    take(send)
    for n in range(3):
        assert send(LIVE.progress("mail", "w", "j1", n, 3, b'{"at": "x"}', now=NOW))
    last = json.loads(client.lrange("ql:j:j1-history", 0, -1)[-1])
    assert last == [NOW // 1000, "progress", {"current": 2, "total": 3, "data": {"at": "x"}}]
    assert client.llen("ql:j:j1-history") == 3


# Lost locks


def test_a_worker_that_was_warned_may_renew_its_lock_and_finish(client: redis.Redis, send: Any) -> None:
    put(send, "j1")
    take(send)
    assert take(send, 1, NOW + 61_000, worker="other") == []
    assert send(LIVE.held("mail", "w")) == ("j1",)
    send(LIVE.renew("mail", "w", LEASE, now=NOW + 62_000))
    assert client.zrange("ql:w:w:jobs", 0, -1) == [b"j1"]
    assert take(send, 1, NOW + 75_000, worker="other") == []
    assert send(LIVE.complete("mail", "w", [("j1", None)], now=NOW + 76_000)) == ("completed",)


def test_timers_warn_workers_and_give_up_on_jobs_without_attempts(client: redis.Redis, send: Any) -> None:
    put(send, "last", options={"retries": 0})
    put(send, "first")
    take(send, 2)
    for now in (NOW + 61_000, NOW + 80_000):
        for call in LIVE.timers(now=now):
            assert not send(call)
    assert client.hmget("ql:j:last", "state", "remaining") == [b"failed", b"-1"]
    assert client.hmget("ql:j:first", "state", "grace") == [b"running", b"1"]
    assert side_keys(client) == [], "the consumer's lease is over"
    assert ids(take(send, 1, NOW + 80_000, worker="other")) == ["first"]


def test_a_worker_that_renews_a_lost_lock_after_its_lease_is_listed_again(client: redis.Redis, send: Any) -> None:
    put(send, "j1")
    assert ids(take(send)) == ["j1"]
    late = NOW + 61_000
    for call in LIVE.timers(now=late):
        send(call)
    assert client.hget("ql:j:j1", "grace") == b"1"
    assert client.zrange("ql:workers", 0, -1) == []
    send(LIVE.renew("mail", "w", LEASE, now=late + 1))
    assert send(LIVE.held("mail", "w")) == ("j1",)
    assert client.zrange("ql:workers", 0, -1) == [b"w"]
    assert "QLESS-27" not in {each.rule for each in findings(client, "qless", "ql", late + 2)}


def test_timers_promote_what_is_due_and_make_what_recurs(client: redis.Redis, send: Any) -> None:
    put(send, "later", delay_ms=1_000)
    args = ("cron", "nightly", "shop.Job", "{}", 60, 0, 0, "[]", 5, 0, "[]")
    send(LIVE.call("recur", "nightly", NOW, args, str))
    for now in (NOW + 1_000, NOW + 600_000):
        for call in LIVE.timers(now=now):
            send(call)
    assert client.zrange("ql:q:mail-work", 0, -1) == [b"later"]
    assert client.zrange("ql:q:cron-work", 0, -1) == [b"nightly-1"], "nobody takes them: they don't pile up"


# Jobs that nobody runs


@pytest.mark.parametrize(
    ("place", "role"),
    [
        ("waiting", "waiting"),
        ("scheduled", "scheduled"),
        ("blocked", "blocked"),
        ("failed", "dead"),
        ("running", "held"),
        ("complete", None),
    ],
)
def test_a_job_is_removed_wherever_it_stands_but_from_its_worker(
    client: redis.Redis, send: Any, place: str, role: Removed | None
) -> None:
    if place == "blocked":
        put(send, "other")
    delay = 5_000 if place == "scheduled" else 0
    put(send, "j1", delay_ms=delay, options={"depends": ["other"], "tags": ["t"]} if place == "blocked" else {"tags": ["t"]})
    if place in ("failed", "running", "complete"):
        take(send)
    if place == "failed":
        send(LIVE.fail("mail", "w", "j1", BOOM, now=NOW))
    if place == "complete":
        send(LIVE.complete("mail", "w", [("j1", None)], now=NOW))
    before = everything(client)
    other: Role = "done"
    assert send(LIVE.remove("mail", "j1", other, now=NOW)) is None
    assert send(LIVE.remove("elsewhere", "j1", now=NOW)) is None
    assert everything(client) == before
    assert send(LIVE.remove("mail", "j1", now=NOW)) == role
    if role in ("held", None):
        assert everything(client) == before
    else:
        assert client.keys("*j1*") == []
        assert not client.exists("ql:t:t", "ql:failures")


def test_a_job_for_which_others_wait_fails_when_it_is_removed_and_is_not_purged(client: redis.Redis, send: Any) -> None:
    put(send, "first", options={"tags": ["t"]})
    put(send, "second", options={"depends": ["first"]})
    put(send, "later", delay_ms=60_000)
    put(send, "third")
    purged = send(LIVE.purge("mail", now=NOW))
    assert (purged.jobs, purged.more) == (2, False)
    assert client.zrange("ql:q:mail-work", 0, -1) == [b"first"]
    assert send(LIVE.remove("mail", "first", now=NOW)) == "waiting"
    assert client.lrange("ql:f:mail-revoked", 0, -1) == [b"first"]
    assert client.hget("ql:j:second", "state") == b"depends"
    assert client.zrange("ql:t:t", 0, -1) == [b"first"]
    before = everything(client)
    assert send(LIVE.remove("mail", "first", now=NOW)) is None
    assert everything(client) == before
    assert findings(client, "qless", "ql", NOW) == []


def test_a_purge_goes_on_in_chunks(send: Any) -> None:
    for n in range(5):
        put(send, f"j{n}")
    chunks = [send(LIVE.purge("mail", limit=2, now=NOW)) for _ in range(3)]
    assert [(chunk.jobs, chunk.more) for chunk in chunks] == [(2, True), (2, True), (1, False)]


def test_jobs_are_found_by_the_ids_of_their_tasks(send: Any) -> None:
    put(send, "uuid", extra=b'{"task": "t", "id": "uuid"}', publication="p-1")
    put(send, "uuid", extra=b'{"task": "t", "id": "uuid"}', publication="p-2")
    put(send, "theirs")
    put(send, "later", delay_ms=5_000)
    wanted = ["uuid", "ql:theirs", "ql:later", "theirs", "ql:none"]
    found = send(LIVE.find("mail", wanted, now=NOW))
    assert sorted(found.jobs) == [("theirs", "ql:theirs", b""), ("uuid", "uuid", b""), ("uuid-2", "uuid", b"")]
    assert [job.id for job in send(LIVE.find("mail", wanted, "scheduled", now=NOW)).jobs] == ["later"]
    assert send(LIVE.find("other", wanted, now=NOW)).jobs == ()


def test_a_queue_knows_its_size(send: Any) -> None:
    assert not send(LIVE.size("mail", now=NOW)).exists
    put(send, "running")
    take(send)
    put(send, "waiting")
    put(send, "due", delay_ms=1_000)
    put(send, "later", delay_ms=9_000)
    put(send, "blocked", options={"depends": ["waiting"]})
    size = send(LIVE.size("mail", now=NOW + 1_000))
    assert (size.exists, size.waiting, size.due, size.scheduled, size.held, size.blocked, size.consumers) == (
        True,
        2,
        1,
        1,
        1,
        1,
        1,
    )
    assert size.next_due_ms == NOW + 1_000


# Throttles


def test_throttles_let_no_more_jobs_run_than_they_may(client: redis.Redis, send: Any) -> None:
    live = QlessLive(core="reqless")
    client.hset("ql:th:gpu", mapping={"id": "gpu", "maximum": 1})
    for n in range(3):
        send(live.put(NewJob("mail", b"1", "t", id=f"j{n}", options={"throttles": ["gpu"]}), now=NOW + n))
    assert [job.id for job in send(live.take("mail", "w", 3, LEASE, now=NOW)).jobs] == ["j0"]
    assert client.zrange("ql:th:gpu-locks", 0, -1) == [b"j0"]
    assert client.zrange("ql:th:gpu-pending", 0, -1) == [b"j1", b"j2"]
    send(live.complete("mail", "w", [("j0", None)], now=NOW + 1_000))
    assert [job.id for job in send(live.take("mail", "w", 3, LEASE, now=NOW + 1_000)).jobs] == ["j1"]
    send(live.requeue("mail", "w", ["j1"], now=NOW + 2_000))
    assert client.zcard("ql:th:gpu-locks") == 0


def test_a_consumer_looks_further_at_once_where_a_throttle_was_full(client: redis.Redis, send: Any) -> None:
    live = QlessLive(core="reqless")
    client.hset("ql:th:gpu", mapping={"id": "gpu", "maximum": 1})
    client.zadd("ql:th:gpu-locks", {"elsewhere": 1})
    for job_id, throttles in (("slow", ["gpu"]), ("fast", [])):
        send(live.put(NewJob("mail", b"1", "t", id=job_id, options={"throttles": throttles}), now=NOW))
    taken = send(live.take("mail", "w", 1, LEASE, now=NOW))
    assert [job.id for job in taken.jobs] == ["fast"]
    assert client.hget("ql:j:slow", "state") == b"throttled"


# Servers in need


def test_a_full_server_refuses_new_jobs_and_lets_go_of_old_ones(client: redis.Redis, send: Any) -> None:
    for n in range(4):
        put(send, f"j{n}", NOW + n)
    client.config_set("maxmemory", 1)
    try:
        with pytest.raises(PublishRefused):
            put(send, "more")
        assert len(take(send, 3)) == 3
        assert send(LIVE.renew("mail", "w", LEASE, now=NOW)) == Renewed.DONE
        assert send(LIVE.complete("mail", "w", [("j0", None)], now=NOW)) == ("completed",)
        assert send(LIVE.fail("mail", "w", "j1", BOOM, now=NOW)) == "failed"
        assert send(LIVE.retry("mail", "w", "j2", 0, failure=BOOM, now=NOW)) == "waiting"
        assert send(LIVE.remove("mail", "j3", now=NOW)) == "waiting"
        assert send(LIVE.forget("mail", "w", now=NOW)) == 0
    finally:
        client.config_set("maxmemory", 0)
    assert not client.exists("ql:j:more")


def test_timers_go_round_where_there_are_many_queues(client: redis.Redis, send: Any) -> None:
    with client.pipeline() as pipeline:
        for n in range(1_200):
            pipeline.zadd("ql:queues", {f"q{n}": n})
        pipeline.execute()
    put(send, "later", queue="q1100", delay_ms=1_000)
    for second in range(2, 5):
        for call in LIVE.timers(now=NOW + second * 1_000):
            send(call)
    assert client.zcard("ql:q:q1100-work") == 1
