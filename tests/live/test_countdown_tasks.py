"""Real workers that hold tasks until their time: a lost connection gives those tasks back, as often as it happens."""

from __future__ import annotations

import pytest
from celery import Celery

from ..conftest import SERVERS
from ..support.foreign_brokers import ForeignBroker
from ..support.live_systems import SYSTEMS
from ..support.proxy import proxy
from ..support.topologies import durable, wait_until
from ..support.workers import TASKS, Ledger, worker

(KOMBU,) = [system for system in SYSTEMS if system.family == "kombu"]
"""The only system whose workers, and not its keys, hold a task until it is due."""
QUEUE = "later"
TOMORROW = 86_400
"""Seconds."""
HELD = 5


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo", "gevent"])
def test_countdown_tasks_come_back_after_each_lost_connection(tmp_path, pool):
    with durable(SERVERS[0], tmp_path / "server") as daemon, proxy(daemon.server) as between:
        broker = ForeignBroker(KOMBU, daemon.server)

        def are_held_again(times):
            is_taken = running.log.read_bytes().count(b" received") >= times * HELD
            size = broker.size(QUEUE)
            return is_taken and (size.waiting, size.held) == (0, HELD)

        with (
            worker(daemon.server, tmp_path, pool=pool, concurrency=1, queues=QUEUE, broker=broker.url(between)) as running,
            Celery(broker=broker.url(), set_as_current=False) as app,
        ):
            for n in range(HELD):
                app.send_task(f"{TASKS}.note", [n], queue=QUEUE, countdown=TOMORROW)
            wait_until(lambda: are_held_again(1))
            between.break_all()
            wait_until(lambda: are_held_again(2))
            daemon.restart()
            wait_until(lambda: are_held_again(3))
            between.break_all()
            wait_until(lambda: are_held_again(4))
            app.send_task(f"{TASKS}.note", ["now"], queue=QUEUE)
            Ledger(daemon.server).wait_for("run", 1)
            assert running.stop() == 0
        size = broker.size(QUEUE)
        assert (size.waiting, size.held) == (HELD, 0)
