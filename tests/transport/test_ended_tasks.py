"""Tasks that the broker ends without a worker: result, chord, event and signal, reported once by a worker that runs later."""

from __future__ import annotations

import contextlib
import gc

import pytest
from celery import chord
from celery.exceptions import ChordError, WorkerLostError
from ferryman.schema.native.scripts.queue_scripts import QueueScripts
from kombu import Connection, Exchange, Queue

from ..support import ended_tasks
from ..support.events import events_of
from ..support.topologies import wait_until
from ..support.workers import Ledger, worker

pytestmark = pytest.mark.in_turn

APP = "tests.support.ended_tasks"
LATE = 0.01
"""Seconds after which a message expires: long before a worker is there."""


@pytest.fixture
def app(server):
    """The workers' app, in this process, on the test's server."""
    with ended_tasks.Celery("publisher", broker=server.url(), backend=f"redis://{server.host}:{server.port}/2") as made:
        for name in ("add", "total", "die"):
            task = getattr(ended_tasks, name)
            made.task(task.run, name=task.name, acks_late=task.acks_late, reject_on_worker_lost=task.reject_on_worker_lost)
        yield made
    made.close()
    gc.collect()  # a result that dies after its server tries for 20 s to say so, in whichever test it is then


def task(app, name):
    return app.tasks[f"{APP}.{name}"]


def declare(server, name, **arguments):
    with Connection(server.url()) as connection:
        Queue(name, Exchange(name), routing_key=name, queue_arguments=arguments)(connection.channel()).declare()


def unreported(client, queue="celery"):
    return client.zcard(f"ferryman:{{{queue}}}:unreported")


def told(server, event):
    """How often the workers' signal handlers were called for each task."""
    names = Ledger(server).names(event)
    return {name: names.count(name) for name in names}


def test_expired_tasks_are_revoked_once_with_event_signal_and_chord_though_two_workers_run(server, app, client, tmp_path):
    header = [task(app, "add").s(1, 1), task(app, "add").s(2, 2).set(expires=LATE)]
    body = chord(header, app=app)(task(app, "total").s())
    results = [app.send_task("an.unknown.task", [n], expires=LATE) for n in range(120)]
    with events_of(app) as wait_for, contextlib.ExitStack() as workers:
        for name in ("w1", "w2"):
            workers.enter_context(worker(server, tmp_path, pool="solo", name=name, app=APP))
        assert isinstance(body.get(timeout=60, propagate=False), ChordError)
        ended = {result.id for result in (*results, body.parent.results[1])}
        events = wait_for("task-revoked", len(ended))
        Ledger(server).wait_for("revoked", len(ended))
        wait_until(lambda: unreported(client) == 0)
    assert {result.state for result in results} == {"REVOKED"}
    assert sorted(each["uuid"] for each in events) == sorted(ended)
    assert {each["expired"] for each in events} == {True}
    assert told(server, "revoked") == dict.fromkeys(ended, 1)
    assert not client.hexists("ferryman:{celery}:meta", "unreported")


@pytest.mark.parametrize("pool", ["prefork", "threads", "gevent"])
def test_each_pool_reports_an_expired_task(server, app, tmp_path, pool):
    result = task(app, "add").apply_async((1, 1), expires=LATE)
    with worker(server, tmp_path, pool=pool, app=APP):
        wait_until(lambda: result.state == "REVOKED")


def test_a_task_that_made_room_in_a_full_queue_is_revoked_by_the_next_worker(server, app, tmp_path):
    declare(server, "short", **{"x-max-length": 1})
    first, second = (task(app, "add").apply_async((n, n), queue="short") for n in range(2))
    assert first.state == "PENDING"
    with worker(server, tmp_path, pool="solo", app=APP, queues="short"):
        assert second.get(timeout=60) == 2
        wait_until(lambda: first.state == "REVOKED")
    assert "greatest length" in str(first.result)


