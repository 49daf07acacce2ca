"""A loopback TCP proxy in front of a server, for cutting connections at a chosen moment."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

from attrs import define, field

from .servers import Server


@define
class Proxy:
    """Forwards bytes both ways until told otherwise."""

    server: Server
    port: int
    lost: int = 0
    """Replies that were not forwarded."""
    _to_lose: int = 0
    _sockets: list[socket.socket] = field(factory=list)

    def url(self) -> str:
        """The ``ferryman://`` address of the proxy."""
        return f"ferryman://127.0.0.1:{self.port}/0"

    def lose_one_reply(self) -> None:
        """The next reply is not forwarded: the client's connection is closed instead, after the server has acted."""
        self._to_lose += 1

    def serve(self, listener: socket.socket) -> None:
        """Accepts connections until the listener is closed."""
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            upstream = socket.create_connection((self.server.host, self.server.port))
            self._sockets += [client, upstream]
            for source, target, is_reply in ((client, upstream, False), (upstream, client, True)):
                threading.Thread(target=self._pump, args=(source, target, is_reply), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, is_reply: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if is_reply and self._to_lose:
                    self._to_lose -= 1
                    self.lost += 1
                    break
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Ends all connections."""
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


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
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            running.close()
    thread.join(5)
