"""Dead jobs on their way to a dead letter exchange: which are shown, under which numbers, and what becomes of them."""

from __future__ import annotations

import pytest
import redis
from ferryman.schema.errors import MalformedValue, QueueArgumentsError
from ferryman.schema.native.scripts.publication import Publication
from ferryman.schema.native.scripts.queue_scripts import QueueScripts

from ...support.native import LEASE, Send, ids, jobs

scripts = QueueScripts()
keys = scripts.keys("q")

FORWARDING = {"x-dead-letter-exchange": "graves"}


def numbers(outbox):
    return [dead_letter.number for dead_letter in outbox.dead_letters]


def test_dead_jobs_of_every_reason_are_shown_in_the_order_in_which_they_died(send: Send) -> None:
    send(scripts.declare("q", {**FORWARDING, "x-max-length": 3, "x-dead-letter-routing-key": ""}))
    send(scripts.publish("q", "p", [*jobs(1, 2), *jobs(3, ttl_ms=5), *jobs(4)], now=1_000))
    send(scripts.take("q", "ann", 1, LEASE, now=1_001))
    send(scripts.reject("q", "ann", "p-2", "rejected", now=1_002))
    outbox = send(scripts.outbox("q", now=1_005))
    assert (outbox.exchange, outbox.routing_key, outbox.now) == ("graves", "", 1_005)
    found = [(dead_letter.job.id, dead_letter.job.fields[b"reason"], dead_letter.died_at) for dead_letter in outbox.dead_letters]
    assert found == [("p-1", b"maxlen", 1_000), ("p-2", b"rejected", 1_002), ("p-3", b"expired", 1_005)]
    assert numbers(outbox) == sorted(set(numbers(outbox)))
    assert numbers(send(scripts.outbox("q", limit=2))) == numbers(outbox)[:2]


def test_takers_and_publishers_are_told_of_letters(send: Send) -> None:
    send(scripts.declare("q", {**FORWARDING, "x-max-length": 1}))
    assert not send(scripts.publish("q", "p", jobs(1))).has_dead_letters
    assert send(scripts.publish("q", "p", jobs(2))).has_dead_letters
    taken = send(scripts.take("q", "ann", 1, LEASE))
    assert (taken.forwards, taken.has_dead_letters) == (True, True)
    send(scripts.forwarded("q", [(dead_letter, True) for dead_letter in send(scripts.outbox("q")).dead_letters]))
    assert not send(scripts.take("q", "ann", 1, LEASE)).has_dead_letters


