"""The history that a queue's transitions keep: slots close by themselves, in the bounds that are stated."""

from __future__ import annotations

import pytest
import redis
from ferryman.schema.histogram import BUCKETS, NO_TIMES, Histogram, bound_ms
from ferryman.schema.native.scripts.history import STEPS
from ferryman.schema.native.scripts.queue_scripts import QueueScripts

from ...support.native import LEASE, Send, ids, jobs

MINUTE = 60_000
START = 1_700_000_040_000
"""The beginning of a minute."""
MOST_BYTES = 150_000

scripts = QueueScripts()
keys = scripts.keys("q")
past = (keys.times, keys.history, *map(keys.slots, STEPS))


@pytest.fixture(autouse=True)
def queue(send: Send) -> None:
    send(scripts.declare("q", {}, now=START))


def one_job(send: Send, number: int, now: int, wait: int = 0, run: int = 0) -> None:
    send(scripts.publish_one("q", "p", jobs(number)[0], now=now) or pytest.fail("not plain"))
    send(scripts.publish("q", "p", jobs(number), now=now))
    assert ids(send(scripts.take("q", "me", 1, LEASE, now=now + wait))) == [f"p-{number}"]
    assert send(scripts.ack("q", "me", [f"p-{number}"], now=now + wait + run)) == ("acked",)


def test_a_slot_has_what_happened_in_its_minute_and_the_depths_at_its_end(send: Send) -> None:
    one_job(send, 1, START + 5, wait=100, run=1000)
    send(scripts.publish("q", "p", jobs(2, 3), now=START + 30_000))
    send(scripts.publish("q", "p", jobs(4, due_ms=START + 10 * MINUTE), now=START + 30_000))
    assert send(scripts.slots("q", 1)) == [], "the minute is not over"
    send(scripts.publish("q", "p", jobs(5), now=START + 3 * MINUTE))
    (slot,) = send(scripts.slots("q", 1))
    assert (slot.began_ms, slot.minutes) == (START, 1)
    assert slot.depths == {"waiting": 2, "scheduled": 1, "held": 0, "dead": 0}
    assert {name: number for name, number in slot.counters.items() if number} == {"published": 4, "delivered": 1, "acked": 1}
    assert (slot.times.wait.count, slot.times.wait.sum_ms, slot.times.wait.counts[7]) == (1, 100, 1), "64 < 100 <= 128"
    assert (slot.times.run.count, slot.times.run.sum_ms, slot.times.run.counts[10]) == (1, 1000, 1), "512 < 1000 <= 1024"


def test_a_plain_publish_closes_slots_as_well(send: Send) -> None:
    def publish(number: int, now: int) -> str:
        call = scripts.publish_one("q", "p", jobs(number)[0], now=now)
        assert call is not None
        status: str = send(call).status
        if status == "other":
            send(scripts.publish("q", "p", jobs(number), now=now))
        return status

    send(scripts.take("q", "me", 1, LEASE, now=START))
    assert publish(1, START + 1) == "stored"
    assert publish(2, START + MINUTE) == "other"
    assert publish(3, START + MINUTE + 1) == "stored"
    assert [slot.counters["published"] for slot in send(scripts.slots("q", 1))] == [1]


def test_jobs_of_a_worker_that_dies_are_in_the_history_of_who_finishes_them(send: Send) -> None:
    send(scripts.publish("q", "p", jobs(1), now=START))
    send(scripts.take("q", "dead", 1, 1000, now=START + 10))
    send(scripts.take("q", "alive", 1, LEASE, now=START + 5000))
    send(scripts.ack("q", "alive", ["p-1"], now=START + 5100))
    times = send(scripts.times("q"))
    assert (times.wait.count, times.wait.sum_ms) == (1, 10), "how long it waited for its first delivery"
    assert (times.run.count, times.run.sum_ms) == (1, 100)


def test_waits_of_delayed_jobs_begin_when_they_are_due(send: Send) -> None:
    send(scripts.publish("q", "p", jobs(1, due_ms=START + 500), now=START))
    send(scripts.take("q", "me", 1, LEASE, now=START + 520))
    assert send(scripts.times("q")).wait.sum_ms == 20


