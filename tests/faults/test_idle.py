"""What idle consumers cost the server, however many queues they have."""

from __future__ import annotations

import json
import random
import time

import pytest
from ferryman.transport.settings import LEASE
from kombu import Connection, Queue

from benchmarks import brokers
from benchmarks.broker.commands import CommandCount
from benchmarks.broker.measure import percentile
from benchmarks.server import Server

from ..support.brokers import FERRYMAN, finish, script
from ..support.proxy import proxy
from ..support.topologies import wait_until

CONSUMERS = """
    import json, sys, threading, time
    import ferryman.transport
    from kombu import Connection, Consumer, Queue
    def consume():
        with Connection(sys.argv[1]) as connection, connection.channel() as channel:
            queues = [Queue(f"q{n}") for n in range(int(sys.argv[3]))]
            with Consumer(channel, queues, on_message=pick_up, prefetch_count=4):
                begun.release()
                while True:
                    connection.drain_events()
    def pick_up(message):
        waited.append(time.time() - message.payload)
        message.ack()
    begun, waited = threading.Semaphore(0), []
    for _ in range(int(sys.argv[2])):
        threading.Thread(target=consume, daemon=True).start()
    for _ in range(int(sys.argv[2])):
        begun.acquire()
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(waited), flush=True)
"""
"""Consumers of many queues, in threads of one process, which says at its end how many seconds each message has waited."""

MESSAGES = 300
PER_CONSUMER = 2.5
"""Commands a second that an idle consumer may send: 500 for 200 of them."""


def test_idle_consumers_of_two_hundred_queues_send_few_commands_and_still_hear_at_once(server, client):
    lease, consumers, queues = 3, 3, 200
    with proxy(server) as between, FERRYMAN.connection(server) as connection:
        process = script(CONSUMERS, between.url(lease=lease), str(consumers), str(queues))
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        registered = [f"ferryman:{{q{n}}}:consumers" for n in range(queues)]
        wait_until(lambda: all(client.zcard(key) == consumers for key in registered), 120)
        time.sleep(lease)  # a first round, in which each queue is looked at for itself
        between.cut(None)
        begun = time.monotonic()
        time.sleep(2 * lease)
        rate = between.commands / consumers / (time.monotonic() - begun)
        assert all(client.zcard(key) == consumers for key in registered), "every consumer is still registered everywhere"
        assert rate <= PER_CONSUMER
        with connection.channel() as channel:
            connection.Producer(channel).publish(time.time(), routing_key="q17")
            wait_until(lambda: client.hget("ferryman:{q17}:meta", "acked") == b"1", 2)
            assert Queue("q17")(channel).get() is None
        assert len(waits(process)) == 1


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_hundred_idle_consumers_of_two_hundred_queues_are_cheap_and_hear_every_message():
    """Run it with ``-s`` to see the figures."""
    consumers, processes, queues, watched = 200, 4, 200, 60.0
    with Server() as server, server.client() as client, Connection(brokers.FERRYMAN.url(server)) as connection:
        # No process begins before the one before has all its consumers: they would wait for each other's declarations.
        running = []
        for _ in range(processes):
            running.append(script(CONSUMERS, brokers.FERRYMAN.url(server), str(consumers // processes), str(queues)))
            assert running[-1].stdout.readline() == "ready\n"
        registered = [f"ferryman:{{q{n}}}:consumers" for n in range(queues)]
        wait_until(lambda: all(client.zcard(key) == consumers for key in registered), 240)
        time.sleep(LEASE)  # a first round, in which each queue is looked at for itself
        with CommandCount(server) as counted:
            time.sleep(watched)
        assert all(client.zcard(key) == consumers for key in registered), "every consumer is still registered everywhere"
        chance = random.Random(1)
        with connection.channel() as channel:
            for _ in range(MESSAGES):
                connection.Producer(channel).publish(time.time(), routing_key=f"q{chance.randrange(queues)}")
                time.sleep(0.02 * chance.uniform(0.5, 1.5))
        wait_until(lambda: sum(int(client.hget(f"ferryman:{{q{n}}}:meta", "acked") or 0) for n in range(queues)) == MESSAGES)
        waited = [seconds for process in running for seconds in waits(process)]
    print(f"\n{counted.total / watched:.0f} commands/s, pick-up p99 {percentile(waited, 0.99) * 1000:.1f} ms")
    assert len(waited) == MESSAGES
    assert counted.total / watched <= consumers * PER_CONSUMER


def waits(process) -> list[float]:
    """Lets the process end; gives how many seconds each message has waited for it."""
    process.stdin.write("\n")
    waited: list[float] = json.loads(finish(process))
    return waited
