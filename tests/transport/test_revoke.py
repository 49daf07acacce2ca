"""Revoked tasks leave their queues at once, whether or not a worker runs, and whoever waits for their result learns it."""

from __future__ import annotations

import gc
import threading

import pytest
from celery import Celery, chord, signals
from celery.exceptions import ChordError, TaskRevokedError
from ferryman.schema.connection.call import run
from ferryman.schema.errors import UsageError
from ferryman.schema.native.scripts.queue_scripts import QueueScripts
from ferryman.transport import revoke
from kombu import Connection
from kombu.pidbox import Mailbox

from ..support.events import events_of
from ..support.workers import Ledger, worker

pytestmark = pytest.mark.in_turn

NOTE = "tests.support.tasks.note"


@pytest.fixture
def app(server):
    """An app with a result backend, beside the broker."""
    made = Celery("revoking", broker=server.url(), backend=f"redis://{server.host}:{server.port}/2")
    with made:
        yield made
    made.close()
    gc.collect()  # a result that dies after its server tries for 20 s to say so, in whichever test it is then


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
            result.get(timeout=60)
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


def test_a_task_with_a_message_too_long_for_a_script_is_revoked_and_told(app, client):
    long = [app.send_task(NOTE, ["x" * 5_000_000, n]) for n in range(2)]
    short = app.send_task(NOTE, ["x"])
    scripts = QueueScripts()
    found = run(client, scripts.find("celery", [long[0].id, short.id]))
    assert (len(found.jobs), len(found.unread)) == (1, 1)
    assert revoke(app, [long[0].id, short.id]) == 2
    assert waiting(client) == 1
    assert [each.state for each in (*long, short)] == ["REVOKED", "PENDING", "REVOKED"]


def in_another_thread(call):
    """As a web server's thread would, which has no current app."""
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def test_a_revoke_from_any_thread_reaches_the_backend_of_its_app(app):
    first, second = (app.send_task(NOTE, [n]) for n in range(2))
    in_another_thread(lambda: app.control.revoke(first.id))
    in_another_thread(second.revoke)
    assert (first.state, second.state) == ("REVOKED", "REVOKED")


def test_of_two_apps_with_one_broker_the_one_that_revokes_learns_it(server, app, client):
    with Celery("second", broker=server.url(), backend=f"redis://{server.host}:{server.port}/3") as second:
        by_first, by_second = (app.send_task(NOTE, [n]) for n in range(2))
        second.set_current()
        app.control.revoke(by_first.id)
        app.set_current()
        second.control.revoke(by_second.id)
        assert waiting(client) == 0
        assert [each.AsyncResult(by_first.id).state for each in (app, second)] == ["REVOKED", "PENDING"]
        assert [each.AsyncResult(by_second.id).state for each in (app, second)] == ["PENDING", "REVOKED"]
    second.close()


def test_a_chord_whose_waiting_members_are_revoked_fails(app, client):
    result = chord([app.signature("member", (n,)) for n in range(2)], app=app)(app.signature("body"))
    result.parent.revoke()
    assert waiting(client) == 0
    assert isinstance(result.get(timeout=60, propagate=False), ChordError)


def test_a_revoked_task_in_pickle_is_removed_and_told_but_never_unpickled_outside_a_worker(app, client, monkeypatch):
    app.conf.update(task_serializer="pickle", accept_content=["pickle", "json"])
    result = app.send_task(NOTE, ["x"])

    def refuse(*_):
        raise AssertionError("unpickled")

    monkeypatch.setattr("kombu.serialization.unpickle", refuse)
    monkeypatch.setattr("pickle.loads", refuse)
    assert revoke(app, result.id) == 1
    assert waiting(client) == 0
    assert result.state == "REVOKED"


def test_monitors_and_signal_handlers_learn_of_a_revoked_task_as_from_a_worker(app):
    heard = []

    @app.task(name="known")
    def known():
        """A task that this process has; it has only ever sent the other one."""

    def note(sender, request, terminated, signum, expired, **_):
        heard.append((sender.name, request.id, list(request.args), terminated, signum, expired))

    signals.task_revoked.connect(note)
    try:
        with events_of(app) as wait_for:
            results = [known.apply_async(countdown=60), app.send_task(NOTE, ["x"])]
            app.control.revoke([result.id for result in results])
            events = wait_for("task-revoked", 2)
    finally:
        signals.task_revoked.disconnect(note)
    revoked = {(each["uuid"], each["terminated"], each["signum"], each["expired"]) for each in events}
    assert revoked == {(result.id, False, None, False) for result in results}
    assert sorted(heard) == sorted(
        [("known", results[0].id, [], False, None, False), (NOTE, results[1].id, ["x"], False, None, False)]
    )


def test_a_task_revoked_by_a_call_is_told_to_monitors_too(app):
    with events_of(app) as wait_for:
        task = app.send_task(NOTE, [1])
        assert revoke(app, task.id) == 1
        assert [each["uuid"] for each in wait_for("task-revoked", 1)] == [task.id]


def test_a_raw_mailbox_revokes_too_and_tells_no_app(server, app, client):
    task = app.send_task(NOTE, [1])
    with Connection(server.url()) as connection:
        Mailbox("celery", type="fanout", accept=["json"], serializer="json")(connection).abcast("revoke", {"task_id": task.id})
    assert waiting(client) == 0
    assert task.state == "PENDING"


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
    assert isinstance(result.get(timeout=60, propagate=False), ChordError)


def test_another_broker_is_refused():
    with Connection("memory://") as connection, pytest.raises(UsageError, match="from a ferryman:// broker, not from memory"):
        revoke(connection, "id")
