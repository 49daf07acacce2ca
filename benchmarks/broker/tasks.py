"""The Celery app that the measured workers run. Its broker comes from the environment.

What tasks have to say goes to a Redis list of another database, so that the broker's own keys stay the broker's.
"""

from __future__ import annotations

import json
import os
import time

import redis
from celery import Celery

BROKER = "FERRYMAN_BENCH_BROKER"
OPTIONS = "FERRYMAN_BENCH_OPTIONS"
LEDGER = "FERRYMAN_BENCH_LEDGER"
LEDGER_KEY = "ledger"

app = Celery("bench", broker=os.environ.get(BROKER, "memory://"), set_as_current=False)
app.conf.update(
    task_ignore_result=True,
    broker_connection_retry_on_startup=True,
    broker_transport_options=json.loads(os.environ.get(OPTIONS, "{}")),
)


def _command(value: float) -> None:
    with redis.Redis.from_url(os.environ[LEDGER]) as ledger:
        ledger.rpush(LEDGER_KEY, value)


@app.task(name="bench.empty")  # type: ignore[untyped-decorator]
def empty(_text: str = "") -> None:
    """Does nothing: what is measured is all the rest."""


@app.task(name="bench.stamp")  # type: ignore[untyped-decorator]
def stamp(sent_at: float) -> None:
    """Says how many seconds after its publishing it began."""
    _command(time.time() - sent_at)


@app.task(name="bench.sleep", acks_late=True)  # type: ignore[untyped-decorator]
def sleep(seconds: float) -> None:
    """Says when it began, and takes its time."""
    _command(time.time())
    time.sleep(seconds)
