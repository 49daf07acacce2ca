"""Consumers that are killed at any moment, again and again: no message is missing, and what was in their hands comes back by
their own lease.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections import Counter

import pytest
from kombu import Connection, Producer

from ..support.brokers import finish, script
from ..support.topologies import wait_until
from ..support.workers import Ledger, send, worker

HOLD = "tests.support.tasks.hold"
PREFETCH = 5

NURSERY = """
    import os, signal, sys
    import redis
    import ferryman.transport
    from kombu import Connection, Consumer, Queue

    def consume():
        done = redis.Redis.from_url(sys.argv[2])
        def handle(message):
            done.rpush("handled", message.payload)
            message.ack()
        with Connection(sys.argv[1]) as connection, connection.channel() as channel:
            with Consumer(channel, [Queue("q")], on_message=handle, prefetch_count=int(sys.argv[3])):
                while True:
                    connection.drain_events()

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            consume()
        print(child, flush=True)
"""
"""Bears a consumer for each line that it reads, and says its process id: far quicker than a new Python for each."""


def bear(nursery: subprocess.Popen[str]) -> int:
    """A new consumer's process id."""
    assert nursery.stdin is not None
    assert nursery.stdout is not None
    nursery.stdin.write("\n")
    nursery.stdin.flush()
    return int(nursery.stdout.readline())


@pytest.mark.parametrize("kills", [40, pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])])
def test_no_message_is_missing_however_often_consumers_are_killed(server, kills):
    rng = random.Random(kills)
    total = 10 * kills
    nursery = script(NURSERY, server.url(lease=1), f"redis://{server.host}:{server.port}/1", str(PREFETCH))
    with Connection(server.url()) as connection, connection.channel() as channel, server.client(1) as ledger:
        producer = Producer(channel)
        published = 0
        consumers = [bear(nursery) for _ in range(2)]
        try:
            for n in range(kills):
                while published < (n + 1) * total // kills:
                    producer.publish(published, routing_key="q")
                    published += 1
                time.sleep(rng.uniform(0.0, 0.05))
                os.kill(consumers.pop(0), signal.SIGKILL)
                consumers.append(bear(nursery))
            wait_until(lambda: set(ledger.lrange("handled", 0, -1)) == {b"%d" % n for n in range(total)}, 60)
            wait_until(lambda: connection.transport.session.link.run(connection.transport.session.scripts.size("q")).held == 0)
        finally:
            for pid in consumers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            finish(nursery)
        handled = Counter(ledger.lrange("handled", 0, -1))
    twice = sum(count - 1 for count in handled.values())
    assert twice <= kills * PREFETCH, "only what a killed consumer held may run again"


def test_the_tasks_of_a_killed_worker_come_back_by_its_lease_whatever_lease_the_others_have(server, tmp_path):
    ledger = Ledger(server)
    with (
        worker(server, tmp_path, late=1, lease=300, name="patient", queues="other") as patient,
        worker(server, tmp_path, late=1, lease=2, name="doomed") as doomed,
    ):
        send(server, [(HOLD, ["its own"], {"queue": "other"}), (HOLD, ["taken over"], {})])
        ledger.wait_for("start", 2)
        doomed.kill()
        killed_at = time.time()
        with worker(server, tmp_path, late=1, lease=300, name="heir", queues="celery,other"):
            ledger.wait_for("start", 3)
            time.sleep(2.0)  # a lease, after which what lives would be taken too
            ledger.let_go()
            lines = ledger.wait_for("end", 2)
        assert patient.process.poll() is None
    starts = [line["name"] for line in lines if line["event"] == "start"]
    assert Counter(starts) == {"its own": 1, "taken over": 2}, "what lives is left alone"
    taken_over = [line["at"] for line in lines if line["name"] == "taken over" and line["event"] == "start"]
    assert max(taken_over) - killed_at < 30, "far within the others' lease"
