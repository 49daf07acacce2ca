"""The Celery app of a chaos run: tasks that only tell the ledger what happens to them. Settings come from the environment."""

from __future__ import annotations

import json
import logging
import os
import time
from pathlib import Path
from typing import Any

from celery import Celery, Task
from celery.signals import celeryd_init
from celery.worker.request import Request

from .ledger import Ledger

BROKER = "FERRYMAN_CHAOS_BROKER"
OPTIONS = "FERRYMAN_CHAOS_OPTIONS"
LEDGER = "FERRYMAN_CHAOS_LEDGER"

RETRY_COUNTDOWN = 1.0
"""Seconds from a failed attempt to the next."""

PUBLISH_RETRY = {"max_retries": 40, "interval_start": 0.1, "interval_step": 0.2, "interval_max": 1.0}
"""Publishing outlives every restart of the server that a run makes."""

ledger = Ledger(Path(os.environ.get(LEDGER, os.devnull)))

app = Celery("chaos", broker=os.environ.get(BROKER, "memory://"), set_as_current=False)
app.conf.update(
    task_ignore_result=True,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_publish_retry_policy=PUBLISH_RETRY,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport_options=json.loads(os.environ.get(OPTIONS, "{}")),
)

_worker = ""


class AcceptedRequest(Request):  # type: ignore[misc]
    """Tells the ledger before an early ack leaves: from then on a killed worker's task is gone, as its author has chosen."""

    def on_accepted(self, pid: int, time_accepted: float) -> None:
        """Celery's hook: the pool has the task."""
        ledger.write("accepted", task=self.args[0], worker=_worker, attempt=self.request_dict.get("retries", 0))
        super().on_accepted(pid, time_accepted)


class LedgerTask(Task):  # type: ignore[misc]
    """A task whose first argument is its name in the ledger."""

    Request = AcceptedRequest

    def __call__(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Runs the task between its first and its last line."""
        attempt = self.request.retries
        ledger.write("start", task=name, worker=_worker, attempt=attempt)
        result = self.run(name, *args, **kwargs)
        ledger.write("end", task=name, worker=_worker, attempt=attempt)
        return result

    def on_failure(self, _error: Exception, _task_id: str, args: Any, _kwargs: Any, _info: Any) -> None:
        """Celery's hook: the task raised an error, or Celery did so inside it."""
        ledger.write("failed", task=args[0], worker=_worker, attempt=self.request.retries)


class LapseHandler(logging.Handler):
    """Tells the ledger what the transport says about leases that it lost."""

    def emit(self, record: logging.LogRecord) -> None:
        """Takes every warning of the transport, and keeps those about leases."""
        if "lapsed" in record.getMessage():
            ledger.write("lapse", worker=_worker)


@celeryd_init.connect  # type: ignore[untyped-decorator]
def _begin(sender: str, **_: Any) -> None:
    """Before the pool starts: its processes know the worker's name from here."""
    global _worker
    _worker = sender
    logging.getLogger("ferryman.transport").addHandler(LapseHandler(logging.WARNING))


@app.task(name="chaos.early", base=LedgerTask, acks_late=False)  # type: ignore[untyped-decorator]
def early(_name: str) -> None:
    """Takes no time; acked before it runs."""


@app.task(name="chaos.late", base=LedgerTask)  # type: ignore[untyped-decorator]
def late(_name: str) -> None:
    """Takes no time; acked when it is done."""


@app.task(name="chaos.slow", base=LedgerTask)  # type: ignore[untyped-decorator]
def slow(_name: str, seconds: float) -> None:
    """Takes its time, up to longer than a lease."""
    time.sleep(seconds)


@app.task(name="chaos.retried", base=LedgerTask, bind=True, max_retries=2)  # type: ignore[untyped-decorator]
def retried(self: Any, _name: str) -> None:
    """Succeeds at its second attempt."""
    if self.request.retries == 0:
        raise self.retry(countdown=RETRY_COUNTDOWN)