def batch(send: Send, size: int, apart: int = 10) -> tuple[list[str], int]:
    """So many jobs published some ms after each other, and taken at once. Gives their ids and the time of the take."""
    for number in range(1, size + 1):
        send(scripts.publish("q", "p", jobs(number), now=START + number * apart))
    end = START + (size + 1) * apart
    return ids(send(scripts.take("q", "me", size, LEASE, now=end))), end


def timed(client: redis.Redis) -> int:
    """How often one field of a hash was read: what an ack does for each job that it times."""
    return int(client.info("commandstats").get("cmdstat_hget", {"calls": 0})["calls"])


@pytest.mark.parametrize("size", [1, 15])
def test_each_of_up_to_15_jobs_at_once_is_timed(send: Send, size: int) -> None:
    taken, end = batch(send, size)
    send(scripts.ack("q", "me", taken, now=end + 7))
    times = send(scripts.times("q"))
    assert (times.wait.count, times.wait.sum_ms) == (size, sum(10 * number for number in range(1, size + 1)))
    assert (times.run.count, times.run.sum_ms) == (size, 7 * size)


@pytest.mark.parametrize("size", [16, 23, 24, 31, 100])
def test_of_more_jobs_some_are_timed_that_stand_for_all_and_counters_are_exact(
    send: Send, client: redis.Redis, size: int
) -> None:
    taken, end = batch(send, size)
    before = timed(client)
    send(scripts.ack("q", "me", taken, now=end + 7))
    assert 8 <= timed(client) - before <= 15
    times = send(scripts.times("q"))
    assert (times.run.count, times.run.sum_ms) == (size, 7 * size)
    waits = [10 * number for number in range(1, size + 1)]
    assert times.wait.count == size
    assert times.wait.mean_ms == pytest.approx(sum(waits) / size, rel=0.1), "those that are timed are evenly spread"
    assert sum(number for bucket, number in enumerate(times.wait.counts) if bound_ms(bucket) < waits[0]) == 0
    assert sum(times.wait.counts[bucket] for bucket in range(BUCKETS) if bound_ms(bucket) >= 2 * waits[-1]) == 0
    counters = send(scripts.counters("q"))
    assert (counters["published"], counters["delivered"], counters["acked"]) == (size, size, size)


def test_a_sample_stands_only_for_jobs_that_it_is_of(send: Send) -> None:
    taken, end = batch(send, 60)
    send(scripts.release("q", "me", taken[:20], now=end))
    again = ids(send(scripts.take("q", "me", 60, LEASE, now=end + 1)))
    assert len(again) == 20
    assert send(scripts.times("q")).wait.count == 60, "20 of them have waited before"
    send(scripts.ack("q", "me", taken[:30], now=end + 5))
    verdicts = send(scripts.ack("q", "me", taken, now=end + 5))
    assert (verdicts.count("lost"), verdicts.count("acked")) == (30, 30)
    assert send(scripts.times("q")).run.count == 60


def test_one_that_is_switched_off_keeps_nothing_and_one_that_is_switched_on_again_begins_anew(
    send: Send, client: redis.Redis
) -> None:
    one_job(send, 1, START)
    one_job(send, 2, START + MINUTE)
    assert client.exists(*past) == len(past) - 2
    send(scripts.declare("q", {}, history=False, now=START + MINUTE))
    assert not client.exists(*past)
    one_job(send, 3, START + 2 * MINUTE)
    send(scripts.declare("q", {}, now=START + MINUTE))
    one_job(send, 4, START + 3 * MINUTE)
    assert not client.exists(*past)
    send(scripts.declare("q", {}, history=True, now=START + 4 * MINUTE))
    one_job(send, 5, START + 4 * MINUTE)
    one_job(send, 6, START + 5 * MINUTE)
    assert [slot.counters["acked"] for slot in send(scripts.slots("q", 1))] == [1]


def test_temporary_queues_have_none_and_one_that_becomes_temporary_loses_it(send: Send, client: redis.Redis) -> None:
    one_job(send, 1, START)
    send(scripts.declare("q", {"x-expires": 60_000}, now=START))
    one_job(send, 2, START + MINUTE)
    assert not client.exists(*past)


