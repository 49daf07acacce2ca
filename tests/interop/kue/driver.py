"""Processes of kue for tests: started, told what to do, killed. The other half is driver.js."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from attrs import define, field

from ...support.npm import package
from ...support.servers import Server

SCRIPT = Path(__file__).with_name("driver.js")
SECONDS = 90.0
"""How long anything may take."""


@define
class Kue:
    """One process of kue."""

    process: subprocess.Popen[str]
    events: list[dict[str, Any]] = field(factory=list)
    """What it has told by itself, in order."""
    _lines: queue.Queue[dict[str, Any] | None] = field(factory=queue.Queue)
    _calls: int = 0

    @classmethod
    @contextmanager
    def start(cls, server: Server, version: str = "0.11.6", prefix: str = "q") -> Iterator[Self]:
        """A process on the server's database 0, killed at the end of the block."""
        command = ["node", str(SCRIPT), str(package("kue", version)), str(server.port), prefix]
        environment = {**os.environ, "NODE_NO_WARNINGS": "1"}
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        ) as process:
            kue = cls(process)
            threading.Thread(target=kue._read, daemon=True).start()
            try:
                kue.wait_for(lambda event: event["event"] == "up")
                yield kue
            finally:
                kue.kill()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            if line.startswith("{"):
                self._lines.put(json.loads(line))
        self._lines.put(None)

    def call(self, do: str, **words: Any) -> Any:
        """Has the process do something and gives what came of it."""
        assert self.process.stdin
        self._calls += 1
        self.process.stdin.write(json.dumps({"call": self._calls, "do": do, **words}) + "\n")
        self.process.stdin.flush()
        deadline = time.monotonic() + SECONDS
        while True:
            line = self._next(deadline)
            if line.get("call") == self._calls:
                if "error" in line:
                    raise RuntimeError(line["error"])
                return line.get("ok")

    def wait_for(self, is_wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first event of those that it has told, or will tell, that is wanted."""
        deadline, seen = time.monotonic() + SECONDS, 0
        while True:
            for event in self.events[seen:]:
                if is_wanted(event):
                    return event
            seen = len(self.events)
            self._next(deadline)

    def poll(self) -> None:
        """Takes in what it has told so far."""
        with contextlib.suppress(TimeoutError, EOFError):
            while True:
                self._next(0.0)

    def begun(self, job_id: int) -> dict[str, Any]:
        """Waits until a handler has got the job."""
        return self.wait_for(lambda event: event["event"] == "begin" and event["id"] == job_id)

    def told(self, job_id: int, name: str) -> list[Any]:
        """Waits for an event of a job that it has created with ``listen``, and gives its arguments."""
        is_it = self.wait_for(lambda event: event["event"] == "of job" and (event["id"], event["name"]) == (job_id, name))
        args: list[Any] = is_it["args"]
        return args

    def _next(self, deadline: float) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise TimeoutError(f"kue has not answered; it told {self.events[-5:]}") from None
        if line is None:
            raise EOFError("kue has ended")
        if "event" in line:
            self.events.append(line)
        return line

    def kill(self) -> None:
        """Ends it at once, whatever it does."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
