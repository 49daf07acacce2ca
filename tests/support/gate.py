"""A loopback TCP proxy that stops one transaction on its way to a server, so that tests decide what happens at that moment."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from attrs import define, field

from .proxy import end_of, shut
from .servers import Server

EXEC = b"*1\r\n$4\r\nEXEC\r\n"
EVENT_SECONDS = 120.0

When = Callable[[bytes, int], bool]
"""Whether to stop this transaction (everything since the one before), the so-manieth of its connection, counted from 1."""


@define(eq=False)
class Hold:
    """One transaction that is to be stopped."""

    when: When
    once_applied: bool
    transaction: bytes = b""
    pid: int = 0
    """The process that sends it."""
    _held: threading.Event = field(factory=threading.Event)
    _open: threading.Event = field(factory=threading.Event)

    def wait(self) -> None:
        """Returns when it has come."""
        assert self._held.wait(EVENT_SECONDS), "no such transaction has come"

    def release(self) -> None:
        """Lets it go on."""
        self._open.set()

    def kill(self) -> None:
        """Ends the process that sends it: only one that this process has started, itself or through others."""
        assert os.getpid() in ancestors(self.pid)
        os.kill(self.pid, signal.SIGKILL)

    def stop(self) -> None:
        """What the gate does with it."""
        self._held.set()
        self._open.wait()


@define(eq=False)
class Gate:
    """Passes everything on, but for transactions that ``hold`` asks for: their EXEC, or its answer, waits for ``release``."""

    server: Server
    port: int
    _holds: list[Hold] = field(factory=list)
    _lock: threading.Lock = field(factory=threading.Lock)
    _ends: list[socket.socket] = field(factory=list)

    def url(self, db: int = 0, user: str = "") -> str:
        """The ``ferryman://`` address of a database, by way of the gate. ``user``: name and password."""
        login = f"{user}@" if user else ""
        return f"ferryman://{login}127.0.0.1:{self.port}/{db}"

    def hold(self, when: When, *, once_applied: bool = False) -> Hold:
        """Stops the next transaction for which ``when`` holds. ``once_applied``: after the server has got it."""
        with self._lock:
            self._holds.append(Hold(when, once_applied))
            return self._holds[-1]

    def serve(self, listener: socket.socket) -> None:
        """Accepts connections until the listener is closed."""
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            server = socket.create_connection((self.server.host, self.server.port))
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._ends += (client, server)
            link = _Link(self, client, server)
            for pump in (link.forward, link.backward):
                threading.Thread(target=_guarded, args=(pump, client, server), daemon=True).start()

    def _asked_for(self, transaction: bytes, number: int) -> Hold | None:
        with self._lock:
            found = next((hold for hold in self._holds if not hold.transaction and hold.when(transaction, number)), None)
            if found is not None:
                found.transaction = transaction
            return found

    def close(self) -> None:
        """Ends all connections."""
        for hold in self._holds:
            hold.release()
        shut(*self._ends)
        for end in self._ends:
            end.close()


@define(eq=False)
class _Link:
    """One connection through the gate."""

    gate: Gate
    client: socket.socket
    server: socket.socket
    awaiting: Hold | None = None
    """What the server is about to answer, and the client is not to hear yet."""

    def forward(self) -> None:
        data, transaction, number = b"", b"", 0
        while more := self.client.recv(65536):
            data += more
            while (end := end_of(data)) is not None:
                command, data = data[:end], data[end:]
                transaction += command
                if command == EXEC:
                    number += 1
                    self._exec(transaction, number)
                    transaction = b""
                self.server.sendall(command)

    def _exec(self, transaction: bytes, number: int) -> None:
        hold = self.gate._asked_for(transaction, number)
        if hold is None:
            return
        hold.pid = owner(self.client.getpeername()[1], self.gate.port)
        if hold.once_applied:
            self.awaiting = hold
        else:
            hold.stop()

    def backward(self) -> None:
        while data := self.server.recv(65536):
            # MULTI and what follows is answered as it comes; the client waits for all of it.
            if self.awaiting is not None and b"*" in data:
                self.awaiting.stop()
                self.awaiting = None
            self.client.sendall(data)


def _guarded(pump: Callable[[], None], client: socket.socket, server: socket.socket) -> None:
    with contextlib.suppress(OSError):
        pump()
    shut(client, server)


def owner(local: int, remote: int) -> int:
    """The process that has the loopback connection from one port to the other."""
    ends = (f"0100007F:{local:04X}", f"0100007F:{remote:04X}")
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    inode = next(row[9] for row in rows if (row[1], row[2]) == ends)
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if os.readlink(link) == f"socket:[{inode}]":
                return int(link.parts[2])
    raise AssertionError(f"no process has the connection from port {local}")


def ancestors(pid: int) -> Iterator[int]:
    """The process, its parent, and so on."""
    while pid > 1:
        yield pid
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@contextlib.contextmanager
def gate(server: Server) -> Iterator[Gate]:
    """A running gate in front of ``server``."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        running = Gate(server, listener.getsockname()[1])
        threading.Thread(target=running.serve, args=(listener,), daemon=True).start()
        try:
            yield running
        finally:
            shut(listener)
            running.close()
