"""What runs beside workers: beat, Flower, the autoscaler."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from ferryman.schema.connection.address import Address
from ferryman.schema.job import State
from ferryman.spark.poll import totals
from ferryman.transport.flower import QueueLengths
from kombu import Connection, Queue

from ..support.brokers import FERRYMAN
from ..support.command import ferryman
from ..support.metrics import samples
from ..support.servers import Server, free_port
from ..support.topologies import wait_until
from ..support.workers import ROOT, Ledger, environment, send, worker

NOTE = "tests.support.tasks.note"
NAP = "tests.support.tasks.nap"
HOLD = "tests.support.tasks.hold"

RANK_STEP = 2**45
"""What lies between the places of two priorities."""


@pytest.fixture
def ledger(server: Server) -> Ledger:
    return Ledger(server)


@contextlib.contextmanager
def program(server: Server, folder: Path, *arguments: str) -> Iterator[Path]:
    """A running ``celery`` command, and its log; killed at the end of the block."""
    log = folder / f"{arguments[0]}.log"
    command = [sys.executable, "-m", "celery", "-A", "tests.support.tasks", *arguments]
    surroundings = {**environment(server), "FLOWER_UNAUTHENTICATED_API": "true"}
    with (
        log.open("ab") as output,
        subprocess.Popen(command, cwd=ROOT, env=surroundings, stdout=output, stderr=output, start_new_session=True) as process,
    ):
        try:
            yield log
        finally:
            os.killpg(process.pid, signal.SIGKILL)


@contextlib.contextmanager
def flower(server: Server, folder: Path, port: int) -> Iterator[Path]:
    """A running Flower that serves pages, and its log."""
    with program(server, folder, "flower", "--address=127.0.0.1", f"--port={port}") as log:
        wait_until(lambda: fetch(port, "/") is not None)
        yield log


def test_beat_publishes_and_goes_on_when_its_connection_is_cut(server, ledger, client, tmp_path):
    with worker(server, tmp_path), program(server, tmp_path, "beat", "-s", str(tmp_path / "schedule")) as log:
        ledger.wait_for("run", 3)
        client.client_kill_filter(_type="normal", skipme=True)
        ledger.wait_for("run", len(ledger.names("run")) + 4)
    assert "Traceback" not in log.read_text()


@pytest.mark.skipif(importlib.util.find_spec("flower") is None, reason="flower is not installed")
def test_flower_shows_workers_and_tasks(server, ledger, tmp_path):
    port = free_port()
    with worker(server, tmp_path), flower(server, tmp_path, port):
        wait_until(lambda: "w1@test" in (fetch(port, "/workers") or ""))
        send(server, [(NOTE, ["watched"], {}), (NOTE, ["later"], {"countdown": 3600, "task_id": "waits-in-the-broker"})])
        ledger.wait_for("run", 1)
        wait_until(lambda: NOTE in (fetch(port, "/api/tasks") or ""))
        wait_until(lambda: "w1@test" in (fetch(port, "/worker/w1@test") or ""))
        wait_until(lambda: "waits-in-the-broker" in (fetch(port, "/worker/w1@test") or ""))
        wait_until(lambda: fetch(port, "/tasks") is not None)


@pytest.mark.skipif(importlib.util.find_spec("flower") is None, reason="flower is not installed")
def test_flower_shows_how_full_the_queues_are(server, ledger, tmp_path):
    port = free_port()
    with worker(server, tmp_path, concurrency=1, prefetch=1, late=1), flower(server, tmp_path, port) as log:
        send(server, [(HOLD, [n], {}) for n in range(4)] + [(NOTE, ["later"], {"countdown": 3600})])
        ledger.wait_for("start", 1)
        lengths = json.loads(fetch(port, "/api/queues/length") or log.read_text())
        (queue,) = [each for each in lengths["active_queues"] if each["name"] == "celery"]
        assert (queue["messages"], queue["messages_ready"], queue["messages_unacknowledged"]) == (5, 3, 1)
        assert "celery" in (fetch(port, "/broker") or log.read_text())


def wait_until_held(connection: Connection, count: int) -> None:
    """Returns when a worker has as many tasks as it takes ahead."""
    session = connection.ensure_connection().transport.session
    wait_until(lambda: session.link.run(session.scripts.size("celery")).held == count)


def test_the_numbers_that_one_call_gives_are_those_of_a_scan(server, tmp_path):
    with worker(server, tmp_path, concurrency=1, prefetch=3, late=1), FERRYMAN.connection(server) as connection:
        send(server, [(HOLD, [n], {"priority": n}) for n in range(7)])
        send(server, [(NOTE, ["later"], {"countdown": 3600}), (NOTE, ["another queue"], {"queue": "other"})])
        wait_until_held(connection, 3)
        with connection.channel() as channel:
            Queue("other")(channel).get().reject()
        scanned = {line["queue"]: line for line in ferryman("queues", server.url(), "--format", "json").lines()}
        for queue, expected in (("celery", (4, 1, 3, 0)), ("other", (0, 0, 0, 1))):
            size = connection.transport.session.link.run(connection.transport.session.scripts.size(queue, by_priority=True))
            assert (size.waiting, size.scheduled, size.held, size.dead) == expected
            line = scanned[queue]
            assert (line["waiting"], line["scheduled"], line["active"], line["failed"]) == expected
            assert line["priorities"] == {str(priority): number for priority, number in size.priorities.items()}
            assert sum(size.priorities.values()) == size.waiting


def test_a_task_whose_countdown_is_over_waits_though_no_worker_looks(server):
    # In this order: a publish would look at what is due by then.
    send(server, [(NOTE, ["now"], {}), (NOTE, ["later"], {"countdown": 3600}), (NOTE, ["due"], {"countdown": 0.1})])
    with FERRYMAN.connection(server) as connection:
        wait_until(lambda: connection.SimpleQueue("celery").qsize() == 2)
        assert connection.default_channel.queue_declare("celery").message_count == 2
    (page,) = asyncio.run(QueueLengths(server.url(), {}, None).queues(["celery"]))
    assert (page["messages"], page["messages_ready"], page["messages_unacknowledged"]) == (3, 2, 0)
    (line,) = ferryman("queues", server.url(), "--format", "json").lines()
    assert (line["waiting"], line["scheduled"], line["priorities"]) == (2, 1, {"": 1, "0": 1})  # as of metrics: not read
    (line,) = ferryman("queues", server.url(), "--scan", "--format", "json").lines()
    assert (line["waiting"], line["scheduled"], line["priorities"]) == (2, 1, {"0": 2})
    measured = samples(ferryman("metrics", server.url()).stdout)
    assert measured["ferryman_queue_waiting", "celery"] == measured["ferryman_queue_backlog", "celery"] == 2
    (total,) = [each.count for each in totals(Address.parse(server.url())) if each.state is State.WAITING]
    assert total == 2


def test_prometheus_and_flower_tell_the_numbers_of_a_scan(server, client, tmp_path):
    with worker(server, tmp_path, concurrency=1, prefetch=3, late=1), FERRYMAN.connection(server) as connection:
        send(server, [(HOLD, [n], {"priority": n % 3}) for n in range(9)])
        send(server, [(NOTE, ["later"], {"countdown": 3600}), (NOTE, ["another queue"], {"queue": "other"})])
        wait_until_held(connection, 3)
        with connection.channel() as channel:
            Queue("other")(channel).get().reject()
        pages = asyncio.run(QueueLengths(server.url(), {}, None).queues(["celery", "other"]))
        outcome = ferryman("metrics", server.url())
        scan = {key.removeprefix(b"ferryman:").decode(): read(client, key) for key in client.scan_iter("ferryman:*")}
    measured = samples(outcome.stdout)
    for page in pages:
        queue = page["name"]
        keys = {name.removeprefix(f"{{{queue}}}:"): value for name, value in scan.items() if name.startswith(f"{{{queue}}}:")}
        waiting, scheduled, dead = (keys.get(role, {}) for role in ("waiting", "scheduled", "dead"))
        held = sum(len(value) for name, value in keys.items() if name.startswith("held:"))
        priorities = Counter(str(int(score // RANK_STEP)) for score in waiting.values()) or Counter({"": 0})
        expected = {("waiting", priority): number for priority, number in priorities.items()}
        expected |= {("scheduled", ""): len(scheduled), ("active", ""): held, ("failed", ""): len(dead), ("completed", ""): 0}
        states = {key[2:]: value for key, value in measured.items() if key[:2] == ("ferryman_queue_messages", queue)}
        assert states == expected
        here = len(waiting) + len(scheduled) + held
        assert (page["messages"], page["messages_ready"], page["messages_unacknowledged"]) == (here, len(waiting), held)
        assert measured["ferryman_queue_consumers", queue] == page["consumers"] == len(keys.get("consumers", {}))
        assert measured["ferryman_queue_published_total", queue] == int(keys["meta"][b"published"]) == here + len(dead)
    listed = {each.decode() for each in client.smembers("ferryman:queues")}
    assert {key[1] for key in measured if key[0] == "ferryman_queue_up"} == listed


def read(client: redis.Redis, key: bytes) -> Any:
    """A sorted set or hash as a dict; nothing of other keys."""
    match client.type(key):
        case b"zset":
            return dict(client.zrange(key, 0, -1, withscores=True))
        case b"hash":
            return client.hgetall(key)
    return {}


def fetch(port: int, path: str) -> str | None:
    """A page; None while there is none."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as reply:
            text: str = reply.read().decode()
            return text
    except (urllib.error.URLError, OSError):
        return None


def test_autoscale_gives_a_burst_more_processes_and_more_messages(server, ledger, tmp_path):
    with worker(server, tmp_path, concurrency=1, prefetch=1, late=1, options=["--autoscale=4,1"]):
        send(server, [(NAP, [n, 1.5], {}) for n in range(12)])
        lines = ledger.wait_for("end", 12)
    assert sorted(ledger.names("start")) == list(range(12))
    assert len({line["pid"] for line in lines if line["event"] == "start"}) > 1
