"""The fixture for tests of Celery apps: what was enqueued, tasks run in the test, time that can be moved."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import ferryman.transport  # noqa: F401 - the scheme
import pytest
from celery import Celery, chain, chord, group
from celery.exceptions import NotRegistered, Reject
from ferryman.testing.broker import TaskBroker
from ferryman.testing.pytest_plugin import ferryman_broker, ferryman_server  # noqa: F401
from kombu.exceptions import ContentDisallowed

pytestmark = pytest.mark.servers
EXAMPLE = Path(__file__).parents[2] / "examples" / "testing"
HOUR = timedelta(hours=1)


@pytest.fixture
def app():
    """An app of which no test has another's tasks."""
    return Celery("shop", broker="amqp://nowhere", backend="redis://nowhere", set_as_current=False)


@pytest.fixture
def broker(ferryman_broker, app) -> TaskBroker:  # noqa: F811
    ferryman_broker.use(app)
    return ferryman_broker


@pytest.fixture
def calls() -> list:
    return []


@pytest.fixture
def note(app, calls):
    """A task that notes its argument and returns it."""

    @app.task(shared=False, name="note")
    def note(value=None, **_):
        calls.append(value)
        return value

    return note


def test_the_example_passes_as_a_stranger_runs_it():
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "ferryman.testing.pytest_plugin", "."],
        cwd=EXAMPLE,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_tasks_are_listed_as_they_would_run(broker, note):
    note.apply_async(["late"], countdown=7200, queue="mail")
    note.apply_async(["second"], priority=5)
    note.apply_async(["first"], kwargs={"now": True}, priority=1)
    found = broker.enqueued()
    assert [task.args for task in found] == [("first",), ("second",), ("late",)]
    assert [task.queue for task in found] == ["celery", "celery", "mail"]
    assert [task.priority for task in found] == [1, 5, 0]
    assert found[0].kwargs == {"now": True}
    assert [task.due_at is None for task in found] == [True, True, False]
    assert [task.args for task in broker.enqueued(note, queue="mail")] == [("late",)]
    assert broker.enqueued("another") == []


def test_what_fits_is_given_and_what_is_not_said_is_not_compared(broker, note):
    result = note.apply_async(["ann"], countdown=60, priority=3)
    assert broker.assert_enqueued(note, ["ann"], {}, queue="celery", priority=3, due_in=60, times=1).id == result.id
    assert broker.assert_enqueued("note").id == result.id
    broker.assert_not_enqueued(note, ["bob"])
    broker.assert_not_enqueued("other")


@pytest.mark.parametrize(
    "expected",
    [
        {"args": ["bob"]},
        {"kwargs": {"to": "bob"}},
        {"queue": "mail"},
        {"priority": 1},
        {"due_in": 60},
        {"due_in": timedelta(hours=1)},
        {"times": 0},
        {"times": 2},
    ],
    ids=str,
)
def test_what_does_not_fit_fails_and_says_what_there_is(broker, note, expected):
    note.delay("ann")
    with pytest.raises(AssertionError, match=r"enqueued are:\n  note\('ann'\) in celery"):
        broker.assert_enqueued(note, **expected)


def test_what_should_not_be_enqueued_is_named(broker, note):
    with pytest.raises(AssertionError, match="nothing is enqueued"):
        broker.assert_enqueued(note)
    broker.assert_not_enqueued()
    note.delay("ann")
    for task in (None, note):
        with pytest.raises(AssertionError, match=r"note\('ann'\) in celery should not be enqueued"):
            broker.assert_not_enqueued(task)


def test_tasks_run_with_those_that_they_enqueue(broker, app, note, calls):
    @app.task(shared=False, name="outer")
    def outer():
        note.delay("inner")
        return 7

    result = outer.delay()
    runs = broker.drain()
    assert [(run.name, run.state, run.result) for run in runs] == [("outer", "SUCCESS", 7), ("note", "SUCCESS", "inner")]
    assert calls == ["inner"]
    assert result.get(timeout=1) == 7
    broker.assert_not_enqueued()


def test_canvas_works(broker, app, note, calls):
    @app.task(shared=False, name="add")
    def add(*numbers):
        return sum(sum(each) if isinstance(each, list) else each for each in numbers)

    chain(add.s(1, 2), add.s(3), note.s()).delay()
    chord([add.s(1, 1), add.s(2, 2)], note.s()).delay()
    group(note.s("a"), note.s("b")).delay()
    add.apply_async((5, 6), link=note.s())
    broker.drain()
    assert sorted(map(str, calls)) == sorted(["6", "[2, 4]", "a", "b", "11"])


