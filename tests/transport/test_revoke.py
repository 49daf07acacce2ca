"""Revoked tasks leave their queues at once, whether or not a worker runs, and whoever waits for their result learns it."""

from __future__ import annotations

import pytest
from celery import Celery, chord
from celery.exceptions import ChordError, TaskRevokedError
from ferryman.schema.errors import UsageError
from ferryman.transport import revoke
from kombu import Connection

from ..support.workers import Ledger, worker

NOTE = "tests.support.tasks.note"


@pytest.fixture
def app(server):
    """An app with a result backend, beside the broker."""
    made = Celery("revoking", broker=server.url(), backend=f"redis://{server.host}:{server.port}/2")
    with made:
        yield made
    made.close()


def waiting(client, queue="celery"):
    return client.zcard(f"ferryman:{{{queue}}}:waiting")


def test_a_task_revoked_while_no_worker_runs_leaves_the_queue_and_never_runs(server, app, client, tmp_path):
    revoked = app.send_task(NOTE, ["revoked"])
    later = app.send_task(NOTE, ["later"], countdown=3600)
    app.send_task(NOTE, ["kept"])
    app.control.revoke([revoked.id, later.id])
    assert (waiting(client), client.zcard("ferryman:{celery}:scheduled")) == (1, 0)
    for result in (revoked, later):
        assert result.state == "REVOKED"
        with pytest.raises(TaskRevokedError):
            result.get(timeout=10)
    ledger = Ledger(server)
    with worker(server, tmp_path, pool="solo"):
        ledger.wait_for("run", 1)
    assert ledger.names("run") == ["kept"]


def test_tasks_are_removed_by_a_call_that_tells_nobody_else(app, client):
    first, second = (app.send_task(NOTE, [n], queue=f"q{n}") for n in range(2))
    assert revoke(app, first.id, queues=["q1"]) == 0
    assert revoke(app, [first.id, second.id, "nobody's"]) == 2
    assert revoke(app, first.id) == 0
    assert (waiting(client, "q0"), waiting(client, "q1")) == (0, 0)
    assert first.state == "REVOKED"


def test_a_connection_will_do_and_a_long_queue_is_looked_through_to_its_end(server, app, client):
    with app.producer_pool.acquire() as producer:
        ids = [app.send_task(NOTE, [n], producer=producer).id for n in range(2500)]
    with Connection(server.url()) as connection:
        assert revoke(connection, [ids[0], ids[1200], ids[-1]]) == 3
    assert waiting(client) == 2497


def test_what_a_worker_has_taken_stays_with_it(server, app):
    task = app.send_task(NOTE, [1])
    with Connection(server.url()) as connection, connection.channel() as channel:
        held = channel.basic_get("celery")
        assert revoke(app, task.id) == 0
        assert task.state == "PENDING"
        held.ack()


def test_a_revoke_for_one_worker_and_one_with_the_option_off_remove_nothing(server, app, client):
    task = app.send_task(NOTE, [1])
    app.control.revoke(task.id, destination=["w1@test"])
    assert waiting(client) == 1
    with Celery("careful", broker=server.url(remove_revoked="false")) as careful:
        careful.control.revoke(task.id)
    assert waiting(client) == 1


def test_a_chord_fails_with_its_revoked_member_instead_of_waiting_for_ever(app):
    result = chord([app.signature("member", (n,)) for n in range(2)], app=app)(app.signature("body"))
    assert revoke(app, result.parent.results[0].id) == 1
    assert revoke(app, result.parent.results[1].id) == 1
    assert isinstance(result.get(timeout=10, propagate=False), ChordError)


def test_another_broker_is_refused():
    with Connection("memory://") as connection, pytest.raises(UsageError, match="from a ferryman:// broker, not from memory"):
        revoke(connection, "id")
