"""No call does more than a bounded part of a large queue's work: what is left is done by the next ones, and nothing is lost."""

from __future__ import annotations

import redis
from ferryman.schema.native.scripts.publication import Publication
from ferryman.schema.native.scripts.queue_scripts import FETCH_BYTES, MAX_PER_CALL, QueueScripts
from ferryman.schema.native.scripts.results import Renewed

from ...support.native import LEASE, Send, expiring, ids, jobs

scripts = QueueScripts()
keys = scripts.keys("q")
MANY = 2 * MAX_PER_CALL + 500


def large(*numbers: int, size: int, **fields: int) -> list[Publication]:
    """Publications ``p-<n>`` with bodies of so many bytes."""
    return [job._replace(message=b"{}\n" + b"x" * size) for job in jobs(*numbers, **fields)]


# Taking


def test_a_take_has_no_more_bytes_than_were_asked_for_and_says_that_there_is_more(send: Send) -> None:
    send(scripts.publish("q", "p", large(1, 2, 3, size=1_000), create=True))
    taken = send(scripts.take("q", "ann", 9, LEASE, fetch_bytes=2_500))
    assert (ids(taken), taken.more) == (["p-1", "p-2"], True)
    taken = send(scripts.take("q", "ann", 9, LEASE, fetch_bytes=2_500))
    assert (ids(taken), taken.more) == (["p-3"], False)


def test_a_message_longer_than_a_take_comes_alone_and_is_read_by_a_command_of_its_own(send: Send) -> None:
    send(scripts.publish("q", "p", [*large(1, size=50_000), *jobs(2)], create=True))
    taken = send(scripts.take("q", "ann", 9, LEASE, fetch_bytes=20_000))
    (job,) = taken.jobs
    assert job.is_left_out
    assert taken.more
    assert b"published_at" in job.fields
    assert send(scripts.message("q", "p-1")) == {b"message": b"{}\n" + b"x" * 50_000}
    assert send(scripts.ack("q", "ann", ["p-1"])) == ("acked",)
    assert send(scripts.message("q", "p-1")) == {}
    assert not send(scripts.take("q", "ann", 9, LEASE)).jobs[0].is_left_out


def test_a_message_longer_than_a_take_is_held_even_if_taking_acks(send: Send) -> None:
    send(scripts.publish("q", "p", large(1, size=50_000), create=True))
    (job,) = send(scripts.take("q", "ann", 9, LEASE, no_ack=True, fetch_bytes=20_000)).jobs
    assert job.is_left_out
    assert send(scripts.size("q")).held == 1
    assert send(scripts.ack("q", "ann", [job.id])) == ("acked",)


def test_long_messages_expire_and_die_without_being_read(send: Send, client: redis.Redis) -> None:
    send(scripts.publish("q", "p", large(1, size=50_000, ttl_ms=5), create=True, now=1_000))
    send(scripts.publish("q", "p", large(2, size=50_000), now=1_000))
    send(scripts.take("q", "ann", 1, 10, now=1_000))
    send(scripts.take("q", "ann", 1, 10, now=1_006))
    send(scripts.take("q", "bob", 1, LEASE, delivery_limit=1, now=2_000))
    assert {job: client.hget(keys.job(job), "reason") for job in ("p-1", "p-2")} == {
        "p-1": b"expired",
        "p-2": b"delivery_limit",
    }


# The account of bytes


def test_the_bytes_of_a_full_queue_are_counted_by_several_calls_whatever_happens_meanwhile(
    send: Send, client: redis.Redis
) -> None:
    send(scripts.publish("q", "p", large(*range(MANY), size=10), create=True))
    send(scripts.declare("q", {"x-max-length-bytes": 1 << 30}))
    assert int(client.hget(keys.meta, "bytes")) == MAX_PER_CALL * 10
    taken = ids(send(scripts.take("q", "ann", 100, LEASE)))  # of those that were counted
    assert send(scripts.remove("q", f"p-{MANY - 1}")) == "waiting"  # of those that were not
    send(scripts.requeue("q", "ann", taken[:50]))
    send(scripts.publish("q", "p", large(MANY, size=10)))
    assert client.hget(keys.meta, "weighed") is None
    assert int(client.hget(keys.meta, "bytes")) == 10 * client.zcard(keys.waiting)


# Temporary queues


