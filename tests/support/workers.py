"""Real Celery workers and beats in processes of their own, and the ledger in which their tasks write what they did."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from attrs import define, frozen

from .servers import Server
from .topologies import wait_until

ROOT = Path(__file__).parents[2]
LEDGER_DB = 1
TASKS = "tests.support.tasks"
"""The app that workers run, unless a test has its own."""


class HasUrl(Protocol):
    """A server, or something in front of one."""

    def url(self) -> str: ...


@frozen
class Ledger:
    """What tasks have said, in the order in which the server heard it."""

    server: Server

    def lines(self) -> list[dict[str, Any]]:
        """Every line so far. A line that came twice was sent twice, since the reply to the first was lost with its connection."""
        with self.server.client(LEDGER_DB) as client:
            return [json.loads(line) for line in dict.fromkeys(client.lrange("ledger", 0, -1))]

    def names(self, event: str) -> list[Any]:
        """The names under which an event was recorded."""
        return [line["name"] for line in self.lines() if line["event"] == event]

    def wait(self, done: Callable[[list[dict[str, Any]]], bool], seconds: float = 120.0) -> list[dict[str, Any]]:
        """The lines, as soon as ``done`` is content with them."""
        deadline = time.monotonic() + seconds
        while True:
            lines = self.lines()
            if done(lines):
                return lines
            if time.monotonic() > deadline:
                raise AssertionError(f"not in {seconds} s; the ledger says {lines[-20:]}")
            time.sleep(0.05)

    def let_go(self, *names: object) -> None:
        """Lets tasks end that wait for it (``tasks.wait_until_let_go``): those of these names, or all."""
        with self.server.client(LEDGER_DB) as client:
            client.mset({f"let go:{name}": 1 for name in names or ("all",)})

    def wait_for(self, event: str, count: int, seconds: float = 120.0) -> list[dict[str, Any]]:
        """The lines, as soon as an event stands there ``count`` times."""
        return self.wait(lambda lines: sum(line["event"] == event for line in lines) >= count, seconds)


@define
class Worker:
    """A running worker, or a running beat, the leader of its own process group."""

    process: subprocess.Popen[bytes]
    name: str
    log: Path

    def kill(self) -> None:
        """Ends it and all its children at once, as a power failure would."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self, seconds: float = 120.0) -> int:
        """Asks for a warm shutdown and gives the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)

    def stop_with(self, ledger: Ledger) -> int:
        """A warm shutdown while tasks run, which are let go when nothing more is taken; the worker must log all that it does."""
        self.process.send_signal(signal.SIGTERM)
        self.wait_until_logged(b"Stopping Pool")
        ledger.let_go()
        return self.process.wait(120)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Stops it and all its children for the length of the block, without telling anybody."""
        os.killpg(self.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self.process.pid, signal.SIGCONT)

    def wait_until_ready(self) -> None:
        """Returns when the worker consumes."""
        self.wait_until_logged(b" ready.")

    def wait_until_logged(self, text: bytes, times: int = 1, seconds: float = 120.0) -> None:
        """Returns when this stands in the worker's log so many times."""
        deadline = time.monotonic() + seconds
        while True:
            is_over = self.process.poll() is not None or time.monotonic() > deadline  # before a last look at the log
            if self.log.read_bytes().count(text) >= times:
                return
            if is_over:
                raise AssertionError(f"worker {self.name} did not say {text!r}:\n{self.log.read_text()}")
            time.sleep(0.05)


def environment(server: Server, **settings: object) -> dict[str, str]:
    """The environment variables that ``tests/support/tasks.py`` reads. ``broker``: another URL than the server's own."""
    given = {f"FERRYMAN_TEST_{name.upper()}": str(value) for name, value in settings.items()}
    ledger = f"redis://{server.host}:{server.port}/{LEDGER_DB}"
    return {**os.environ, "FERRYMAN_TEST_BROKER": server.url(), "FERRYMAN_TEST_LEDGER": ledger, **given}


@contextlib.contextmanager
def worker(
    server: Server,
    folder: Path,
    *,
    pool: str = "prefork",
    concurrency: int = 2,
    name: str = "w1",
    app: str = TASKS,
    options: Sequence[str] = (),
    gossips: bool = False,
    level: str = "INFO",
    **settings: object,
) -> Iterator[Worker]:
    """A ready worker; whatever is left of it at the end of the block is killed.

    ``gossips``: it talks with other workers, as it would by itself; its start, and each reconnection, takes a second longer.
    """
    log = folder / f"{name}.log"
    command = [sys.executable, "-m", "celery", "-A", app, "worker", "-l", level]
    command += [] if gossips else ["--without-gossip", "--without-mingle"]
    command += ["-P", pool, "-c", str(concurrency), "-n", f"{name}@test", "-Q", str(settings.pop("queues", "celery")), *options]
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment(server, **settings), stdout=output, stderr=output, start_new_session=True
        )
    running = Worker(process, name, log)
    try:
        running.wait_until_ready()
        yield running
    finally:
        running.kill()


@contextlib.contextmanager
def beat(server: Server, folder: Path, *options: str, app: str = TASKS, **settings: object) -> Iterator[Worker]:
    """A running ``celery beat``; killed at the end of the block."""
    log = folder / "beat.log"
    schedule = ["--pidfile=", "-s", str(folder / "schedule")]
    command = [sys.executable, "-m", "celery", "-A", app, "beat", "-l", "INFO", *schedule, *options]
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment(server, **settings), stdout=output, stderr=output, start_new_session=True
        )
    running = Worker(process, "beat", log)
    try:
        yield running
    finally:
        running.kill()


def celery(server: Server, *arguments: str, seconds: float = 120.0, **settings: object) -> subprocess.CompletedProcess[str]:
    """Runs the ``celery`` command line against the test app."""
    command = [sys.executable, "-m", "celery", "-A", "tests.support.tasks", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environment(server, **settings), capture_output=True, text=True, timeout=seconds, check=False
    )


def send(broker: HasUrl, calls: list[tuple[str, list[Any], dict[str, Any]]]) -> None:
    """Publishes task messages from this process: (task, args, options of ``send_task``)."""
    send_to(broker.url(), calls)


def send_to(url: str, calls: list[tuple[str, list[Any], dict[str, Any]]]) -> None:
    """The same, to the broker at a URL."""
    from celery import Celery

    with Celery(broker=url) as app:
        for task, args, options in calls:
            app.send_task(task, args, **options)


def wait_until_active(url: str, count: int, name: str = "w1@test") -> None:
    """Until a worker's main process knows that so many tasks have begun: one of which it does not know yet is dropped."""
    from celery import Celery

    with Celery(broker=url, set_as_current=False) as app:
        asked = app.control.inspect([name], timeout=30)
        wait_until(lambda: len((asked.active() or {}).get(name, [])) >= count)
