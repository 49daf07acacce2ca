"""A proxy in front of a real server that answers some commands itself, with the errors of servers that can't do everything."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Iterator, Mapping

from attrs import frozen

from .proxy import end_of
from .servers import Server


@frozen
class PartialServer:
    """Where it listens."""

    host: str
    port: int

    def url(self, scheme: str = "ferryman") -> str:
        """Its address, database 0."""
        return f"{scheme}://{self.host}:{self.port}/0"


@contextlib.contextmanager
def partial_server(server: Server, refusals: Mapping[str, str]) -> Iterator[PartialServer]:
    """``server`` without some commands: name -> the error that it is answered with. One command at a time, so none may block."""

    class Session(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            data = b""
            with socket.create_connection((server.host, server.port)) as real:
                while more := self.request.recv(65536):
                    data += more
                    while (end := end_of(data)) is not None:
                        command, data = data[:end], data[end:]
                        self.request.sendall(self._reply(real, command))

        def _reply(self, real: socket.socket, command: bytes) -> bytes:
            name = command.split(b"\r\n", 3)[2].decode().upper()
            if name in refusals:
                return b"-%s\r\n" % refusals[name].encode()
            real.sendall(command)
            reply = b""
            while end_of(reply) is None:
                more = real.recv(65536)
                if not more:
                    return reply
                reply += more
            return reply

    class Listener(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

    with Listener(("127.0.0.1", 0), Session) as listener:
        thread = threading.Thread(target=listener.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield PartialServer(*listener.server_address)
        finally:
            listener.shutdown()
