"""Real Celery workers on a kickq keyspace beside kickq's own processes: what only kickq has."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from ferryman.compat.kickq import FAMILY
from ferryman.compat.kickq.client import KickqClient
from ferryman.compat.kickq.replies import KickqJob
from ferryman.testing.keyspaces import dump, read_keyspace

from ...conftest import SERVERS
from ...models.kickq_original import OriginalKickq, Scheduler, perform
from ...support.servers import Server
from ...support.topologies import wait_until
from ...support.workers import Ledger, worker
from .tellers import side_keys

APP = "tests.support.foreign_tasks"
KICKQ = OriginalKickq()


@pytest.fixture(scope="module")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One kind of server: what differs between kinds are scripts, and they are tested alone."""
    with SERVERS[0].start(tmp_path_factory.mktemp("kickq")) as server:
        yield server


@pytest.fixture
def server(one_server: Server) -> Server:
    one_server.client().flushall()
    return one_server


def _now() -> int:
    return round(time.time() * 1000)


def _put(client: redis.Redis, do: str, name: str, **options: Any) -> str:
    """A job that kickq's producer makes for the task ``story``."""
    data = {"name": name, "do": do, "seconds": 20, "value": name}
    return perform(client, KICKQ.create("story", data, _now(), **options))


def _job(client: redis.Redis, job_id: str) -> KickqJob:
    found = KickqClient(client).get(job_id)
    assert found is not None
    return found


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_run_that_takes_longer_than_its_job_allows_is_a_ghost_on_every_pool(
    server: Server, client: redis.Redis, tmp_path: Path, pool: str
) -> None:
    once = _put(client, "sleep", "once", processTimeout=300, ghostRetry=False)
    again = _put(client, "sleep", "again", processTimeout=300)
    quick = _put(client, "return", "quick", processTimeout=10_000)
    broker = server.url(0, family="kickq", lease=3)
    with worker(server, tmp_path, app=APP, pool=pool, broker=broker, queues="story", concurrency=3, test_lease=3):
        wait_until(lambda: _job(client, once).state == "fail" and _job(client, again).state == "ghost")
        wait_until(lambda: _job(client, quick).state == "success")
    ended = _job(client, once), _job(client, again)
    assert [job.error for job in ended] == ["processing timed out"] * 2
    assert [run["state"] for job in ended for run in job.runs] == ["ghost"] * 2


def test_workers_and_kickqs_own_share_the_jobs_and_all_end_once(server: Server, client: redis.Redis, tmp_path: Path) -> None:
    stop, by_kickq = threading.Event(), list[str]()

    def original() -> None:
        with server.client() as own:
            scheduler = Scheduler(KICKQ)
            while not stop.is_set():
                popped = own.blpop([KICKQ.key("queue", "story")], timeout=0.05)
                job = popped and perform(own, KICKQ.begin(popped[1].decode(), _now()))
                if job:
                    by_kickq.append(job.item["data"]["name"])
                    perform(own, KICKQ.succeed(job, _now()))
                    stop.wait(0.02)
                perform(own, scheduler.look(_now()))
                perform(own, scheduler.fire(_now()))
            while scheduler.taken:
                perform(own, scheduler.fire(_now()))

    thread = threading.Thread(target=original, daemon=True)
    broker = server.url(0, family="kickq")
    with worker(server, tmp_path, app=APP, pool="prefork", broker=broker, queues="story") as running:
        thread.start()
        try:
            delays: list[dict[str, int]] = [{}, {}, {"delay": 150}]
            ids = [_put(client, "return", f"job {number}", **delays[number % 3]) for number in range(90)]
            wait_until(lambda: KickqClient(client).stats()["success"] == len(ids))
        finally:
            stop.set()
            thread.join(120)
        assert running.stop() == 0
    by_ours = Ledger(server).names("start")
    assert sorted([*by_kickq, *by_ours]) == sorted(f"job {number}" for number in range(90))
    assert by_kickq
    assert by_ours
    entries = [entry for key, entry in dump(client).items() if key.startswith(b"kickq:")]
    assert read_keyspace(FAMILY, entries, "kickq", _now()).findings() == []
    # Whoever has run a job, its record has the same members.
    assert len({tuple(sorted(run)) for job_id in ids for run in _job(client, job_id).runs}) == 1
    assert len({tuple(sorted(client.hgetall(f"kickq:job:{job_id}"))) for job_id in ids}) == 1
    assert side_keys(client) == []
