"""Servers that are killed, frozen and started again, alone or watched by Sentinels; each keeps its data and its port."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import redis
from attrs import define, evolve

from .servers import Server, ServerKind, free_port, wait_until_answering


@define(eq=False)
class Daemon:
    """A server process, and how to start it again."""

    server: Server
    """Its ``pid`` is the running process's."""
    command: list[str]
    process: subprocess.Popen[bytes] | None = None

    def start(self, *, wait: bool = True) -> None:
        """Starts it where it was; returns when it answers."""
        with (self.server.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
        self.server = evolve(self.server, pid=self.process.pid)
        if wait:
            wait_until_answering(self.server)

    def kill(self) -> None:
        """Ends it as a power failure would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def restart(self) -> None:
        """Kills it and starts it again."""
        self.kill()
        self.start()

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Stops the process for the length of the block: its sockets stay open, and nothing answers."""
        os.kill(self.server.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.server.pid, signal.SIGCONT)


@contextlib.contextmanager
def durable(kind: ServerKind, folder: Path, *options: str) -> Iterator[Daemon]:
    """A running server that loses nothing when it is killed: every write is on disk before it is answered."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = [kind.binary, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
    command += ["--appendonly", "yes", "--appendfsync", "always", *options]
    daemon = Daemon(Server(kind.name, port, 0, folder, kind.binary), command)
    try:
        daemon.start()
        yield daemon
    finally:
        daemon.kill()


@define
class Watched:
    """A master with replicas, watched by Sentinels."""

    servers: list[Daemon]
    sentinels: list[Daemon]
    service: str = "main"

    def url(self, **options: str | int | float) -> str:
        """The ``ferryman+sentinel://`` address."""
        hosts = ",".join(f"127.0.0.1:{sentinel.server.port}" for sentinel in self.sentinels)
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"ferryman+sentinel://{hosts}/{self.service}/0" + (f"?{query}" if query else "")

    def master(self) -> Daemon:
        """The server that the first running Sentinel calls master now."""
        return self._masters()[0]

    def _masters(self) -> list[Daemon]:
        """The server that each running Sentinel calls master."""
        ports = []
        for sentinel in self.sentinels:
            if sentinel.process is not None:
                with sentinel.server.client() as client:
                    ports.append(int(client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service)[1]))
        return [daemon for port in ports for daemon in self.servers if daemon.server.port == port]

    def wait_for_another_master(self, old: Daemon, seconds: float = 120.0) -> Daemon:
        """The new master, as soon as there is one that takes writes, and all Sentinels know it."""
        wait_until(lambda: old not in self._masters() and _role(self.master()) == b"master", seconds)
        return self.master()

    def wait_until_replicated(self) -> None:
        """Returns when a replica has everything that the master has answered until now."""
        wait_until_replicated(self.master(), "marker")


def wait_until_replicated(master: Daemon, key: str) -> None:
    """Returns when a replica has all that a master has answered until now. WAIT goes by the connection's own writes: a key's."""
    with master.server.client() as client, client.pipeline(transaction=False) as pipe:
        wait_until(lambda: pipe.set(key, 1, px=1000).execute_command("WAIT", 1, 1000).execute()[1] >= 1)


def _role(daemon: Daemon) -> bytes:
    with daemon.server.client() as client:
        role: bytes = client.execute_command("ROLE")[0]
        return role


def wait_until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    """Returns when the condition holds. Fails when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("the condition did not come true")
        time.sleep(0.05)


@contextlib.contextmanager
def watched(kind: ServerKind, folder: Path, replicas: int = 1) -> Iterator[Watched]:
    """A running master, its replicas and two Sentinels that agree fast."""
    with contextlib.ExitStack() as stack:
        master = stack.enter_context(durable(kind, folder / "master"))
        port = str(master.server.port)
        following = ("--replicaof", f"127.0.0.1 {port}")
        servers = [stack.enter_context(durable(kind, folder / f"replica-{n}", *following)) for n in range(replicas)]
        sentinels = []
        for name in ("sentinel-one", "sentinel-two"):
            sentinel = _sentinel(kind, folder / name, port)
            stack.callback(sentinel.kill)
            sentinel.start()
            sentinels.append(sentinel)
        running = Watched([master, *servers], sentinels)
        for sentinel in sentinels:
            with sentinel.server.client() as client:
                wait_until(lambda client=client: _knows_all(client, running))  # type: ignore[misc]
        yield running


def _sentinel(kind: ServerKind, folder: Path, master_port: str) -> Daemon:
    folder.mkdir(parents=True)
    port = free_port()
    (folder / "sentinel.conf").write_text(
        f"port {port}\nbind 127.0.0.1\ndir {folder}\n"
        f"sentinel monitor main 127.0.0.1 {master_port} 1\n"
        "sentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 5000\n"
    )
    command = [kind.binary, str(folder / "sentinel.conf"), "--sentinel"]
    return Daemon(Server(kind.name, port, 0, folder, kind.binary), command)


def _knows_all(client: redis.Redis, running: Watched) -> bool:
    """Whether a Sentinel has found the replicas, which it asks for from time to time, and the other Sentinel."""
    flat = client.execute_command("SENTINEL", "MASTER", running.service)
    state = dict(flat) if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2], strict=True))
    texts = {_text(name): _text(value) for name, value in state.items()}
    return int(texts["num-slaves"]) >= len(running.servers) - 1 and int(texts["num-other-sentinels"]) >= 1


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
