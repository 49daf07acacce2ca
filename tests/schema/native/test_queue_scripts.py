"""The edges of every transition of the native queue, on real servers. Random histories: tests/models."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from ferryman.operations.numbers import of_size
from ferryman.schema.errors import MalformedValue, QueueArgumentsError, UsageError
from ferryman.schema.job import State
from ferryman.schema.native.scripts.publication import Publication
from ferryman.schema.native.scripts.queue_scripts import QueueScripts
from ferryman.schema.native.scripts.waiting_score import PriorityOrder

from ...support.native import LEASE, Send, ids, jobs

scripts = QueueScripts()
keys = scripts.keys("q")


# Declaring


def test_declaring_twice_changes_nothing_and_counts_what_is_there(send: Send) -> None:
    first = send(scripts.declare("q", {}))
    send(scripts.publish("q", "p", jobs(1, 2)))
    send(scripts.take("q", "ann", 1, LEASE))
    again = send(scripts.declare("q", {}))
    assert (first.created, again.created) == (True, False)
    assert (again.waiting, again.consumers, again.routes) == (1, 1, first.routes)


def test_a_queue_keeps_the_priority_order_of_its_first_declaration(send: Send) -> None:
    send(scripts.declare("q", {}, "descending"))
    assert not send(scripts.declare("q", {})).created
    with pytest.raises(QueueArgumentsError, match=r"'q'.*'descending'"):
        send(scripts.declare("q", {}, "ascending"))


def test_descending_order_runs_nine_before_zero(send: Send) -> None:
    send(scripts.declare("q", {}, "descending"))
    for number, priority in enumerate([0, 9, 255, -256]):
        send(scripts.publish("q", "p", jobs(number, priority=priority)))
    taken = send(scripts.take("q", "ann", 9, LEASE))
    assert [job.priority for job in taken.jobs] == [255, 9, 0, -256]


@pytest.mark.parametrize(
    "arguments",
    [{"x-expires": 0}, {"x-expires": "9"}, {"x-max-length": -1}, {"x-overflow": "explode"}, {"x-delivery-limit": True}],
)
def test_arguments_that_cannot_be_honoured_are_refused_by_name(arguments: dict[str, Any]) -> None:
    with pytest.raises(QueueArgumentsError, match=next(iter(arguments))):
        scripts.declare("q", arguments)


def test_empty_arguments_leave_those_that_stand_and_new_ones_replace_them(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", {"x-max-length": 3, "x-own": [1]}))
    send(scripts.declare("q", {}))
    assert client.hmget(keys.meta, "arguments", "max_length") == [b'{"x-max-length":3,"x-own":[1]}', b"3"]
    send(scripts.declare("q", {"x-message-ttl": 9}))
    assert client.hmget(keys.meta, "max_length", "ttl") == [None, b"9"]


# Publishing


def test_publishing_to_a_queue_that_does_not_exist_says_so_or_creates_it(send: Send, client: redis.Redis) -> None:
    assert send(scripts.publish("q", "p", jobs(1))).status == "missing"
    assert client.dbsize() == 0
    assert send(scripts.publish("q", "p", jobs(1), create=True)).fresh == (True,)
    assert send(scripts.size("q")).waiting == 1


def test_a_repeated_publish_stores_nothing_even_when_its_jobs_are_done(send: Send) -> None:
    send(scripts.declare("q", {}))
    assert send(scripts.publish("q", "p", jobs(1, 2, 4))).fresh == (True, True, True)
    taken = send(scripts.take("q", "ann", 2, LEASE))
    send(scripts.ack("q", "ann", ids(taken)))
    assert send(scripts.publish("q", "p", jobs(1, 2, 4))).fresh == (False, False, False)
    assert send(scripts.publish("q", "p", jobs(2, 3))).fresh == (False, True)
    assert send(scripts.size("q")).waiting == 2


def test_an_id_twice_in_one_publish_is_stored_once(send: Send) -> None:
    send(scripts.declare("q", {}))
    assert send(scripts.publish("q", "p", jobs(1, 1))).fresh == (True, False)


def test_ids_of_another_form_are_stored_once_while_they_exist(send: Send) -> None:
    send(scripts.declare("q", {}))
    unusual = [
        Publication("p-01x", b"m"),
        Publication("p-", b"m"),
        Publication("p-" + "9" * 40, b"m"),
        Publication("ü\udcff", b"m"),
    ]
    assert send(scripts.publish("q", "p", unusual)).fresh == (True,) * 4
    assert send(scripts.publish("q", "p", unusual)).fresh == (False,) * 4
    assert ids(send(scripts.take("q", "ann", 9, LEASE))) == [job.id for job in unusual]


def test_routes_that_changed_since_they_were_read_refuse_the_publish(send: Send, client: redis.Redis) -> None:
    routes = send(scripts.declare("q", {})).routes
    assert send(scripts.publish("q", "p", jobs(1), routes=routes)).status == "stored"
    bumped = send(scripts.bump_routes("q"))
    stale = send(scripts.publish("q", "p", jobs(2), routes=routes))
    assert (stale.status, stale.routes) == ("stale", bumped)
    assert not client.exists(keys.job("p-2"))
    assert send(scripts.publish("q", "p", jobs(2), routes=bumped)).status == "stored"


def test_routes_of_a_deleted_queue_never_fit_its_successor(send: Send) -> None:
    old = send(scripts.declare("q", {}, now=1_000)).routes
    send(scripts.delete("q"))
    assert send(scripts.declare("q", {}, now=2_000)).routes != old
    assert send(scripts.bump_routes("nobody")) == 0


@pytest.mark.parametrize(
    "publication",
    [
        Publication("", b""),
        Publication("a\nb", b""),
        Publication("a", b"", 256),
        Publication("a", b"", True),
        Publication("a", b"", due_ms=2**60),
    ],
)
def test_a_publication_that_cannot_be_is_refused_before_it_is_sent(publication: Publication) -> None:
    with pytest.raises(UsageError):
        scripts.publish("q", "p", [publication])


def test_a_foreign_key_in_a_job_s_place_does_not_pass_for_a_duplicate(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", {}))
    client.set(keys.job("p-1"), "mine")
    with pytest.raises(MalformedValue, match=r"job:p-1.*string"):
        send(scripts.publish("q", "p", jobs(2, 1)))
    assert send(scripts.size("q")).waiting == 0
    assert client.get(keys.job("p-1")) == b"mine"


def take_all(send: Send, consumer: str) -> list[str]:
    """What a consumer gets that calls again while there is more."""
    taken = send(scripts.take("q", consumer, 5_000, LEASE))
    return ids(taken) + (take_all(send, consumer) if taken.more else [])


def test_five_thousand_jobs_go_through_every_transition_in_calls_of_a_thousand(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", {}))
    numbers = range(1, 10_001, 2)
    assert all(send(scripts.publish("q", "p", jobs(*numbers))).fresh)
    taken = take_all(send, "ann")
    assert taken == [f"p-{number}" for number in numbers]
    assert not any(send(scripts.publish("q", "p", jobs(*numbers))).fresh)
    assert all(send(scripts.requeue("q", "ann", taken)))
    assert take_all(send, "bob") == taken
    assert [send(scripts.release("q", "bob", None)) for _ in range(6)] == [1_000] * 5 + [0]
    assert take_all(send, "cyd") == taken
    assert [send(scripts.forget("q", "cyd")) for _ in range(6)] == [1_000] * 5 + [0]
    assert send(scripts.size("q")).consumers == 2
    assert take_all(send, "cyd") == taken
    assert set(send(scripts.ack("q", "cyd", taken))) == {"acked"}
    assert client.keys(keys.job_prefix + b"*") == []


# Taking


def test_taking_from_a_queue_that_does_not_exist_leaves_no_trace(send: Send, client: redis.Redis) -> None:
    assert not send(scripts.take("q", "ann", 1, LEASE)).exists
    assert not send(scripts.renew("q", "ann", LEASE))
    assert client.dbsize() == 0


def test_taking_nothing_registers_the_consumer_and_promotes(send: Send) -> None:
    send(scripts.declare("q", {}))
    send(scripts.publish("q", "p", jobs(1, due_ms=2_000), now=1_000))
    looked = send(scripts.take("q", "ann", 0, LEASE, now=2_000))
    assert looked.jobs == ()
    size = send(scripts.size("q", now=2_000))
    assert (size.waiting, size.scheduled, size.consumers) == (1, 0, 1)


def test_a_due_task_counts_as_waiting_though_nobody_looks(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", {}))
    send(scripts.publish("q", "p", jobs(1, 2, due_ms=2_000), now=1_000))
    send(scripts.publish("q", "p", jobs(3, due_ms=9_000), now=1_000))
    send(scripts.publish("q", "p", jobs(4), now=1_000))
    for now, expected in ((1_999, (1, 0, 3)), (2_000, (3, 2, 1)), (9_000, (4, 3, 0))):
        size = send(scripts.size("q", by_priority=True, now=now))
        assert (size.waiting, size.due, size.scheduled) == expected
        assert sum(size.priorities.values()) == size.waiting - size.due
        assert size.due_age_ms == (now - 2_000 if size.due else None)
        assert send(scripts.declare("q", {}, now=now)).waiting == size.waiting
    assert client.zcard(keys.scheduled) == 3, "counting moves nothing"
    send(scripts.promote("q", now=9_000))
    size = send(scripts.size("q", now=9_000))
    assert (size.waiting, size.due, size.scheduled) == (4, 0, 0)


def test_a_due_job_that_has_lost_its_due_time_waits_and_has_no_age(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", {}))
    send(scripts.publish("q", "p", jobs(1, due_ms=2_000), now=1_000))
    client.zadd(keys.scheduled, {"p-1": 0})
    numbers = of_size(send(scripts.size("q", by_priority=True, now=2_000)), {})
    assert (numbers.number(State.WAITING), numbers.waiting, numbers.latency_ms) == (1, {"": 1}, None)


@pytest.mark.parametrize("order", ["ascending", "descending"])
def test_waiting_jobs_are_counted_by_priority_in_one_call(send: Send, order: PriorityOrder) -> None:
    send(scripts.declare("q", {}, priority_order=order))
    wanted = {0: 3, 1: 1, 9: 2, 255: 4}
    number = 0
    for priority, count in wanted.items():
        send(scripts.publish("q", "p", jobs(*range(number + 1, number + count + 1), priority=priority)))
        number += count
    size = send(scripts.size("q", by_priority=True))
    expected = dict(sorted(wanted.items(), reverse=order == "descending"))
    assert list(size.priorities.items()) == list(expected.items())
    assert size.waiting == sum(wanted.values())
    assert send(scripts.size("q")).priorities == {}


def test_the_next_event_is_the_next_due_time_or_lapse_and_never_after_the_own_lease(send: Send) -> None:
    send(scripts.declare("q", {}))
    assert send(scripts.take("q", "ann", 1, 500, now=1_000)).next_event_ms == 1_500
    assert send(scripts.take("q", "bob", 1, 900, now=1_000)).next_event_ms == 1_900
    send(scripts.publish("q", "p", jobs(1), now=1_000))
    assert send(scripts.take("q", "ann", 1, 500, now=1_000)).jobs
    assert send(scripts.take("q", "bob", 1, 900, now=1_000)).next_event_ms == 1_500
    send(scripts.publish("q", "p", jobs(2, due_ms=1_200), now=1_000))
    assert send(scripts.take("q", "ann", 1, 500, now=1_000)).next_event_ms == 1_200


def test_a_consumer_that_holds_nothing_has_two_leases(send: Send) -> None:
    send(scripts.declare("q", {}))
    send(scripts.take("q", "ann", 1, LEASE, now=0))
    assert send(scripts.renew("q", "ann", LEASE, now=2 * LEASE - 1))
    send(scripts.publish("q", "p", jobs(1), now=2 * LEASE))
    (job,) = send(scripts.take("q", "ann", 1, LEASE, now=2 * LEASE)).jobs
    assert send(scripts.take("q", "bob", 1, LEASE, now=3 * LEASE)).jobs[0].id == job.id


def test_a_job_that_is_due_before_all_others_wakes_a_consumer(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", {}))
    send(scripts.publish("q", "p", jobs(1, due_ms=5_000), now=1_000))
    assert client.lrange(keys.wake, 0, -1) == [b"1"]
    assert send(scripts.take("q", "ann", 1, LEASE, now=1_000)).next_event_ms == 5_000
    assert not client.exists(keys.wake)
    send(scripts.publish("q", "p", jobs(2, due_ms=6_000), now=1_000))
    assert not client.exists(keys.wake)
    send(scripts.publish("q", "p", jobs(3, due_ms=4_000), now=1_000))
    assert client.exists(keys.wake)


def test_a_consumer_that_is_full_leaves_a_token_for_one_that_can_watch_the_schedule(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", {}))
    send(scripts.publish("q", "p", [*jobs(1), *jobs(2, due_ms=9_000)], now=1_000))
    send(scripts.take("q", "ann", 1, LEASE, now=1_000))
    assert client.exists(keys.wake)
    send(scripts.take("q", "bob", 1, LEASE, now=1_000))
    assert not client.exists(keys.wake)


def test_jobs_taken_without_ack_are_gone(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", {}))
    send(scripts.publish("q", "p", jobs(1, 2)))
    taken = send(scripts.take("q", "ann", 9, LEASE, no_ack=True))
    assert [(job.id, job.fields[b"message"]) for job in taken.jobs] == [("p-1", b"{}\nbody"), ("p-2", b"{}\nbody")]
    assert client.keys(keys.job_prefix + b"*") == []
    assert send(scripts.size("q")).held == 0


def test_a_job_delivered_too_often_is_given_up_with_its_last_holder(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", {}))
    send(scripts.publish("q", "p", jobs(1, 2)))
    for _ in range(2):
        assert ids(send(scripts.take("q", "ann", 1, LEASE, delivery_limit=2, now=1_000))) == ["p-1"]
        send(scripts.reclaim("q", now=1_000 + LEASE))
    assert ids(send(scripts.take("q", "bob", 1, LEASE, delivery_limit=2, now=40_000))) == ["p-2"]
    assert client.hmget(keys.job("p-1"), "reason", "error") == [b"delivery_limit", b"delivered 2 times, last to ann"]
    assert send(scripts.ack("q", "ann", ["p-1"])) == ("cancelled",)


def test_the_queue_s_own_delivery_limit_comes_first(send: Send) -> None:
    send(scripts.declare("q", {"x-delivery-limit": 1}))
    send(scripts.publish("q", "p", jobs(1)))
    send(scripts.requeue("q", "ann", ids(send(scripts.take("q", "ann", 1, LEASE, delivery_limit=20)))))
    assert ids(send(scripts.take("q", "ann", 1, LEASE, delivery_limit=20))) == []


def test_ids_without_a_message_are_kept_as_broken_and_stop_nobody(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", {}))
    send(scripts.publish("q", "p", jobs(1)))
    client.zadd(keys.waiting, {"no-hash": -3, "no-message": -2, "wrong-type": -1})
    client.hset(keys.job("no-message"), "other", "1")
    client.set(keys.job("wrong-type"), "mine")
    assert ids(send(scripts.take("q", "ann", 1, LEASE))) == ["p-1"]
    assert set(client.zrange(keys.dead, 0, -1)) == {b"no-hash", b"no-message", b"wrong-type"}
    assert client.hget(keys.meta, "broken") == b"3"
    assert client.hgetall(keys.job("no-message")).items() >= {b"other": b"1", b"reason": b"broken"}.items()
    assert client.get(keys.job("wrong-type")) == b"mine"
    assert send(scripts.revive("q", ["no-hash", "no-message", "wrong-type"])) == (False, False, False)


def test_hostile_scores_and_fields_are_delivered_without_an_error(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", {}))
    client.zadd(keys.waiting, {b"\xff\x00": float("-inf"), b"half": 0.5})
    client.hset(keys.job_prefix + b"\xff\x00", mapping={"payload": b"\xfe", "deliveries": "nan", "expires_at": "never"})
    client.hset(keys.job("half"), mapping={"message": "m", "deliveries": "many"})
    taken = send(scripts.take("q", "ann", 9, LEASE))
    assert ids(taken) == ["\udcff\x00", "half"]
    assert send(scripts.ack("q", "ann", ids(taken))) == ("acked", "acked")


def test_fields_that_no_script_knows_come_with_the_job_and_stay(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", {}))
    client.hset(keys.job("kue-1"), mapping={"payload": b"{}", "name": "email", "job": '{"x":1}'})
    client.zadd(keys.waiting, {"kue-1": 5})
    taken = send(scripts.take("q", "ann", 1, LEASE))
    assert taken.jobs[0].fields == {b"payload": b"{}", b"name": b"email", b"job": b'{"x":1}'}
    send(scripts.requeue("q", "ann", ["kue-1"]))
    assert client.hget(keys.job("kue-1"), "job") == b'{"x":1}'


# Leases and late words


def test_a_lapsed_consumer_s_jobs_return_to_their_places_ahead_of_later_ones(send: Send) -> None:
    send(scripts.declare("q", {}))
    send(scripts.publish("q", "p", jobs(1, 2, 3)))
    send(scripts.take("q", "ann", 2, 1_000, now=1_000))
    assert ids(send(scripts.take("q", "bob", 1, 1_000, now=1_999))) == ["p-3"]
    taken = send(scripts.take("q", "bob", 9, 1_000, now=2_000))
    assert [(job.id, job.redelivered) for job in taken.jobs] == [("p-1", True), ("p-2", True)]


def test_a_late_ack_cancels_the_copy_that_waits_and_loses_against_a_new_holder(send: Send) -> None:
    send(scripts.declare("q", {}))
    send(scripts.publish("q", "p", jobs(1, 2)))
    send(scripts.take("q", "ann", 2, 1_000, now=1_000))
    send(scripts.take("q", "bob", 1, 1_000, now=2_000))
    assert send(scripts.ack("q", "ann", ["p-1", "p-2"])) == ("lost", "cancelled")
    assert send(scripts.ack("q", "bob", ["p-1"])) == ("acked",)


def test_a_take_acks_first_what_its_consumer_has_finished(send: Send) -> None:
    send(scripts.declare("q", {}))
    send(scripts.publish("q", "p", jobs(1, 2, 3, 4, 5)))
    send(scripts.take("q", "ann", 2, 1_000, now=1_000))
    send(scripts.take("q", "bob", 2, 1_000, now=1_500))
    send(scripts.reclaim("q", now=2_000))
    taken = send(scripts.take("q", "bob", 1, 1_000, acked=["p-3", "p-1", "p-3"], now=2_000))
    assert (ids(taken), taken.verdicts) == (["p-1"], ("acked", "lost", "lost")), "what others held it can't ack"
    taken = send(scripts.take("q", "ann", 9, 1_000, acked=["p-1", "p-2"], now=2_000))
    assert (ids(taken), taken.verdicts) == (["p-5"], ("lost", "cancelled")), "what it gives up as finished it does not get again"
    size = send(scripts.size("q"))
    assert (size.waiting, size.held) == (0, 3)


def test_a_take_from_a_queue_that_is_gone_acks_nothing(send: Send) -> None:
    taken = send(scripts.take("q", "ann", 1, LEASE, acked=["p-1"]))
    assert (taken.exists, taken.jobs, taken.verdicts) == (False, (), ("lost",))


def test_an_ack_of_very_many_jobs_ends_them_all_and_each_once(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", {}))
    for first in range(0, 5_000, 1_000):
        send(scripts.publish("q", "p", jobs(*range(first, first + 1_000))))
        send(scripts.take("q", "ann", 1_000, LEASE))
    many = [f"p-{n}" for n in range(5_000)]
    assert send(scripts.ack("q", "ann", [*many, "p-0"])) == ("acked",) * 5_000 + ("lost",)
    assert client.keys(keys.job_prefix + b"*") == []
    assert send(scripts.counters("q"))["acked"] == 5_000


def test_an_ack_after_a_requeue_cancels_nothing(send: Send) -> None:
    send(scripts.declare("q", {}))
    send(scripts.publish("q", "p", jobs(1)))
    send(scripts.take("q", "ann", 1, LEASE))
    send(scripts.requeue("q", "ann", ["p-1"]))
    assert send(scripts.ack("q", "ann", ["p-1"])) == ("lost",)
    assert send(scripts.size("q")).waiting == 1


def test_a_renewed_lease_keeps_the_jobs_and_a_lapsed_one_says_so(send: Send) -> None:
    send(scripts.declare("q", {}))
    send(scripts.publish("q", "p", jobs(1)))
    send(scripts.take("q", "ann", 1, 1_000, now=1_000))
    assert send(scripts.renew("q", "ann", 1_000, now=1_900))
    assert send(scripts.reclaim("q", now=2_500)) == 0
    assert send(scripts.reclaim("q", now=2_900)) == 1
    assert not send(scripts.renew("q", "ann", 1_000, now=2_900))


def test_reclaiming_is_bounded_and_goes_on_where_it_stopped(send: Send) -> None:
    send(scripts.declare("q", {}))
    send(scripts.publish("q", "p", jobs(*range(25))))
    send(scripts.take("q", "ann", 25, 1_000, now=1_000))
    assert [send(scripts.reclaim("q", limit=10, now=9_000)) for _ in range(4)] == [10, 10, 5, 0]
    assert send(scripts.size("q")).consumers == 0


def test_released_jobs_count_as_never_delivered(send: Send) -> None:
    send(scripts.declare("q", {}))
    send(scripts.publish("q", "p", jobs(1, 2)))
    send(scripts.take("q", "ann", 2, LEASE))
    assert send(scripts.release("q", "ann", ["p-1", "nope"])) == 1
    assert send(scripts.forget("q", "ann")) == 1
    assert [job.deliveries for job in send(scripts.take("q", "bob", 2, LEASE)).jobs] == [1, 1]
    assert send(scripts.size("q")).consumers == 1
