"""Ledger: what was published, what ran where and when, and what was done to whom.

A file to which every process appends whole lines: it knows nothing of the broker and of its server, and what a process has
written stays when the process is killed.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Literal

from attrs import asdict, frozen

Kind = Literal["sent", "unsure", "accepted", "start", "end", "failed", "lapse", "stopping", "killed", "outage"]


@frozen
class Event:
    """One line. ``task`` and ``worker`` are names; times are Unix seconds of this machine. What else it says depends on its kind.

    ``sent``: the publish returned; ``unsure``: it failed, the task may be stored or not. Both carry the task's ``form``, and in
    ``due`` the moment before which it must not start. ``accepted``: a worker has given the task to its pool, and will ack it if
    acks are early. ``start`` and ``end``: the task's own first and last line; ``attempt`` counts retries. ``failed``: Celery has
    ended the task with an error, which counts as handled. ``lapse``: a worker says that it lost its lease. ``stopping``: a
    worker was asked to end; ``killed``: it was given no time to. ``outage``: the server was gone from ``at`` until ``until``.
    """

    kind: Kind
    at: float
    task: str = ""
    worker: str = ""
    attempt: int = 0
    form: str = ""
    due: float = 0.0
    until: float = 0.0


class Ledger:
    """One file; any number of writers."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(
        self,
        kind: Kind,
        *,
        at: float | None = None,
        task: str = "",
        worker: str = "",
        attempt: int = 0,
        form: str = "",
        due: float = 0.0,
        until: float = 0.0,
    ) -> None:
        """Adds a line, whole: the system appends one small write as one."""
        event = Event(kind, time.time() if at is None else at, task, worker, attempt, form, due, until)
        line = json.dumps(asdict(event)).encode() + b"\n"
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line)
        finally:
            os.close(file)

    def read(self) -> list[Event]:
        """Every line so far, in the order of their times."""
        if not self.path.exists():
            return []
        events = [Event(**json.loads(line)) for line in self.path.read_bytes().splitlines()]
        return sorted(events, key=lambda event: event.at)
