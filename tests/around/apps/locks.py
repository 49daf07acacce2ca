"""Tasks of celery-once and of celery-singleton."""

from __future__ import annotations

import os

from celery import Celery
from celery_once import AlreadyQueued, QueueOnce
from celery_singleton import Singleton

from ...support.tasks import BROKER, record

__all__ = ["AlreadyQueued", "app", "once", "single"]

LOCKS = os.environ["FERRYMAN_TEST_OWN"]

app = Celery("locks", broker=BROKER)
app.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True)
app.conf.ONCE = {
    "backend": "celery_once.backends.Redis",
    "settings": {"url": BROKER if os.environ.get("FERRYMAN_TEST_UNSET") else LOCKS, "default_timeout": 60},
}
if not os.environ.get("FERRYMAN_TEST_UNSET"):
    app.conf.singleton_backend_url = LOCKS


@app.task(base=QueueOnce)
def once(name: object) -> None:
    """Waits or runs at most once."""
    record("run", name)


@app.task(base=Singleton)
def single(name: object) -> None:
    """Waits or runs at most once."""
    record("run", name)
