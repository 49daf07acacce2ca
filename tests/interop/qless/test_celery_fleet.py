"""Mixed fleets: workers of qless-py or reqless and Celery workers on the same queues, with deaths among all of them."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from celery import Celery
from ferryman.compat.qless.client import QlessClient
from ferryman.compat.qless.live import Core

from ...conftest import SERVERS
from ...support.servers import Server
from ...support.workers import Worker, worker
from .cores import PACKAGES, Original
from .test_fleet import (
    ALONE,
    KLASS,
    assert_nothing_is_left_over,
    awaited,
    original_is_done_with_some,
    originals,
    over,
    put_theirs,
    some_jobs,
)
from .worker_process import QUEUES

APP = "tests.interop.qless.fleet_app"
JOBS = 300


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """One kind: what the scripts do on each is tested without fleets."""
    with SERVERS[-1].start(tmp_path) as running:
        yield running


def a_pool_child(ledger: redis.Redis, parent: Worker) -> int:
    """The pid of a process in which a task of this worker has run."""
    children = Path(f"/proc/{parent.process.pid}/task/{parent.process.pid}/children").read_text().split()
    awaited(lambda: set(map(int, children)) & set(map(int, ledger.lrange("pids", 0, -1))))
    return next(pid for pid in map(int, ledger.lrange("pids", 0, -1)) if str(pid) in children)


@pytest.mark.parametrize("core", PACKAGES)
def test_every_job_is_done_whoever_dies(server: Server, client: redis.Redis, core: Core, tmp_path: Path) -> None:
    client.hset("ql:config", mapping={"heartbeat": 3, "grace-period": 1})
    broker = server.url(family="qless")
    jobs = some_jobs(JOBS)
    for job in jobs:
        job["data"]["next"] = ""
        job["delay"] = min(job["delay"], 1)
    with contextlib.ExitStack() as stack:
        ledger = stack.enter_context(server.client(1))
        theirs = stack.enter_context(originals(server, core, 3))
        original_is_done_with_some(server, core, jobs[:ALONE:2])
        prefork, threads, solo = (
            stack.enter_context(
                worker(server, tmp_path, pool=pool, concurrency=2, name=pool, app=APP, queues=",".join(QUEUES), broker=broker)
            )
            for pool in ("prefork", "threads", "solo")
        )
        with Celery(broker=broker, set_as_current=False) as app:
            for job in jobs[1::2]:
                countdown = {"countdown": job["delay"] / 5} if job["delay"] else {}
                app.send_task(KLASS, [job["data"]], queue=job["queue"], priority=9 - job["priority"], **countdown)
        for job in jobs[ALONE::2]:
            put_theirs(Original(client, core), job)
        awaited(lambda: over(client) > JOBS // 6)
        theirs[0].kill()
        os.kill(a_pool_child(ledger, prefork), signal.SIGKILL)
        threads.kill()
        awaited(lambda: over(client) > JOBS // 2)
        for process in theirs:
            process.kill()
        awaited(lambda: over(client) == JOBS)
        awaited(lambda: not client.keys("ql:w:*"))
        for left in (prefork, solo):
            assert left.stop() == 0
        done = Counter(map(int, ledger.lrange("done", 0, -1)))
        raising = {job["data"]["n"] for job in jobs if job["data"]["do"] == "raise"}
        with QlessClient(client, core=core, consumer="reader") as reader:
            groups = reader.failed_groups()
        # The job of a pool's process that was killed has failed, and so is over in qless.
        lost = {group: number for group, number in groups.items() if group.endswith("-WorkerLostError")}
        assert groups.keys() - lost.keys() == {f"{queue}-LookupError" for queue in QUEUES}
        assert sum(lost.values()) <= 1
        assert len({job["data"]["n"] for job in jobs} - raising - done.keys()) <= sum(lost.values())
        # Whoever was killed had a job or two, whose effect may be there, and its end not.
        assert sum(done.values()) - len(done) <= 3 + 1 + 2
        assert 0 < int(ledger.get("ours") or 0) < sum(done.values()), "both have worked"
    assert_nothing_is_left_over(client, core)
