"""What must not pile up: keys of clients that died, connections, sockets that a forked child shares with its parent."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

import pytest
import redis

from ..support.brokers import finish, script
from ..support.servers import Server
from ..support.topologies import wait_until
from ..support.workers import worker


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


def ping_and_die(server: Server, client: redis.Redis) -> None:
    """Four processes that ping until they are killed."""
    clients = [script(PINGS, server.url()) for _ in range(4)]
    for each in clients:
        assert each.stdout is not None
        each.stdout.readline()
    wait_until(lambda: any(b".reply.celery.pidbox}:meta" in key for key in client.scan_iter(count=1000)))
    for each in clients:
        each.send_signal(signal.SIGKILL)
        each.communicate()


@pytest.mark.parametrize("clients", [4, pytest.param(200, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
def test_clients_of_remote_control_that_are_killed_leave_no_keys(server, client, tmp_path, clients):
    with worker(server, tmp_path, pool="threads", gossips=True):
        # What was broadcast stays in its stream as long as the worker listens, to questions and to other workers' events.
        baseline = {*client.keys("*"), b"ferryman:fanout:{celery.pidbox}", b"ferryman:fanout:{celeryev}"}
        for _ in range(clients // 4):
            ping_and_die(server, client)
        left: list[bytes] = []

        def all_gone() -> bool:
            # The history of the worker's own queue has a new slot each minute.
            others = (key for key in set(client.keys("*")) - baseline if not key.startswith(b"ferryman:{celery}:history:"))
            left[:] = [key for key in others if b":wake" not in key]
            return not left

        # Replies expire by Celery's own choice, 10 s after the question.
        with contextlib.suppress(AssertionError):
            wait_until(all_gone, 60)
        assert [(key, client.ttl(key)) for key in left] == []
        fields = client.hkeys("ferryman:exchange:reply.celery.pidbox")
        bound = [field for field in fields if field.startswith(b"[")]
        assert len(bound) <= 4, "bindings of replies expire too, and are swept with the next one"


PUBLISHES = """
    import sys
    from celery import Celery
    import redis
    app = Celery(broker=sys.argv[1])
    for n in range(int(sys.argv[3])):
        app.send_task("any", [n])
    print(len(redis.Redis.from_url(sys.argv[2]).client_list()) - 1)
"""


@pytest.mark.parametrize("publishes", [2000, pytest.param(100_000, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
def test_thousands_of_publishes_use_one_connection(server, client, publishes):
    process = script(PUBLISHES, server.url(), f"redis://{server.host}:{server.port}/0", str(publishes))
    used = int(finish(process, 600))
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
    for n in range(int(sys.argv[2])):
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


@pytest.mark.parametrize("forks", [30, pytest.param(100, marks=pytest.mark.slow)])
def test_forked_children_use_connections_of_their_own_and_spoil_none_of_their_parents(server, client, forks):
    before = connections(client)
    assert int(finish(script(FORKS, server.url(), str(forks)))) == 2 * forks
    assert client.hget("ferryman:{mine}:meta", "acked") == b"1"
    wait_until(lambda: connections(client) <= before)


PATCH = {
    "threads": "",
    "gevent": """
    from gevent import monkey
    monkey.patch_all()
""",
    "eventlet": """
    import eventlet
    eventlet.monkey_patch()
""",
}
"""What turns threads into green ones."""

FIFTY = """
    import sys
    import redis
    from threading import Thread
    from celery import Celery
    app = Celery(broker=sys.argv[1])
    app.conf.broker_pool_limit = 5
    def publish(n):
        for each in range(20):
            app.send_task("any", [n, each])
    threads = [Thread(target=publish, args=[n]) for n in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(len(redis.Redis.from_url(sys.argv[2]).client_list()) - 1)
"""


@pytest.mark.parametrize("kind_of_thread", PATCH)
def test_threads_of_every_kind_share_the_connections_of_the_pool(server, client, kind_of_thread):
    if kind_of_thread != "threads":
        pytest.importorskip(kind_of_thread)
    used = int(finish(script(PATCH[kind_of_thread] + FIFTY, server.url(), f"redis://{server.host}:{server.port}/0")))
    assert used <= 5 + 1 + connections(client)
    assert client.zcard("ferryman:{celery}:waiting") == 1000


def test_a_worker_has_few_connections(server: Server, client: redis.Redis, tmp_path: Path):
    before = connections(client)
    with worker(server, tmp_path, concurrency=4):
        # Consuming: calls, the wait for messages and the wait for broadcasts; leases; events.
        assert connections(client) - before <= 6
