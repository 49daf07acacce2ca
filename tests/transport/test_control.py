"""Control commands that wait for answers, from many threads at once, in the two ways of docs/broker.md."""

from __future__ import annotations

import threading

import pytest
from celery import Celery

from ..support.workers import worker

THREADS = 12
PINGS = 3


@pytest.mark.parametrize("way", ["a larger pool", "connections of their own"])
def test_many_threads_that_ping_at_once_all_get_their_answers(server, tmp_path, way):
    replies = []

    def ping():
        for _ in range(PINGS):
            if way == "a larger pool":
                replies.append(app.control.ping(timeout=60, limit=1))
            else:
                with app.connection_for_write() as connection:
                    replies.append(app.control.ping(timeout=60, limit=1, connection=connection))

    with worker(server, tmp_path), Celery("asking", broker=server.url()) as app:
        if way == "a larger pool":
            app.conf.broker_pool_limit = THREADS + 1
        # kombu registers its pools without a lock, and threads that make the first one together trip over each other.
        for pool in (app.pool, app.amqp.producer_pool):
            pool.acquire(block=True).release()
        # Daemons: what waits for ever must fail this test, and not keep the process.
        threads = [threading.Thread(target=ping, daemon=True) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert not any(thread.is_alive() for thread in threads)
    assert replies == [[{"w1@test": {"ok": "pong"}}]] * THREADS * PINGS
