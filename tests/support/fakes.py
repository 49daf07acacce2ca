"""A server that is not what it seems: it answers each command as the test says."""

from __future__ import annotations

import contextlib
import socketserver
import threading
from collections.abc import Callable, Iterator

from hiredis import Reader

Reply = Callable[[list[bytes]], bytes]
"""The reply to a command, as it goes over the wire."""


def bulk(text: str) -> bytes:
    """A string as a reply."""
    return b"$%d\r\n%b\r\n" % (len(text.encode()), text.encode())


def info(**fields: str) -> bytes:
    """A reply to INFO."""
    return bulk("# Server\r\n" + "".join(f"{name}:{value}\r\n" for name, value in fields.items()))


def page(cursor: int, *keys: str) -> bytes:
    """A reply to SCAN."""
    return b"*2\r\n%b*%d\r\n%b" % (bulk(str(cursor)), len(keys), b"".join(map(bulk, keys)))


@contextlib.contextmanager
def fake_server(replies: dict[str, bytes | Reply], otherwise: bytes = b"-ERR unknown command\r\n") -> Iterator[int]:
    """Runs the server for the length of the block, and gives its port. ``replies``: by the command's name, in capitals."""

    class Client(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            reader = Reader()
            while data := self.request.recv(1 << 16):
                reader.feed(data)
                while isinstance(command := reader.gets(), list):
                    reply = replies.get(command[0].decode().upper(), otherwise)
                    self.request.sendall(reply(command) if callable(reply) else reply)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

    with Server(("127.0.0.1", 0), Client) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
