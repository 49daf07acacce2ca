"""Every pool of Celery on ``ferryman://``: the event loop (prefork, threads, solo) and green threads (gevent, eventlet)."""

from __future__ import annotations

import contextlib
import importlib.util
import subprocess
import sys
import time
from collections import Counter

import pytest
from ferryman.transport.leases.gevent_renewer import GeventLeaseRenewer
from kombu import Connection

from ..support.servers import Server
from ..support.topologies import wait_until
from ..support.workers import ROOT, Ledger, celery, send, worker

NOTE = "tests.support.tasks.note"
NAP = "tests.support.tasks.nap"
BLOCK = "tests.support.tasks.block"


def needs(module: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(importlib.util.find_spec(module) is None, reason=f"{module} is not installed")


GREEN = [pytest.param("gevent", marks=needs("gevent")), pytest.param("eventlet", marks=needs("eventlet"))]
POOLS = ["prefork", "threads", "solo", *(name for name in ("gevent", "eventlet") if importlib.util.find_spec(name))]
OTHERS = [pool for pool in POOLS if pool not in ("prefork", "gevent")]


@pytest.fixture
def ledger(server: Server) -> Ledger:
    return Ledger(server)


@pytest.mark.parametrize("pool", GREEN)
def test_green_pools_run_tasks_at_once_or_when_due_answer_pings_and_stop(server, ledger, tmp_path, pool):
    with worker(server, tmp_path, pool=pool, concurrency=10) as running:
        send(server, [(NOTE, [n], {}) for n in range(50)])
        before = time.time()
        send(server, [(NOTE, ["later"], {"countdown": 1})])
        lines = ledger.wait_for("run", 51)
        assert sorted(ledger.names("run"), key=str) == sorted([*range(50), "later"], key=str)
        assert next(line["at"] for line in lines if line["name"] == "later") >= before + 1
        ping = celery(server, "inspect", "ping", "-d", "w1@test", "--timeout", "60")
        assert "pong" in ping.stdout, ping.stdout + ping.stderr
        assert running.stop() == 0
        assert "Traceback" not in running.log.read_text()
    with server.client() as client:
        assert client.zcard("ferryman:{celery}:waiting") == 0
        assert not client.exists("ferryman:{celery}:consumers"), "a worker that has stopped is no consumer"


@pytest.mark.parametrize("pool", ["prefork", GREEN[0], *(pytest.param(pool, marks=pytest.mark.slow) for pool in OTHERS)])
def test_a_running_worker_takes_up_a_queue_and_leaves_it_again(server, ledger, client, tmp_path, pool):
    def control(command: str) -> None:
        reply = celery(server, "control", command, "extra", "-d", "w1@test", "--timeout", "60")
        assert "OK" in reply.stdout, reply.stdout + reply.stderr

    with worker(server, tmp_path, pool=pool):
        control("add_consumer")
        send(server, [(NOTE, ["on extra"], {"queue": "extra"})])
        ledger.wait_for("run", 1)
        control("cancel_consumer")
        wait_until(lambda: not client.exists("ferryman:{extra}:consumers"))  # green workers do it within two seconds
        send(server, [(NOTE, ["left alone"], {"queue": "extra"}), (NOTE, ["on celery"], {})])
        ledger.wait_for("run", 2)
        assert client.zcard("ferryman:{extra}:waiting") == 1
    assert ledger.names("run") == ["on extra", "on celery"]


@needs("gevent")
def test_acks_of_greenlets_and_of_the_lease_renewer_do_not_get_in_each_others_way(server):
    """gevent's sockets and locks must not be shared with real threads: whoever waits for one may wait for ever."""
    command = [sys.executable, "-m", "tests.support.green", server.url(), "500"]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert (finished.stdout, finished.stderr) == ("acked True\n", "")


@needs("gevent")
def test_the_gevent_renewer_renews_what_is_late_until_it_is_to_leave_it(server, client):
    with Connection(server.url(), transport_options={"lease": 1}) as connection, connection.SimpleQueue("q") as queue:
        queue.put("held")
        message = queue.get(timeout=10)
        channel = message.channel

        def lease_ends() -> float:
            return client.zscore("ferryman:{q}:consumers", channel.consumer_id)

        channel.renewer.remove(channel.leases)  # so nobody else renews it
        spare, before = GeventLeaseRenewer(), lease_ends()
        spare.add(channel.leases)
        wait_until(lambda: lease_ends() > before)
        spare.remove(channel.leases)

        def stays_for_a_lease() -> bool:
            last = lease_ends()
            time.sleep(1.0)
            return lease_ends() == last

        wait_until(stays_for_a_lease)  # once a renewal that was under way is over
        message.ack()


@pytest.mark.parametrize("pool", GREEN)
def test_tasks_of_a_killed_green_worker_run_again(server, ledger, tmp_path, pool):
    lease = 2.0
    with worker(server, tmp_path, pool=pool, late=1, lease=lease, concurrency=4, name="doomed") as doomed:
        send(server, [(NAP, [n, 1.0], {}) for n in range(8)])
        ledger.wait_for("start", 4)
        doomed.kill()
    with worker(server, tmp_path, pool=pool, concurrency=8, late=1, lease=lease, name="heir"):
        ledger.wait(lambda lines: {line["name"] for line in lines if line["event"] == "end"} == set(range(8)))


@pytest.mark.parametrize("pool", GREEN)
def test_a_green_worker_reconnects(server, ledger, client, tmp_path, pool):
    with worker(server, tmp_path, pool=pool, concurrency=4, late=1):
        send(server, [(NAP, [n, 2.0], {}) for n in range(4)])
        ledger.wait_for("start", 4)
        client.client_kill_filter(_type="normal", skipme=True)
        ledger.wait_for("end", 4)
        send(server, [(NOTE, ["after"], {})])
        ledger.wait_for("run", 1)
    assert sorted(ledger.names("start")) == [0, 1, 2, 3]


def test_a_task_of_ten_leases_runs_once_on_every_pool(server, ledger, tmp_path):
    lease = 2.0
    with contextlib.ExitStack() as stack:
        for pool in POOLS:
            stack.enter_context(worker(server, tmp_path, pool=pool, late=1, lease=lease, name=pool, queues=pool))
        stack.enter_context(worker(server, tmp_path, pool="threads", late=1, lease=lease, name="idle", queues=",".join(POOLS)))
        # Each worker gets a task of its own; the idle one would get it when the lease lapses.
        for pool in POOLS:
            send(server, [(NAP, [pool, 10 * lease], {"queue": pool})])
        lines = ledger.wait_for("end", len(POOLS))
    assert Counter(ledger.names("start")) == Counter(POOLS)
    assert not any(line["redelivered"] for line in lines if line["event"] == "start")


@pytest.mark.parametrize("pool", ["solo", *GREEN[:1]])
def test_a_task_that_blocks_its_whole_process_keeps_its_lease(server, ledger, tmp_path, pool):
    """Not on eventlet, whose locks no other thread may touch: there a task must not block for longer than the lease."""
    with worker(server, tmp_path, pool=pool, late=1, lease=4, concurrency=1, prefetch=1, name="busy"):
        send(server, [(BLOCK, ["blocking", 7.0], {})])
        ledger.wait_for("start", 1)
        with worker(server, tmp_path, pool="threads", late=1, lease=4, name="idle"):
            ledger.wait_for("end", 1)
    assert ledger.names("start") == ["blocking"]
