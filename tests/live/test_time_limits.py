"""Hard time limits of jobs that have attempts left: the result, errbacks and chords hear of the last one, once."""

from __future__ import annotations

import pytest
from billiard.exceptions import TimeLimitExceeded
from celery import Celery, chord
from celery.exceptions import ChordError

from ..conftest import SERVERS
from ..support.foreign_brokers import ForeignBroker
from ..support.live_systems import SYSTEMS, side_keys
from ..support.topologies import wait_until
from ..support.workers import Ledger, worker

APP = "tests.support.foreign_tasks"
TRYING_AGAIN = [system for system in SYSTEMS if system.family in ("kue", "bee")]
"""kickq tries a run that took too long again as well, but pauses for half an hour before that."""
RUNS = 3
QUEUES = ("hasty", "hasty_late", "story")


@pytest.fixture(scope="module")
def one_server(tmp_path_factory):
    with SERVERS[0].start(tmp_path_factory.mktemp("live")) as server:
        yield server


@pytest.fixture
def server(one_server):
    one_server.client().flushall()
    return one_server


@pytest.mark.parametrize("system", TRYING_AGAIN, ids=str)
def test_a_hard_time_limit_is_a_failure_at_the_last_attempt_only(system, server, tmp_path):
    ledger, backend = Ledger(server), f"redis://{server.host}:{server.port}/2"
    mapping = tmp_path / "mapping.toml"
    backoff = "backoff = 0\n" if system.family == "bee" else ""
    mapping.write_text("".join(f"[queue.{name}]\nattempts = {RUNS}\n{backoff}" for name in QUEUES[:2]))
    broker = ForeignBroker(system, server)
    url = broker.url(mapping=mapping)
    with Celery(broker=url, backend=backend, set_as_current=False) as app:
        tasks = [
            app.signature(name, [{"name": name, "do": "hang", "seconds": 100}], queue=name, link_error=[note_error(app)])
            for name in QUEUES[:2]
        ]
        with worker(server, tmp_path, app=APP, queues=",".join(QUEUES), broker=url, backend=backend) as running:
            sent = [task.apply_async() for task in tasks]
            ledger.wait_for("errback", 2, seconds=25)
            total = app.signature("total", queue="story")
            hanging = app.signature("hasty", [{"name": "chord", "do": "hang", "seconds": 100}], queue="hasty")
            result = chord([hanging, app.signature("add", [1, 2], queue="story")], total).apply_async()
            with pytest.raises((ChordError, TimeLimitExceeded)):
                result.get(timeout=25)
            wait_until(lambda: not any(broker.size(name).held + broker.size(name).waiting for name in QUEUES))
            assert running.stop() == 0
        assert [task.state for task in sent] == ["FAILURE"] * 2
    for name in (*QUEUES[:2], "chord"):
        assert ledger.names("start").count(name) == RUNS
    assert sorted(ledger.names("errback")) == sorted(task.id for task in sent)
    assert side_keys(server.client()) == set()


def note_error(app):
    return app.signature("note_error", queue="story")
