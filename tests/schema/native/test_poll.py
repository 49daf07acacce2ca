"""Polling several quiet queues in one call: what it replies, and that it renews the lease of a consumer."""

from __future__ import annotations

import redis
from ferryman.schema.native.scripts.queue_scripts import QueueScripts

from ...support.native import LEASE, Send, jobs

scripts = QueueScripts()


def test_each_queue_says_when_to_poll_again_or_that_there_is_something_to_take(send: Send, client: redis.Redis) -> None:
    names = ["quiet", "busy", "due", "unknown", "damaged"]
    for name in names[:3]:
        send(scripts.declare(name, {}))
        send(scripts.take(name, "me", 1, LEASE, now=0))
    send(scripts.publish("busy", "p", jobs(1), now=0))
    send(scripts.publish("due", "p", jobs(2, due_ms=9_000), now=0))
    client.set(scripts.keys("damaged").meta, "no hash")
    assert send(scripts.poll(names, "me", LEASE, now=5_000)) == (LEASE, None, 4_000, None, None)
    assert client.zscore(scripts.keys("quiet").consumers, "me") == 5_000 + 2 * LEASE, "what holds nothing has two leases"
    assert not client.exists(scripts.keys("unknown").consumers)


def test_what_is_held_lapses_after_one_lease_and_what_others_held_is_found(send: Send, client: redis.Redis) -> None:
    send(scripts.declare("q", {}))
    send(scripts.publish("q", "p", jobs(1, 2), now=0))
    send(scripts.take("q", "me", 1, LEASE, now=0))
    send(scripts.take("q", "other", 1, LEASE, now=10_000))
    assert send(scripts.poll(["q"], "me", LEASE, now=15_000)) == (10_000 + LEASE - 15_000,)
    assert client.zscore(scripts.keys("q").consumers, "me") == 15_000 + LEASE
    assert send(scripts.poll(["q"], "me", LEASE, now=10_000 + LEASE)) == (None,)


def test_queues_that_only_take_can_keep_are_left_to_it(send: Send) -> None:
    for name, arguments in (("temporary", {"x-expires": 60_000}), ("forwarding", {"x-dead-letter-exchange": "dlx"})):
        send(scripts.declare(name, arguments))
        send(scripts.take(name, "me", 1, LEASE))
        assert send(scripts.poll([name], "me", LEASE)) == (None,)
