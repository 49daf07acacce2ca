"""The app of a worker whose main process publishes from a thread, over a connection that its pool's processes inherit."""

from __future__ import annotations

import threading

from celery.signals import worker_ready
from kombu import Connection

from .tasks import BROKER, app, record

CONNECTION = Connection(BROKER)
"""Shared by the thread and, after each fork, by the tasks."""


def publish(queue: str) -> None:
    CONNECTION.Producer().publish("x", routing_key=queue)


def publish_for_ever() -> None:
    while True:
        publish("of the main process")


@worker_ready.connect
def start(**_: object) -> None:
    threading.Thread(target=publish_for_ever, daemon=True).start()


@app.task
def publish_inherited(name: object) -> None:
    """Publishes over the inherited connection, and over one of the app's pool."""
    publish("of the pool")
    app.send_task("any", queue="of the app")
    record("run", name)
