"""From a worker's SIGKILL until a second worker, idle all the time, begins its task again, at a lease of 10 seconds."""

from __future__ import annotations

import time

from ..brokers import Broker
from ..server import Server
from .measure import Figure, Measure, at_most
from .workers import producer_app, said, worker

LEASE = 10.0
PATIENCE_SECONDS = 150.0


def _recovery(broker: Broker, server: Server) -> tuple[float, ...]:
    with worker(broker, server, "prefork", 1, lease=LEASE) as doomed, producer_app(broker, server) as app:
        app.send_task("bench.sleep", (PATIENCE_SECONDS * 2,))
        _wait(server, 1)
        with worker(broker, server, "prefork", 1, lease=LEASE):
            doomed.kill()
            killed_at = time.time()
            return (_wait(server, 2) - killed_at,)


def _wait(server: Server, count: int) -> float:
    """When the task began for the count-th time; the end of patience if it did not."""
    deadline = time.time() + PATIENCE_SECONDS
    while time.time() < deadline:
        begun = said(server)
        if len(begun) >= count:
            return begun[count - 1]
        time.sleep(0.05)
    return deadline


RECOVERY = Measure("recovery", (Figure("start again after SIGKILL, 10 s lease", "s", at_most(12.0)),), _recovery, repeats=1)
