"""Celery itself on ``ferryman://``: real workers of each pool, the command line, kills and shutdowns."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from ..support.servers import Server
from ..support.topologies import wait_until
from ..support.workers import Ledger, celery, send, wait_until_active, worker

pytestmark = pytest.mark.in_turn

NOTE = "tests.support.tasks.note"
NAP = "tests.support.tasks.nap"
HOLD = "tests.support.tasks.hold"

POOLS = ["prefork", "threads", "solo"]


@pytest.fixture
def ledger(server: Server) -> Ledger:
    return Ledger(server)


def left_in_redis(server: Server) -> set[bytes]:
    """Keys that hold messages or leases; what describes queues and exchanges may stay."""
    with server.client() as client:
        return {
            key
            for key in client.scan_iter(count=1000)
            if client.ttl(key) < 0 and b":exchange:" not in key and not key.endswith((b":meta", b":queues", b":times", b":wake"))
        }


@pytest.mark.parametrize("pool", POOLS)
def test_every_pool_runs_tasks_answers_pings_and_leaves_nothing_behind(server, ledger, tmp_path, pool):
    with worker(server, tmp_path, pool=pool, gossips=True) as running:
        send(server, [(NOTE, [n], {}) for n in range(50)])
        ledger.wait_for("run", 50)
        assert sorted(ledger.names("run")) == list(range(50))
        ping = celery(server, "inspect", "ping", "-d", "w1@test", "--timeout", "60")
        assert "pong" in ping.stdout, ping.stdout + ping.stderr
        assert running.stop() == 0
        assert "Traceback" not in running.log.read_text()
    assert left_in_redis(server) == set()


@pytest.mark.parametrize("pool", POOLS)
def test_a_countdown_waits_in_redis_and_runs_when_it_is_due(server, ledger, tmp_path, pool):
    with worker(server, tmp_path, pool=pool):
        before = time.time()
        send(server, [(NOTE, ["later"], {"countdown": 2})])
        sent = time.time()
        with server.client() as client:
            assert client.zcard("ferryman:{celery}:scheduled") == 1
        (line,) = ledger.wait_for("run", 1)
        assert line["at"] >= before + 2
        assert line["at"] < sent + 2 + 4, "it was found by looking, which is done every 5 s"


@pytest.mark.parametrize("pool", POOLS)
def test_tasks_of_a_killed_worker_run_again_within_the_lease_and_no_other_runs_twice(server, ledger, tmp_path, pool):
    lease = 4.0
    tasks = 12
    with worker(server, tmp_path, pool=pool, late=1, lease=lease, name="doomed") as doomed:
        send(server, [(HOLD, [n], {}) for n in range(tasks)])
        ledger.wait_for("start", 1)
        doomed.kill()
        killed_at = time.time()
    begun = set(ledger.names("start"))
    assert begun
    ledger.let_go()
    with worker(server, tmp_path, pool="threads", concurrency=8, late=1, lease=lease, name="heir"):
        could_begin_at = max(killed_at + lease, time.time())
        lines = ledger.wait_for("end", tasks)
    assert sorted(ledger.names("end")) == list(range(tasks))
    starts = Counter(line["name"] for line in lines if line["event"] == "start")
    assert {name for name, count in starts.items() if count > 1} == begun
    restarted = [line["at"] for line in lines if line["event"] == "start" and line["name"] in begun and line["at"] > killed_at]
    # What a worker needs to begin is part of this; the lease alone is tested on the queue itself.
    assert min(restarted) - could_begin_at < 10


def test_an_early_ack_is_not_run_again_when_its_worker_is_killed(server, ledger, tmp_path):
    with worker(server, tmp_path, lease=2, concurrency=1, prefetch=1, name="doomed") as doomed:
        send(server, [(NAP, ["early", 30.0], {})])
        ledger.wait_for("start", 1)
        with server.client() as client:
            wait_until(lambda: client.hget("ferryman:{celery}:meta", "acked") == b"1")
        doomed.kill()
    with worker(server, tmp_path, lease=2, name="heir"):
        send(server, [(NOTE, ["after"], {"countdown": 3})])
        ledger.wait_for("run", 1)
    assert ledger.names("start") == ["early"]


def test_a_warm_shutdown_finishes_what_runs_and_gives_back_the_rest_at_once(server, ledger, tmp_path):
    with worker(server, tmp_path, concurrency=1, prefetch=4, late=1, lease=300, name="leaving", level="DEBUG") as leaving:
        send(server, [(HOLD, [n], {}) for n in range(4)])
        ledger.wait_for("start", 1)
        assert leaving.stop_with(ledger) == 0
    assert ledger.names("end") == [0]
    with server.client() as client:
        assert client.zcard("ferryman:{celery}:waiting") == 3
    with worker(server, tmp_path, concurrency=4, late=1, lease=300, name="heir"):
        ledger.wait_for("end", 4)
    assert sorted(ledger.names("start")) == [0, 1, 2, 3]


def test_on_the_solo_pool_finished_tasks_are_acked_while_the_next_one_runs(server, ledger, tmp_path):
    send(server, [(NOTE, ["first"], {}), (NOTE, ["second"], {}), (NAP, ["long", 60], {})])
    with worker(server, tmp_path, pool="solo", late=1, prefetch=10), server.client() as client:
        ledger.wait_for("start", 1)
        (held,) = client.scan_iter("ferryman:{celery}:held:*")
        wait_until(lambda: client.zcard(held) == 1)


def test_a_task_longer_than_its_lease_runs_once(server, ledger, tmp_path):
    with (
        worker(server, tmp_path, pool="solo", late=1, lease=4, name="slow"),
        worker(server, tmp_path, pool="threads", late=1, lease=4, name="idle"),
    ):
        send(server, [(NAP, ["long", 7.0], {})])
        ledger.wait_for("end", 1)
    assert ledger.names("start") == ["long"]


def test_a_lost_connection_neither_repeats_running_tasks_nor_keeps_waiting_ones(server, ledger, tmp_path):
    from celery import VERSION

    # Before 5.6.3, prefork does not hear of the end of a task that runs while Celery connects again, so nobody acks it.
    acked = b"4" if VERSION >= (5, 6, 3) else b"3"
    with worker(server, tmp_path, concurrency=1, prefetch=4, late=1, lease=300) as cut:
        send(server, [(HOLD, [n], {}) for n in range(4)])
        ledger.wait_for("start", 1)
        wait_until_active(server.url(), 1)
        with server.client() as client:
            client.client_kill_filter(_type="normal", skipme=True)
        cut.wait_until_logged(b"Connected to", times=2)
        ledger.let_go()
        ledger.wait_for("end", 4)
        assert sorted(ledger.names("start")) == [0, 1, 2, 3], cut.log.read_text()
        with server.client() as client:
            wait_until(lambda: client.hget("ferryman:{celery}:meta", "acked") == acked)


def test_celery_purge_empties_the_queue(server):
    send(server, [(NOTE, [n], {}) for n in range(7)] + [(NOTE, ["later"], {"countdown": 3600})])
    purged = celery(server, "purge", "-f")
    assert "Purged 8 messages" in purged.stdout, purged.stdout + purged.stderr
    assert left_in_redis(server) == set()


def test_remote_control_reaches_a_busy_worker(server, ledger, tmp_path):
    with worker(server, tmp_path, concurrency=1):
        send(server, [(NAP, ["busy", 60.0], {})])
        ledger.wait_for("start", 1)
        active = celery(server, "inspect", "active", "-d", "w1@test", "--timeout", "60")
        assert "'busy'" in active.stdout, active.stdout + active.stderr


def test_events_of_a_worker_arrive(server, tmp_path):
    from celery import Celery

    seen = []
    with Celery(broker=server.url()) as app, app.connection_for_read() as given:
        receiver = app.events.Receiver(given, handlers={"task-received": seen.append, "task-succeeded": seen.append})
        with worker(server, tmp_path), receiver.consumer_context() as (connection, _channel, _consumers):
            app.send_task(NOTE, ["watched"])
            deadline = time.monotonic() + 30
            while len(seen) < 2 and time.monotonic() < deadline:
                try:
                    connection.drain_events(timeout=1)
                except TimeoutError:
                    continue
    assert [event["type"] for event in seen] == ["task-received", "task-succeeded"]


def test_a_job_without_a_message_runs_as_a_task_of_its_name(server, ledger, tmp_path):
    with server.client() as client:
        client.hset("ferryman:{celery}:job:17", mapping={"name": "kue.email", "payload": '{"to":"a@example.com"}'})
        client.hset("ferryman:{celery}:meta", mapping={"schema": 1, "priority_order": "ascending", "routes": "1"})
        client.zadd("ferryman:{celery}:waiting", {"17": 1})
    with worker(server, tmp_path):
        ledger.wait_for("imported", 1)
    assert ledger.names("imported") == [{"to": "a@example.com"}]
