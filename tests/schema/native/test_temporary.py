"""Temporary queues (x-expires): they leave nothing behind, and no other key ever expires."""

from __future__ import annotations

import redis
from ferryman.schema.native.scripts.queue_scripts import QueueScripts

from ...support.native import LEASE, Send, expiring, ids, jobs

scripts = QueueScripts()
keys = scripts.keys("q")


def test_every_key_of_a_temporary_queue_expires_and_no_key_of_another(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", {"x-expires": 60_000, "x-retention": 5_000}))
    send(scripts.declare("lasting", {}))
    send(scripts.publish("lasting", "p", jobs(1)))
    send(scripts.publish("q", "p", [*jobs(*range(6)), *jobs(6, due_ms=2**50)]))
    taken = ids(send(scripts.take("q", "ann", 5, LEASE)))
    send(scripts.ack("q", "ann", taken[:1]))
    send(scripts.reject("q", "ann", taken[1], "rejected"))
    send(scripts.requeue("q", "ann", taken[2:3]))
    client.zadd(keys.waiting, {"broken": -1})
    send(scripts.take("q", "bob", 1, LEASE))
    mine = set(client.scan_iter(keys.base + b"*"))
    assert mine >= {keys.meta, keys.waiting, keys.scheduled, keys.dead, keys.done, keys.held("ann"), keys.held("bob")}
    assert mine <= expiring(client)
    lasting = scripts.keys("lasting")
    assert expiring(client) - mine == {lasting.publisher("p")}


def test_jobs_of_a_temporary_queue_outlive_it_however_long_it_is_used(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", {"x-expires": 60_000}, now=0))
    for now in range(0, 300_000, 20_000):
        send(scripts.publish("q", "p", jobs(now), now=now))
        send(scripts.take("q", "ann", 1, LEASE, now=now))
        assert min(client.pttl(key) for key in client.scan_iter(keys.job_prefix + b"*")) >= client.pttl(keys.meta) - 100


def test_a_temporary_queue_that_nobody_uses_leaves_nothing(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", {"x-expires": 1000}))
    send(scripts.publish("q", "p", jobs(1, 2)))
    send(scripts.take("q", "ann", 1, LEASE))
    assert max(client.pttl(key) for key in expiring(client)) <= 2000
    while client.dbsize():
        client.blpop([b"nothing"], timeout=0.02)


def test_a_queue_declared_to_last_after_all_loses_its_ttls(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", {"x-expires": 60_000}))
    send(scripts.publish("q", "p", jobs(1, 2)))
    send(scripts.take("q", "ann", 1, LEASE))
    send(scripts.declare("q", {"x-max-length": 5}))
    assert expiring(client) == {keys.publisher("p")}
