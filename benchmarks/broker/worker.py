"""Celery workers of four pools on an empty task: tasks a second from a full queue.

The queue's counts are read from outside, every few milliseconds, so that nothing has to be added to the task. Time runs from the
moment when a fifth of the tasks are done: starting a worker is not what is measured.
"""

from __future__ import annotations

import time
from functools import partial

from ..brokers import Broker
from ..server import Server
from .measure import Figure, Measure, ratio_at_least
from .workers import producer_app, worker

TASKS = 4000
LOOK_SECONDS = 0.01
PATIENCE_SECONDS = 120.0


def rate(pool: str, concurrency: int, tasks: int, broker: Broker, server: Server) -> float:
    """Tasks a second."""
    with producer_app(broker, server) as app, app.producer_pool.acquire() as producer:
        for _ in range(tasks):
            app.send_task("bench.empty", producer=producer)
    deadline = time.monotonic() + PATIENCE_SECONDS
    with worker(broker, server, pool, concurrency):
        begin = _when(broker, server, tasks - tasks // 5, deadline)
        end = _when(broker, server, 0, deadline)
    return (begin[1] - end[1]) / (end[0] - begin[0])


def _figures(pool: str, concurrency: int, broker: Broker, server: Server) -> tuple[float, ...]:
    return (rate(pool, concurrency, TASKS, broker, server),)


def _when(broker: Broker, server: Server, unfinished: int, deadline: float) -> tuple[float, int]:
    """Waits until no more than that many tasks are unfinished; gives the moment and how many really are."""
    while True:
        left = broker.unfinished(server)
        now = time.monotonic()
        if left <= unfinished:
            return now, left
        if now > deadline:
            raise TimeoutError(f"{left} tasks were still unfinished after {PATIENCE_SECONDS:g} s")
        time.sleep(LOOK_SECONDS)


def _measure(pool: str, concurrency: int) -> Measure:
    figure = Figure(f"Celery worker, empty task, {pool} {concurrency}", "task/s", ratio_at_least(1.4))
    return Measure(f"worker-{pool}", (figure,), partial(_figures, pool, concurrency))


WORKERS = (_measure("solo", 1), _measure("threads", 2), _measure("prefork", 2), _measure("gevent", 2))
