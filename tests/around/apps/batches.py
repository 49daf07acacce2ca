"""A task of celery-batches."""

from __future__ import annotations

import os

from celery import Celery
from celery_batches import Batches

from ...support.tasks import BROKER, record

app = Celery("batches", broker=BROKER)
app.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True, worker_prefetch_multiplier=20)
app.conf.broker_transport_options = {"lease": float(os.environ.get("FERRYMAN_TEST_LEASE", "30"))}


@app.task(base=Batches, flush_every=5, flush_interval=float(os.environ.get("FERRYMAN_TEST_INTERVAL", "1")))
def gather(requests: list) -> None:
    """Says whose turn it was."""
    record("batch", [request.args[0] for request in requests])
