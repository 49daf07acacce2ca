"""Mixed fleets: workers of qless-py or reqless and consumers of ferryman share queues, some are killed, nothing is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import redis
from attrs import define, field
from celery import Celery
from ferryman.compat.qless.client import QlessClient
from ferryman.compat.qless.live import Core
from ferryman.schema.live import ForeignDelivery

from ...support.dumps import findings
from ...support.foreign_keys import side_keys
from ...support.pypi import folder_of
from ...support.servers import Server, installed_servers
from ...support.workers import worker
from .cores import PACKAGES, Original
from .worker_process import QUEUES

SCRIPT = Path(__file__).with_name("worker_process.py")
SECONDS = 90.0

LEFT_BY_QLESS = {"QLESS-14", "QLESS-20", "QLESS-31"}
"""Findings in keyspaces of qless itself in daily use: tags counted wrongly, grace that stays."""


@pytest.fixture(scope="module")
def fleet_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all fleets: the stories have been told on each kind."""
    with installed_servers()[-1].start(tmp_path_factory.mktemp("fleet")) as server:
        yield server


@pytest.fixture
def server(fleet_server: Server) -> Server:
    fleet_server.client().flushall()
    return fleet_server


def awaited(look: Callable[[], Any]) -> None:
    """Returns as soon as a look finds something."""
    deadline = time.monotonic() + SECONDS
    while not look():
        if time.monotonic() > deadline:
            raise TimeoutError("it has not come")
        time.sleep(0.005)


