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


def run(ledger: Ledger, name: str, seconds: float, failures: int, retries: int) -> None:
    """One attempt. Raises Retried as long as there were fewer retries than it is to fail."""
    ledger.note("start", name)
    if seconds:
        time.sleep(seconds)
    if retries < failures:
        raise Retried(f"attempt {retries} of {name}")
    ledger.note("end", name)
