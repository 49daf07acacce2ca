"""Transitions of bee that a client of ours makes, one by one: what they leave, what they refuse, and what they pass over."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from ferryman.compat.bee.live import BeeLive, arguments_of, hive_of
from ferryman.schema.errors import PublishRefused, UsageError
from ferryman.schema.live import Failure, ForeignDelivery, NewJob
from ferryman.schema.native.scripts.results import Purged, Renewed

from ...support.bee import events, keyspace, side_keys
from .served import ANN, BOB, Keyspace, T

pytestmark = pytest.mark.in_turn

# Deliveries


def test_a_delivery_tells_what_a_task_needs(bee: Keyspace) -> None:
    bee.put("a", ["x", {"y": 1}], priority=3, retries=2, extra=b'{"task":"resize","id":"t"}')
    (job,) = bee.take().jobs
    assert isinstance(job, ForeignDelivery)
    assert (job.id, job.queue, job.payload, job.extra) == ("a", "mail", b'["x",{"y":1}]', b'{"task":"resize","id":"t"}')
    assert (job.priority, job.score, job.deliveries, job.attempts, job.max_attempts) == (3, T, 1, 0, 3)
    bee.send(bee.live.retry("mail", ANN, "a", 10, failure=Failure("again"), payload=b'["z"]', extra=b"{}", now=T + 1))
    (job,) = bee.take(now=T + 11).jobs
    assert isinstance(job, ForeignDelivery)
    assert (job.payload, job.extra, job.deliveries, job.attempts) == (b'["z"]', b"{}", 2, 1)


@pytest.mark.parametrize(
    ("payload", "data", "taken"),
    [
        (b"[1]", "[1]", b"[1]"),
        (b" [] ", "{}", b"[]"),
        (b"null", "{}", b"[]"),
        (b'{"task":"t","args":[1],"kwargs":{}}', None, b'[{"task":"t","args":[1],"kwargs":{}}]'),
        (b'"text"', '["text"]', b'["text"]'),
    ],
)
def test_a_payload_is_the_list_of_arguments_or_the_only_one(
    bee: Keyspace, payload: bytes, data: str | None, taken: bytes
) -> None:
    jid = bee.send(bee.live.put(NewJob("mail", payload), now=T))
    if data is not None:
        assert bee.field(jid, "data") == data
    (job,) = bee.take().jobs
    assert isinstance(job, ForeignDelivery)
    assert json.loads(job.payload) == json.loads(taken.replace(b'"args":[1],"kwargs":{}', b'"kwargs":{},"args":[1]'))


def test_celery_gets_back_exactly_what_it_has_put_and_bee_sees_what_it_would_have_stored(bee: Keyspace) -> None:
    bee.live = BeeLive(hashes=False)
    arguments = b'[[],{"a":[]},12345678901234567,"a/b"]'
    celerys = bee.send(bee.live.put(NewJob("mail", arguments, extra=b'{"task":"t"}'), now=T))
    own = bee.send(bee.live.put(NewJob("mail", arguments), now=T + 1))
    payloads = [job.payload for job in bee.take(n=2, now=T + 2).jobs if isinstance(job, ForeignDelivery)]
    assert payloads == [arguments, b'[{},{"a":{}},1.2345678901235e+16,"a\\/b"]']
    seen = [bee.send(bee.live.get([jid], now=T))[0]["data"] for jid in (celerys, own)]
    assert seen[0] == seen[1] == [{}, {"a": {}}, 1.2345678901235e16, "a/b"]
    bee.send(bee.live.retry("mail", ANN, celerys, 0, failure=Failure("x"), payload=b'[[],{"b":[]}]', now=T + 3))
    assert [job.payload for job in bee.take(now=T + 4).jobs if isinstance(job, ForeignDelivery)] == [b'[[],{"b":[]}]']


def test_what_others_have_stored_as_arguments_is_given_as_a_list() -> None:
    assert [arguments_of(raw) for raw in (b"[1]", b"{}", b'{"a":1}', b'"x"')] == [b"[1]", b"[]", b'[{"a":1}]', b'["x"]']


def test_a_job_has_an_id_like_bees_own_unless_it_is_given_one(bee: Keyspace) -> None:
    jid = bee.send(bee.live.put(NewJob("mail", b"[1]"), now=T))
    assert jid[14] == "1"
    assert jid == jid.lower()


def test_jobs_come_in_no_more_bytes_than_asked_for_but_one_at_least(bee: Keyspace) -> None:
    for jid in "abc":
        bee.put(jid, [jid * 1000])
    assert bee.ids(n=3, fetch_bytes=10) == ["a"]
    taken = bee.take(n=3, fetch_bytes=1500)
    assert [job.id for job in taken.jobs] == ["b"]
    assert taken.more


def test_the_next_event_is_the_next_due_time_or_a_second_where_others_leave_jobs(bee: Keyspace) -> None:
    assert bee.take(now=T).next_event_ms == T + 30_000
    bee.put("later", delay_ms=7000)
    assert bee.take(now=T).next_event_ms == T + 7000
    bee.ids(BOB)
    bee.put("a")
    bee.put("b", [2])
    taken = bee.take(n=2)
    assert ([job.id for job in taken.jobs], taken.next_event_ms) == (["a"], T + 1000)


def test_nobody_is_told_to_come_before_a_job_is_due(bee: Keyspace) -> None:
    """Delays may be fractions of a ms, and clients sleep whole ones: they would find nothing."""
    bee.put("later", delay_ms=7000)
    bee.client.zadd("bee:ss:delayed:mail", {"later": T + 7000.3})
    assert bee.take(now=T).next_event_ms == T + 7001
    assert bee.send(bee.live.size("mail", now=T)).next_due_ms == T + 7001
    assert bee.ids(now=T + 7000) == []
    assert bee.ids(now=T + 7001) == ["later"]


def test_a_consumer_is_a_worker_of_bee(bee: Keyspace) -> None:
    assert hive_of("host:1:x") == "host:1:x"
    assert hive_of("5f0c") == "ferryman:0:5f0c"
    assert hive_of("a:b") == "ferryman:0:a-b"
    bee.put("a")
    bee.ids("5f0c")
    assert bee.field("a", "worker") == "ferryman:0:5f0c:mail"
    assert bee.send(bee.live.held("mail", "5f0c")) == ("a",)


# Jobs of tasks that a consumer knows


def test_only_jobs_of_known_tasks_are_taken(bee: Keyspace) -> None:
    bee.put("a", ["a"])
    bee.put("b", ["b"], extra=b'{"task":"resize"}')
    bee.put("c", ["c"], extra=b'{"task":"other"}')
    taken = bee.take(n=5, tasks=["resize"])
    assert [job.id for job in taken.jobs] == ["b"]
    bee.put("d", ["d"])
    assert sorted(taken.unknown) == ["mail", "other"]
    assert not taken.more
    assert bee.ids(n=5, tasks=[]) == []
    assert bee.take(n=5, tasks=["other task"]).unknown == ("mail", "other")
    assert bee.ids(n=5, tasks=["mail"]) == ["a", "d"]
    assert bee.ids(n=5) == ["c"]


def test_jobs_behind_many_of_unknown_tasks_are_found(bee: Keyspace) -> None:
    for number in range(1500):
        bee.client.hset(f"bee:h:jobs:{number}", mapping={"jid": number, "queue": "mail", "status": "queued", "options": "{}"})
        bee.client.zadd("bee:ss:queue:mail", {str(number): T - 10_000 + number})
    for number in range(700):
        bee.put(f"known{number}", [number], extra=b'{"task":"t"}')
    found = []
    for number in range(60):
        found += bee.ids(n=1, tasks=["t"], now=T + number)
    assert len(found) > 10


# Giving back


def test_a_job_that_was_never_begun_gets_its_turn_of_before(bee: Keyspace) -> None:
    for number, jid in enumerate("abc"):
        bee.put(jid, [jid], now=T + number)
    assert bee.ids(n=3, now=T + 10) == ["a", "b", "c"]
    assert bee.send(bee.live.release("mail", ANN, ["b", "x"], now=T + 20)) == 1
    assert bee.send(bee.live.requeue("mail", ANN, ["a", "x"], now=T + 21)) == (True, False)
    assert bee.client.zrange("bee:ss:queue:mail", 0, -1, withscores=True) == [(b"b", T + 1), (b"a", T + 21)]
    assert bee.story("a") == ["submitted", "queued", "popped", "queued"]
    assert (bee.field("a", "status"), bee.field("a", "retries")) == ("queued", "0")
    assert bee.send(bee.live.release("mail", ANN, None, now=T + 22)) == 1
    assert bee.send(bee.live.held("mail", ANN)) == ()


def test_what_is_given_back_wakes_a_worker(bee: Keyspace) -> None:
    bee.put("a")
    bee.ids()
    with events(bee.client) as published:
        bee.send(bee.live.requeue("mail", ANN, ["a"], now=T))
    assert published == [("bee:ch:q:mail", {"queue": "mail", "jid": "a", "type": "new"})]


def test_a_consumer_that_ends_gives_back_all_and_leaves_no_side_key(bee: Keyspace) -> None:
    for number in range(3):
        bee.put(str(number), [number])
    bee.ids(n=3)
    assert side_keys(bee.client) != []
    assert bee.send(bee.live.forget("mail", ANN, now=T)) == 3
    assert side_keys(bee.client) == []
    assert bee.send(bee.live.renew("mail", ANN, 30_000, now=T)) is Renewed.LAPSED


# Ends that come too late


ENDS: dict[str, Callable[[Keyspace], Any]] = {
    "complete": lambda bee: bee.send(bee.live.complete("mail", ANN, [("a", b"1")], now=T + 9))[0] == "lost",
    "fail": lambda bee: bee.send(bee.live.fail("mail", ANN, "a", Failure("no"), now=T + 9)) == "lost",
    "retry": lambda bee: bee.send(bee.live.retry("mail", ANN, "a", 5, failure=Failure("no"), now=T + 9)) == "lost",
    "reject": lambda bee: not bee.send(bee.live.reject("mail", ANN, "a", "no", now=T + 9)),
    "ack": lambda bee: bee.send(bee.live.ack("mail", ANN, ["a"], now=T + 9))[0] == "lost",
    "progress": lambda bee: not bee.send(bee.live.progress("mail", ANN, "a", 1, 2, now=T + 9)),
    "requeue": lambda bee: bee.send(bee.live.requeue("mail", ANN, ["a"], now=T + 9)) == (False,),
    "release": lambda bee: bee.send(bee.live.release("mail", ANN, ["a"], now=T + 9)) == 0,
}


def _cancelled(bee: Keyspace) -> None:
    bee.send(bee.live.cancel("a", now=T + 5))


def _given_up(bee: Keyspace) -> None:
    for number in range(1, 5):
        bee.take("eve:1:eve", 0, now=T + 45_000 * number)


def _given_up_and_taken(bee: Keyspace) -> None:
    _given_up(bee)
    assert bee.ids(BOB, now=T + 190_000) == ["a"]


def _ended(bee: Keyspace) -> None:
    assert bee.send(bee.live.complete("mail", ANN, [("a", None)], now=T + 5)) == ("completed",)


def _gone(bee: Keyspace) -> None:
    bee.client.delete("bee:h:jobs:a")


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
@pytest.mark.parametrize("before", [_cancelled, _given_up, _given_up_and_taken, _ended, _gone])
def test_an_end_of_what_is_not_the_consumers_any_more_is_lost_and_writes_nothing(
    bee: Keyspace, end: Callable[[Keyspace], bool], before: Callable[[Keyspace], None]
) -> None:
    bee.put("a")
    assert bee.ids() == ["a"]
    before(bee)
    found = keyspace(bee.client)
    with events(bee.client) as published:
        assert end(bee)
    assert keyspace(bee.client) == found
    assert published == []


def test_a_heartbeat_takes_no_lock_for_a_job_that_is_somebody_elses(bee: Keyspace) -> None:
    bee.put("a")
    bee.ids()
    bee.client.hset("bee:h:jobs:a", "worker", "other:1:x:mail")
    bee.client.zrem("bee:ss:locks:mail", "a")
    assert bee.send(bee.live.renew("mail", ANN, 30_000, now=T + 1)) is Renewed.DONE
    assert not bee.client.exists("bee:ss:locks:mail")


# Errors


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (Failure("boom"), "boom"),
        (Failure("boom", "Traceback\nboom", "KeyError"), "KeyError: boom"),
        (Failure("KeyError: 'x'", exception="KeyError"), "KeyError: 'x'"),
        (Failure(""), ""),
    ],
)
def test_of_an_error_its_name_and_message_are_stored(bee: Keyspace, failure: Failure, reason: str) -> None:
    bee.put("a", retries=0)
    bee.ids()
    assert bee.send(bee.live.fail("mail", ANN, "a", failure, now=T)) == "failed"
    assert bee.field("a", "failedReason") == reason
    assert bee.story("a")[-2:] == ["exception", "failed"]


def test_a_result_that_json_has_no_form_for_is_null(bee: Keyspace) -> None:
    for jid, result in (("a", b"NaN"), ("b", b"no json"), ("c", None)):
        bee.put(jid, [jid])
        bee.ids()
        assert bee.send(bee.live.complete("mail", ANN, [(jid, result)], now=T)) == ("completed",)
        assert bee.field(jid, "result") == "null"


# Putting


def test_a_publication_that_is_repeated_makes_one_job(bee: Keyspace) -> None:
    first = bee.send(bee.live.put(NewJob("mail", b"[1]", publication="p-1"), now=T))
    found = keyspace(bee.client)
    assert bee.send(bee.live.put(NewJob("mail", b"[1]", publication="p-1"), now=T + 1)) == first
    assert keyspace(bee.client) == found
    assert bee.send(bee.live.put(NewJob("mail", b"[1]", publication="p-2"), now=T + 2)) != first


@pytest.mark.parametrize(
    "job",
    [
        NewJob("mail", b"[1]", id="a"),
        NewJob("mail", b"[1]", options={"parent": "gone"}),
        NewJob("mail", b"[NaN]"),
        NewJob("mail", b"[" * 1100 + b"]" * 1100),
        NewJob("mail", b"no json"),
    ],
    ids=["known id", "cancelled parent", "no number", "too deep", "no JSON"],
)
def test_what_bee_would_stumble_over_is_refused_before_the_first_write(bee: Keyspace, job: NewJob) -> None:
    bee.put("a")
    bee.put("gone")
    bee.send(bee.live.cancel("gone", now=T))
    found = keyspace(bee.client)
    with pytest.raises(UsageError):
        bee.send(bee.live.put(job, now=T))
    assert keyspace(bee.client) == found


def test_a_full_server_takes_no_job_but_goes_on_being_drained(bee: Keyspace) -> None:
    bee.put("a", retries=0)
    bee.put("b", [2])
    used = bee.client.info("memory")["used_memory"]
    bee.client.config_set("maxmemory", max(1, used // 2))
    try:
        with pytest.raises(PublishRefused):
            bee.put("c")
        assert bee.ids(n=2) == ["a", "b"]
        assert bee.send(bee.live.renew("mail", ANN, 30_000, now=T)) is Renewed.DONE
        assert bee.send(bee.live.complete("mail", ANN, [("a", None)], now=T)) == ("completed",)
        assert bee.send(bee.live.fail("mail", ANN, "b", Failure("no"), now=T)) == "scheduled"
    finally:
        bee.client.config_set("maxmemory", 0)


# Hashes


def test_a_job_that_celery_made_is_no_duplicate_but_others_may_be_its(bee: Keyspace) -> None:
    bee.put("a", ["same"], extra=b'{"task":"mail"}')
    bee.put("b", ["same"], extra=b'{"task":"mail"}')
    bee.put("c", ["same"])
    assert bee.ids(n=3) == ["a", "b"]
    assert bee.field("b", "hash") is None
    assert (bee.field("c", "status"), bee.field("c", "duplicate")) == ("duplicate", "a")


@pytest.mark.parametrize(("theirs", "ours"), [(None, False), ("mine", False), ("usual", True)])
def test_jobs_are_hashed_as_other_bees_of_the_queue_do(bee: Keyspace, theirs: str | None, ours: bool) -> None:
    bee.put("theirs", ["x"])
    bee.ids()
    bee.send(bee.live.complete("mail", ANN, [("theirs", None)], now=T))
    usual = bee.field("theirs", "hash") or ""
    bee.client.hdel("bee:h:jobs:theirs", "hash")
    if theirs is not None:
        bee.client.hset("bee:h:jobs:theirs", "hash", usual if theirs == "usual" else theirs)
    bee.put("a", ["y"])
    bee.ids()
    assert (bee.field("a", "hash") is not None) == ours


# What is where


def test_sizes_and_removals_name_the_same_places(bee: Keyspace) -> None:
    for jid in ("running", "done", "failed"):
        bee.put(jid, [jid], retries=0)
    bee.ids(n=3)
    bee.send(bee.live.complete("mail", ANN, [("done", None)], now=T))
    bee.send(bee.live.fail("mail", ANN, "failed", Failure("no"), now=T))
    bee.put("waiting", [1])
    bee.put("later", [2], delay_ms=5000)
    bee.put("due", [3], delay_ms=10)
    bee.put("blocked", [4], depends=["running"])
    size = bee.send(bee.live.size("mail", now=T + 20))
    assert (size.waiting, size.due, size.scheduled, size.held, size.done, size.consumers) == (2, 1, 1, 1, 2, 1)
    assert size.next_due_ms == T + 10
    expected = {
        "waiting": "waiting",
        "later": "scheduled",
        "blocked": "blocked",
        "running": "held",
        "done": "done",
        "failed": "dead",
        "unknown": None,
    }
    assert bee.send(bee.live.remove("mail", "waiting", "scheduled", now=T)) is None
    assert bee.send(bee.live.remove("other", "waiting", now=T)) is None
    assert {jid: bee.send(bee.live.remove("mail", jid, now=T)) for jid in expected} == expected
    assert bee.field("running", "status") == "running"
    assert bee.field("waiting", "status") == "canceled"
    assert bee.send(bee.live.remove("mail", "waiting", now=T)) is None
    assert bee.send(bee.live.cancel("running", now=T)) == "held"
    assert bee.field("running", "status") == "canceled"


def test_purging_cancels_what_waits_in_bounded_calls(bee: Keyspace) -> None:
    for number in range(5):
        bee.put(str(number), [number])
    bee.put("later", [9], delay_ms=1000)
    assert bee.send(bee.live.purge("mail", limit=3, now=T)) == Purged(3, True)
    assert bee.send(bee.live.purge("mail", limit=3, now=T)) == Purged(2, False)
    assert bee.field("0", "status") == "canceled"
    assert bee.send(bee.live.size("mail", now=T)).scheduled == 1


def test_jobs_of_tasks_are_found_by_celerys_id_or_bees(bee: Keyspace) -> None:
    bee.put("a")
    bee.put("b", extra=b'{"task":"t","id":"task-b"}')
    bee.put("c", delay_ms=1000)
    found = bee.send(bee.live.find("mail", ["bee:a", "task-b", "bee:b", "bee:c"], now=T))
    assert [(task.id, task.task) for task in found.jobs] == [("a", "bee:a"), ("b", "task-b")]
    assert (found.scanned, found.more) == (2, False)
    (task,) = bee.send(bee.live.find("mail", ["bee:c"], "scheduled", limit=1, now=T)).jobs
    assert task.id == "c"
