"""A Celery app for tests, run by real workers in processes of their own. Its broker comes from the environment.

Tasks tell a Redis list what they do, so that tests can wait for it and count.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import time

import redis
from celery import Celery, Task

BROKER = os.environ.get("FERRYMAN_TEST_BROKER", "ferryman://localhost:1/0")
LEDGER = os.environ.get("FERRYMAN_TEST_LEDGER", "redis://localhost:1/1")

app = Celery("tasks", broker=BROKER)
app.conf.update(
    task_ignore_result=True,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"lease": float(os.environ.get("FERRYMAN_TEST_LEASE", "30"))},
    task_acks_late=os.environ.get("FERRYMAN_TEST_LATE") == "1",
    worker_prefetch_multiplier=int(os.environ.get("FERRYMAN_TEST_PREFETCH", "4")),
    worker_send_task_events=True,
    beat_schedule={"often": {"task": "tests.support.tasks.note", "schedule": 0.5, "args": ["beat"]}},
)


def record(event: str, name: object, **more: object) -> None:
    """Adds a line to the ledger."""
    line = {"event": event, "name": name, "pid": os.getpid(), "at": time.time(), **more}
    with redis.Redis.from_url(LEDGER) as ledger:
        ledger.rpush("ledger", json.dumps(line))


def deliveries_before(task: Task) -> object:
    """How often the task that runs was delivered before."""
    return (task.request.headers or {}).get("x-delivery-count", 0)


def wait_until_let_go(name: object) -> None:
    """Returns when the test says so (``Ledger.let_go``)."""
    with redis.Redis.from_url(LEDGER) as ledger:
        while True:
            with contextlib.suppress(redis.exceptions.ConnectionError):  # tests cut connections meanwhile
                if ledger.exists("let go:all", f"let go:{name}"):
                    return
            time.sleep(0.02)


@app.task
def note(name: object) -> None:
    """Runs at once."""
    record("run", name)


@app.task(bind=True)
def nap(self, name: object, seconds: float) -> None:
    """Takes its time. Says how it was delivered."""
    record("start", name, redelivered=self.request.delivery_info["redelivered"], before=deliveries_before(self))
    time.sleep(seconds)
    record("end", name)


@app.task(bind=True)
def hold(self, name: object) -> None:
    """Goes on until it is let go."""
    record("start", name, redelivered=self.request.delivery_info["redelivered"], before=deliveries_before(self))
    wait_until_let_go(name)
    record("end", name)


@app.task(name="kue.email")
def imported(payload: object) -> None:
    """What a job of another system becomes."""
    record("imported", payload)


@app.task
def block(name: object, seconds: float) -> None:
    """Takes its time and lets no green thread of its process run meanwhile; a system call, so other real threads may."""
    record("start", name)
    ctypes.CDLL(None).usleep(round(seconds * 1_000_000))
    record("end", name)


@app.task(bind=True)
def poison(self, name: object) -> None:
    """Takes its whole worker with it."""
    record("poison", name, before=deliveries_before(self))
    os.killpg(os.getpgrp(), signal.SIGKILL)
