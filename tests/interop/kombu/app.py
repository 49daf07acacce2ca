"""The Celery app of all workers, those of stock Celery on ``redis://`` and ours on ``ferryman://…?family=kombu``.

Its broker and ledger come from the environment, as those of ``tests/support/tasks.py`` do.
"""

from __future__ import annotations

import os

import redis
from celery import Celery, Task

from .effects import Ledger, Retried, run

BROKER = os.environ.get("FERRYMAN_TEST_BROKER", "redis://localhost:1/0")
IS_ORIGINAL = BROKER.startswith("redis")
OPTIONS = {
    "visibility_timeout": float(os.environ.get("FERRYMAN_TEST_VISIBILITY", "3600")),
    "unacked_restore_interval": 0.2,
    "unacked_restore_throttle": 1,
}

app = Celery("fleet", broker=BROKER)
app.conf.update(
    task_ignore_result=True,
    broker_connection_retry_on_startup=True,
    broker_transport_options=OPTIONS if IS_ORIGINAL else {"lease": 4.0},
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    worker_send_task_events=False,
)
SIDE = "original" if IS_ORIGINAL else "celery"
LEDGER = Ledger(redis.Redis.from_url(os.environ.get("FERRYMAN_TEST_LEDGER", "redis://localhost:1/1")), SIDE)


@app.task(bind=True, name="fleet.work", max_retries=3)
def work(self: Task, name: str, seconds: float = 0.0, failures: int = 0, holds: bool = False) -> None:
    """Takes its time, or goes on until it is let go, and fails so often before it is done."""
    try:
        run(LEDGER, name, seconds, failures, self.request.retries, holds=holds)
    except Retried as error:
        raise self.retry(countdown=0.05, exc=error) from None
