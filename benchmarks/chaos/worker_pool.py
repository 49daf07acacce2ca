"""Worker pool: the Celery workers of a run. Each is killed in one of four ways, and another one takes its place."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from attrs import define, field

from ..brokers import Broker
from ..server import Server
from .ledger import Ledger
from .profile import Fault, Profile
from .tasks import BROKER, LEDGER, OPTIONS

READY_SECONDS = 60.0
STOP_SECONDS = 25.0
"""Seconds for a warm or cold shutdown: more than the longest task takes."""


@define
class Worker:
    """One worker process, the leader of its own process group."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path


@define
class WorkerPool:
    """As many workers as the profile has pools, at any time but while one is being replaced."""

    broker: Broker
    server: Server
    ledger: Ledger
    profile: Profile
    folder: Path
    hung: int = 0
    """Workers that a shutdown did not end."""
    _workers: list[Worker] = field(factory=list)
    _generations: int = 0

    def start(self) -> None:
        """Starts every worker and returns when all consume."""
        self._workers = [self._start(pool, concurrency) for pool, concurrency in self.profile.pools]
        deadline = time.monotonic() + READY_SECONDS
        for worker in self._workers:
            while b" ready." not in worker.log.read_bytes():
                if worker.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"worker {worker.name} did not get ready:\n{worker.log.read_text()}")
                time.sleep(0.05)

    def inject(self, at: int, fault: Fault, seconds: float) -> None:
        """Ends one worker and starts the next; ``seconds`` lie between SIGTERM and SIGKILL where both come."""
        worker = self._workers[at]
        match fault:
            case Fault.KILL:
                self._kill(worker)
            case Fault.TERM_KILL:
                self._ask_to_stop(worker)
                if not _ended(worker, seconds):
                    self._kill(worker)
            case Fault.QUIT:
                self.ledger.write("killed", worker=worker.name)
                worker.process.send_signal(signal.SIGQUIT)
                self._await_end(worker)
            case _:
                self._ask_to_stop(worker)
                self._await_end(worker)
        self._workers[at] = self._start(*self.profile.pools[at])

    def replace_ended(self) -> None:
        """Replaces workers that have ended by themselves, as a supervisor would."""
        for at, worker in enumerate(self._workers):
            if worker.process.poll() is not None:
                self._kill(worker)
                self._workers[at] = self._start(*self.profile.pools[at])

    def stop(self) -> None:
        """A warm shutdown of all."""
        for worker in self._workers:
            self._ask_to_stop(worker)
        for worker in self._workers:
            self._await_end(worker)

    def kill(self) -> None:
        """Ends all at once, whatever they do; the end of a run that failed."""
        for worker in self._workers:
            _kill_group(worker)

    def _ask_to_stop(self, worker: Worker) -> None:
        self.ledger.write("stopping", worker=worker.name)
        worker.process.send_signal(signal.SIGTERM)

    def _await_end(self, worker: Worker) -> None:
        """Waits for a shutdown, and ends what does not end."""
        if not _ended(worker, STOP_SECONDS):
            self.hung += 1
            self._kill(worker)

    def _kill(self, worker: Worker) -> None:
        # Written first: what the worker does after this line may happen again.
        self.ledger.write("killed", worker=worker.name)
        _kill_group(worker)

    def _start(self, pool: str, concurrency: int) -> Worker:
        self._generations += 1
        name = f"{pool}{self._generations}@chaos"
        log = self.folder / f"{self._generations:04}-{pool}.log"
        environment = {
            **os.environ,
            BROKER: self.broker.url(self.server),
            OPTIONS: json.dumps(self.broker.options(self.profile.lease)),
            LEDGER: str(self.ledger.path),
        }
        command = [sys.executable, "-m", "celery", "-A", "benchmarks.chaos.tasks", "worker", "-l", "INFO"]
        command += ["-P", pool, "-c", str(concurrency), "-n", name]
        with log.open("ab") as output:
            process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)
        return Worker(name, process, log)


def _ended(worker: Worker, seconds: float) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        worker.process.wait(seconds)
    return worker.process.poll() is not None


def _kill_group(worker: Worker) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker.process.pid, signal.SIGKILL)
    worker.process.wait()
