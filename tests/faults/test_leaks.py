"""What must not pile up: keys of clients that died, connections, sockets that a forked child shares with its parent."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import redis

from ..support.servers import Server
from ..support.topologies import wait_until
from ..support.workers import worker

ROOT = Path(__file__).parents[2]


def script(text: str, *arguments: str) -> subprocess.Popen[str]:
    """A Python process of its own."""
    command = [sys.executable, "-c", textwrap.dedent(text), *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> str:
    """What the process said; fails when it failed."""
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return output


def connections(client: redis.Redis) -> int:
    """Clients of the server, other than this one."""
    return len(client.client_list()) - 1


PINGS = """
    import sys
    from celery import Celery
    app = Celery(broker=sys.argv[1])
    print("begun", flush=True)
    while True:
        app.control.ping(timeout=0.05)
"""


def test_clients_of_remote_control_that_are_killed_leave_no_keys(server, client, tmp_path):
    with worker(server, tmp_path, pool="threads"):
        baseline = set(client.keys("*"))
        clients = [script(PINGS, server.url()) for _ in range(4)]
        for each in clients:
            assert each.stdout is not None
            each.stdout.readline()
        wait_until(lambda: any(b"reply" in key for key in client.scan_iter(count=1000)))
        for each in clients:
            each.send_signal(signal.SIGKILL)
            each.communicate()
        # Replies expire by Celery's own choice, 10 s after the question.
        wait_until(lambda: not [key for key in set(client.keys("*")) - baseline if b":wake" not in key], 60)
        fields = client.hkeys("ferryman:exchange:reply.celery.pidbox")
        bound = [field for field in fields if field.startswith(b"[")]
        assert len(bound) <= 4, "bindings of replies expire too, and are swept with the next one"


PUBLISHES = """
    import sys
    from celery import Celery
    import redis
    app = Celery(broker=sys.argv[1])
    for n in range(2000):
        app.send_task("any", [n])
    print(len(redis.Redis.from_url(sys.argv[2]).client_list()) - 1)
"""


def test_thousands_of_publishes_use_one_connection(server, client):
    used = int(finish(script(PUBLISHES, server.url(), f"redis://{server.host}:{server.port}/0")))
    assert used <= 2 + connections(client)


FORKS = """
    import os, sys
    import ferryman.transport
    from kombu import Connection, Producer
    connection = Connection(sys.argv[1])
    producer = Producer(connection)
    message = None
    producer.publish("held by the parent", routing_key="mine")
    channel = connection.channel()
    message = channel.basic_get("mine")
    for n in range(30):
        child = os.fork()
        if child == 0:
            producer.publish(n, routing_key="q")
            connection.release()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert status == 0, n
        producer.publish(-n, routing_key="q")
    assert channel.basic_get("mine") is None, "a child has given back what its parent holds"
    message.ack()
    assert channel.queue_declare("mine", passive=True).message_count == 0
    print(channel.queue_declare("q", passive=True).message_count)
"""


def test_forked_children_use_connections_of_their_own_and_spoil_none_of_their_parents(server, client):
    before = connections(client)
    assert int(finish(script(FORKS, server.url()))) == 60
    assert client.hget("ferryman:{mine}:meta", "acked") == b"1"
    wait_until(lambda: connections(client) <= before)


GREENLETS = """
    from gevent import monkey
    monkey.patch_all()
    import sys
    import gevent
    import redis
    from celery import Celery
    app = Celery(broker=sys.argv[1])
    app.conf.broker_pool_limit = 5
    def publish(n):
        for each in range(20):
            app.send_task("any", [n, each])
    gevent.joinall([gevent.spawn(publish, n) for n in range(50)], raise_error=True)
    print(len(redis.Redis.from_url(sys.argv[2]).client_list()) - 1)
"""


def test_greenlets_share_the_connections_of_the_pool(server, client):
    pytest.importorskip("gevent")
    used = int(finish(script(GREENLETS, server.url(), f"redis://{server.host}:{server.port}/0")))
    assert used <= 5 + 1 + connections(client)
    assert client.zcard("ferryman:{celery}:waiting") == 1000


def test_a_worker_has_few_connections(server: Server, client: redis.Redis, tmp_path: Path):
    before = connections(client)
    with worker(server, tmp_path, concurrency=4):
        # Consuming: calls, the wait for messages and the wait for broadcasts; leases; events.
        assert connections(client) - before <= 6
