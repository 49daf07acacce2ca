"""What idle consumers cost the server, however many queues they have."""

from __future__ import annotations

import time

import pytest
from kombu import Queue

from ..support.brokers import FERRYMAN, finish, script
from ..support.proxy import proxy
from ..support.topologies import wait_until

CREW = """
    import sys, threading
    import ferryman.transport
    from kombu import Connection, Consumer, Queue
    def consume():
        with Connection(sys.argv[1]) as connection, connection.channel() as channel:
            queues = [Queue(f"q{n}") for n in range(int(sys.argv[3]))]
            with Consumer(channel, queues, on_message=lambda message: message.ack(), prefetch_count=4):
                begun.release()
                while True:
                    connection.drain_events()
    begun = threading.Semaphore(0)
    for _ in range(int(sys.argv[2])):
        threading.Thread(target=consume, daemon=True).start()
    for _ in range(int(sys.argv[2])):
        begun.acquire()
    print("ready", flush=True)
    sys.stdin.readline()
"""
"""Consumers of many queues, in threads of one process."""

PER_CONSUMER = 2.5
"""Commands a second that an idle consumer may send: 500 for 200 of them."""


@pytest.mark.parametrize(
    ("consumers", "queues"), [(3, 200), pytest.param(50, 200, marks=[pytest.mark.slow, pytest.mark.timeout(600)])]
)
def test_idle_consumers_of_two_hundred_queues_send_few_commands_and_still_hear_at_once(server, client, consumers, queues):
    lease = 3
    with proxy(server) as between, FERRYMAN.connection(server) as connection:
        crew = script(CREW, between.url(lease=lease), str(consumers), str(queues))
        assert crew.stdout is not None
        assert crew.stdout.readline() == "ready\n"
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
            connection.Producer(channel).publish("heard", routing_key="q17")
            wait_until(lambda: client.hget("ferryman:{q17}:meta", "acked") == b"1", 2)
            assert Queue("q17")(channel).get() is None
        finish_quietly(crew)


def finish_quietly(crew) -> None:
    """Lets the process end."""
    crew.stdin.write("\n")
    finish(crew)
