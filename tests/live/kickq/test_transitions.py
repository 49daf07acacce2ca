"""What ferryman does to a kickq keyspace beside what kickq's own processes do: state before, call, state after."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from ferryman.compat.kickq.client import KickqClient
from ferryman.compat.kickq.live import KickqLive
from ferryman.compat.kickq.process_options import ProcessOptions
from ferryman.compat.members import stringify
from ferryman.schema.connection.address import Address
from ferryman.schema.connection.call import Call, run
from ferryman.schema.errors import AddressError, KeyspaceRefused, MalformedValue, PublishRefused, UsageError
from ferryman.schema.live import Failure, ForeignDelivery, NewJob

from ...models.kickq_original import OriginalKickq
from ...support.servers import GENERATIONS, generation
from .tellers import Listener, OriginalTeller, keys_of, side_keys

pytestmark = pytest.mark.in_turn

T0 = 1_800_000_000_000
LEASE = 30_000
DAY = 86_400_000


@pytest.fixture
def original(client: redis.Redis) -> OriginalTeller:
    return OriginalTeller(client)


@pytest.fixture
def kickq(client: redis.Redis) -> KickqClient:
    return KickqClient(client, consumer="ours", lease_ms=LEASE, delivery_limit=2)


def item_of(client: redis.Redis, job_id: str) -> Any:
    job = KickqClient(client).get(job_id)
    assert job is not None
    return job


# A job in each state: 1 in queue mail, made by kickq


def new(original: OriginalTeller) -> None:
    original.put("mail", {"a": 1}, T0, retry=True)


def delayed(original: OriginalTeller) -> None:
    original.put("mail", {"a": 1}, T0, delay=5000)


def queued(original: OriginalTeller) -> None:
    delayed(original)
    original.run_timers(T0 + 5000)


def processing(original: OriginalTeller) -> None:
    new(original)
    original.take("mail", T0)


def retry(original: OriginalTeller) -> None:
    new(original)
    original.fail(original.take("mail", T0), "no", T0)


def ghost(original: OriginalTeller) -> None:
    new(original)
    original.time_out(original.take("mail", T0), T0 + 10_000)


def success(original: OriginalTeller) -> None:
    new(original)
    original.succeed(original.take("mail", T0), T0)


def fail(original: OriginalTeller) -> None:
    original.put("mail", {"a": 1}, T0)
    original.fail(original.take("mail", T0), "no", T0)


STATES = (new, delayed, queued, processing, retry, ghost, success, fail)

ENDS: dict[str, Callable[[KickqLive], Call[Any]]] = {
    "complete": lambda live: live.complete("mail", "ours", [("1", b"7")], now=T0),
    "ack": lambda live: live.ack("mail", "ours", ["1"], now=T0),
    "fail": lambda live: live.fail("mail", "ours", "1", Failure("no"), now=T0),
    "reject": lambda live: live.reject("mail", "ours", "1", "bad", now=T0),
    "retry": lambda live: live.retry("mail", "ours", "1", 5, failure=Failure("no"), payload=b"2", extra=b"{}", now=T0),
    "requeue": lambda live: live.requeue("mail", "ours", ["1"], now=T0),
    "release": lambda live: live.release("mail", "ours", ["1"], now=T0),
    "release all": lambda live: live.release("mail", "ours", None, now=T0),
    "forget": lambda live: live.forget("mail", "ours", now=T0),
    "renew": lambda live: live.renew("mail", "ours", LEASE, now=T0),
    "progress": lambda live: live.progress("mail", "ours", "1", 1, 2, now=T0),
    "held": lambda live: live.held("mail", "ours"),
}

LOST = ("lost", ("lost",), (False,), False, 0, ())


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("end", ENDS)
def test_a_job_that_a_consumer_does_not_hold_is_not_touched(
    client: redis.Redis, original: OriginalTeller, state: Callable[[OriginalTeller], None], end: str
) -> None:
    state(original)
    before = keys_of(client)
    assert run(client, ENDS[end](KickqLive("kickq"))) in LOST
    assert keys_of(client) == before
    assert side_keys(client) == []


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("meanwhile", ["deleted", "ended", "overwritten"])
def test_a_job_that_was_deleted_or_ended_meanwhile_is_lost_and_nothing_is_written(
    client: redis.Redis, original: OriginalTeller, end: str, meanwhile: str
) -> None:
    new(original)
    assert run(client, KickqLive("kickq").take("mail", "ours", 1, LEASE, now=T0)).jobs
    if meanwhile == "deleted":
        client.delete("kickq:job:1", "kickq:state:processing", "kickq:time-index")
    elif meanwhile == "ended":
        client.rpush("kickq:queue:mail", "1")
        original.succeed(original.take("mail", T0), T0)
    else:
        client.hset("kickq:job:1", "itemData", "{")
    before = keys_of(client)
    outcome = run(client, ENDS[end](KickqLive("kickq")))
    if end == "renew":
        assert outcome == 1
    elif meanwhile != "overwritten" or end not in ("progress", "held"):  # they don't read the document
        assert outcome in LOST
    assert keys_of(client) == before
    run(client, KickqLive("kickq").forget("mail", "ours", now=T0))
    assert side_keys(client) == []


@pytest.mark.parametrize("end", ["requeue", "release", "release all", "forget"])
@pytest.mark.parametrize("state", [new, queued])
def test_a_job_that_is_given_back_waits_as_before(
    client: redis.Redis, original: OriginalTeller, kickq: KickqClient, state: Callable[[OriginalTeller], None], end: str
) -> None:
    state(original)
    original.put("mail", "behind it", T0)
    before = keys_of(client)
    (job,) = kickq.take("mail", now=T0)
    assert keys_of(client) != before
    assert run(client, ENDS[end](kickq.live)) in (1, (True,))
    assert keys_of(client) == before
    assert [each.deliveries for each in kickq.take("mail", now=T0)] == [job.deliveries]


def test_jobs_that_are_given_back_stand_in_their_order(original: OriginalTeller, kickq: KickqClient) -> None:
    ids = [original.put("mail", number, T0) for number in range(5)]
    assert [job.id for job in kickq.take("mail", 4, now=T0)] == ids[:4]
    kickq.close()
    assert [job.id for job in kickq.take("mail", 9, now=T0)] == ids


# Lapsed consumers


def test_what_a_lapsed_consumer_held_waits_again_as_before(
    client: redis.Redis, original: OriginalTeller, kickq: KickqClient
) -> None:
    retry(original)
    original.run_timers(T0 + 1_800_000)
    before, now = keys_of(client), T0 + 1_800_000
    assert kickq.take("mail", now=now)
    kickq.run_timers(now=now + LEASE - 1)
    assert keys_of(client) != before
    kickq.run_timers(now=now + LEASE)
    assert keys_of(client) == before
    assert not kickq.heartbeat("mail", now=now + LEASE)
    (job,) = kickq.take("mail", now=now + LEASE)
    assert (job.attempts, job.deliveries) == (1, 3)
    assert kickq.complete(job, now=now + LEASE) == "completed"
    kickq.close()
    assert side_keys(client) == []


def test_a_job_whose_consumers_lapse_too_often_has_failed(
    client: redis.Redis, original: OriginalTeller, kickq: KickqClient
) -> None:
    new(original)
    now = T0
    for _ in range(kickq.delivery_limit + 1):
        assert KickqClient(client, lease_ms=LEASE).take("mail", now=now)
        now += LEASE
        kickq.run_timers(now=now)
    assert kickq.take("mail", now=now) == ()
    job = item_of(client, "1")
    assert (job.state, job.error) == ("fail", "delivery_limit: its consumer was lost 3 times")
    kickq.close()
    assert side_keys(client) == []


def test_lapses_are_forgotten_of_jobs_that_kickqs_own_workers_end(
    client: redis.Redis, original: OriginalTeller, kickq: KickqClient
) -> None:
    new(original)
    kickq.take("mail", now=T0)
    kickq.take("mail", 0, now=T0 + 1)
    other = KickqClient(client, lease_ms=LEASE)
    assert other.take("mail", 0, now=T0 + 2 * LEASE) == ()
    original.succeed(original.take("mail", T0 + 2 * LEASE), T0 + 2 * LEASE)
    assert any(b"lapses" in key for key in side_keys(client))
    other.take("mail", 0, now=T0 + 2 * LEASE)
    other.close()
    assert side_keys(client) == []


def test_a_consumer_that_renews_its_lease_keeps_what_it_holds(original: OriginalTeller, kickq: KickqClient) -> None:
    original.put("mail", 1, T0, processTimeout=10**9)
    assert kickq.take("mail", now=T0)
    for turn in range(1, 10):
        assert kickq.heartbeat("mail", now=T0 + turn * LEASE // 2)
        kickq.run_timers(now=T0 + turn * LEASE // 2)
    assert kickq.held("mail") == ("1",)


# What a scheduler of kickq leaves alone


def test_what_kickqs_schedulers_have_missed_is_queued(client: redis.Redis, original: OriginalTeller, kickq: KickqClient) -> None:
    delayed(original)
    original.run_timers(T0 + DAY)
    assert item_of(client, "1").state == "delayed"
    kickq.run_timers(now=T0 + DAY)
    assert item_of(client, "1").state == "queued"
    assert client.lrange("kickq:queue:mail", 0, -1) == [b"1"]
    assert client.zcard("kickq:scheduled") == 0


def test_a_job_that_is_alive_is_not_deleted(client: redis.Redis, original: OriginalTeller, kickq: KickqClient) -> None:
    success(original)
    client.rpush("kickq:queue:mail", "1")
    original.take("mail", T0 + DAY)
    kickq.run_timers(now=T0 + DAY + 1)
    assert item_of(client, "1").state == "processing"
    assert client.zcard("kickq:scheduled-purge") == 0


def test_timers_do_a_bounded_number_of_jobs_and_say_that_there_are_more(client: redis.Redis) -> None:
    live = KickqLive("kickq")
    for number in range(1200):
        run(client, live.put(NewJob("mail", b"%d" % number, delay_ms=1), now=T0))
    (timer,) = live.timers(now=T0 + 1)
    assert run(client, timer)
    assert client.llen("kickq:queue:mail") == 1000
    assert not run(client, timer)
    assert client.llen("kickq:queue:mail") == 1200


def test_timers_do_a_bounded_number_of_bytes_and_say_that_there_are_more(client: redis.Redis) -> None:
    live = KickqLive("kickq", options=ProcessOptions(purge_timeout=5))
    payload = stringify("x" * 1_500_000)
    for _ in range(5):
        run(client, live.put(NewJob("mail", payload, delay_ms=1), now=T0))
    (timer,) = live.timers(now=T0 + 1)
    assert run(client, timer)
    assert client.llen("kickq:queue:mail") == 3
    assert not run(client, timer)
    for job in run(client, live.take("mail", "ours", 5, LEASE, fetch_bytes=10**9, now=T0 + 1)).jobs:
        run(client, live.complete("mail", "ours", [(job.id, None)], now=T0 + 1))
    (timer,) = live.timers(now=T0 + 6)
    assert run(client, timer)
    assert client.zcard("kickq:scheduled-purge") == 2
    assert not run(client, timer)
    assert client.zcard("kickq:scheduled-purge") == 0


# Options of kickq's processes


def test_finished_jobs_are_kept_where_kickqs_processes_keep_them(client: redis.Redis, original: OriginalTeller) -> None:
    success(original)
    kickq = KickqClient(client, options=ProcessOptions(purge_jobs=False))
    kickq.run_timers(now=T0 + DAY)
    assert item_of(client, "1").state == "success"
    assert client.zcard("kickq:scheduled-purge") == 0


def test_finished_jobs_are_deleted_when_kickqs_processes_delete_them(client: redis.Redis, original: OriginalTeller) -> None:
    new(original)
    kickq = KickqClient(client, options=ProcessOptions(purge_timeout=50))
    (job,) = kickq.take("mail", now=T0)
    kickq.complete(job, now=T0)
    assert item_of(client, "1").scheduled_for == T0 + 50
    kickq.run_timers(now=T0 + 50)
    assert kickq.get("1") is None


def test_channels_lack_what_stands_before_the_namespace_in_keys_alone(client: redis.Redis) -> None:
    with Listener(client) as listener:
        KickqClient(client, "site:kickq", options=ProcessOptions(redis_prefix="site:")).put("mail", 1)
        assert {channel for channel, _ in listener.heard()} == {
            f"kickq:{c}{q}" for c in ("create", "queued") for q in ("", ":mail")
        }
    assert client.lrange("site:kickq:queue:mail", 0, -1) == [b"1"]
    for redis_prefix in ("other:", "kickq"):
        with pytest.raises(UsageError, match="redis_prefix"):
            KickqLive("kickq", options=ProcessOptions(redis_prefix=redis_prefix))


def test_a_url_tells_the_options_of_kickqs_processes() -> None:
    url = "ferryman://localhost/0?family=kickq&prefix=site:kickq&purge_jobs=false&purge_timeout=50&redis_prefix=site:"
    address = Address.parse(url)
    live = address.key_family.live(address.prefix, "ferryman")
    assert isinstance(live, KickqLive)
    assert live.options == ProcessOptions(purge_jobs=False, purge_timeout=50, redis_prefix="site:")
    for wrong in ("purge_jobs=perhaps", "purge_timeout=soon", "purge_timeout=-1"):
        with pytest.raises(AddressError, match=wrong.partition("=")[0]):
            Address.parse(f"ferryman://localhost/0?family=kickq&{wrong}")


# Retries that a task asks for


def test_a_task_that_asks_for_a_retry_gets_it_then_and_with_other_arguments(
    client: redis.Redis, original: OriginalTeller, kickq: KickqClient
) -> None:
    new(original)
    (job,) = kickq.take("mail", now=T0)
    call = kickq.live.retry(
        "mail", "ours", job.id, 777, failure=Failure("later"), payload=b'[2, "x"]', extra=b'{"id":"u"}', now=T0
    )
    assert run(client, call) == "scheduled"
    found = item_of(client, "1")
    assert (found.state, found.scheduled_for, found.payload, found.extra) == ("retry", T0 + 777, [2, "x"], b'{"id":"u"}')
    assert (found.attempts, found.error) == (1, "later")
    assert kickq.take("mail", now=T0 + 776) == ()
    (again,) = kickq.take("mail", now=T0 + 777)
    assert (again.payload, again.extra, again.attempts, again.deliveries) == (b'[2, "x"]', b'{"id":"u"}', 1, 2)


def test_a_retry_fails_a_job_that_has_no_run_left(client: redis.Redis, original: OriginalTeller, kickq: KickqClient) -> None:
    original.put("mail", 1, T0)
    (job,) = kickq.take("mail", now=T0)
    assert kickq.retry(job, 5, now=T0) == "failed"
    assert item_of(client, "1").state == "fail"


def test_a_final_failure_leaves_no_run(client: redis.Redis, original: OriginalTeller, kickq: KickqClient) -> None:
    new(original)
    (job,) = kickq.take("mail", now=T0)
    assert kickq.fail(job, Failure("bad", is_final=True), now=T0) == "failed"
    assert item_of(client, "1").state == "fail"


def test_a_run_ends_as_a_ghost_when_its_consumer_renews_its_lease_too_late_for_it(
    client: redis.Redis, original: OriginalTeller, kickq: KickqClient
) -> None:
    new(original)
    (job,) = kickq.take("mail", now=T0)
    assert kickq.heartbeat("mail", now=T0 + 9_999)
    assert kickq.held("mail") == ("1",)
    assert kickq.heartbeat("mail", now=T0 + 10_000)
    assert kickq.held("mail") == ()
    assert kickq.complete(job, now=T0 + 10_001) == "lost"
    assert (item_of(client, "1").state, item_of(client, "1").error) == ("ghost", "processing timed out")


# Which jobs are given


def put(client: redis.Redis, queue: str = "mail", payload: bytes = b"1", **more: Any) -> str:
    return run(client, KickqLive("kickq").put(NewJob(queue, payload, **more), now=T0))


def test_only_jobs_of_the_tasks_that_a_consumer_knows_are_given(client: redis.Redis, kickq: KickqClient) -> None:
    put(client, extra=b'{"task":"other"}')
    put(client, extra=b'{"task":"mine"}')
    put(client)
    put(client, extra=b"no json")
    before = client.lrange("kickq:queue:mail", 0, -1)
    assert kickq.take("mail", 9, tasks=["nothing"], now=T0) == ()
    assert client.lrange("kickq:queue:mail", 0, -1) == before
    assert [job.id for job in kickq.take("mail", 9, tasks=["mine"], now=T0)] == ["2"]
    assert [job.id for job in kickq.take("mail", 9, tasks=["mail"], now=T0)] == ["3", "4"]
    assert [(job.id, job.extra) for job in kickq.take("mail", 9, now=T0)] == [("1", b'{"task":"other"}')]


def test_take_names_the_tasks_of_the_jobs_that_it_leaves_to_others_and_nothing_for_an_empty_queue(client: redis.Redis) -> None:
    live = KickqLive("kickq")

    def left_by(task: str) -> tuple[str, ...]:
        return run(client, live.take("mail", "consumer", 9, 10_000, tasks=[task], now=T0)).unknown

    assert left_by("mine") == ()
    put(client, extra=b'{"task":"mine"}')
    assert left_by("mine") == ()
    put(client, extra=b'{"task":"other"}')
    put(client)
    assert sorted(left_by("mine")) == ["mail", "other"]


def test_a_job_behind_thousands_for_others_is_found(client: redis.Redis, kickq: KickqClient) -> None:
    live = KickqLive("kickq")
    for _ in range(2500):
        run(client, live.put(NewJob("mail", b"1", extra=b'{"task":"other"}'), now=T0))
    wanted = put(client, extra=b'{"task":"mine"}')
    found = [job.id for second in range(2) for job in kickq.take("mail", 1, tasks=["mine"], now=T0 + second * 1000)]
    assert found == [wanted]


def test_a_job_that_is_queued_while_it_is_run_waits_until_that_is_over(client: redis.Redis, kickq: KickqClient) -> None:
    put(client)
    (job,) = kickq.take("mail", now=T0)
    client.rpush("kickq:queue:mail", "1")
    assert kickq.take("mail", now=T0) == ()
    kickq.complete(job, now=T0)
    assert [again.id for again in kickq.take("mail", now=T0)] == ["1"]


BAD = {
    "no record": None,
    "no document": {"state": "new"},
    "text": {"itemData": "boo"},
    "null": {"itemData": "null"},
    "a list": {"itemData": '["1"]'},
    "another id": {"itemData": '{"id":"2","name":"mail","data":1}'},
    "a number for an id": {"itemData": '{"id":1,"name":"mail","data":1}'},
    "a cut document": {"itemData": '{"id":"1","name":"ma'},
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_job_is_in_nobodys_way(client: redis.Redis, kickq: KickqClient, bad: str) -> None:
    fields = BAD[bad]
    if fields is not None:
        client.hset("kickq:job:1", mapping=fields)  # type: ignore[arg-type]
    client.set("kickq:id", 1)
    client.rpush("kickq:queue:mail", "1")
    good = put(client)
    assert [job.id for job in kickq.take("mail", now=T0)] == [good]
    assert client.exists("kickq:queue:mail") == 0
    assert client.hgetall("kickq:job:1") == {key.encode(): value.encode() for key, value in (fields or {}).items()}


def test_a_record_of_a_wrong_type_is_in_nobodys_way(client: redis.Redis, kickq: KickqClient) -> None:
    client.set("kickq:job:x", "no hash")
    client.rpush("kickq:queue:mail", "x")
    good = put(client)
    assert [job.id for job in kickq.take("mail", now=T0)] == [good]


def test_a_document_too_deep_for_the_server_is_left_for_kickqs_workers(client: redis.Redis, kickq: KickqClient) -> None:
    deep = b"[" * 5000 + b"]" * 5000
    client.hset("kickq:job:x", "itemData", b'{"id":"x","name":"mail","data":' + deep + b"}")
    client.rpush("kickq:queue:mail", "x")
    good = put(client)
    assert [job.id for job in kickq.take("mail", now=T0)] == [good]
    assert client.lrange("kickq:queue:mail", 0, -1) == [b"x"]


PAD = b"x" * 20_000


@pytest.mark.parametrize(
    "document",
    [
        b'{"id":"x","name":"mail","data":"%b' % PAD,
        b'{"id":"x","name":"mail","data":"%b"' % PAD,
        b'{"id":"x","name":"mail","data":"%b"}}' % PAD,
        b'{"id":"y","name":"mail","data":"%b","lastError":null}' % PAD,
        b'["%b"]' % PAD,
        b'"%b"' % PAD,
        b"%b" % PAD,
    ],
    ids=["cut in the payload", "cut behind it", "two ends", "another id", "a list", "a text", "anything"],
)
def test_a_large_bad_job_is_in_nobodys_way_either(client: redis.Redis, kickq: KickqClient, document: bytes) -> None:
    client.hset("kickq:job:x", "itemData", document)
    client.rpush("kickq:queue:mail", "x")
    good = put(client)
    assert [job.id for job in kickq.take("mail", 2, now=T0)] == [good]
    assert client.exists("kickq:queue:mail") == 0
    assert client.hgetall("kickq:job:x") == {b"itemData": document}


@pytest.mark.parametrize("payload", [b'[oops,"%b"]', b'["%b"}'])
def test_a_large_payload_that_is_no_json_does_not_pass_for_none(client: redis.Redis, kickq: KickqClient, payload: bytes) -> None:
    document = b'{"id":"x","name":"mail","data":%b,"lastError":null}' % (payload % PAD)
    client.hset("kickq:job:x", "itemData", document)
    client.rpush("kickq:queue:mail", "x")
    (job,) = kickq.take("mail", now=T0)
    assert job.payload == document
    assert kickq.fail(job, Failure("no JSON", is_final=True), now=T0) == "failed"
    assert item_of(client, "x").state == "fail"


def test_bytes_that_are_no_text_reach_the_consumer_as_node_would_read_them(client: redis.Redis, kickq: KickqClient) -> None:
    client.hset("kickq:job:x", "itemData", b'{"id":"x","name":"mail","data":"a\xffb"}')
    client.rpush("kickq:queue:mail", "x")
    (job,) = kickq.take("mail", now=T0)
    assert job.payload == '"a\ufffdb"'.encode()
    assert kickq.complete(job, now=T0) == "completed"


def test_a_list_of_a_wrong_type_is_named(client: redis.Redis, kickq: KickqClient) -> None:
    put(client, "other")
    client.set("kickq:queue:mail", "no list")
    with pytest.raises(MalformedValue, match="kickq:queue:mail"):
        kickq.take("mail", now=T0)


def test_a_call_gives_documents_up_to_its_bytes_but_one_at_least(client: redis.Redis) -> None:
    for _ in range(3):
        put(client, payload=stringify("x" * 1000))
    live = KickqLive("kickq")
    taken = run(client, live.take("mail", "ours", 9, LEASE, fetch_bytes=100, now=T0))
    assert len(taken.jobs) == 1
    assert taken.more
    assert len(run(client, live.take("mail", "ours", 9, LEASE, fetch_bytes=10_000, now=T0)).jobs) == 2


def test_a_consumer_is_told_when_there_will_be_more(client: redis.Redis) -> None:
    live = KickqLive("kickq")
    assert run(client, live.take("mail", "ours", 1, LEASE, now=T0)).next_event_ms == T0 + LEASE
    assert run(client, live.take("mail", "other", 1, 50, now=T0)).next_event_ms == T0 + 50
    assert run(client, live.take("mail", "ours", 1, LEASE, now=T0)).next_event_ms == T0 + 50
    put(client, delay_ms=20)
    assert run(client, live.take("mail", "ours", 1, LEASE, now=T0)).next_event_ms == T0 + 20


# Putting


def test_a_publication_that_is_repeated_makes_one_job(client: redis.Redis) -> None:
    assert [put(client, publication=f"p-{number}") for number in (1, 1, 2, 2)] == ["1", "1", "2", "2"]
    assert client.lrange("kickq:queue:mail", 0, -1) == [b"1", b"2"]


def test_a_counter_that_was_lost_overwrites_no_job(client: redis.Redis, original: OriginalTeller) -> None:
    new(original)
    before = keys_of(client)[b"kickq:job:1"]
    client.delete("kickq:id")
    assert put(client) == "2"
    assert keys_of(client)[b"kickq:job:1"] == before


def test_a_job_can_be_given_an_id_that_is_no_number(client: redis.Redis, kickq: KickqClient) -> None:
    assert put(client, id="é-1", payload=b'"first"') == "é-1"
    assert put(client, id="é-1", payload=b'"second"') == "é-1"
    assert [(job.id, job.payload) for job in kickq.take("mail", 9, now=T0)] == [("é-1", b'"first"')]
    with pytest.raises(UsageError, match="no number"):
        put(client, id="17")


@pytest.mark.parametrize(
    "options",
    [
        {"colour": 1},
        {"attempts": -1},
        {"attempts": "3"},
        {"backoff": 2**32},
        {"backoff": {"type": "exponential"}},
        {"ttl": 0},
        {"retry": 1},
        {"processTimeout": 2**31},
    ],
    ids=str,
)
def test_options_that_kickq_cannot_use_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(options))):
        KickqLive("kickq").put(NewJob("mail", b"1", options=options))


def test_a_payload_that_is_no_json_is_refused() -> None:
    for payload in (b"", b"nope", b"NaN", b'1,"x":2', b"\xff"):
        with pytest.raises(UsageError, match="JSON"):
            KickqLive("kickq").put(NewJob("mail", payload))


@pytest.mark.parametrize(
    ("backoff", "interval"), [(50, 50), ({"type": "fixed", "delay": 50}, 50), (True, 1_800_000), (False, 0)], ids=str
)
def test_options_that_all_families_have_are_kickqs(client: redis.Redis, kickq: KickqClient, backoff: Any, interval: int) -> None:
    put(client, options={"attempts": 4, "backoff": backoff, "ttl": 70})
    (job,) = kickq.take("mail", now=T0)
    assert (job.max_attempts, job.time_limit_ms) == (4, 70)
    assert kickq.fail(job, "no", now=T0) == "scheduled"
    assert item_of(client, "1").scheduled_for == T0 + interval


# Removing, counting, finding


@pytest.mark.parametrize(
    ("state", "role"),
    [(new, "waiting"), (queued, "waiting"), (delayed, "scheduled"), (retry, "scheduled"), (success, "done"), (fail, "dead")],
)
def test_a_removed_job_leaves_nothing_but_the_counter(
    client: redis.Redis, original: OriginalTeller, kickq: KickqClient, state: Callable[[OriginalTeller], None], role: Any
) -> None:
    state(original)
    before = keys_of(client)
    for other in ("waiting", "scheduled", "done", "dead"):
        if other != role:
            assert kickq.cancel("mail", "1", other) is None  # type: ignore[arg-type]
    assert kickq.cancel("elsewhere", "1") is None
    assert keys_of(client) == before
    assert kickq.cancel("mail", "1", role) == role
    assert list(keys_of(client)) == [b"kickq:id"]
    assert side_keys(client) == []


@pytest.mark.parametrize("by_ours", [False, True])
def test_a_job_that_is_being_run_is_not_removed(
    client: redis.Redis, original: OriginalTeller, kickq: KickqClient, by_ours: bool
) -> None:
    new(original)
    assert (kickq if by_ours else original).take("mail", now=T0)
    before = keys_of(client)
    assert kickq.cancel("mail", "1") is None
    assert kickq.purge("mail") == 0
    assert keys_of(client) == before


def test_a_purge_deletes_what_waits_and_nothing_else(client: redis.Redis, original: OriginalTeller, kickq: KickqClient) -> None:
    processing(original)
    original.put("mail", "later", T0, delay=5)
    original.put("other", 1, T0)
    before = keys_of(client)
    for number in range(3):
        original.put("mail", number, T0)
    client.rpush("kickq:queue:mail", "1")
    assert kickq.purge("mail") == 3
    after = keys_of(client)
    assert (before.pop(b"kickq:id").value, after.pop(b"kickq:id").value) == (b"3", b"6")
    assert after == before


def test_sizes(original: OriginalTeller, kickq: KickqClient) -> None:
    for delay in (None, None, 10, 500):
        original.put("mail", 1, T0, **({} if delay is None else {"delay": delay}))
    original.put("other", 1, T0, delay=5)
    kickq.take("mail", now=T0)
    size = kickq.size("mail", now=T0 + 100)
    assert (size.waiting, size.due, size.scheduled, size.held, size.consumers) == (2, 1, 1, 1, 1)
    assert size.next_due_ms == T0 + 10
    assert kickq.size("nothing", now=T0).waiting == 0
    counts = kickq.stats()
    assert {word: count for word, count in counts.items() if count} == {"new": 1, "processing": 1, "delayed": 3}
    assert len(counts) == 8


@pytest.mark.parametrize("role", ["waiting", "scheduled"])
def test_tasks_are_found_by_their_ids(client: redis.Redis, role: Any) -> None:
    delay = 0 if role == "waiting" else 5
    for number in range(7):
        put(client, delay_ms=delay, extra=b'{"id":"uuid-%d"}' % number if number % 2 else None)
    put(client, "other", delay_ms=delay, extra=b'{"id":"uuid-1"}')
    live, wanted = KickqLive("kickq"), ["uuid-1", "kickq:3", "3", "uuid-5", "kickq:6"]
    found, seen, more = set(), 0, True
    while more:
        page = run(client, live.find("mail", wanted, role, seen=seen, limit=3))
        found |= {(task.id, task.task) for task in page.jobs}
        seen, more = seen + page.scanned, page.more
    assert found == {("2", "uuid-1"), ("3", "kickq:3"), ("6", "uuid-5")}


# The look before the first write


@pytest.mark.parametrize("state", STATES)
def test_a_keyspace_of_kickq_is_served(
    client: redis.Redis, original: OriginalTeller, state: Callable[[OriginalTeller], None]
) -> None:
    state(original)
    client.set("somebody:else", 1)
    before = keys_of(client)
    run(client, KickqLive("kickq").look())
    assert keys_of(client) == before
    assert side_keys(client) == []


def test_an_empty_keyspace_is_served_and_so_is_one_whose_jobs_have_all_gone(client: redis.Redis) -> None:
    run(client, KickqLive("kickq").look())
    client.set("kickq:id", 17)
    run(client, KickqLive("kickq").look())


@pytest.mark.parametrize(
    ("commands", "reason"),
    [
        ([("SET", "kickq:scheduled", 1)], "'kickq:scheduled' is a string"),
        ([("HSET", "kickq:state:new", 1, 1)], "'kickq:state:new' is a hash"),
        ([("ZADD", "kickq:time-index", 1, "1"), ("SET", "kickq:job:1", 1)], "'kickq:job:1' is a string"),
        ([("SET", "kickq:ids", 1), ("HSET", "kickq:job:1", "type", "mail")], "'kickq:ids' is not kickq's"),
        ([("HSET", "kickq:job:1", "type", "mail")], "'kickq:job:1' is not kickq's"),
        ([("SADD", "kickq:anything", 1)], "'kickq:anything' is not kickq's"),
    ],
)
def test_a_keyspace_of_another_program_is_refused(client: redis.Redis, commands: list[Any], reason: str) -> None:
    for words in commands:
        client.execute_command(*words)
    before = keys_of(client)
    with pytest.raises(KeyspaceRefused, match=reason):
        KickqClient(client).put("mail", 1)
    assert keys_of(client) == before
    assert side_keys(client) == []


@contextmanager
def user(client: redis.Redis, *rules: str) -> Iterator[redis.Redis]:
    """A connection of a user with these rights."""
    client.execute_command("ACL", "SETUSER", "clerk", "reset", "on", ">secret", *rules)
    port = client.connection_pool.connection_kwargs["port"]
    try:
        with redis.Redis(host="127.0.0.1", port=port, username="clerk", password="secret") as connected:
            yield connected
    finally:
        client.execute_command("ACL", "DELUSER", "clerk")


def test_a_user_who_may_not_write_is_told(client: redis.Redis) -> None:
    with user(client, "~*", "&*", "+@all", "-srem") as clerk, pytest.raises(KeyspaceRefused, match="can't be served"):
        run(clerk, KickqLive("kickq").look())


def test_a_user_who_may_not_publish_goes_without(client: redis.Redis) -> None:
    with user(client, "~kickq:*", "~ferryman:*", "resetchannels", "+@all") as clerk, Listener(client) as listener:
        kickq = KickqClient(clerk)
        kickq.put("mail", 1, now=T0)
        (job,) = kickq.take("mail", now=T0)
        assert kickq.complete(job, now=T0) == "completed"
        kickq.run_timers(now=T0 + DAY)
        assert listener.heard() == []
    assert list(keys_of(client)) == [b"kickq:id"]


@pytest.mark.parametrize("prefix", ["", "\udcff"])
def test_a_namespace_that_kickq_cannot_have_is_refused(prefix: str) -> None:
    with pytest.raises(UsageError, match="namespace"):
        KickqLive(prefix)


def test_side_keys_share_the_hash_tag_of_a_namespace(client: redis.Redis) -> None:
    kickq = KickqClient(client, "a{b}c", side_prefix="side")
    kickq.put("mail", 1, publication="p-1")
    assert client.exists("side:live:kickq:{b}:publisher:p") == 1
    assert client.exists(OriginalKickq("a{b}c").key("id")) == 1


def test_deliveries_are_those_of_a_foreign_family(client: redis.Redis, kickq: KickqClient) -> None:
    put(client, extra=b'{"task":"t"}', payload=b'{"a":[1]}')
    (job,) = kickq.take("mail", now=T0)
    assert isinstance(job, ForeignDelivery)
    assert (job.queue, job.name, job.payload, job.extra) == ("mail", None, b'{"a":[1]}', b'{"task":"t"}')
    assert (job.attempts, job.max_attempts, job.time_limit_ms, job.deliveries) == (0, 1, 10_000, 1)
    assert not job.redelivered
    assert not job.is_left_out


# Servers


@pytest.mark.servers
@pytest.mark.parametrize("name", GENERATIONS)
def test_every_generation_of_servers_runs_a_job_through_all_its_transitions(name: str, tmp_path: Path) -> None:
    kind = generation(name)
    if kind is None:
        pytest.skip(f"{name} is not installed")
    with kind.start(tmp_path) as server, server.client() as client:
        kickq = KickqClient(client, lease_ms=LEASE)
        kickq.put("mail", ["\ud800", {}], attempts=3, backoff=10, now=T0)
        kickq.put("mail", 2, delay_ms=10, now=T0)
        (job,) = kickq.take("mail", tasks=["mail"], now=T0)
        assert kickq.fail(job, "no", now=T0) == "scheduled"
        kickq.run_timers(now=T0 + 10)
        first, second = kickq.take("mail", 2, now=T0 + 10)
        assert kickq.requeue(second, now=T0 + 10)
        assert kickq.fail(first, Failure("", exception="TimeLimitExceeded"), now=T0 + 10) == "scheduled"
        assert kickq.take("mail", now=T0 + 10)
        assert [job.id for job in KickqClient(client).take("mail", now=T0 + 2 * LEASE)] == [second.id]
        assert kickq.size("mail", now=T0 + 2 * LEASE).scheduled == 1
        assert kickq.cancel("mail", first.id) == "scheduled"
        kickq.purge("mail")
        run(client, kickq.live.look())


@pytest.mark.servers
def test_a_full_server_refuses_new_jobs_and_lets_all_others_end(client: redis.Redis, kickq: KickqClient) -> None:
    for delay in (0, 0, 0, 5):
        put(client, delay_ms=delay, options={"attempts": 2})
    limit = client.config_get("maxmemory")["maxmemory"]
    client.config_set("maxmemory", 1)
    try:
        with pytest.raises(PublishRefused):
            put(client)
        first, second, third = kickq.take("mail", 3, now=T0)
        assert kickq.heartbeat("mail", now=T0)
        assert kickq.complete(first, now=T0) == "completed"
        assert kickq.fail(second, "no", now=T0) == "scheduled"
        assert kickq.requeue(third, now=T0)
        kickq.run_timers(now=T0 + 5)
        assert kickq.purge("mail") == 2
        kickq.close()
    finally:
        client.config_set("maxmemory", limit)
    assert client.get("kickq:id") == b"4"