def test_a_deleted_queue_leaves_nothing(send: Send, client: redis.Redis) -> None:
    one_job(send, 1, START)
    one_job(send, 2, START + 70 * MINUTE)
    assert client.exists(*past) == len(past)
    send(scripts.delete("q", now=START + 71 * MINUTE))
    client.delete(keys.publisher("p"))
    assert client.keys() == []


def test_what_nobody_uses_any_more_goes_after_14_days(send: Send, client: redis.Redis) -> None:
    one_job(send, 1, START)
    one_job(send, 2, START + 70 * MINUTE)
    for key in past[1:]:
        assert 0 < client.pttl(key) <= 14 * 24 * 60 * MINUTE


def test_a_clock_that_was_ahead_does_not_end_the_history(send: Send) -> None:
    one_job(send, 1, START + 10_000 * MINUTE)
    one_job(send, 2, START + 10_001 * MINUTE)
    one_job(send, 3, START)
    one_job(send, 4, START + MINUTE)
    assert [(slot.began_ms, slot.counters["acked"]) for slot in send(scripts.slots("q", 1))] == [(START, 1)]


@pytest.mark.parametrize("key", past)
def test_keys_that_a_foreign_hand_has_damaged_keep_no_job_from_being_taken(send: Send, client: redis.Redis, key: bytes) -> None:
    for kind in ("set", "string"):
        client.delete(key)
        if kind == "set":
            client.sadd(key, "x")
        else:
            client.set(key, b"\xff" * 7)
        for number in (1, 2):
            one_job(send, number, START + number * 70 * MINUTE)
        client.delete(*past, keys.publisher("p"))
        client.hdel(keys.meta, "next_sample")


def fill(send: Send, client: redis.Redis, slots: int, times: Histogram, step: int) -> None:
    """Slots in each of which that has happened: their totals are written, then a transition closes the one before."""
    counted = ("published", "delivered", "acked", "redelivered", "dead")
    for slot in range(1, slots):
        totals = [number * slot for number in (*times.counts, times.sum_ms) * 2]
        client.set(keys.times, b"".join(number.to_bytes(8, "big") for number in totals))
        client.hset(keys.meta, mapping=dict.fromkeys(counted, times.count * slot))
        send(scripts.advance("q", now=START + slot * step))


@pytest.mark.parametrize("spread", ["usual", "worst"])
def test_14_days_take_at_most_150_kb(send: Send, client: redis.Redis, spread: str) -> None:
    busy = range(BUCKETS) if spread == "worst" else range(4, 14)
    for step, slots in ((60 * MINUTE, 340), (10 * MINUTE, 80), (MINUTE, 125)):
        share = step // len(busy)  # a thousand jobs a second, 14 days long
        times = Histogram(tuple(share if bucket in busy else 0 for bucket in range(BUCKETS)), step * 1000)
        fill(send, client, slots, times, step)
        client.hdel(keys.meta, "next_sample")
    sizes = {key: client.memory_usage(key, samples=0) or 0 for key in past}
    assert sum(sizes.values()) <= MOST_BYTES, sizes


def test_a_histogram_that_is_too_long_gets_wider_buckets_and_loses_nothing(send: Send, client: redis.Redis) -> None:
    times = Histogram((100_000,) * BUCKETS, 12_345)
    fill(send, client, 3, times, MINUTE)
    for slot in send(scripts.slots("q", 1)):
        assert (slot.times.run.count, slot.times.run.sum_ms) == (100_000 * BUCKETS, 12_345)
        assert slot.times.run.counts[-1] == 100_000, "what took longer than all bounds stays apart"
        assert [number > 0 for number in slot.times.run.counts[:8]] == [False, False, False, True] * 2


def test_quantiles_are_those_of_the_bucket() -> None:
    counts = [0] * BUCKETS
    counts[3], counts[10] = 90, 10
    found = Histogram(tuple(counts), 0)
    assert found.quantile_ms(0.45) == 6, "half of 4 to 8"
    assert found.quantile_ms(0.95) == 512 + 256
    assert NO_TIMES.quantile_ms(0.5) is None
    assert NO_TIMES.mean_ms is None