def test_what_has_arrived_ends_and_what_has_not_stays_dead(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", {**FORWARDING, "x-max-length": 1}))
    send(scripts.publish("q", "p", jobs(1, 2, 3)))
    first, second = send(scripts.outbox("q")).dead_letters
    assert send(scripts.forwarded("q", [(first, True), (second, False)])) == 1
    assert send(scripts.forwarded("q", [(first, True), (second, True)])) == 0
    assert send(scripts.outbox("q")).dead_letters == ()
    assert client.zrange(keys.dead, 0, -1) == [b"p-2"]
    assert not client.exists(keys.job("p-1"), keys.outbox)


def test_a_job_that_was_revived_and_died_again_is_another_letter(send: Send) -> None:
    send(scripts.declare("q", FORWARDING))
    send(scripts.publish("q", "p", jobs(1)))
    send(scripts.take("q", "ann", 1, LEASE))
    send(scripts.reject("q", "ann", "p-1", "rejected"))
    (old,) = send(scripts.outbox("q")).dead_letters
    send(scripts.revive("q", ["p-1"]))
    assert send(scripts.outbox("q")).dead_letters == ()
    send(scripts.take("q", "ann", 1, LEASE))
    send(scripts.reject("q", "ann", "p-1", "rejected"))
    assert send(scripts.forwarded("q", [(old, True)])) == 0
    (new,) = send(scripts.outbox("q")).dead_letters
    assert new.number > old.number


def test_a_removed_job_and_one_whose_late_ack_came_are_no_letters_any_more(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", FORWARDING))
    send(scripts.publish("q", "p", jobs(1, 2)))
    send(scripts.take("q", "ann", 2, 10, now=1_000))
    send(scripts.take("q", "bob", 0, 10, now=2_000))
    send(scripts.take("q", "bob", 2, 10, delivery_limit=1, now=2_000))
    assert len(send(scripts.outbox("q")).dead_letters) == 2
    assert send(scripts.ack("q", "ann", ["p-1"])) == ("cancelled",)
    assert send(scripts.remove("q", "p-2")) == "dead"
    assert client.exists(keys.outbox, keys.dead) == 0


def test_numbers_grow_on_when_a_queue_of_the_same_name_is_made_anew(send: Send) -> None:
    highest = []
    for round_ in range(2):
        send(scripts.declare("q", {**FORWARDING, "x-max-length": 1}))
        send(scripts.publish("q", f"p{round_}", [Publication(f"p{round_}-{n}", b"{}\n") for n in range(50)]))
        highest.append(max(numbers(send(scripts.outbox("q")))))
        send(scripts.delete("q"))
    assert highest[1] > highest[0]


def test_an_ordered_producer_is_several_who_say_the_same_however_late(send: Send) -> None:
    send(scripts.declare("t", {}))
    send(scripts.publish("t", "dead:q", jobs_of("dead:q", 5, 9), ordered=True))
    send(scripts.take("t", "ann", 9, LEASE, no_ack=True))
    assert send(scripts.publish("t", "dead:q", jobs_of("dead:q", 12), ordered=True)).fresh == (True,)
    assert send(scripts.publish("t", "dead:q", jobs_of("dead:q", 5, 9, 12, 15), ordered=True)).fresh == (
        False,
        False,
        False,
        True,
    )


def jobs_of(producer: str, *numbers: int) -> list[Publication]:
    return [Publication(f"{producer}-{number}", b"{}\n") for number in numbers]


def test_a_queue_that_nobody_consumes_says_when_to_poll_again(send: Send) -> None:
    send(scripts.declare("q", {**FORWARDING, "x-message-ttl": 4_000}))
    assert send(scripts.outbox("q", now=10_000)).next_poll_ms == 12_000
    send(scripts.publish("q", "p", jobs(1, ttl_ms=500), now=10_000))
    assert send(scripts.outbox("q", now=10_000)).next_poll_ms == 10_500
    send(scripts.publish("q", "p", jobs(2, due_ms=10_300), now=10_000))
    assert send(scripts.outbox("q", now=10_000)).next_poll_ms == 10_300
    assert ids(send(scripts.take("q", "ann", 1, LEASE, now=10_300))) == ["p-1"]


def test_queues_without_an_exchange_have_no_outbox(send: Send, client: redis.Redis) -> None:
    assert send(scripts.outbox("q")) is None
    send(scripts.declare("q", {"x-max-length": 1}))
    assert not send(scripts.publish("q", "p", jobs(1, 2))).has_dead_letters
    assert not send(scripts.take("q", "ann", 1, LEASE)).forwards
    assert send(scripts.outbox("q")) is None
    assert not client.exists(keys.outbox)


def test_a_temporary_queue_keeps_dead_jobs_for_its_exchange_and_nothing_stays(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", {**FORWARDING, "x-expires": 9_000, "x-message-ttl": 5}))
    send(scripts.publish("q", "p", jobs(1), now=1_000))
    assert len(send(scripts.outbox("q", now=2_000)).dead_letters) == 1
    assert all(client.pttl(key) > 0 for key in client.scan_iter())


def test_a_routing_key_without_an_exchange_and_names_that_are_no_text_are_refused() -> None:
    with pytest.raises(QueueArgumentsError, match="leads nowhere"):
        scripts.declare("q", {"x-dead-letter-routing-key": "k"})
    with pytest.raises(QueueArgumentsError, match="not a text"):
        scripts.declare("q", {"x-dead-letter-exchange": 7})


def test_a_damaged_exchange_name_is_said_to_be_one(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", FORWARDING))
    client.hset(keys.meta, "dead_letter_exchange", b"\xff")
    with pytest.raises(MalformedValue):
        send(scripts.outbox("q"))
