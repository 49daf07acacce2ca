"""When a task runs twice after its worker has lost the connection, and when not: if the lease has lapsed, which is counted."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import Celery
from ferryman.schema.connection.call import run

from ..support.live_systems import SYSTEMS, LiveSystem
from ..support.proxy import proxy
from ..support.topologies import wait_until
from ..support.workers import TASKS, Ledger, Worker, send_to, worker

pytestmark = pytest.mark.in_turn

QUEUE = "story"
(KUE,) = [system for system in SYSTEMS if system.family == "kue"]


@contextlib.contextmanager
def stopped_children(parent: Worker) -> Iterator[None]:
    """The pool's processes do nothing for the length of the block: what they are sent stays in its pipes."""
    own = parent.process.pid
    children = [int(pid) for pid in Path(f"/proc/{own}/task/{own}/children").read_text().split()]
    assert children
    try:
        for pid in children:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in children:
            os.kill(pid, signal.SIGCONT)


def put(system: LiveSystem | None, server, name: str) -> None:
    """One job, by kue's client or by Celery."""
    if system is not None:
        system.put(system.client(server), QUEUE, {"name": name, "do": "sleep", "seconds": 0.1})
    else:
        send_to(server.url(), [(f"{TASKS}.nap", [name, 0.1], {"queue": QUEUE})])


def answers(url: str) -> bool:
    """Whether the worker's event loop turns."""
    with Celery(broker=url, set_as_current=False) as app:
        return bool(app.control.ping(timeout=60, limit=1))


@pytest.mark.parametrize("system", [KUE, None], ids=["kue", "ferryman's own"])
def test_what_was_sent_to_a_process_when_the_connection_was_lost_runs_once(server, tmp_path, system):
    app = TASKS if system is None else "tests.support.foreign_tasks"
    direct = server.url() if system is None else system.url(server)
    with proxy(server) as between:
        options = {} if system is None else {"family": system.family, "prefix": system.prefix}
        broker = between.url(**options)
        with worker(
            server, tmp_path, app=app, queues=QUEUE, broker=broker, options=["--without-gossip", "--without-mingle"]
        ) as running:
            with stopped_children(running):
                put(system, server, "first")
                wait_until(lambda: b" received" in running.log.read_bytes())
                assert answers(direct)  # so the pool has written
                between.break_all()
                wait_until(lambda: running.log.read_bytes().count(b"Connected to") == 2)
                assert answers(direct)
            ledger = Ledger(server)
            put(system, server, "second")
            ledger.wait(lambda lines: {line["name"] for line in lines if line["event"] == "end"} == {"first", "second"})
            assert running.stop() == 0
        assert sorted(ledger.names("start")) == ["first", "second"]


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_what_runs_for_longer_than_its_lease_without_the_server_runs_again_and_says_so(server, tmp_path, pool):
    client, live = KUE.client(server), KUE.live

    def is_given_back() -> bool:
        with server.client() as other:
            for call in live.timers():
                run(other, call)
            return run(other, live.size(QUEUE)).waiting == 1

    with proxy(server) as between:
        broker = between.url(family=KUE.family, prefix=KUE.prefix)
        with worker(
            server, tmp_path, app="tests.support.foreign_tasks", pool=pool, queues=QUEUE, broker=broker, lease=1
        ) as running:
            KUE.put(client, QUEUE, {"name": "long", "do": "sleep", "seconds": 3})
            Ledger(server).wait_for("start", 1)
            between.refuses = True
            between.break_all()
            wait_until(is_given_back)
            between.refuses = False
            lines = Ledger(server).wait_for("start", 2)
            wait_until(lambda: live_size(server).done == 1)
            assert running.stop() == 0
        assert [line["before"] for line in lines if line["event"] == "start"] == [0, 1]
    assert live_size(server).held == 0


def live_size(server):
    """How many jobs are where."""
    with server.client() as client:
        return run(client, KUE.live.size(QUEUE))