@contextmanager
def originals(server: Server, core: Core, number: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """So many workers of the original, who have looked for jobs, killed at the end of the block."""
    environment = {**os.environ, "PYTHONPATH": str(folder_of(*PACKAGES[core])), "PYTHONDONTWRITEBYTECODE": "1"}
    started: list[subprocess.Popen[bytes]] = []
    try:
        for n in range(number):
            command = [sys.executable, str(SCRIPT), core, str(server.port), f"original-{n}"]
            started.append(subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        with server.client() as client:
            awaited(lambda: all(client.zscore("ql:workers", f"original-{n}") for n in range(number)))  # by their first pop
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


@define
class Fleet:
    """Consumers of ferryman, each in a thread."""

    server: Server
    core: Core
    _stop: threading.Event = field(factory=threading.Event)
    _doomed: threading.Event = field(factory=threading.Event)

    @contextmanager
    def running(self, consumers: int) -> Iterator[None]:
        with ThreadPoolExecutor(consumers) as threads:
            runs = [threads.submit(self._consume, n) for n in range(consumers)]
            try:
                yield
            finally:
                self._stop.set()
            for run in runs:
                run.result()

    def kill_one(self) -> None:
        """The next consumer that takes a job ends with it."""
        self._doomed.set()

    def _consume(self, number: int) -> None:
        next_timers = 0.0
        with (
            suppress(_KilledError),
            self.server.client() as connection,
            self.server.client(1) as ledger,
            QlessClient(connection, consumer=f"ours-{number}", core=self.core) as ours,
        ):
            while not self._stop.is_set():
                if time.monotonic() > next_timers:
                    ours.run_timers()
                    next_timers = time.monotonic() + 0.2
                if not sum(self._turn(ours, ledger, queue) for queue in QUEUES):
                    self._stop.wait(0.005)

    def _turn(self, ours: QlessClient, ledger: redis.Redis, queue: str) -> bool:
        jobs = ours.take(queue)
        for job in jobs:
            if self._doomed.is_set():
                self._doomed.clear()
                ours._queues.clear()  # the killed give nothing back
                raise _KilledError
            self._run(ours, ledger, job)
        return bool(jobs)

    def _run(self, ours: QlessClient, ledger: redis.Redis, job: ForeignDelivery) -> None:
        data = json.loads(job.payload)
        ledger.rpush("begun", data["n"])
        if data["do"] == "raise":
            ours.fail(job, LookupError("no customer"))
        elif data["do"] == "retry" and job.attempts == 0:
            ours.retry(job, 0)
        else:
            ledger.rpush("done", data["n"])
            ledger.incr("ours")
            ours.complete(job, next_queue=data["next"] if data["next"] != job.queue else "")


class _KilledError(Exception):
    pass


def some_jobs(number: int) -> list[dict[str, Any]]:
    """Jobs of all kinds."""
    jobs = []
    for n in range(number):
        do = "raise" if n % 11 == 0 else "retry" if n % 7 == 0 else "ok"
        data = {"n": n, "do": do, "next": QUEUES[(n + 1) % 2] if n % 13 == 1 else ""}
        jobs.append({"queue": QUEUES[n % 2], "data": data, "priority": n % 5 - 2, "delay": n % 3 if n % 4 == 0 else 0})
    return jobs


def put_ours(ours: QlessClient, job: dict[str, Any]) -> None:
    data = job["data"]
    ours.put(job["queue"], data, name=KLASS, priority=job["priority"], delay_ms=job["delay"] * 200, job_id=f"job-{data['n']}")


def put_theirs(original: Original, job: dict[str, Any]) -> None:
    now, data = int(time.time() * 1000), job["data"]
    args = [job["queue"], f"job-{data['n']}", KLASS, json.dumps(data), job["delay"] / 5, "priority", job["priority"]]
    original("put", now, *(["producer"] if original.core == "reqless" else []), *args)


def original_is_done_with_some(server: Server, core: Core, jobs: list[dict[str, Any]]) -> None:
    """Workers of the original are alone with these: how they share all others with ours is the machine's affair."""
    with server.client() as client, server.client(1) as ledger:
        for job in jobs:
            put_theirs(Original(client, core), job)
        awaited(lambda: ledger.llen("done"))


KLASS = "worker_process.Deed"
ALONE = 10


def over(client: redis.Redis) -> int:
    """How many jobs have come to an end."""
    return int(client.zcard("ql:completed")) + sum(int(client.llen(key)) for key in client.keys("ql:f:*"))


def assert_nothing_is_left_over(client: redis.Redis, core: Core) -> None:
    with QlessClient(client, core=core) as anybody:
        # The lease of one that was killed may end when all jobs are done, and nobody is left to see it.
        anybody.run_timers(now=int(time.time() * 1000) + 60_000)
    for pattern in ("ql:q:*", "ql:w:*", "ql:th:*"):
        assert list(client.scan_iter(pattern)) == []
    assert side_keys(client) == []
    assert {each.rule for each in findings(client, "qless", "ql", int(time.time() * 1000))} <= LEFT_BY_QLESS


@pytest.mark.parametrize("core", PACKAGES)
def test_a_mixed_fleet_does_every_job_once(server: Server, client: redis.Redis, core: Core) -> None:
    number = 150
    jobs = some_jobs(number)
    with originals(server, core, 3):
        original_is_done_with_some(server, core, jobs[:ALONE:2])
        with Fleet(server, core).running(3):
            for job in jobs[ALONE::2]:
                put_theirs(Original(client, core), job)
            with QlessClient(client, core=core, consumer="producer") as ours:
                for job in jobs[1::2]:
                    put_ours(ours, job)
            awaited(lambda: over(client) == number)
            awaited(lambda: not client.keys("ql:w:*"))
    with server.client(1) as ledger:
        done = Counter(map(int, ledger.lrange("done", 0, -1)))
        assert 0 < int(ledger.get("ours") or 0) < sum(done.values()), "both have worked"
    raising = {job["data"]["n"] for job in jobs if job["data"]["do"] == "raise"}
    # A job of two queues is done in each.
    assert done == {job["data"]["n"]: 1 + bool(job["data"]["next"]) for job in jobs if job["data"]["n"] not in raising}
    groups = {f"{queue}-LookupError" for queue in QUEUES}
    with QlessClient(client, core=core, consumer="reader") as ours:
        assert ours.failed_groups().keys() == groups
        assert sum(ours.failed_groups().values()) == len(raising)
        for job in jobs:
            found = ours.get(f"job-{job['data']['n']}")
            assert found is not None
            popped = [event for event in found.history if event["what"] == "popped"]
            times = 1 + bool(job["data"]["next"] and job["data"]["n"] not in raising)
            assert len(popped) == times * (1 + (job["data"]["do"] == "retry")), found.history
        today = [ours.stats(queue) for queue in QUEUES]
        theirs = [Original(client, core).json("stats", int(time.time() * 1000), queue, repr(time.time())) for queue in QUEUES]
        assert [each.run.count for each in today] == [each["run"]["count"] for each in theirs]
        assert sum(each.run.count for each in today) == sum(done.values())
    assert_nothing_is_left_over(client, core)


@pytest.mark.parametrize("core", PACKAGES)
def test_nothing_is_lost_when_both_kinds_are_killed_and_all_originals_in_the_end(
    server: Server, client: redis.Redis, core: Core
) -> None:
    number = 60
    client.hset("ql:config", mapping={"heartbeat": 1, "grace-period": 1})
    jobs = some_jobs(number)
    for job in jobs:
        job["data"]["next"] = ""
    for job in jobs[1:4]:
        job["data"] |= {"do": "sleep", "seconds": 30}
        job["priority"] = 100
    fleet = Fleet(server, core)
    with server.client(1) as ledger:
        with originals(server, core, 3) as workers:
            for job in jobs:
                put_theirs(Original(client, core), job)
            awaited(lambda: ledger.llen("begun") >= 3)
            with fleet.running(3):
                fleet.kill_one()
                for worker in workers:
                    worker.kill()
                awaited(lambda: over(client) == number)
                awaited(lambda: not client.keys("ql:w:*"))
        done = set(map(int, ledger.lrange("done", 0, -1)))
    assert done == {job["data"]["n"] for job in jobs if job["data"]["do"] != "raise"}
    assert_nothing_is_left_over(client, core)


@pytest.mark.parametrize("core", PACKAGES)
def test_a_job_of_a_killed_consumer_of_ours_is_taken_over_by_the_original(
    server: Server, client: redis.Redis, core: Core
) -> None:
    client.hset("ql:config", mapping={"heartbeat": 1, "grace-period": 0})
    with QlessClient(client, core=core, consumer="ours") as ours:
        ours.put("mail", {"n": 1, "do": "ok", "next": ""}, name=KLASS, job_id="job-1")
        assert len(ours.take("mail")) == 1
        with originals(server, core, 1):
            awaited(lambda: client.zcard("ql:completed"))
        found = ours.get("job-1")
        assert found is not None
        assert [event["what"] for event in found.history] == ["put", "popped", "timed-out", "popped", "done"]
        assert found.history[-2]["worker"] == "original-0"
        assert ours.held("mail") == ()


@pytest.mark.parametrize("core", PACKAGES)
def test_a_job_that_the_original_cancels_or_times_out_while_we_run_it_is_lost_to_us(client: redis.Redis, core: Core) -> None:
    original = Original(client, core)
    with QlessClient(client, core=core, consumer="ours") as ours, client.pubsub() as pubsub:
        pubsub.subscribe("ql:w:ours")
        pubsub.get_message(timeout=60)
        for job_id in ("cancelled", "timed out"):
            ours.put("mail", {}, name=KLASS, job_id=job_id)
        jobs = {job.id: job for job in ours.take("mail", 2)}
        original("cancel", int(time.time() * 1000), "cancelled")
        original("timeout", int(time.time() * 1000), "timed out")
        told = [json.loads((pubsub.get_message(timeout=60) or {})["data"]) for _ in range(2)]
        assert {(each["event"], each["jid"]) for each in told} == {("canceled", "cancelled"), ("lock_lost", "timed out")}
        for job in jobs.values():
            assert ours.complete(job) == "lost"
            assert not ours.heartbeat(job)
    assert not client.exists("ql:j:cancelled")
    assert client.hget("ql:j:timed out", "state") == b"stalled"


@pytest.mark.parametrize("core", PACKAGES)
def test_celery_and_workers_of_the_original_run_each_others_jobs(
    server: Server, client: redis.Redis, core: Core, tmp_path: Path
) -> None:
    number = 40
    jobs = some_jobs(number)
    for job in jobs:
        job["data"]["next"] = ""
    broker = server.url(family="qless", core=core)
    options = ("--without-gossip", "--without-mingle", "--without-heartbeat")
    fleet = worker(
        server, tmp_path, app="tests.interop.qless.app", pool="threads", options=options, queues=",".join(QUEUES), broker=broker
    )
    with originals(server, core, 1), Celery(broker=broker, set_as_current=False) as publisher:
        original_is_done_with_some(server, core, jobs[:ALONE:2])
        with fleet:
            for job in jobs[ALONE::2]:
                put_theirs(Original(client, core), job)
            sent = [publisher.send_task(KLASS, [job["data"]], queue=job["queue"]).id for job in jobs[1::2]]
            awaited(lambda: over(client) == number)
    with server.client(1) as ledger:
        done = Counter(map(int, ledger.lrange("done", 0, -1)))
        assert 0 < int(ledger.get("ours") or 0) < sum(done.values()), "both have worked"
    assert done == {job["data"]["n"]: 1 for job in jobs if job["data"]["do"] != "raise"}
    with QlessClient(client, core=core, consumer="reader") as ours:
        for task_id, job in zip(sent, jobs[1::2], strict=True):
            found = ours.get(task_id)
            assert found is not None
            assert (found.klass, json.loads(found.data)) == (KLASS, job["data"])
            assert found.state == ("failed" if job["data"]["do"] == "raise" else "complete")
        assert ours.failed_groups().keys() == {f"{queue}-LookupError" for queue in QUEUES}
