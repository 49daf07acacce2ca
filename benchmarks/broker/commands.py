"""Counting the commands that clients send, as the server sees them, with MONITOR.

Neither INFO nor commandstats will do: both also count what scripts call inside the server. MONITOR tells the two apart: the
source of a script's command reads ``lua``. Called by measures that promise a number of commands.
"""

from __future__ import annotations

import threading
from types import TracebackType
from uuid import uuid4

from ..server import Server


class CommandCount:
    """Counts inside its block; ``total`` stands when the block has ended."""

    def __init__(self, server: Server) -> None:
        self._client = server.client(socket_timeout=None)
        self._other = server.client()
        self._end = uuid4().hex
        self.total = 0
        self._began = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> CommandCount:
        self._thread.start()
        self._began.wait()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._other.echo(self._end)
        self._thread.join()
        self._client.close()
        self._other.close()

    def _watch(self) -> None:
        with self._client.monitor() as monitor:
            self._began.set()
            for entry in monitor.listen():
                if self._end in entry["command"]:
                    return
                if entry["client_type"] != "lua" and not entry["command"].startswith("CLIENT SETINFO"):
                    self.total += 1
