"""A server that is away for a moment, at the moments that count: while connecting, and while a process ends."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from kombu import Connection

from benchmarks.brokers import FERRYMAN, QUEUE
from benchmarks.server import Server

ROOT = Path(__file__).parents[2]

LAST_WORDS = """
    import sys
    from benchmarks.brokers import QUEUE
    from kombu import Connection

    with Connection(sys.argv[1]) as connection:
        message = QUEUE(connection.channel()).get()
        print("taken", flush=True)
        sys.stdin.readline()
        try:
            message.ack()
        except connection.connection_errors:
            print("not acked", flush=True)
"""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(options=("--appendonly", "yes", "--appendfsync", "always")) as running:
        yield running


def test_a_connection_made_at_the_second_attempt_works_like_any_other(server: Server) -> None:
    server.kill()
    connection = Connection(FERRYMAN.url(server), transport_options={"interval_start": 0})
    connection.ensure_connection(errback=lambda _error, _interval: server.start())
    assert connection.connected
    assert not connection.transport.broken
    connection.release()


def test_a_finished_message_is_acked_though_the_server_is_away_when_its_process_ends(server: Server) -> None:
    with FERRYMAN.connection(server) as connection, connection.Producer() as producer:
        producer.publish("work", routing_key=QUEUE.routing_key, exchange=QUEUE.exchange, declare=[QUEUE])
    command = [sys.executable, "-c", textwrap.dedent(LAST_WORDS), FERRYMAN.url(server)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "taken\n"
        server.kill()
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "not acked\n"
        server.start()
        assert process.wait(120) == 0
    assert FERRYMAN.unfinished(server) == 0


def test_a_channel_whose_ack_outlived_an_outage_gives_back_the_rest_when_it_closes(server: Server) -> None:
    with FERRYMAN.connection(server) as connection:
        queue = QUEUE(connection.channel())
        queue.declare()
        for text in ("one", "two"):
            connection.Producer().publish(text, routing_key=QUEUE.routing_key, exchange=QUEUE.exchange)
        done, _ = queue.get(), queue.get()
        server.kill()
        server.start()
        done.ack()
        assert connection.connected
    with FERRYMAN.connection(server) as connection:
        given_back = QUEUE(connection.channel()).get()
        assert given_back is not None
        assert given_back.payload == "two"
        given_back.ack()
    assert FERRYMAN.unfinished(server) == 0
