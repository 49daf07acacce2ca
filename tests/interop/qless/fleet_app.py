"""The Celery app of a mixed fleet: its task does what the class of worker_process.py does, and tells the same ledger."""

from __future__ import annotations

import os
import time
from typing import Any

import redis
from celery import Celery, Task

app = Celery("fleet", broker=os.environ.get("FERRYMAN_TEST_BROKER", "ferryman://localhost:1/0?family=qless"))
app.conf.update(broker_connection_retry_on_startup=True, broker_transport_options={"lease": 3})
LEDGER = redis.Redis.from_url(os.environ.get("FERRYMAN_TEST_LEDGER", "redis://localhost:1/1"))


@app.task(bind=True, name="worker_process.Deed")
def deed(self: Task, data: dict[str, Any]) -> None:
    """Does what its data says."""
    LEDGER.rpush("begun", data["n"])
    LEDGER.rpush("pids", os.getpid())
    if data["do"] == "sleep":
        time.sleep(data["seconds"])
    if data["do"] == "raise":
        raise LookupError("no customer")
    if data["do"] == "retry" and self.request.retries == 0:
        raise self.retry(countdown=0)
    LEDGER.rpush("done", data["n"])
    LEDGER.incr("ours")
