"""The Celery app of our measured workers. Broker and ledger come from the environment, as those of ``broker/tasks.py`` do.

A task has the name of its queue, or of its class where the system has classes.
"""

from __future__ import annotations

import os
import time
from typing import Any

import redis
from celery import Celery

from ..broker.tasks import BROKER, LEDGER, LEDGER_KEY

app = Celery("bench", broker=os.environ.get(BROKER, "memory://"), set_as_current=False)
app.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True)

CLASSES = "benchmarks.live.qless_process"


@app.task(name="empty")  # type: ignore[untyped-decorator]
def empty(payload: Any) -> None:
    """Does nothing."""


@app.task(name="stamp")  # type: ignore[untyped-decorator]
def stamp(payload: Any) -> None:
    """Says how many seconds after its publishing it began."""
    seconds = time.time() - payload["at"]
    with redis.Redis.from_url(os.environ[LEDGER]) as ledger:
        ledger.rpush(LEDGER_KEY, seconds)


app.task(name=f"{CLASSES}.Empty")(empty.run)
app.task(name=f"{CLASSES}.Stamp")(stamp.run)
