"""How a Celery task ends and what becomes of the job that it is, for each system, without a worker around it.

A job is taken as a worker takes it, and run by what its pool would call.
"""

from __future__ import annotations

import base64
import datetime
import json
import time

import pytest
from celery import Celery
from celery.exceptions import Ignore, MaxRetriesExceededError, Reject, Retry
from ferryman.compat.client import ForeignClient
from ferryman.schema.connection.address import Address
from ferryman.testing.keyspaces import dump
from ferryman.transport.celery import foreign_run, foreign_trace
from ferryman.transport.celery.foreign_run import RUN, ForeignRun, HeldJob
from ferryman.transport.live.mapping import IDENTITY
from ferryman.transport.live.messages import JobMessages
from ferryman.transport.settings import Settings

from ..conftest import SERVERS
from ..support.live_systems import SYSTEMS, LiveSystem, side_keys

QUEUE = "story"
KUE = [system for system in SYSTEMS if system.family == "kue"]


@pytest.fixture(scope="module")
def one_server(tmp_path_factory):
    with SERVERS[0].start(tmp_path_factory.mktemp("live")) as server:
        yield server


@pytest.fixture
def server(one_server):
    one_server.client().flushall()
    return one_server


@pytest.fixture(params=SYSTEMS, ids=str)
def system(request) -> LiveSystem:
    return request.param


class Story:
    """An app with one task, and the job that runs as it."""

    def __init__(self, system: LiveSystem, server, **settings):
        self.system, self.server = system, server
        self.app = Celery("story", broker=system.url(server), **settings)
        self.app.conf.task_ignore_result = "backend" not in settings
        self.client: ForeignClient = system.client(server)

    def task(self, function, **options):
        function.__name__ = QUEUE
        self.app.task(bind=True, name=QUEUE, shared=False, **options)(function)
        self.app.finalize()

    def put(self, attempts=1):
        return self.system.put(self.client, QUEUE, {"to": "a@example.com"}, attempts)

    def take(self):
        (job,) = self.client.take(QUEUE)
        return job

    def run(self, job=None):
        """Runs the job as a pool's process would; what that tells the main process."""
        job = job or self.take()
        found = JobMessages(self.client.live, IDENTITY, "ascending").content(QUEUE, job, self.client.consumer, {QUEUE})
        headers, properties = found.headers, found.properties
        with self.app.connection_for_read() as connection:
            run = ForeignRun(HeldJob.of(headers, properties), headers["id"], Settings.of(connection).address)
        request = {
            **headers,
            "properties": {**properties, RUN: run},
            "delivery_info": {"exchange": "", "routing_key": QUEUE, "priority": 0, "redelivered": False},
        }
        return foreign_trace.trace_task_ret(
            QUEUE, headers["id"], request, found.body, found.content_type, found.content_encoding, app=self.app
        )

    def job(self, job_id):
        return self.system.jobs(self.server).get(job_id)

    def keyspace(self):
        """The system's own keys."""
        return {key: entry for key, entry in dump(self.server.client()).items() if not key.startswith(b"ferryman:")}

    def later(self):
        """A time at which everything is due."""
        return round(time.time() * 1000) + 3_600_000


@pytest.fixture
def story(system, server):
    return Story(system, server)


def raised(ended):
    """What a task has raised."""
    return getattr(ended[1].exception, "exc", ended[1].exception)


AGAIN = ("waiting", "scheduled")
"""Where a job stands that will run again."""


class Plain:
    """A value that JSON has no form for."""

    def __repr__(self):
        return "<Plain>"


VALUES = [
    (None, None),
    (0, 0),
    ({"sent": "a@example.com", "ü": [1.5, True]}, {"sent": "a@example.com", "ü": [1.5, True]}),
    (datetime.date(2026, 7, 1), {"__type__": "date", "__value__": "2026-07-01"}),
    (Plain(), "<Plain>"),
    (float("nan"), "nan"),
]


@pytest.mark.parametrize(("value", "stored"), VALUES, ids=repr)
def test_what_a_task_returns_is_the_result_of_its_job(story, value, stored):
    story.task(lambda *_: value)
    job_id = story.put()
    ended = story.run()
    assert ended.outcome in ("completed", "removed")
    assert ended[0] == 0
    job = story.job(job_id)
    if job is not None:
        assert str(job.state) == "completed"
        # Not every system keeps results, and kue none that JavaScript takes for false.
        assert not job.result or json.loads(job.result) == stored
    assert story.system.findings(story.server) == []


def raising(*_):
    raise LookupError("no such customer\nat all")


def test_a_task_that_raises_fails_its_job_with_message_and_traceback(story):
    story.task(raising)
    job_id = story.put()
    ended = story.run()
    assert ended.outcome in ("failed", "removed", *AGAIN)
    assert isinstance(raised(ended), LookupError)
    job = story.job(job_id)
    if job is not None and job.error:
        assert "no such customer" in job.error
    assert story.system.findings(story.server) == []


