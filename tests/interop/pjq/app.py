"""The Celery app of our workers on pjq's keyspace. Its broker and ledger come from the environment."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import redis
from celery import Celery, Task

app = Celery("pjq", broker=os.environ.get("FERRYMAN_TEST_BROKER", "ferryman://localhost:1/0?family=pjq"))
app.conf.update(broker_connection_retry_on_startup=True, worker_send_task_events=False)
LEDGER = redis.Redis.from_url(os.environ.get("FERRYMAN_TEST_LEDGER", "redis://localhost:1/1"))


@app.task(bind=True, name="run", max_retries=3)
def run(self: Task, job: dict[str, Any]) -> str:
    """Takes its time, goes on until it is let go, is retried once, or fails, as the job says."""

    def note(event: str) -> None:
        LEDGER.rpush("ledger", json.dumps({"event": event, "name": job["job"], "side": "ours", "at": time.time()}))

    if job.get("retried") and self.request.retries == 0:
        note("retry")
        raise self.retry(countdown=0.2)
    note("start")
    time.sleep(job.get("seconds", 0))
    while job.get("holds") and not LEDGER.exists(f"let go:{job['job']}"):
        time.sleep(0.02)
    note("end")
    if job.get("fails"):
        raise ValueError("as it was told")
    return "ran"
