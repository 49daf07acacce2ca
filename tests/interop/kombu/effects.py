"""What the jobs of a mixed fleet do, whoever runs them: a line in a ledger when one begins, and one when it is done."""

from __future__ import annotations

import json
import os
import time

import redis
from attrs import frozen


class Retried(Exception):
    """An attempt that failed and is to be repeated."""


@frozen
class Ledger:
    """Where runs are noted, and by whom."""

    client: redis.Redis
    side: str

    def note(self, event: str, name: str) -> None:
        """Adds a line."""
        line = {"event": event, "name": name, "side": self.side, "pid": os.getpid(), "at": time.time()}
        self.client.rpush("ledger", json.dumps(line))

    def wait_until_let_go(self, name: str) -> None:
        """Returns when the test lets a job go on (``Ledger.let_go`` of tests/support/workers.py)."""
        while not self.client.exists(f"let go:{name}"):
            time.sleep(0.02)


def run(ledger: Ledger, name: str, seconds: float, failures: int, retries: int, *, holds: bool = False) -> None:
    """One attempt. Raises Retried as long as there were fewer retries than it is to fail. ``holds``: until it is let go."""
    ledger.note("start", name)
    if seconds:
        time.sleep(seconds)
    if holds:
        ledger.wait_until_let_go(name)
    if retries < failures:
        raise Retried(f"attempt {retries} of {name}")
    ledger.note("end", name)