def test_the_jobs_of_a_large_temporary_queue_are_renewed_by_several_calls(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", {"x-expires": 60_000}, now=0))
    for first in range(0, 12_000, 3_000):
        send(scripts.publish("q", "p", jobs(*range(first, first + 3_000)), now=1))
    send(scripts.take("q", "ann", 100, 10**6, now=2))
    pipeline = client.pipeline(transaction=False)
    for job in range(12_000):
        pipeline.persist(keys.job(f"p-{job}"))  # to see which ones get a TTL anew
    pipeline.execute()
    # The first call of the leap has done the last ones; jobs move in between, from both sides of where it stands.
    assert send(scripts.renew("q", "ann", 10**6, now=50_000)) is Renewed.UNFINISHED
    taken = ids(send(scripts.take("q", "ann", 100, 10**6, now=50_000)))
    send(scripts.requeue("q", "ann", taken[:50], now=50_000))
    while send(scripts.renew("q", "ann", 10**6, now=50_000)) is Renewed.UNFINISHED:
        send(scripts.publish("q", "p", jobs(20_000, priority=-1), now=50_000))
    assert expiring(client) >= set(client.scan_iter(keys.job_prefix + b"*", count=1000))


def test_a_publish_says_that_not_all_jobs_of_a_large_temporary_queue_are_renewed(send: Send) -> None:
    send(scripts.declare("q", {"x-expires": 60_000}, now=0))
    for first in range(0, 6_000, 3_000):
        assert not send(scripts.publish("q", "p", jobs(*range(first, first + 3_000)), now=1)).more
    assert send(scripts.publish("q", "p", jobs(6_000), now=50_000)).more
    while send(scripts.advance("q", now=50_000)).more:
        pass
    assert not send(scripts.publish("q", "p", jobs(6_001), now=50_001)).more


def test_a_large_queue_that_is_to_last_after_all_loses_its_ttls_by_several_calls(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", {"x-expires": 60_000}))
    for first in range(0, 6_000, 3_000):
        send(scripts.publish("q", "p", jobs(*range(first, first + 3_000))))
    send(scripts.take("q", "ann", 100, LEASE))
    declare = scripts.declare("q", {"x-max-length": 10_000})
    assert send(declare).more
    while send(declare).more:
        pass
    assert expiring(client) == {keys.publisher("p")}


# Erasing


def test_large_messages_are_freed_in_parts(send: Send) -> None:
    for first in range(0, 80, 8):
        send(scripts.publish("q", "p", large(*range(first, first + 8), size=1 << 20), create=True))
    purged = send(scripts.purge("q"))
    assert purged.more
    assert 60 < purged.jobs < 70
    deleted = send(scripts.delete("q"))
    assert (deleted.jobs, deleted.more) == (80 - purged.jobs, False)


def test_a_purge_of_many_jobs_counts_all_of_them_over_its_calls(send: Send) -> None:
    send(scripts.publish("q", "p", jobs(*range(MANY)), create=True))
    parts = [send(scripts.purge("q")) for _ in range(3)]
    assert [(part.jobs, part.more) for part in parts] == [(MAX_PER_CALL, True), (MAX_PER_CALL, True), (500, False)]


# Dead letters, and searching


def test_dead_jobs_are_shown_up_to_a_limit_of_bytes(send: Send) -> None:
    send(scripts.declare("q", {"x-dead-letter-exchange": "graves", "x-message-ttl": 1}, now=0))
    for number in range(3):
        send(scripts.publish("q", "p", large(number, size=FETCH_BYTES // 2), now=0))
    outbox = send(scripts.outbox("q", now=10))
    assert [dead_letter.job.id for dead_letter in outbox.dead_letters] == ["p-0"]
    assert outbox.next_poll_ms == outbox.now
    assert [dead_letter.job.id for dead_letter in send(scripts.dead_letters("q"))] == ["p-0"]
    assert [dead_letter.job.id for dead_letter in send(scripts.dead_letters("q", seen=2))] == ["p-2"]


def test_a_search_says_how_many_jobs_it_has_looked_at(send: Send) -> None:
    for number in range(3):
        send(scripts.publish("q", "p", large(number, size=FETCH_BYTES), create=True))
    found = send(scripts.find("q", ["task"]))
    assert (found.scanned, found.more) == (1, True)
    found = send(scripts.find("q", ["task"], seen=2))
    assert (found.scanned, found.more) == (1, False)


# Blocked jobs


def test_a_job_for_which_thousands_wait_lets_them_go_on_by_several_calls(send: Send, client: redis.Redis) -> None:
    send(scripts.publish("q", "p", jobs(0), create=True))
    names = [f"b-{number}" for number in range(MANY)]
    pipeline = client.pipeline(transaction=False)
    for at, name in enumerate(names):
        pipeline.hset(keys.job(name), mapping={"payload": "1", "score": at})
        pipeline.sadd(keys.blocked, name)
        pipeline.sadd(keys.needs(name), "p-0")
        pipeline.sadd(keys.unblocks("p-0"), name)
    pipeline.execute()
    taken = send(scripts.take("q", "ann", 1, LEASE))
    send(scripts.ack("q", "ann", ids(taken)))
    assert client.scard(keys.blocked) > 0
    while send(scripts.take("q", "ann", 0, LEASE)).more:
        pass
    assert client.scard(keys.blocked) == 0
    assert client.zcard(keys.waiting) == MANY
    assert client.hget(keys.meta, "unblocking") is None
    assert not client.exists(keys.unblocks("p-0"))


def test_a_job_that_waits_for_thousands_is_removed_by_several_calls(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", {}))
    names = [f"b-{number}" for number in range(MANY)]
    pipeline = client.pipeline(transaction=False)
    pipeline.hset(keys.job("last"), mapping={"payload": "1", "score": 7})
    pipeline.sadd(keys.blocked, "last")
    pipeline.sadd(keys.needs("last"), *names)
    for name in names:
        pipeline.sadd(keys.unblocks(name), "last", "other")
    pipeline.execute()
    assert [send(scripts.remove("q", "last", "waiting")), send(scripts.remove("q", "last"))] == [None, "more"]
    assert (client.scard(keys.needs("last")), client.sismember(keys.blocked, "last")) == (MANY - MAX_PER_CALL, 1)
    assert [send(scripts.remove("q", "last")) for _ in range(3)] == ["more", "blocked", None]
    assert not client.exists(keys.job("last"), keys.needs("last"), keys.blocked)
    assert all(client.smembers(keys.unblocks(name)) == {b"other"} for name in names)