def test_attempts_that_are_left_are_the_systems_to_give(story):
    if not story.system.tries_again:
        pytest.skip(f"{story.system} tries nothing again by itself")
    story.task(raising)
    story.put(attempts=3)
    outcomes = []
    for _ in range(3):
        (job,) = story.client.take(QUEUE, now=story.later())
        outcomes.append(story.run(job).outcome)
    assert [outcome in AGAIN for outcome in outcomes] == [True, True, False]
    assert outcomes[-1] == "failed"


# self.retry


def test_a_retry_is_one_transition_of_the_same_job(story):
    def task(self, _payload):
        try:
            raise LookupError("not yet")
        except LookupError as error:
            raise self.retry(exc=error, countdown=0) from error

    story.task(task)
    story.put(attempts=3)
    job = story.take()
    ended = story.run(job)
    assert ended.outcome in AGAIN
    assert isinstance(raised(ended), Retry)
    assert story.client.size(QUEUE).held == 0
    (again,) = story.client.take(QUEUE, now=story.later())
    if not story.client.live.carries_messages:  # whose messages count their retries themselves
        assert (again.id, argument(again)["to"], again.extra) == (job.id, "a@example.com", job.extra)
    if story.system.counts_attempts:
        assert again.attempts == 1
    assert len(story.system.jobs(story.server)) == 1


def test_a_retry_with_other_arguments_changes_the_jobs_payload(story):
    def task(self, payload):
        raise self.retry(args=[{**payload, "to": "b@example.com"}], countdown=0)

    story.task(task)
    story.put(attempts=3)
    job = story.take()
    assert story.run(job).outcome in AGAIN
    (again,) = story.client.take(QUEUE, now=story.later())
    assert again.id == job.id or story.client.live.carries_messages
    assert argument(again)["to"] == "b@example.com"


def argument(job):
    """What a task is called with."""
    found = json.loads(job.payload)
    if isinstance(found, dict) and "body" in found:  # a whole message
        found = json.loads(base64.b64decode(found["body"]))[0]
    return found[0] if isinstance(found, list) else found


def test_without_an_attempt_left_a_retry_fails_the_job_as_celery_does_at_its_own_limit(story):
    if not story.system.counts_attempts:
        pytest.skip(f"{story.system} counts no attempts")

    def with_error(self, _payload):
        raise self.retry(exc=LookupError("not yet"), countdown=0, max_retries=None)

    def without(self, _payload):
        raise self.retry(countdown=0, max_retries=None)

    for task, error in ((with_error, LookupError), (without, MaxRetriesExceededError)):
        story.server.client().flushall()
        told = Story(story.system, story.server, backend=f"redis://{story.server.host}:{story.server.port}/2")
        told.task(task)
        job_id = told.put(attempts=1)
        ended = told.run()
        assert ended.outcome == "failed"
        assert isinstance(raised(ended), error)
        assert told.app.AsyncResult(told.system.task_id(job_id)).state == "FAILURE"


def test_celerys_own_limit_of_retries_raises_what_the_task_wanted_to_be_retried_for(story):
    def task(self, _payload):
        raise self.retry(exc=LookupError("not yet"), countdown=0, max_retries=0)

    story.task(task)
    story.put(attempts=1)
    ended = story.run()
    assert ended.outcome in ("failed", "removed")
    assert isinstance(raised(ended), LookupError)


@pytest.mark.parametrize("queue", [QUEUE, "other"])
def test_a_retry_of_a_job_that_is_anothers_by_now_makes_no_ghost(story, queue):
    other = story.system.client(story.server)

    def task(self, payload):
        story.client.requeue(job)
        other.take(QUEUE)
        before.update(story.keyspace())
        if queue != QUEUE:  # which is no transition of the job, so that it is not known to be lost
            ForeignRun.of(self.request).progress(1, 2, None)
            before.update(story.keyspace())
        raise self.retry(args=[payload], queue=queue, countdown=0)

    before = {}
    story.task(task)
    story.put(attempts=3)
    job = story.take()
    assert story.run(job).outcome == "lost"
    # That the queue has been declared is no ghost.
    assert {key: entry for key, entry in story.keyspace().items() if not key.startswith(b"_kombu.binding")} == {
        key: entry for key, entry in before.items() if not key.startswith(b"_kombu.binding")
    }


def test_a_retry_in_another_queue_is_a_new_job_there_and_ends_the_old_one(story):
    def task(self, _payload):
        raise self.retry(args=[{"to": "b@example.com"}], queue="other", countdown=0)

    story.task(task)
    story.put(attempts=3)
    assert story.run().outcome in ("completed", "removed")
    assert story.client.size("other").waiting == 1


# Rejects


def test_a_reject_that_requeues_has_the_job_wait_as_before(story):
    def task(_self, _payload):
        raise Reject("not now", requeue=True)

    story.task(task)
    story.put()
    job = story.take()
    assert story.run(job).outcome == "waiting"
    again = story.take()
    assert (again.id, again.attempts) == (job.id, job.attempts)


