"""celery-exporter counts Celery's events; queue lengths it asks of the transports that it knows by name."""

from __future__ import annotations

import time
from collections import Counter

from celery import Celery

from ..support.around import app_of
from ..support.workers import worker

APPS = "tests.around.apps.tracing"
COUNTED = {"task-sent": 3, "task-received": 4, "task-started": 4, "task-succeeded": 2, "task-failed": 1, "task-retried": 1}
"""What one task that runs, one that fails and one that is retried once tell."""
KNOWN = {"redis", "rediss", "amqp", "amqps", "memory", "sentinel"}
"""The names of transports of which celery-exporter asks queue lengths."""


def test_every_event_that_an_exporter_counts_arrives_with_the_name_of_its_task(server, tmp_path):
    with (
        worker(server, tmp_path, pool="solo", app=app_of("tracing"), options=["-E"]),
        Celery(broker=server.url(), set_as_current=False) as app,
    ):
        app.conf.task_send_sent_event = True
        state = app.events.State()
        seen: Counter[str] = Counter()

        def receive(event: dict[str, object]) -> None:
            state.event(event)
            seen[str(event["type"])] += 1

        with app.connection() as connection:
            receiver = app.events.Receiver(connection, handlers={"*": receive}, app=app)
            with receiver.consumer_context(wakeup=False) as (opened, _channel, _consumers):
                for name in ("fine", "wrong", "again"):
                    app.send_task(f"{APPS}.{name}", ["x"] if name == "fine" else [])
                deadline = time.monotonic() + 120
                while "worker-heartbeat" not in seen or any(seen[kind] < number for kind, number in COUNTED.items()):
                    assert time.monotonic() < deadline, seen
                    try:
                        opened.drain_events(timeout=1)
                    except TimeoutError:
                        continue
    assert {kind: seen[kind] for kind in COUNTED} == COUNTED
    assert {task.name for task in state.tasks.values()} == {f"{APPS}.{name}" for name in ("fine", "wrong", "again")}
    assert {task.queue for task in state.tasks.values()} == {"celery"}
    (alive,) = state.workers.values()
    assert alive.alive


def test_the_transport_has_a_name_that_exporters_do_not_know(server):
    with Celery(broker=server.url(), set_as_current=False) as app, app.connection() as connection:
        assert connection.info()["transport"] == "ferryman"
        assert connection.info()["transport"] not in KNOWN
