"""Transitions of kombu's keyspace that kombu has no equal of: leases, marks, tasks that are left alone, damage, own tags."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
import redis
from ferryman.compat.kombu.client import KombuClient
from ferryman.compat.kombu.keys import SEP, Settings
from ferryman.compat.kombu.live import KombuLive
from ferryman.compat.kombu.outgoing import task_message
from ferryman.schema.connection.call import run
from ferryman.schema.errors import KeyspaceRefused, PublishRefused, Unroutable, UsageError
from ferryman.schema.family import get_family
from ferryman.schema.live import NewJob

from ...support.dumps import dump

pytestmark = pytest.mark.in_turn

NOW = 1_795_263_735_123
LEASE = 30_000
HOUR = 3_600_000
ROOT = b"ferryman:live:kombu:{}:"


@pytest.fixture
def mine(client: redis.Redis) -> KombuClient:
    return KombuClient(client, consumer="ann", delivery_limit=2)


@pytest.fixture
def other(client: redis.Redis) -> KombuClient:
    return KombuClient(client, consumer="bob", delivery_limit=2)


def fill(mine: KombuClient, count: int, task: str = "t.add", **more: Any) -> list[str]:
    return [mine.publish("mail", task, [number], now=NOW, **more) for number in range(count)]


def score(client: redis.Redis, tag: str) -> float:
    found = client.zscore("unacked_index", tag)
    assert found is not None
    return float(found)


def waiting(client: redis.Redis) -> list[str]:
    """Delivery tags in the order of their runs."""
    texts = [text for step in ("", f"{SEP}3", f"{SEP}6", f"{SEP}9") for text in reversed(client.lrange(f"mail{step}", 0, -1))]
    return [json.loads(text)["properties"]["delivery_tag"] for text in texts]


# Leases and marks


def test_what_is_taken_stands_in_both_keys_of_kombu_with_the_time_of_the_take(client: redis.Redis, mine: KombuClient) -> None:
    one, two = fill(mine, 2)
    jobs = mine.take("mail", 2, now=NOW)
    assert [job.id for job in jobs] == [one, two]
    assert [job.name for job in jobs] == ["t.add"] * 2
    assert client.hget("unacked", one) == b"[" + jobs[0].payload + b', "", "mail"]'
    assert NOW / 1000 <= score(client, one) < score(client, two) < NOW / 1000 + 0.001


def test_a_renewal_makes_it_look_just_taken(client: redis.Redis, mine: KombuClient) -> None:
    one, two = fill(mine, 2)
    mine.take("mail", 2, now=NOW)
    assert mine.heartbeat("mail", now=NOW + 20_000)
    assert NOW / 1000 + 20 <= score(client, one) < score(client, two)
    assert not mine.take("mail", now=NOW + HOUR + 10_000), "still its own: an hour after the take, not after the renewal"


def test_timers_keep_what_runs_from_the_visibility_timeout_even_if_nobody_renews_in_time(client: redis.Redis) -> None:
    slow = KombuClient(client, consumer="ann", lease_ms=10 * HOUR)
    (tag,) = fill(slow, 1)
    slow.take("mail", now=NOW)
    for hours in range(1, 5):
        slow.run_timers(now=NOW + hours * HOUR // 2)
        assert score(client, tag) == pytest.approx((NOW + hours * HOUR // 2) / 1000, abs=0.001)
    slow.run_timers(now=NOW + 9 * HOUR)
    assert slow.held("mail") == (tag,)


def test_a_lapsed_consumers_messages_run_next_in_the_order_of_their_takes(
    client: redis.Redis, mine: KombuClient, other: KombuClient
) -> None:
    tags = fill(mine, 4)
    mine.take("mail", 3, now=NOW)
    other.run_timers(now=NOW + LEASE + 1)
    assert waiting(client) == tags
    assert not client.exists("unacked", "unacked_index")
    assert not mine.heartbeat("mail", now=NOW + LEASE + 2)
    jobs = other.take("mail", 4, now=NOW + LEASE + 3)
    assert [job.deliveries for job in jobs] == [2, 2, 2, 1]
    assert jobs[0].redelivered


def test_the_end_of_a_lost_message_writes_nothing(client: redis.Redis, mine: KombuClient, other: KombuClient) -> None:
    fill(mine, 1)
    (job,) = mine.take("mail", now=NOW)
    other.take("mail", now=NOW + LEASE + 1)
    before = dump(client)
    assert mine.complete(job, now=NOW) == mine.fail(job, "x", now=NOW) == mine.retry(job, now=NOW) == "lost"
    assert not mine.requeue(job, now=NOW)
    assert not mine.progress(job, 1, 2)
    assert dump(client) == before


def test_what_kombu_has_given_to_its_own_worker_since_is_not_ours_any_more(client: redis.Redis, mine: KombuClient) -> None:
    """kombu restores it after its visibility timeout, and a worker of kombu takes it: the same tag in the same keys."""
    (tag,) = fill(mine, 1)
    (job,) = mine.take("mail", now=NOW)
    client.zadd("unacked_index", {tag: NOW / 1000 + 7200.25})
    assert mine.complete(job, now=NOW) == "lost"
    assert mine.held("mail") == ()
    mine.run_timers(now=NOW + LEASE + 1)
    assert client.hkeys("unacked") == [tag.encode()]
    assert not [key for key in client.scan_iter(ROOT + b"*") if b"publisher" not in key]


def test_a_message_that_lapses_too_often_is_left_to_the_visibility_timeout(client: redis.Redis, mine: KombuClient) -> None:
    (tag,) = fill(mine, 1)
    now = NOW
    for _ in range(3):
        (job,) = KombuClient(client, delivery_limit=2).take("mail", now=now)
        now += LEASE + 1
    assert job.deliveries == 3
    mine.run_timers(now=now)
    assert waiting(client) == []
    assert client.hkeys("unacked") == [tag.encode()]
    mine.run_timers(now=now + HOUR)
    assert waiting(client) == [tag]


def test_what_was_never_begun_goes_back_as_it_was_first(client: redis.Redis, mine: KombuClient) -> None:
    tags = fill(mine, 5)
    mine.take("mail", 3, now=NOW)
    assert mine.send(mine.live.release("mail", "ann", [tags[1], "stranger"])) == 1
    assert waiting(client) == [tags[1], tags[3], tags[4]]
    mine.close()
    assert waiting(client) == [tags[0], tags[2], tags[1], tags[3], tags[4]]


# Retries


def test_a_retry_is_celerys_next_attempt_in_one_step(client: redis.Redis, mine: KombuClient) -> None:
    (tag,) = fill(mine, 1, priority=6)
    (job,) = mine.take("mail", now=NOW)
    before = json.loads(job.payload)
    assert mine.retry(job, 90_000, now=NOW) == "waiting"
    (text,) = client.lrange(f"mail{SEP}6", 0, -1)
    after = json.loads(text)
    assert after["headers"] == {**before["headers"], "retries": 1, "eta": "2026-11-21T12:23:45.123000+00:00"}
    assert {**after, "headers": None} == {**before, "headers": None}
    (again,) = mine.take("mail", now=NOW)
    assert (again.id, again.attempts) == (tag, 1)
    assert mine.retry(again, now=NOW) == "waiting"
    assert json.loads(mine.peek("mail")[0])["headers"]["eta"] is None


def test_another_message_can_take_its_place(client: redis.Redis, mine: KombuClient) -> None:
    fill(mine, 2)
    (job,) = mine.take("mail", now=NOW)
    replacement = json.dumps(task_message("t.other", priority=9)).encode()
    call = mine.live.retry("mail", "ann", job.id, 1000, failure=None, payload=replacement, now=NOW)  # type: ignore[arg-type]
    assert mine.send(call) == "waiting"
    headers = json.loads(client.lrange(f"mail{SEP}9", 0, -1)[0])["headers"]
    assert (headers["task"], headers["retries"], headers["eta"]) == ("t.other", 0, "2026-11-21T12:22:16.123000+00:00")


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "1970-01-01T00:00:00+00:00"),
        (951_782_399_999, "2000-02-28T23:59:59.999000+00:00"),
        (951_782_400_000, "2000-02-29T00:00:00+00:00"),
        (1_709_251_200_000, "2024-03-01T00:00:00+00:00"),
        (4_107_542_399_001, "2100-02-28T23:59:59.001000+00:00"),
        (4_107_542_400_000, "2100-03-01T00:00:00+00:00"),
    ],
)
def test_moments_are_written_as_celery_reads_them(client: redis.Redis, mine: KombuClient, ms: int, text: str) -> None:
    mine.publish("mail", "t", delay_ms=1, now=ms - 1)
    assert json.loads(client.lindex("mail", 0) or "")["headers"]["eta"] == text


# Tasks that this consumer does not know, and damage


def test_a_task_that_is_not_known_stays_where_it_is(client: redis.Redis, mine: KombuClient) -> None:
    one, two = fill(mine, 2, "t.theirs")
    (three,) = fill(mine, 1, "t.ours")
    (four,) = fill(mine, 1, "t.theirs")
    (job,) = mine.take("mail", 5, tasks={"t.ours"}, now=NOW)
    assert job.id == three
    assert waiting(client) == [one, two, four]


def test_the_task_of_an_old_message_stands_in_its_body(mine: KombuClient) -> None:
    for name in ("t.ours", "t.théirs"):
        old = task_message(name)
        body = json.dumps({"task": name, "id": "x", "args": ["pad" * len(name)], "kwargs": {}, "é": 1}, ensure_ascii=False)
        for text, encoding in ((body, None), (body, "base64")):
            encoded = base64.b64encode(text.encode()).decode() if encoding else text
            properties = {**old["properties"], "body_encoding": encoding}
            mine.put("mail", {**old, "body": encoded, "headers": {}, "properties": properties})
    assert len(mine.take("mail", 9, tasks={"t.ours"}, now=NOW)) == 2
    assert len(mine.take("mail", 9, tasks={"t.théirs"}, now=NOW)) == 2


def test_behind_thousands_that_are_left_there_is_still_something_to_take(client: redis.Redis, mine: KombuClient) -> None:
    theirs, found = json.dumps(stored("theirs", "t.theirs")), ()
    client.lpush("mail", *([theirs] * 2500))
    ours = fill(mine, 2, "t.ours")
    calls = 0
    while not found and calls < 5:
        calls += 1
        taken = mine.send(mine.live.take("mail", "ann", 1, LEASE, tasks={"t.ours"}, now=NOW))
        found = taken.jobs
        assert found or taken.more, "a consumer that found nothing yet must look again at once"
    assert [job.id for job in found] == ours[:1]
    assert calls == 3
    assert [job.id for job in mine.take("mail", tasks={"t.ours"}, now=NOW)] == ours[1:]
    assert client.llen("mail") == 2500


def stored(tag: Any, task: str = "t.add", **properties: Any) -> dict[str, Any]:
    """A message as it stands in a list."""
    message = task_message(task)
    info = {"exchange": "", "routing_key": "mail"}
    message["properties"] |= {"delivery_tag": tag, "delivery_info": info, **properties}
    return message


DAMAGE = {
    "no JSON": b"{not json",
    "empty": b"",
    "binary": b"\x80\x04\x95",
    "a list": b"[1, 2]",
    "a number": b"17",
    "no properties": b'{"body": "x", "headers": {}}',
    "no tag": json.dumps(stored(None)).encode(),
    "an empty tag": json.dumps(stored("")).encode(),
    "no delivery_info": json.dumps(stored("t", delivery_info=None)).encode(),
    "a routing key that is a number": json.dumps(stored("t", delivery_info={"exchange": "", "routing_key": 3})).encode(),
    "headers that are a list": json.dumps({**stored("t"), "headers": [1]}).encode(),
    "a body that is an object": json.dumps({**stored("t"), "body": {"a": 1}}).encode(),
}


@pytest.mark.parametrize("text", DAMAGE.values(), ids=DAMAGE)
def test_damage_neither_kills_nor_blocks_and_stays(client: redis.Redis, mine: KombuClient, text: bytes) -> None:
    client.lpush("mail", text)
    (tag,) = fill(mine, 1)
    assert [job.id for job in mine.take("mail", 5, now=NOW)] == [tag]
    assert client.lrange("mail", 0, -1) == [text]


ODD = {
    "a numeric tag": stored(17),
    "no headers": {**stored("t"), "headers": None},
    "headers missing": {name: part for name, part in stored("t").items() if name != "headers"},
    "no body": {**stored("t"), "body": None},
    "quotes and braces in texts": {**stored('t"}{'), "body": '{"a": "}]\\"'},
    "numbers that doubles can't hold": {**stored("t"), "headers": {"task": "x", "n": 12345678901234567890, "f": 1e400, "e": []}},
    "a message moved here by hand": stored("t", delivery_info={"exchange": "", "routing_key": "elsewhere"}),
}


@pytest.mark.parametrize("message", ODD.values(), ids=ODD)
def test_odd_messages_come_and_go_without_a_change_but_that_they_were_delivered(
    client: redis.Redis, mine: KombuClient, message: dict[str, Any]
) -> None:
    text = json.dumps(message).replace("Infinity", "1e400").encode()
    client.lpush("mail", text)
    (job,) = mine.take("mail", now=NOW)
    assert job.payload == text
    assert mine.requeue(job)
    (back,) = client.lrange("mail", 0, -1)
    flags = back.replace(b', "redelivered": true', b"").replace(b'"redelivered": true', b"")
    assert flags == text
    assert json.loads(back)["properties"]["delivery_info"]["redelivered"] is True


@pytest.mark.parametrize(
    "value", [b"no json", b"[]", b'["x", "", "mail"]', b'[{"body": 1}, "", "mail"]', b'[{}, "", "mail"]', b"17"]
)
def test_damage_in_what_somebody_has_is_kept_and_never_in_the_way(client: redis.Redis, mine: KombuClient, value: bytes) -> None:
    delivery = json.dumps([stored("fine"), "", "mail"])
    client.hset("unacked", mapping={"bad": value, "fine": delivery})
    client.zadd("unacked_index", {"bad": 1, "fine": 2, "gone": 3})
    mine.run_timers(now=NOW)
    assert waiting(client) == ["fine"]
    assert client.hgetall("unacked") == {b"bad": value}
    assert client.zrange("unacked_index", 0, -1) == [b"bad"]


def test_a_held_message_whose_exchange_leads_nowhere_is_kept(client: redis.Redis, mine: KombuClient) -> None:
    """kombu would drop it."""
    delivery = json.dumps([stored("lost", delivery_info={"exchange": "gone", "routing_key": "k"}), "gone", "k"])
    client.hset("unacked", "lost", delivery)
    client.zadd("unacked_index", {"lost": 1})
    mine.run_timers(now=NOW)
    assert client.hkeys("unacked") == [b"lost"]
    mine.bind("mail", "gone", "k")
    mine.run_timers(now=NOW + 2 * HOUR + 10**9)
    assert waiting(client) == ["lost"]


# Own tags


def test_copies_of_one_message_in_several_queues_are_ended_one_by_one(
    client: redis.Redis, mine: KombuClient, other: KombuClient
) -> None:
    """With kombu alone, the first ack acks them all: a consumer that dies with another copy loses it."""
    for queue in ("mail", "audit"):
        mine.bind(queue, "news", "news.#", topic=True)
    tag = mine.put("", task_message("t.n"), exchange="news", routing_key="news.a")
    (one,) = mine.take("mail", now=NOW)
    (two,) = other.take("audit", now=NOW)
    assert {one.id, two.id} == {f"{tag}~1", f"{tag}~2"}
    assert mine.complete(one) == "removed"
    assert client.hkeys("unacked") == [two.id.encode()]
    mine.run_timers(now=NOW + LEASE + 1)
    assert client.llen("audit") == 1
    assert client.llen("mail") == 0, "a copy goes back to its own queue alone"
    (again,) = other.take("audit", now=NOW + LEASE + 2)
    assert again.id == f"{tag}~1"


def test_a_tag_that_somebody_has_is_not_taken_over(client: redis.Redis, mine: KombuClient) -> None:
    """A publish that kombu repeated after a broken connection: the same message twice."""
    client.lpush("mail", *[json.dumps(stored("twin"))] * 2)
    jobs = mine.take("mail", 2, now=NOW)
    assert [job.id for job in jobs] == ["twin", "twin~1"]
    assert {mine.complete(job) for job in jobs} == {"removed"}
    assert not client.exists("mail", "unacked")


# Publishing


def test_a_publication_that_is_repeated_makes_one_message(client: redis.Redis, mine: KombuClient) -> None:
    tags = [mine.publish("mail", "t", publication=f"pub-{number}") for number in (1, 1, 2, 2)]
    assert tags == [tags[0], tags[0], tags[2], tags[2]]
    assert waiting(client) == [tags[0], tags[2]]


def test_a_publish_that_leads_nowhere_is_not_remembered(client: redis.Redis, mine: KombuClient) -> None:
    for _ in range(2):
        with pytest.raises(Unroutable):
            mine.put("", task_message("t"), exchange="x", routing_key="k", publication="pub-1")
    mine.bind("mail", "x", "k")
    mine.put("", task_message("t"), exchange="x", routing_key="k", publication="pub-1")
    assert client.llen("mail") == 1


def test_queues_that_expire_do(client: redis.Redis, mine: KombuClient) -> None:
    mine.publish("mail", "t", priority=3, expires_ms=50_000)
    assert 40_000 < client.pttl(f"mail{SEP}3") <= 50_000
    mine.bind(
        "mail",
        "mail",
        "mail",
        expires_ms=50_000,
    )
    assert client.zcard("_kombu.binding_deadlines") == 1
    assert not client.exists("_kombu.binding_permanent.mail")


def test_binding_tables_of_queues_that_have_expired_are_swept(client: redis.Redis, mine: KombuClient) -> None:
    send = mine.send
    send(mine.live.bind("gone", "gone", "gone", expires_ms=1, now=NOW))
    send(mine.live.bind("both", "both", "k", expires_ms=1, now=NOW))
    send(mine.live.bind("stays", "both", "k", now=NOW))
    mine.run_timers(now=NOW + HOUR - 1)
    assert client.exists("_kombu.binding.gone")
    mine.run_timers(now=NOW + HOUR + 1)
    assert not client.exists("_kombu.binding.gone", "_kombu.binding_deadlines")
    assert client.scard("_kombu.binding.both") == 2
    mine.unbind("stays", "both", "k")
    assert not client.exists("_kombu.binding_permanent.both")


@pytest.mark.parametrize(
    "payload", [b"17", b"no json", b"[]", b'{"properties": 3}', b'{"properties": {}, "headers": 3}', b'{"body": {}}']
)
def test_what_is_no_message_is_refused_before_anything_is_written(client: redis.Redis, payload: bytes) -> None:
    with pytest.raises(UsageError, match="no message of kombu"):
        run(client, KombuLive().put(NewJob("mail", payload)))
    assert client.dbsize() == 0


def test_options_that_can_not_be_are_refused() -> None:
    payload = json.dumps(task_message("t")).encode()
    with pytest.raises(UsageError, match="unknown option 'ttl'"):
        KombuLive().put(NewJob("mail", payload, options={"ttl": 3}))
    with pytest.raises(UsageError, match="needs a queue"):
        KombuLive().put(NewJob("", payload))
    with pytest.raises(UsageError, match="needs a name"):
        KombuLive().size("")


# Everything that is not one's own


def test_waiting_tasks_are_found_by_their_ids_in_chunks_and_cancelled(mine: KombuClient) -> None:
    ids = [f"task-{number}" for number in range(25)]
    for number, task_id in enumerate(ids):
        mine.publish("mail", "t", task_id=task_id, priority=number % 10)
    wanted = {"task-3", "task-17", "task-24", "stranger"}
    found, seen, more = {}, 0, True
    while more:
        part = mine.send(mine.live.find("mail", wanted, seen=seen, limit=7))
        found |= {task.task: task.id for task in part.jobs}
        seen, more = seen + part.scanned, part.more
    assert seen == 25
    assert set(found) == wanted - {"stranger"}
    assert mine.cancel("mail", found["task-3"], "scheduled") is None
    assert [mine.cancel("mail", tag) for tag in found.values()] == ["waiting"] * 3
    assert [mine.cancel("mail", tag) for tag in found.values()] == [None] * 3
    assert mine.size("mail").waiting == 22


def test_what_somebody_has_is_not_cancelled_and_not_purged(mine: KombuClient) -> None:
    (tag,) = fill(mine, 1)
    (job,) = mine.take("mail")
    assert mine.cancel("mail", tag) is None
    assert mine.purge("mail") == 0
    size = mine.size("mail")
    assert (size.waiting, size.held, size.consumers) == (0, 1, 1)
    assert mine.complete(job) == "removed"


def test_a_purge_takes_those_first_that_would_run_last(client: redis.Redis, mine: KombuClient) -> None:
    tags = [mine.publish("mail", "t", priority=priority) for priority in (0, 0, 3, 9)]
    purged = mine.send(mine.live.purge("mail", limit=3))
    assert (purged.jobs, purged.more) == (3, True)
    assert waiting(client) == tags[:1]


def test_other_separators_steps_and_names_of_the_fleet_are_obeyed(client: redis.Redis) -> None:
    settings = Settings(sep=":", priority_steps=(0, 5), unacked_key="u", unacked_index_key="i", visibility_timeout=10)
    mine = KombuClient(client, "app:", settings=settings)
    mine.publish("mail", "t", priority=7)
    assert client.smembers("app:_kombu.binding.mail") == {b"mail::mail"}
    assert client.llen("app:mail:5") == 1
    (job,) = mine.take("mail", now=NOW)
    assert client.hkeys("app:u") == client.zrange("app:i", 0, -1) == [job.id.encode()]
    assert mine.live.signals("mail") == (b"app:mail", b"app:mail:5")
    mine.send(mine.live.release("mail", mine.consumer, None))
    assert client.llen("app:mail:5") == 1


def test_the_family_gives_its_live_keyspace_with_its_settings() -> None:
    live = get_family("kombu", (("visibility_timeout", 5.0),)).live("app:", "side")
    assert isinstance(live, KombuLive)
    assert (live.prefix, live.side_prefix, live.settings.visibility_ms) == ("app:", "side", 5000)


# Before the first write


def test_an_empty_database_and_kombus_own_are_served(client: redis.Redis, mine: KombuClient) -> None:
    run(client, mine.live.look())
    fill(mine, 1)
    client.hset("somebody", "else", "1")
    run(client, mine.live.look())


@pytest.mark.parametrize(("key", "other"), [("unacked", "list"), ("unacked_index", "string")])
def test_keys_of_another_type_are_refused(client: redis.Redis, mine: KombuClient, key: str, other: str) -> None:
    client.execute_command("RPUSH" if other == "list" else "SET", key, "x")
    before = dump(client)
    with pytest.raises(KeyspaceRefused, match=f"'{key}' is a {other}"):
        fill(mine, 1)
    assert dump(client) == before


def test_a_keyspace_of_another_system_is_refused_by_name(client: redis.Redis) -> None:
    client.zadd("q:jobs", {"01|1": 0})
    client.hset("q:job:1", mapping={"type": "mail", "state": "inactive"})
    with pytest.raises(KeyspaceRefused, match="family=kue"):
        KombuClient(client, "q:").publish("mail", "t")
    with pytest.raises(KeyspaceRefused, match="family=kue"):
        KombuClient(client, "q").publish("mail", "t")


def test_a_full_server_refuses_publishes_and_lets_consumers_drain(client: redis.Redis, mine: KombuClient) -> None:
    fill(mine, 2)
    try:
        client.config_set("maxmemory", 1)
        with pytest.raises(PublishRefused):
            fill(mine, 1)
        for job in mine.take("mail", 2):
            assert mine.complete(job) == "removed"
        assert not client.exists("mail", "unacked")
    finally:
        client.config_set("maxmemory", 0)
