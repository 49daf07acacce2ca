"""How late tasks with a countdown begin, on a worker that has other things to do as well.

Plain tasks come in bursts with silence in between, so that the moments at which tasks are due fall into both.
"""

from __future__ import annotations

import random
import time

from ..brokers import Broker
from ..server import Server
from .measure import Figure, Measure, at_most, percentile
from .workers import producer_app, said, said_count, worker

DUE = 300
"""Tasks with a countdown."""
COUNTDOWN_SECONDS = (0.3, 2.0)
BURST = 60
"""Plain tasks between two bursts of silence."""
PAUSE_SECONDS = 0.003
SILENCE_SECONDS = 0.5
PATIENCE_SECONDS = 60.0


def _lateness(broker: Broker, server: Server) -> tuple[float, ...]:
    choice = random.Random(1)
    with worker(broker, server, "prefork", 2), producer_app(broker, server) as app, app.producer_pool.acquire() as producer:
        for _ in range(4):  # the pool's processes import what they need
            app.send_task("bench.stamp", (time.time(),), producer=producer)
        _wait_for(server, 4)
        for sent in range(DUE):
            seconds = choice.uniform(*COUNTDOWN_SECONDS)
            app.send_task("bench.stamp", (time.time() + seconds,), countdown=seconds, producer=producer)
            for _ in range(BURST // 5):
                app.send_task("bench.empty", producer=producer)
                time.sleep(PAUSE_SECONDS)
            if sent % 5 == 4:
                time.sleep(SILENCE_SECONDS)
        _wait_for(server, 4 + DUE)
        late = said(server)[4:]
    return percentile(late, 0.99) * 1000, max(late) * 1000


def _wait_for(server: Server, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while said_count(server) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{said_count(server)} of {count} tasks have begun after {PATIENCE_SECONDS:g} s")
        time.sleep(0.05)


LATENESS = Measure(
    "lateness",
    (
        Figure("lateness of countdown tasks among others (prefork 2), p99", "ms"),
        Figure("lateness of countdown tasks among others (prefork 2), maximum", "ms", at_most(100)),
    ),
    _lateness,
)
