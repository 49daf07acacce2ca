"""Dead letters are bounded by number, bytes and age; what is dropped is counted, and nothing that is on its way is dropped."""

from __future__ import annotations

import redis
from ferryman.schema.native.scripts.queue_scripts import DeadLetterLimits, QueueScripts

from ...support.native import LEASE, Send, jobs

scripts = QueueScripts()
keys = scripts.keys("q")
BODY = 1_000


def declare(send: Send, arguments: dict[str, object] | None = None, **limits: int) -> None:
    send(scripts.declare("q", arguments or {}, dead_letter_limits=DeadLetterLimits(**limits)))


def reject(send: Send, *numbers: int, message: bytes = b"{}\nbody", now: int | None = None) -> None:
    for number in numbers:
        (job,) = jobs(number)
        send(scripts.publish("q", "p", [type(job)(job.id, message)], now=now))
        (taken,) = send(scripts.take("q", "ann", 1, LEASE, now=now)).jobs
        send(scripts.reject("q", "ann", taken.id, "rejected", now=now))


def dead(client: redis.Redis) -> list[str]:
    return [each.decode() for each in client.zrange(keys.dead, 0, -1)]


def dropped(send: Send) -> int:
    return send(scripts.counters("q"))["dropped"]


def test_the_oldest_go_when_there_are_too_many(send: Send, client: redis.Redis) -> None:
    declare(send, number=3)
    for number in range(1, 6):
        reject(send, number, now=1_000 + number)
    assert dead(client) == ["p-3", "p-4", "p-5"]
    assert not client.exists(keys.job("p-1"), keys.job("p-2"))
    assert (dropped(send), send(scripts.counters("q"))["dead"]) == (2, 5)


def test_the_oldest_go_when_they_have_too_many_bytes(send: Send, client: redis.Redis) -> None:
    declare(send, bytes=2 * BODY)
    for number in range(1, 5):
        reject(send, number, message=b"{}\n" + b"x" * (BODY - 3), now=1_000 + number)
    assert dead(client) == ["p-3", "p-4"]
    assert client.hget(keys.meta, "dead_bytes") == b"%d" % (2 * BODY)


def test_bytes_that_something_else_has_removed_drop_nothing(send: Send, client: redis.Redis) -> None:
    declare(send, bytes=2 * BODY)
    reject(send, 1, message=b"{}\n" + b"x" * (BODY - 3))
    client.hset(keys.meta, "dead_bytes", 100 * BODY)
    reject(send, 2, message=b"{}\n" + b"x" * (BODY - 3))
    assert (dead(client), dropped(send)) == (["p-1", "p-2"], 0)


def test_the_account_of_bytes_ends_at_zero_however_letters_leave(send: Send, client: redis.Redis) -> None:
    declare(send)
    reject(send, 1, 2, 3, 4)
    send(scripts.revive("q", ["p-1"]))
    send(scripts.remove("q", "p-2"))
    assert client.hget(keys.meta, "dead_bytes") == b"%d" % (2 * len(b"{}\nbody"))
    for job_id in ("p-3", "p-4"):
        send(scripts.remove("q", job_id))
    assert client.hget(keys.meta, "dead_bytes") == b"0"


def test_letters_go_when_they_are_too_old(send: Send, client: redis.Redis) -> None:
    declare(send, ttl_ms=500)
    reject(send, 1, now=1_000)
    reject(send, 2, now=1_400)
    reject(send, 3, now=1_600)
    assert dead(client) == ["p-2", "p-3"]
    send(scripts.take("q", "ann", 1, LEASE, now=100_000))  # once a minute nothing need die
    assert (dead(client), dropped(send)) == ([], 3)


def test_expired_letters_go_before_older_ones_that_a_person_may_want(send: Send, client: redis.Redis) -> None:
    declare(send, number=3)
    reject(send, 1, 2, now=1_000)
    send(scripts.publish("q", "p", jobs(*range(3, 9), ttl_ms=5), now=1_001))
    send(scripts.take("q", "ann", 1, LEASE, now=1_010))
    assert dead(client) == ["p-1", "p-2", "p-8"]


def test_without_options_a_queue_keeps_10000_and_0_is_without_limit(send: Send, client: redis.Redis) -> None:
    declare(send, {"x-max-length": 1})
    for first in range(1, 12_001, 1_000):
        send(scripts.publish("q", "p", jobs(*range(first, first + 1_000))))
    assert (client.zcard(keys.dead), dropped(send)) == (10_000, 1_999)
    declare(send, number=0)
    send(scripts.publish("q", "p", jobs(*range(20_001, 21_001))))
    assert client.zcard(keys.dead) == 11_000


def test_letters_on_their_way_to_an_exchange_or_a_queue_stay(send: Send, client: redis.Redis) -> None:
    declare(send, {"x-dead-letter-exchange": "graves"}, number=1)
    reject(send, 1, 2, 3)
    assert client.zcard(keys.dead) == 3
    first, second, third = send(scripts.outbox("q")).dead_letters
    send(scripts.forwarded("q", [(first, False), (second, False), (third, False)]))
    assert (dead(client), dropped(send)) == (["p-3"], 2)


def test_letters_that_a_worker_has_to_report_stay_up_to_twice_the_limit(send: Send, client: redis.Redis) -> None:
    declare(send, number=2)
    message = b'{"headers": {"task": "add", "id": "t"}}\n[[], {}, {}]'
    publications = [type(job)(job.id, message, ttl_ms=5) for job in jobs(*range(1, 7))]
    send(scripts.publish("q", "p", publications[:3], now=1_000))
    send(scripts.take("q", "ann", 1, LEASE, now=1_010))
    assert client.zcard(keys.dead) == client.zcard(keys.unreported) == 3
    send(scripts.publish("q", "p", publications[3:], now=1_020))
    send(scripts.take("q", "ann", 1, LEASE, now=1_030))
    assert client.zcard(keys.dead) == client.zcard(keys.unreported) == 4
    send(scripts.reported("q", [job_id.decode() for job_id in client.zrange(keys.unreported, 0, -1)]))
    reject(send, 9, now=1_040)
    assert client.zcard(keys.dead) == 2


def test_migrated_dead_jobs_are_not_dropped_however_old_and_many(send: Send, client: redis.Redis) -> None:
    declare(send, number=1, ttl_ms=500)
    for number in range(50):
        client.hset(keys.job(f"old-{number}"), mapping={"payload": "{}", "name": "email", "reason": "failed"})
        client.zadd(keys.dead, {f"old-{number}": number})
    reject(send, 1, 2)
    send(scripts.take("q", "ann", 1, LEASE))
    assert (client.zcard(keys.dead), dropped(send)) == (51, 1)


def test_a_letter_that_something_else_has_put_back_is_not_deleted(send: Send, client: redis.Redis) -> None:
    declare(send, number=1)
    reject(send, 1)
    client.zrem(keys.dead, "p-1")
    client.zadd(keys.waiting, {"p-1": 2**50})
    reject(send, 2, 3)
    assert client.exists(keys.job("p-1"))
    assert (dead(client), client.zrange(keys.letters, 0, -1)) == (["p-3"], [b"p-3"])