def test_a_task_at_its_delivery_limit_fails_with_the_last_worker_named(server, app, client, tmp_path):
    body = chord([task(app, "add").s(1, 1), task(app, "die").si()], app=app)(task(app, "total").s())
    with events_of(app) as wait_for, worker(server, tmp_path, concurrency=1, app=APP):
        assert isinstance(body.get(timeout=60, propagate=False), ChordError)
        dead = body.parent.results[1]
        assert [each["uuid"] for each in wait_for("task-failed", 1)] == [dead.id]
        wait_until(lambda: unreported(client) == 0)
        Ledger(server).wait_for("failed", 1)
    assert isinstance(dead.result, WorkerLostError)
    (job,) = client.zrange("ferryman:{celery}:dead", 0, -1)
    error = client.hget(b"ferryman:{celery}:job:" + job, "error").decode()
    last = error.rpartition(" ")[2]
    assert error == f"delivered 2 times, last to {last}"
    assert last.count(":") == 2  # host, pid and channel
    assert error in str(dead.result)
    assert told(server, "failed") == {dead.id: 1}


def test_what_a_killed_worker_had_claimed_is_reported_by_the_next_one(server, app, client, tmp_path):
    declare(server, "short", **{"x-max-length": 1})
    first, _ = (task(app, "add").apply_async((n, n), queue="short") for n in range(2))
    with Connection(server.url()) as connection:
        connection.connect()
        session = connection.transport.session
        claimed = session.link.run(QueueScripts("ferryman").claim_unreported("short", 200))
    assert len(claimed.tasks) == 1
    with worker(server, tmp_path, pool="solo", app=APP, queues="short"):
        wait_until(lambda: unreported(client, "short") == 0)
    assert first.state == "REVOKED"
    assert told(server, "revoked") == {first.id: 1}


def test_a_task_that_has_a_result_keeps_it(server, app, client, tmp_path):
    result = task(app, "add").apply_async((1, 1), expires=LATE)
    app.backend.store_result(result.id, 2, "SUCCESS")
    with worker(server, tmp_path, pool="solo", app=APP):
        wait_until(lambda: client.hget("ferryman:{celery}:meta", "expired") and unreported(client) == 0)
    assert result.get(timeout=60) == 2
    assert told(server, "revoked") == {}


def test_a_task_that_goes_to_a_dead_letter_exchange_has_not_ended(server, app, tmp_path):
    declare(server, "grave")
    declare(server, "work", **{"x-message-ttl": 10, "x-dead-letter-exchange": "grave", "x-dead-letter-routing-key": "grave"})
    declare(server, "lost", **{"x-message-ttl": 10, "x-dead-letter-exchange": "grave", "x-dead-letter-routing-key": "elsewhere"})
    moved, lost = (task(app, "add").apply_async((1, 1), queue=queue) for queue in ("work", "lost"))
    with worker(server, tmp_path, pool="solo", app=APP, queues="grave,lost"):
        assert moved.get(timeout=60) == 2
        wait_until(lambda: lost.state == "REVOKED")
    assert told(server, "revoked") == {lost.id: 1}


def test_plain_messages_and_the_rejects_of_workers_need_no_report(server, app, client):
    declare(server, "short", **{"x-max-length": 1})
    with Connection(server.url()) as connection, connection.Producer() as producer:
        for n in range(3):
            producer.publish({"n": n}, routing_key="short")
        task(app, "add").apply_async((1, 1), queue="kept")
        connection.default_channel.basic_get("kept").reject()
    assert client.zcard("ferryman:{short}:dead") == 2
    assert unreported(client, "short") == unreported(client, "kept") == 0


def test_a_worker_whose_clock_is_behind_runs_due_tasks_at_once(server, app, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(
        "import time\nreal = time.time\ntime.time = lambda: real() - 7200\n", encoding="utf-8"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    results = [task(app, "add").apply_async((n, 0), countdown=0.05) for n in range(20)]
    with worker(server, tmp_path, pool="threads", app=APP):
        wait_until(lambda: {result.state for result in results} == {"SUCCESS"})
