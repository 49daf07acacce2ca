"""Servers that are killed, frozen and started again: one that keeps its data and its port."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

from attrs import define, evolve

from .servers import Server, ServerKind, free_port, wait_until_answering


@define
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
