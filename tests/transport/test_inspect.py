"""``celery inspect scheduled``: tasks with an ETA wait in the broker, and workers list them nevertheless."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from celery import Celery
from celery.utils.timer2 import Timer
from celery.worker.control import Panel
from ferryman.transport.celery import scheduled_tasks
from kombu import Connection, Producer

from ..support.workers import celery, send, worker

pytestmark = pytest.mark.in_turn

NOTE = "tests.support.tasks.note"
POOLS = ["prefork", "threads", "solo", "gevent"]


@pytest.fixture
def transport(server):
    with Connection(server.url()) as connection:
        yield connection.ensure_connection().transport


def ids(transport, queues, limit=100):
    return [entry["request"]["id"] for entry in scheduled_tasks.upcoming(transport.session, queues, limit, "w1@test")]


@pytest.mark.parametrize("pool", POOLS)
def test_a_worker_of_any_pool_lists_what_is_scheduled_in_its_queues(server, tmp_path, pool):
    options = {"countdown": 3600, "shadow": "shown", "priority": 3}
    send(server, [(NOTE, ["far"], {"countdown": 7200, "task_id": "far"}), (NOTE, ["near"], {**options, "task_id": "near"})])
    send(server, [(NOTE, ["not its queue"], {"countdown": 60, "queue": "other"}), (NOTE, ["at once"], {"queue": "other"})])
    with worker(server, tmp_path, pool=pool) as running:
        outcome = celery(server, "inspect", "scheduled", "-d", "w1@test", "--json", "--timeout", "60")
        assert outcome.returncode == 0, outcome.stdout + outcome.stderr
        near, far = json.loads(outcome.stdout)["w1@test"]
        assert far["request"]["id"] == "far"
        assert near.pop("eta") < far["eta"]
        assert near == {
            "priority": 6,
            "waiting_in_broker": True,
            "request": {
                "id": "near",
                "name": "shown",
                "type": NOTE,
                "args": "['near']",
                "kwargs": "{}",
                "hostname": "w1@test",
                "time_start": None,
                "acknowledged": False,
                "delivery_info": {"exchange": "", "routing_key": "celery", "priority": 3, "redelivered": False},
                "worker_pid": None,
            },
        }
        assert "Traceback" not in running.log.read_text()


def test_the_next_ones_of_all_queues_come_first_and_no_more_than_were_asked_for(server, transport):
    calls = [(NOTE, [n], {"countdown": 3600 - n, "queue": f"q{n % 3}", "task_id": str(n)}) for n in range(12)]
    send(server, calls)
    queues = ["q0", "q1", "q2", "nobody's"]
    assert ids(transport, queues) == [str(n) for n in reversed(range(12))]
    assert ids(transport, queues, 5) == ["11", "10", "9", "8", "7"]
    assert ids(transport, ["q1"], 2) == ["10", "7"]
    assert ids(transport, queues, 0) == ids(transport, []) == []


def test_large_messages_are_not_all_read_but_one_at_least(server, transport, monkeypatch):
    monkeypatch.setattr(scheduled_tasks, "MAX_BYTES", 30_000)
    send(server, [(NOTE, ["x" * 20_000], {"countdown": 60 + n, "task_id": str(n)}) for n in range(3)])
    assert ids(transport, ["celery"]) == ["0"]
    monkeypatch.setattr(scheduled_tasks, "MAX_BYTES", 10)
    assert ids(transport, ["celery"]) == ["0"]


def test_what_is_no_task_is_left_out_and_a_damaged_queue_keeps_none_from_being_told(server, transport, client):
    with transport.create_channel(transport) as channel:
        Producer(channel).publish("no task", routing_key="celery", headers={"x-delay": 60_000})
    send(server, [(NOTE, [1], {"countdown": 60, "task_id": "one"})])
    client.hset("ferryman:{celery}:job:imported", mapping={"payload": b'{"to":1}', "name": b"kue.email"})
    client.zadd("ferryman:{celery}:scheduled", {"imported": 99_999_999_999_999, "gone": 99_999_999_999_998})
    client.set("ferryman:{broken}:scheduled", "no sorted set")
    assert ids(transport, ["broken", "celery"]) == ["one", "imported"]


def test_a_worker_of_another_broker_answers_as_before():
    scheduled_tasks.install()
    assert Panel.data["scheduled"] is Panel.data["dump_schedule"]
    with Celery("elsewhere", broker="memory://", set_as_current=False) as app, app.connection() as connection:
        consumer = SimpleNamespace(timer=Timer(), connection=connection, task_consumer=app.amqp.TaskConsumer(connection))
        state = SimpleNamespace(app=app, hostname="w1@test", consumer=consumer)
        assert Panel.data["scheduled"](state) == []
