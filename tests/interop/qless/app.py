"""The Celery app of workers that share queues with workers of qless: a task named like their class, that does the same deeds."""

from __future__ import annotations

import os
from typing import Any

import redis
from celery import Celery, Task

app = Celery("qless-fleet", broker=os.environ.get("FERRYMAN_TEST_BROKER", "ferryman://localhost:1/0?family=qless"))
app.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True, worker_send_task_events=False)
LEDGER = os.environ.get("FERRYMAN_TEST_LEDGER", "redis://localhost:1/1")


@app.task(bind=True, name="worker_process.Deed")
def deed(self: Task, data: dict[str, Any]) -> str:
    """As ``Deed.process`` of worker_process.py, but that Celery ends the job."""
    with redis.Redis.from_url(LEDGER) as ledger:
        ledger.rpush("begun", data["n"])
        if data["do"] == "raise":
            raise LookupError("no customer")
        if data["do"] == "retry" and self.request.retries == 0:
            raise self.retry(countdown=0)
        ledger.rpush("done", data["n"])
        ledger.incr("ours")
    return "done"
