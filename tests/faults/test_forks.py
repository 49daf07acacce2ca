"""A process forked while another thread of its parent uses the same connection: it works, and never waits for that thread.

The server stands still while the process forks, so the parent's thread holds its lock then.
"""

from __future__ import annotations

import pytest

from ..support.brokers import finish, script
from ..support.clusters import cluster
from ..support.workers import Ledger, send, worker

STUCK = """
    import os, signal, sys, threading, traceback
    import ferryman.transport
    from kombu import Connection, Queue

    url, held, *servers = sys.argv[1:]
    connection = Connection(url)
    channel = connection.channel()
    producer = connection.Producer()
    queue = Queue("q", durable=True)(channel)
    queue.declare()
    producer.publish("of the parent", routing_key="q")
    message = queue.get()

    def stop(how):
        for server in servers:
            os.kill(int(server), how)

    def publish():
        producer.publish("x", routing_key="q")

    def forward():
        channel.dead_letters.mark("q")
        channel.dead_letters.forward()

    def use_all():
        publish()
        Queue("q2")(channel).declare()
        channel.queue_delete("q2")
        channel.leases.end("q")
        message.ack()
        forward()
        assert channel.dead_letters.seconds_left > 0
        channel.close()
        connection.release()

    locks = {
        "link": (lambda: connection.transport.session.link._lock, publish),
        "acks": (lambda: channel.acks.lock, message.ack),
        "leases": (lambda: channel.leases.renewing, lambda: None),  # the thread that renews them has it every 0.1 s
        "dead letters": (lambda: channel.dead_letters._lock, forward),
    }
    lock_of, hold = locks[held]
    stop(signal.SIGSTOP)
    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    lock = lock_of()
    while lock.acquire(blocking=False):  # it is not the thread's yet
        lock.release()
    child = os.fork()
    stop(signal.SIGCONT)
    if child == 0:
        signal.alarm(20)
        try:
            use_all()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    thread.join()
    publish()
    print(queue.queue_declare(passive=True).message_count)
"""


HELD = ["link", "acks", "leases", "dead letters"]


@pytest.mark.parametrize("held", HELD)
def test_a_child_waits_for_no_lock_that_another_thread_of_its_parent_holds(server, held):
    assert int(finish(script(STUCK, server.url(lease=0.3), held, str(server.pid)))) >= 1


def test_a_child_waits_for_no_lock_of_a_link_to_a_cluster(kind, tmp_path):
    with cluster(kind, tmp_path) as running:
        pids = [str(node.server.pid) for node in running.nodes]
        assert int(finish(script(STUCK, running.url(lease=0.3), "link", *pids))) >= 1


FORKS = """
    import os, sys, threading, time
    import ferryman.transport
    from kombu import Connection

    connection = Connection(sys.argv[1])
    connection.SimpleQueue("q").put("x")
    ends = threading.Event()

    def publish():
        connection.Producer().publish("x", routing_key="q")

    def loop():
        while not ends.is_set():
            publish()

    thread = threading.Thread(target=loop)
    thread.start()
    for n in range(int(sys.argv[2])):
        child = os.fork()
        if child == 0:
            try:
                publish()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
    ends.set()
    thread.join()
"""


def test_children_publish_while_a_thread_of_their_parent_publishes_without_a_pause(server):
    finish(script(FORKS, server.url(), "200"))


def test_tasks_of_a_prefork_pool_publish_while_a_thread_of_the_main_process_publishes(server, client, tmp_path):
    ledger, options = Ledger(server), ["--max-tasks-per-child", "1"]
    send(server, [("tests.support.forking_tasks.publish_inherited", [n], {}) for n in range(20)])
    with worker(server, tmp_path, app="tests.support.forking_tasks", options=options):
        ledger.wait_for("run", 20)
    assert sorted(ledger.names("run")) == list(range(20))
    assert client.zcard("ferryman:{of the pool}:waiting") == client.zcard("ferryman:{of the app}:waiting") == 20
