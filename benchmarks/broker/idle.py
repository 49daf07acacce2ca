"""Idle workers: what they cost the server, and how soon one of them has a message.

A worker here is a kombu consumer with a connection of its own on all queues, in a thread that drains events; 50 of them share
a process, because 200 Python processes would measure this machine's memory. Run as a module it is such a process: it says
``ready``, and when its input ends, as JSON, how many seconds each message took to arrive.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from typing import Any

from kombu import Connection, Exchange, Producer, Queue

from ..brokers import Broker
from ..server import Server
from .commands import CommandCount
from .measure import Figure, Measure, at_most, percentile

WORKERS = 200
PROCESSES = 4
QUEUES = [Queue(f"bench-{n}", Exchange("bench", "direct"), routing_key=f"bench-{n}") for n in range(20)]
WATCH_SECONDS = 30.0
"""At least one lease: what happens once a lease must be counted."""
MESSAGES = 300
PAUSE_SECONDS = 0.02
SETTLE_SECONDS = 5.0


def _idle(broker: Broker, server: Server) -> tuple[float, ...]:
    command = [sys.executable, "-m", "benchmarks.broker.idle", broker.url(server), str(WORKERS // PROCESSES)]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)]
    try:
        for process in processes:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("the idle consumers did not start")
        time.sleep(SETTLE_SECONDS)
        with CommandCount(server) as counted:
            time.sleep(WATCH_SECONDS)
        _send(broker, server)
        times = [seconds for process in processes for seconds in json.loads(process.communicate()[0])]
    finally:
        for process in processes:
            process.kill()
    if len(times) != MESSAGES:
        raise RuntimeError(f"{len(times)} of {MESSAGES} messages arrived")
    return counted.total / WATCH_SECONDS, percentile(times, 0.99) * 1000


def _send(broker: Broker, server: Server) -> None:
    chance = random.Random(1)
    with broker.connection(server) as connection, connection.Producer() as producer:
        for _ in range(MESSAGES):
            _send_one(producer, chance.choice(QUEUES))
            time.sleep(PAUSE_SECONDS * chance.uniform(0.5, 1.5))
    time.sleep(1.0)


def _send_one(producer: Producer, queue: Queue) -> None:
    producer.publish({"sent_at": time.time()}, exchange=queue.exchange, routing_key=queue.routing_key, declare=[queue])


def _consume(url: str, times: list[float], started: threading.Semaphore) -> None:
    def arrived(body: Any, message: Any) -> None:
        times.append(time.time() - body["sent_at"])
        message.ack()

    with Connection(url) as connection, connection.channel() as channel:
        consumer = channel.Consumer(QUEUES, callbacks=[arrived], accept=["json"], prefetch_count=4)
        with consumer:
            started.release()
            while True:
                connection.drain_events()


def main(url: str, workers: int) -> None:
    """One process of idle workers."""
    times: list[float] = []
    started = threading.Semaphore(0)
    for _ in range(workers):
        threading.Thread(target=_consume, args=(url, times, started), daemon=True).start()
    for _ in range(workers):
        started.acquire()
    print("ready", flush=True)
    sys.stdin.read()
    print(json.dumps(times), flush=True)
    os._exit(0)


IDLE = Measure(
    "idle",
    (
        Figure(f"commands a second, {WORKERS} idle workers on {len(QUEUES)} queues", "/s", at_most(500)),
        Figure("pick-up by one of them, p99", "ms", at_most(20)),
    ),
    _idle,
    repeats=1,
)

if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
