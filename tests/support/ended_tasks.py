"""A Celery app with a result backend, whose worker records the signals about tasks that end without running."""

from __future__ import annotations

import os
import signal

from celery import Celery, signals

from .tasks import BROKER, LEDGER, record

app = Celery("ended_tasks", broker=BROKER, backend=LEDGER.rsplit("/", 1)[0] + "/2")
app.conf.update(
    task_track_started=True,
    worker_send_task_events=True,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"delivery_limit": 2},
)


@app.task
def add(x: int, y: int) -> int:
    """Runs at once."""
    record("run", x + y)
    return x + y


@app.task
def total(numbers: list[int]) -> int:
    """The body of a chord."""
    return sum(numbers)


@app.task(acks_late=True, reject_on_worker_lost=True)
def die() -> None:
    """Kills its process each time."""
    os.kill(os.getpid(), signal.SIGKILL)


@signals.task_revoked.connect
def on_revoked(request, expired, **_) -> None:
    record("revoked", request.id, expired=expired)


@signals.task_failure.connect
def on_failure(task_id, exception, **_) -> None:
    record("failed", task_id, error=type(exception).__name__)