def test_a_reject_that_does_not_fails_the_job_for_good(story):
    def task(_self, _payload):
        raise Reject("never", requeue=False)

    story.task(task)
    job_id = story.put(attempts=3)
    assert story.run().outcome in ("failed", "removed")
    job = story.job(job_id)
    if job is not None:
        assert str(job.state) == "failed"
        assert job.error is None or "never" in job.error


def test_a_task_that_is_ignored_is_done(story):
    def task(_self, _payload):
        raise Ignore

    story.task(task)
    story.put()
    assert story.run().outcome in ("completed", "removed")
    assert story.client.size(QUEUE).held == 0


def test_progress_is_noted_while_the_task_runs(story):
    seen = []

    def task(self, _payload):
        self.update_state(state="PROGRESS", meta={"current": 1, "total": 4, "step": "sent"})
        seen.append(story.job(job_id))
        self.update_state(state="PROGRESS", meta="half")
        self.update_state(state="OTHER", meta={"current": 4, "total": 4})

    story.task(task)
    job_id = story.put()
    assert story.run().outcome in ("completed", "removed")
    assert seen[0] is None or seen[0].progress in (0.25, None, 0.0)


def test_the_end_of_a_job_that_is_anothers_by_now_writes_nothing(story, caplog):
    other = story.system.client(story.server)

    def task(_self, _payload):
        story.client.requeue(job)
        assert [each.id for each in other.take(QUEUE)] == [job.id]
        before.update(dump(story.server.client()))
        return "done"

    before = {}
    story.task(task)
    story.put()
    job = story.take()
    ended = story.run(job)
    assert ended.outcome == "lost"
    assert dump(story.server.client()) == before
    assert [record.getMessage() for record in caplog.records if "taken away" in record.getMessage()] != []
    assert other.complete(job) != "lost"
    for client in (story.client, other):
        client.close()
    assert side_keys(story.server.client()) == set()


# A result backend of the user's own


@pytest.fixture
def told(system, server):
    """A story whose app has a result backend on the same server."""
    return Story(system, server, backend=f"redis://{server.host}:{server.port}/2")


def test_the_users_backend_learns_the_result_under_the_jobs_id(told):
    told.task(lambda _, payload: {"sent": payload["to"]})
    job_id = told.put()
    told.run()
    result = told.app.AsyncResult(told.system.task_id(job_id))
    assert (result.state, result.result) == ("SUCCESS", {"sent": "a@example.com"})


def test_progress_goes_to_both(told):
    states = []

    def task(self, _payload):
        self.update_state(state="PROGRESS", meta={"current": 1, "total": 2})
        result = told.app.AsyncResult(self.request.id)
        states.append((result.state, result.info))

    told.task(task)
    told.put()
    told.run()
    assert states == [("PROGRESS", {"current": 1, "total": 2})]


def test_the_users_backend_sees_a_failure_when_no_attempt_is_left(told):
    if not told.system.tries_again:
        pytest.skip(f"{told.system} tries nothing again by itself")
    told.task(raising)
    job_id = told.put(attempts=2)
    result = told.app.AsyncResult(told.system.task_id(job_id))
    states = []
    for _ in range(2):
        (job,) = told.client.take(QUEUE, now=told.later())
        told.run(job)
        states.append(result.state)
    assert states == ["RETRY", "FAILURE"]
    assert isinstance(result.result, LookupError)


def test_a_backend_that_is_a_tasks_own_is_kept(told):
    own = told.app.backend
    told.app.task(name=QUEUE, shared=False, backend=own, bind=True)(raising)
    job_id = told.put()
    assert told.run().outcome is not None
    assert told.app.AsyncResult(told.system.task_id(job_id)).state in ("FAILURE", "RETRY")
    assert isinstance(told.app.tasks[QUEUE].backend, type(own))


# Servers that are away


def test_an_end_waits_for_a_connection_that_was_cut(story):
    def task(self, _payload):
        ForeignRun.of(self.request).progress(1, 2, None)
        story.server.client().client_kill_filter(_type="normal", skipme=True)
        return "done"

    story.task(task)
    story.put()
    assert story.run().outcome in ("completed", "removed")
    assert story.client.size(QUEUE).held == 0


def test_an_end_that_can_not_be_written_is_the_main_processs_to_see_to(story, caplog, monkeypatch):
    monkeypatch.setattr(foreign_run, "BRIEFLY", 0.0)

    def task(self, _payload):
        run = ForeignRun.of(self.request)
        run._address = Address.parse(f"ferryman://127.0.0.1:1/0?family={story.system.family}")
        run.is_running = False  # so that it gives up soon
        return "done"

    story.task(task)
    story.put()
    ended = story.run()
    assert ended.outcome is None
    assert ended[0] == 0
    assert "its result can't be written" in caplog.text
    assert story.client.size(QUEUE).held == 1
