"""Half a surrogate pair in a message, as in a file name from ``os.fsdecode``: JSON escapes it, and every worker runs the task."""

from __future__ import annotations

import os

import pytest
from celery import Celery

from ..conftest import SERVERS
from ..support.foreign_brokers import ForeignBroker
from ..support.live_systems import SYSTEMS, side_keys
from ..support.topologies import wait_until
from ..support.workers import Ledger, worker

APP, QUEUE = "tests.support.foreign_tasks", "story"
NAME = os.fsdecode(b"caf\xe9 \xf0\x9f\x98\x80 \\.txt")
"""Half a pair, a whole one, and a backslash."""
PAYLOAD = {"name": NAME, "do": "return", "value": NAME}


@pytest.fixture(scope="module")
def one_server(tmp_path_factory):
    with SERVERS[0].start(tmp_path_factory.mktemp("live")) as server:
        yield server


@pytest.fixture
def server(one_server):
    one_server.client().flushall()
    return one_server


def test_a_message_that_is_not_strict_json_holds_up_no_other(server, tmp_path):
    (kombu,) = [system for system in SYSTEMS if system.family == "kombu"]
    broker, ledger = ForeignBroker(kombu, server), Ledger(server)
    with Celery(broker=f"redis://{server.host}:{server.port}/0", set_as_current=False) as stock:
        for n in range(3):
            stock.send_task("story", [{"name": n, "do": "return"}], queue=QUEUE, headers={"number": 123456})
    with server.client() as client:
        last, control, nan = client.lrange(QUEUE, 0, -1)
        client.delete(QUEUE)
        odd = [nan.replace(b"123456", b"NaN"), control.replace(b"123456", b'"\x01"')]
        client.rpush(QUEUE, last, *reversed(odd))
        with worker(server, tmp_path, app=APP, queues=QUEUE, broker=broker.url()) as running:
            ledger.wait_for("end", 2, seconds=30)
            wait_until(lambda: not broker.size(QUEUE).held)
            assert running.stop() == 0
        assert client.lrange(QUEUE, 0, -1) == [odd[1]]
    assert sorted(ledger.names("end")) == [0, 2]
    assert [finding.rule for finding in kombu.findings(server)] == ["KOMBU-1"]


@pytest.mark.parametrize("system", [system for system in SYSTEMS if system.family != "bee"], ids=str)
def test_a_task_with_half_a_pair_in_its_arguments_runs_and_returns_it(system, server, tmp_path):
    broker, ledger = ForeignBroker(system, server), Ledger(server)
    backend = f"redis://{server.host}:{server.port}/2"
    system.put(system.client(server), QUEUE, PAYLOAD)
    with Celery(broker=broker.url(), backend=backend, set_as_current=False) as app:
        sent = [
            app.send_task("story", [PAYLOAD], queue=QUEUE, headers={"file": NAME}),
            app.send_task("story", [PAYLOAD], queue=QUEUE),
        ]
        if system.family == "kombu":
            with Celery(broker=f"redis://{server.host}:{server.port}/0", backend=backend, set_as_current=False) as stock:
                options = {"queue": QUEUE, "headers": {"file": NAME}, "argsrepr": NAME}
                sent.append(stock.send_task("story", [PAYLOAD], **options))
        with worker(server, tmp_path, app=APP, queues=QUEUE, broker=broker.url(), backend=backend) as running:
            ledger.wait_for("end", 1 + len(sent), seconds=30)
            wait_until(lambda: not broker.size(QUEUE).held)
            assert [task.get(timeout=60) for task in sent] == [NAME] * len(sent)
            assert running.stop() == 0
    assert set(ledger.names("end")) == {NAME}
    assert side_keys(server.client()) == set()
    assert system.findings(server) == []
    assert "Traceback" not in running.log.read_text()
