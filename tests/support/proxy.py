"""A loopback TCP proxy in front of a server, for cutting connections at a chosen moment, or letting them go silent."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

from attrs import define, field, frozen

from .servers import Server


@frozen
class Cut:
    """Where one connection ends: at the n-th command from now on, 0 being the next.

    Of that command the server gets ``sent`` bytes, and of its reply the client gets ``answered`` bytes; None = all of them.
    """

    command: int = 0
    sent: int | None = None
    answered: int = 0


AGGREGATES = {b"*": 1, b"~": 1, b">": 1, b"%": 2}
"""Kinds of values that hold values, and how many for each that they count."""


def end_of(data: bytes, start: int = 0) -> int | None:
    """Where the RESP value that begins at ``start`` ends; None while it is not all there. Commands are values too."""
    line = data.find(b"\r\n", start)
    if line < 0:
        return None
    kind, end = data[start : start + 1], line + 2
    if kind == b"$":
        length = int(data[start + 1 : line])
        end += length + 2 if length >= 0 else 0
    elif kind in AGGREGATES:
        for _ in range(AGGREGATES[kind] * int(data[start + 1 : line])):
            inner = end_of(data, end)
            if inner is None:
                return None
            end = inner
    return end if end <= len(data) else None


def shut(*ends: socket.socket) -> None:
    """Ends connections, and lets go of whoever waits for them."""
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@define
class Link:
    """One client's connection and its other half to the server."""

    client: socket.socket
    server: socket.socket
    silent: bool = False
    """Nothing passes any more, and neither side is told."""
    is_answered: bool = True
    """Whether nothing has been sent since the last reply: what is sent next begins a round trip."""
    pending: int = 0
    """Commands that the server has got and not answered."""
    doomed: int | None = None
    """How many replies come before the one that is cut; None: none will be."""
    answered: int = 0
    """How many bytes of the doomed reply pass."""

    def shut(self) -> None:
        """Ends both halves."""
        shut(self.client, self.server)


@define
class Proxy:
    """Forwards commands and replies, one by one, until told otherwise."""

    server: Server
    port: int
    has_cut: bool = False
    """Whether the cut that was asked for has happened."""
    refuses: bool = False
    """Whether new connections are closed at once."""
    swallows: bool = False
    """Whether new connections are silent from the beginning."""
    commands: int = 0
    """How many commands have come since the last ``cut``."""
    round_trips: int = 0
    """How many times since then a client has said something after it had been answered."""
    _cut: Cut | None = None
    _lock: threading.Lock = field(factory=threading.Lock)
    _links: list[Link] = field(factory=list)

    @property
    def host(self) -> str:
        return "127.0.0.1"

    def url(self, **options: str | int | float) -> str:
        """The ``ferryman://`` address of the proxy, with query options."""
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"ferryman://127.0.0.1:{self.port}/0" + (f"?{query}" if query else "")

    def cut(self, where: Cut | None) -> None:
        """Sees to it that the connection ends there on which that command comes. None: nothing is cut any more."""
        with self._lock:
            self._cut, self.has_cut, self.commands, self.round_trips = where, False, 0, 0

    def stall(self) -> None:
        """From now on nothing passes on the connections that are open, and nobody is told: half-open connections."""
        for link in self._links:
            link.silent = True

    def break_all(self) -> None:
        """Ends every open connection."""
        for link in self._links:
            link.shut()

    def serve(self, listener: socket.socket) -> None:
        """Accepts connections until the listener is closed."""
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            if self.refuses:
                client.close()
                continue
            try:
                server = socket.create_connection((self.server.host, self.server.port))
            except OSError:  # the server is down: so is its proxy
                client.close()
                continue
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = Link(client, server, silent=self.swallows)
            self._links.append(link)
            for pump in (self._forward, self._backward):
                threading.Thread(target=_guarded, args=(pump, link), daemon=True).start()

    def _forward(self, link: Link) -> None:
        """From the client to the server."""
        data = b""
        while more := link.client.recv(65536):
            data += more
            with self._lock:
                self.round_trips += link.is_answered
                link.is_answered = False
            while (end := end_of(data)) is not None:
                command, data = data[:end], data[end:]
                cut = self._next_command(link)
                if link.silent:
                    continue
                if cut is not None and cut.sent is not None:
                    link.server.sendall(command[: cut.sent])
                    link.shut()
                    return
                link.server.sendall(command)

    def _next_command(self, link: Link) -> Cut | None:
        """Counts a command; gives the cut if this is the one that it waits for."""
        with self._lock:
            number, self.commands = self.commands, self.commands + 1
            cut = self._cut
            if cut is None or self.has_cut or number != cut.command:
                link.pending += 1
                return None
            self.has_cut = True
            link.doomed, link.answered = link.pending, cut.answered
            return cut

    def _backward(self, link: Link) -> None:
        """From the server to the client."""
        data = b""
        while more := link.server.recv(65536):
            data += more
            while (end := end_of(data)) is not None:
                reply, data = data[:end], data[end:]
                if link.silent:
                    continue
                with self._lock:
                    link.is_answered = True
                    is_last = link.doomed == 0
                    link.pending -= 1
                    if link.doomed is not None:
                        link.doomed -= 1
                if is_last:
                    link.client.sendall(reply[: link.answered])
                    link.shut()
                    return
                link.client.sendall(reply)

    def close(self) -> None:
        """Ends all connections."""
        for link in self._links:
            link.shut()
            link.client.close()
            link.server.close()


def _guarded(pump: Callable[[Link], None], link: Link) -> None:
    with contextlib.suppress(OSError):
        pump(link)
    if not link.silent:
        link.shut()


@contextlib.contextmanager
def proxy(server: Server) -> Iterator[Proxy]:
    """A running proxy in front of ``server``."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        running = Proxy(server, listener.getsockname()[1])
        thread = threading.Thread(target=running.serve, args=(listener,), daemon=True)
        thread.start()
        try:
            yield running
        finally:
            shut(listener)
            running.close()
    thread.join(5)