def test_a_retry_waits_for_its_time(broker, app):
    @app.task(shared=False, name="flaky", bind=True, default_retry_delay=300)
    def flaky(self):
        if self.request.retries < 2:
            raise self.retry()
        return self.request.retries

    flaky.delay()
    assert [run.state for run in broker.drain()] == ["RETRY"]
    broker.assert_enqueued(flaky, due_in=300)
    broker.advance(299)
    assert broker.drain() == []
    broker.advance(5)
    assert [run.state for run in broker.drain()] == ["RETRY"]
    assert [(run.state, run.result) for run in broker.drain(scheduled=True)] == [("SUCCESS", 2)]


def test_a_failure_is_the_tests_own(broker, app, note, calls):
    @app.task(shared=False, name="broken")
    def broken():
        raise LookupError("no such order")

    broken.delay()
    note.delay("behind")
    with pytest.raises(LookupError, match="no such order"):
        broker.drain()
    broker.assert_not_enqueued(broken)
    broker.drain()
    assert calls == ["behind"]


def test_a_rejected_task_is_a_dead_letter(broker, app):
    @app.task(shared=False, name="unwanted", acks_late=True)
    def unwanted():
        raise Reject("not now", requeue=False)

    unwanted.delay()
    assert [run.state for run in broker.drain()] == ["REJECTED"]
    broker.assert_not_enqueued()


def test_who_enqueues_itself_for_ever_is_found_out(broker, app):
    @app.task(shared=False, name="again")
    def again():
        again.delay()

    again.delay()
    with pytest.raises(AssertionError, match="still enqueued after 20 of them"):
        broker.drain(limit=20)


def test_an_expired_task_does_not_run(broker, note, calls):
    note.apply_async(["too late"], expires=60)
    note.apply_async(["in time"], expires=7200)
    note.apply_async(["scheduled"], countdown=7200, expires=3600)
    broker.advance(HOUR)
    note.apply_async(["new"], expires=60)
    broker.drain()
    assert sorted(calls) == ["in time", "new"]
    broker.advance(HOUR)
    assert {run.state for run in broker.drain()} <= {"REVOKED"}
    assert sorted(calls) == ["in time", "new"]


def test_a_dedup_key_lapses_with_time(broker, note):
    headers = {"x-unique-key": "report", "x-unique-ttl": 60_000}
    for _ in range(2):
        note.apply_async(["a"], headers=headers)
    broker.assert_enqueued(note, times=1)
    broker.advance(61)
    note.apply_async(["b"], headers=headers)
    broker.assert_enqueued(note, times=2)


def test_a_lost_workers_task_comes_back_with_time(broker, app, note, calls):
    note.delay("held")
    connection = app.connection_for_read()
    channel = connection.channel()
    assert channel.basic_get("celery") is not None
    assert broker.drain() == []
    broker.advance(31)
    broker.drain()
    assert calls == ["held"]
    connection.release()


def test_time_does_not_go_back(broker):
    with pytest.raises(ValueError, match="positive"):
        broker.advance(-1)


def test_payloads_that_the_app_does_not_accept_are_refused(broker, note):
    note.apply_async([object()], serializer="pickle")
    with pytest.raises(ContentDisallowed):
        broker.enqueued()
    with pytest.raises(ContentDisallowed):
        broker.drain()


def test_a_task_that_no_module_defines_is_named(broker, app):
    app.send_task("elsewhere.task")
    with pytest.raises(NotRegistered, match=r"elsewhere\.task"):
        broker.drain()
    broker.assert_enqueued("elsewhere.task")


def test_an_eager_app_uses_the_broker_meanwhile(ferryman_broker, app, note):  # noqa: F811
    app.conf.task_always_eager = True
    ferryman_broker.use(app)
    note.delay("a")
    ferryman_broker.assert_enqueued(note)
    ferryman_broker.close()
    assert app.conf.task_always_eager


def test_the_app_has_its_own_broker_again_and_no_key_is_left(ferryman_broker, app, note):  # noqa: F811
    app.conf.broker_read_url = "amqp://reader"
    before = app.conf.broker_read_url, app.conf.broker_write_url, app.conf.result_backend
    ferryman_broker.use(app)
    note.apply_async(["a"], queue="mail")
    ferryman_broker.drain()
    note.apply_async(["a"], queue="mail", countdown=60)
    ferryman_broker.close()
    assert (app.conf.broker_read_url, app.conf.broker_write_url, app.conf.result_backend) == before
    assert ferryman_broker.enqueued() == []
    assert list(ferryman_broker._client.scan_iter()) == []


def test_without_an_app_it_says_so(ferryman_broker):  # noqa: F811
    with pytest.raises(AssertionError, match=r"ferryman_broker.use\(app\)"):
        ferryman_broker.drain()
