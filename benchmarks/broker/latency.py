"""From publishing to the task's first line, on a worker that has nothing else to do."""

from __future__ import annotations

import random
import time

from ..brokers import Broker
from ..server import Server
from .measure import Figure, Measure, percentile, ratio_at_most
from .workers import producer_app, said, said_count, worker

TASKS = 600
PAUSE_SECONDS = 0.02
"""On average. The pauses vary, so that they keep no step with anybody's timers."""


def _latency(broker: Broker, server: Server) -> tuple[float, ...]:
    pauses = random.Random(1)
    with worker(broker, server, "prefork", 2), producer_app(broker, server) as app, app.producer_pool.acquire() as producer:
        for sent in range(1, TASKS + 1):
            app.send_task("bench.stamp", (time.time(),), producer=producer)
            time.sleep(PAUSE_SECONDS * pauses.uniform(0.5, 1.5))
            while said_count(server) < sent:
                time.sleep(PAUSE_SECONDS / 4)
        # The first tasks find processes that have imported nothing yet.
        times = said(server)[TASKS // 10 :]
    return percentile(times, 0.5) * 1000, percentile(times, 0.99) * 1000


LATENCY = Measure(
    "latency",
    (
        Figure("publish to start, idle worker (prefork 2), median", "ms"),
        Figure("publish to start, idle worker (prefork 2), p99", "ms", ratio_at_most(1.0)),
    ),
    _latency,
)
