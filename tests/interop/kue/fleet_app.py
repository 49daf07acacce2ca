"""The Celery app of a mixed fleet: its task does what the handler of driver.js does, and tells a ledger."""

from __future__ import annotations

import os
import time
from typing import Any

import redis
from celery import Celery, Task

from ..kombu.effects import Ledger

app = Celery("fleet", broker=os.environ.get("FERRYMAN_TEST_BROKER", "ferryman://localhost:1/0?family=kue"))
app.conf.update(broker_connection_retry_on_startup=True, broker_transport_options={"lease": 2})
LEDGER = Ledger(redis.Redis.from_url(os.environ.get("FERRYMAN_TEST_LEDGER", "redis://localhost:1/1")), "ours")


@app.task(bind=True, name="work")
def work(self: Task, data: dict[str, Any]) -> Any:
    """One job of the fleet: it takes its time, and fails so often before it is done."""
    job = self.request.headers["ferryman"]
    LEDGER.note("start", job["id"])
    time.sleep(data.get("ms", 0) / 1000)
    if data["do"] == "fail" and job["attempts"] < data["fails"]:
        raise ValueError(data["message"])
    LEDGER.note("end", job["id"])
    return data.get("result")
