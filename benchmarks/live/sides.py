"""Who is measured: an original with its own processes, and ours on the same keyspace. Each is a set of command lines.

Called by ``measures.py``; the processes do the work, this starts and ends them.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import redis
from attrs import field, frozen

from tests.support.npm import package
from tests.support.pypi import folder_of

from ..broker.tasks import BROKER, LEDGER
from ..server import Server

ROOT = Path(__file__).parents[2]
SECONDS = 60.0
"""The longest that anything may take."""


class System(Protocol):
    """An original: its name, its keyspace, and the command lines of its processes."""

    name: str
    family: str
    prefix: str
    lanes: tuple[int, ...]
    """How many publishes are under way at once, where its producers can do that."""
    jobs_timed: int
    """How many jobs are sent to see how soon each is picked up."""
    longest_pause: float
    """Seconds between those: its workers may only look now and then."""

    def task(self, queue: str) -> str:
        """The name by which Celery's tasks of a queue go."""

    def consumer(self, server: Server, queue: str) -> list[str]: ...
    def publisher(self, server: Server, queue: str, number: int, at_once: int) -> list[str]: ...
    def sender(self, server: Server, queue: str) -> list[str]: ...
    def done(self, client: redis.Redis) -> int:
        """How many jobs of all queues are done."""


@frozen
class Kue:
    """npm kue."""

    version: str = "0.11.6"
    name: str = "kue"
    family: str = "kue"
    prefix: str = "q"
    lanes: tuple[int, ...] = (1, 100)
    jobs_timed: int = 150
    longest_pause: float = 0.05
    folder: Path = field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "folder", package("kue", self.version))

    def task(self, queue: str) -> str:
        return queue

    def _command(self, server: Server, *words: object) -> list[str]:
        return ["node", str(Path(__file__).with_name("kue_process.js")), str(self.folder), str(server.port), *map(str, words)]

    def consumer(self, server: Server, queue: str) -> list[str]:
        if queue == "stamp":
            return self._command(server, "stamp", queue)
        return self._command(server, "consume", queue, 20)

    def publisher(self, server: Server, queue: str, number: int, at_once: int) -> list[str]:
        return self._command(server, "publish", queue, number, at_once)

    def sender(self, server: Server, queue: str) -> list[str]:
        return self._command(server, "send", queue)

    def done(self, client: redis.Redis) -> int:
        return int(client.zcard("q:jobs:complete"))


@frozen
class Qless:
    """A Python package of the qless family."""

    name: str
    package: str
    version: str
    family: str = "qless"
    prefix: str = "ql"
    lanes: tuple[int, ...] = (1,)
    jobs_timed: int = 14
    longest_pause: float = 0.6
    folder: Path = field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "folder", folder_of(self.name, self.version))

    def task(self, queue: str) -> str:
        return f"benchmarks.live.qless_process.{queue.title()}"

    def _command(self, server: Server, *words: object) -> list[str]:
        program = [sys.executable, "-m", "benchmarks.live.qless_process", self.package]
        return ["env", f"PYTHONPATH={self.folder}", *program, str(server.port), *map(str, words)]

    def consumer(self, server: Server, queue: str) -> list[str]:
        return self._command(server, "work", queue)

    def publisher(self, server: Server, queue: str, number: int, at_once: int) -> list[str]:
        return self._command(server, "publish", queue, number)

    def sender(self, server: Server, queue: str) -> list[str]:
        return self._command(server, "send", queue)

    def done(self, client: redis.Redis) -> int:
        return int(client.zcard("ql:completed"))


@frozen
class Ours:
    """ferryman on the keyspace of a system, without Celery; or, to consume, as a Celery worker."""

    system: System

    def url(self, server: Server) -> str:
        """The broker's URL."""
        return f"{server.url('ferryman')}?family={self.system.family}&prefix={self.system.prefix}"

    def _command(self, server: Server, *words: object) -> list[str]:
        return [sys.executable, "-m", "benchmarks.live.our_process", self.url(server), *map(str, words)]

    def consumer(self, server: Server, queue: str) -> list[str]:
        return self._command(server, "stamp" if queue == "stamp" else "consume", queue)

    def publisher(self, server: Server, queue: str, number: int, at_once: int) -> list[str]:
        return self._command(server, "publish", queue, self.system.task(queue), number, at_once)

    def sender(self, server: Server, queue: str) -> list[str]:
        return self._command(server, "send", queue, self.system.task(queue))

    def celery(self, queue: str, pool: Sequence[str]) -> list[str]:
        """A Celery worker."""
        command = [sys.executable, "-m", "celery", "-A", "benchmarks.live.tasks", "worker", "-l", "INFO", "-Q", queue]
        return [*command, "-n", f"{os.urandom(4).hex()}@bench", "--without-gossip", "--without-mingle", *pool]


@frozen
class Running:
    """A process that has said that it is ready."""

    process: subprocess.Popen[bytes]

    def tell(self) -> None:
        """Has a sender publish one job."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()


@contextlib.contextmanager
def running(command: Sequence[str], server: Server, url: str = "") -> Iterator[Running]:
    """A process that is ready; whatever is left of it at the end of the block is killed. ``url``: a Celery worker's broker."""
    environment = {**os.environ, BROKER: url, LEDGER: server.url("redis", 1), "NODE_NO_WARNINGS": "1"}
    with tempfile.NamedTemporaryFile(suffix=".log") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
        )
        try:
            _wait_until_ready(process, Path(log.name))
            yield Running(process)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while b"ready" not in log.read_bytes():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{process.args!r} did not get ready:\n{log.read_text()}")
        time.sleep(0.01)


def said_by(command: Sequence[str]) -> float:
    """The number that a process says in the end."""
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, timeout=SECONDS, check=True)
    return float(done.stdout.split()[-1])
