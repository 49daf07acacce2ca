"""The examples of live foreign queues, as docs/live.md tells them: the original on one side, a Celery worker on the other."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from ..conftest import SERVERS
from ..support.npm import package
from ..support.servers import Server

EXAMPLES = Path(__file__).parents[2] / "examples"
SECONDS = 240


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with SERVERS[-1].start(tmp_path_factory.mktemp("examples")) as running:
        yield running


def environment(server: Server, family: str) -> dict[str, str]:
    return {
        **os.environ,
        "BROKER_URL": server.url(family=family),
        "REDIS_URL": f"redis://{server.host}:{server.port}/0",
        "PYTHONUNBUFFERED": "1",
    }


@contextlib.contextmanager
def celery_worker(server: Server, example: str, family: str, queue: str, log: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "celery", "-A", "tasks", "worker", "-l", "INFO", "-Q", queue, "-c", "1"]
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command, cwd=EXAMPLES / example, env=environment(server, family), stdout=output, stderr=output
        ) as process,
    ):
        try:
            deadline = time.monotonic() + SECONDS
            while b" ready." not in log.read_bytes():
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
            yield
        finally:
            process.terminate()
            process.wait(SECONDS)


def test_a_celery_worker_runs_the_jobs_of_a_kue_producer_and_kue_those_of_celery(server: Server, tmp_path: Path) -> None:
    modules = package("kue", "0.11.6").parent
    nodes = {**environment(server, "kue"), "NODE_PATH": str(modules), "NODE_NO_WARNINGS": "1"}
    folder = EXAMPLES / "live_kue"
    with celery_worker(server, "live_kue", "kue", "email", tmp_path / "worker.log"):
        told = subprocess.run(["node", "producer.js"], cwd=folder, env=nodes, capture_output=True, text=True, timeout=SECONDS)
    assert told.returncode == 0, told.stderr
    assert "is 50 % done" in told.stdout
    assert 'is complete: {"sent":"ann@example.com","attempt":1}' in told.stdout
    with subprocess.Popen(["node", "worker.js"], cwd=folder, env=nodes, stdout=subprocess.PIPE, text=True) as process:
        try:
            subprocess.run([sys.executable, "tasks.py"], cwd=folder, env=environment(server, "kue"), check=True, timeout=SECONDS)
            assert process.stdout
            assert process.stdout.readline() == "report about sales\n"
        finally:
            process.kill()


def test_a_celery_worker_runs_the_jobs_of_a_reqless_producer(server: Server, tmp_path: Path) -> None:
    client: redis.Redis = server.client()
    client.flushall()
    log = tmp_path / "worker.log"
    with celery_worker(server, "live_qless", "qless", "mail", log):
        command = [sys.executable, "producer.py"]
        told = subprocess.run(
            command,
            cwd=EXAMPLES / "live_qless",
            env=environment(server, "qless"),
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    assert told.returncode == 0, told.stderr + log.read_text()
    assert told.stdout.startswith("job complete")
    assert "mail to ann@example.com" in log.read_text()
