"""The Celery app of the demo's workers: one task for each job name of the migrated keyspace.

A task writes into the demo's ledger that it began and that it ended; that is all. Settings come from the environment, because
each worker is a process of its own: ``python -m celery -A ferryman.cli.demo_app worker``.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

import redis
from celery import Celery
from kombu import Queue

from ..schema.connection.address import Address
from ..schema.connection.connect import connect

BROKER = "FERRYMAN_DEMO_BROKER"
PLAN = "FERRYMAN_DEMO_PLAN"
LEDGER = "ferryman-demo:ledger"
"""Redis list of JSON arrays [event, queue, job id, worker]."""

PACE = "ferryman-demo:pace"
"""Redis string: the seconds that a task takes; absent = no time at all."""

LEASE_SECONDS = 3.0

_ledger: redis.Redis | None = None


def note(event: str, queue: str, job_id: str, worker: str) -> float:
    """Writes one line, and gives the seconds that a task takes now."""
    global _ledger
    if _ledger is None:
        _ledger = connect(Address.parse(os.environ[BROKER]))
    pipeline = _ledger.pipeline(transaction=False)
    pipeline.rpush(LEDGER, json.dumps([event, queue, job_id, worker]))
    pipeline.get(PACE)
    return float(pipeline.execute()[1] or 0)


def make_app() -> Celery:
    """The app, with the queues and the tasks that the environment names."""
    broker = os.environ.get(BROKER, "ferryman://localhost:6379/0")
    plan = json.loads(os.environ.get(PLAN, '{"queues": [], "tasks": []}'))
    made = Celery("ferryman-demo", broker=broker, set_as_current=False)
    made.conf.update(
        task_queues=[Queue(name, routing_key=name) for name in plan["queues"]],
        task_acks_late=True,
        task_ignore_result=True,
        worker_prefetch_multiplier=4,
        broker_transport_options={"lease": LEASE_SECONDS},
        broker_connection_retry_on_startup=True,
    )
    for name in plan["tasks"]:
        _add_task(made, name)
    return made


def _add_task(to: Celery, name: str) -> None:
    @to.task(name=name, bind=True)  # type: ignore[untyped-decorator]
    def run(task: Any, _payload: Any) -> None:
        job = (task.request.delivery_info["routing_key"], task.request.id, task.request.hostname)
        time.sleep(note("start", *job))
        note("end", *job)


app = make_app()
