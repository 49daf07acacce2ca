"""Celery workers in processes of their own, as leaders of their own process groups."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from attrs import frozen
from celery import Celery

from ..brokers import Broker
from ..server import Server
from .tasks import BROKER, LEDGER, LEDGER_KEY, OPTIONS

READY_SECONDS = 60.0
LEDGER_DB = 1


@frozen
class Worker:
    """A running worker."""

    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        """Ends it and all its children at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextlib.contextmanager
def worker(
    broker: Broker, server: Server, pool: str, concurrency: int = 1, *, lease: float | None = None, prefetch: int = 4
) -> Iterator[Worker]:
    """A worker that is ready to consume; whatever is left of it at the end of the block is killed."""
    environment = {
        **os.environ,
        BROKER: broker.url(server),
        OPTIONS: json.dumps(broker.options(lease)),
        LEDGER: server.url("redis", LEDGER_DB),
    }
    command = [sys.executable, "-m", "celery", "-A", "benchmarks.broker.tasks", "worker", "-l", "INFO"]
    command += ["-P", pool, "-c", str(concurrency), "-n", f"{os.urandom(4).hex()}@bench", "--prefetch-multiplier", str(prefetch)]
    with tempfile.NamedTemporaryFile(suffix=".log") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        running = Worker(process)
        try:
            _wait_until_ready(running, Path(log.name))
            yield running
        finally:
            running.kill()


def _wait_until_ready(running: Worker, log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while b" ready." not in log.read_bytes():
        if running.process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"a worker did not get ready:\n{log.read_text()}")
        time.sleep(0.02)


def producer_app(broker: Broker, server: Server) -> Celery:
    """An app to send tasks with."""
    return Celery("bench", broker=broker.url(server), set_as_current=False)


def said(server: Server) -> list[float]:
    """What tasks have said so far."""
    with server.client(LEDGER_DB) as client:
        return [float(value) for value in client.lrange(LEDGER_KEY, 0, -1)]


def said_count(server: Server) -> int:
    """How many tasks have said something so far."""
    with server.client(LEDGER_DB) as client:
        count = client.llen(LEDGER_KEY)
        assert isinstance(count, int)
        return count
