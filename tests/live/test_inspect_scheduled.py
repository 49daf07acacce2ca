"""``celery inspect scheduled`` lists another system's delayed jobs as those of ferryman's own queues, if the system delays."""

from __future__ import annotations

import datetime
import json

import pytest
from ferryman.schema.connection.call import run
from ferryman.transport.celery import scheduled_tasks

from ..support.foreign_brokers import QUEUE, ForeignBroker, publish
from ..support.live_systems import SYSTEMS
from ..support.workers import celery, worker

pytestmark = pytest.mark.in_turn

DELAYING = [system for system in SYSTEMS if system.live.can_delay and not system.live.carries_messages]
HOUR = 3_600_000


@pytest.fixture(params=DELAYING, ids=str)
def broker(request, server) -> ForeignBroker:
    return ForeignBroker(request.param, server)


def entries(connection, queues, limit=100):
    """What a worker of these queues would list."""
    session = connection.ensure_connection().transport.session
    return list(scheduled_tasks.upcoming(session, queues, limit, "w1@test"))


def ids(connection, queues, limit=100):
    return [entry["request"]["id"] for entry in entries(connection, queues, limit)]


def test_the_next_ones_come_first_and_no_more_than_were_asked_for(broker):
    for queue in (QUEUE, "other"):
        broker.put({"at once": 1}, queue)
    jobs = {hours: broker.put({"in": hours}, delay_ms=hours * HOUR) for hours in (3, 1, 2)}
    later = broker.put({"in": 4}, "other", delay_ms=4 * HOUR)
    with broker.connection() as connection:
        expected = [broker.system.task_id(job_id) for job_id in (jobs[1], jobs[2], jobs[3], later)]
        assert ids(connection, [QUEUE, "other", "nobody's"]) == expected
        assert ids(connection, [QUEUE], 2) == expected[:2]
        assert ids(connection, ["other"]) == expected[3:]
        assert ids(connection, [QUEUE], 0) == []
    assert broker.size().scheduled == 3


def test_an_entry_tells_what_the_task_will_be(broker):
    with broker.connection() as connection:
        publish(connection, [{"n": 1}], headers={"id": "uuid", "x-delay": HOUR, "argsrepr": "({'n': 1},)", "kwargsrepr": "{}"})
        (entry,) = entries(connection, [QUEUE])
    request = entry["request"]
    assert (request["id"], request["type"], request["name"], request["args"]) == ("uuid", QUEUE, QUEUE, "({'n': 1},)")
    assert (request["hostname"], request["time_start"], request["acknowledged"]) == ("w1@test", None, False)
    assert request["delivery_info"]["routing_key"] == QUEUE
    with broker.server.client() as client:
        seconds, _ = client.time()
        (upcoming,) = run(client, broker.system.live.upcoming(QUEUE, 10))
    assert abs(upcoming.due_ms - (seconds * 1000 + HOUR)) < 60_000
    assert datetime.datetime.fromisoformat(entry["eta"]).timestamp() * 1000 == pytest.approx(upcoming.due_ms)


def test_large_payloads_are_not_all_read_but_one_at_least(broker):
    for n in range(3):
        broker.put({"text": "x" * 20_000}, delay_ms=HOUR + n * 1000)
    live = broker.system.live
    with broker.server.client() as client:
        assert [len(run(client, live.upcoming(QUEUE, 10, fetch_bytes=size))) for size in (10, 30_000, 90_000)] == [1, 1, 3]


def test_a_worker_lists_them(broker, tmp_path):
    job_id = broker.put({"name": "later", "do": "return"}, "story", delay_ms=HOUR)
    url = broker.url()
    with worker(broker.server, tmp_path, app="tests.support.foreign_tasks", queues="story", broker=url, pool="threads"):
        outcome = celery(broker.server, "inspect", "scheduled", "-d", "w1@test", "--json", "--timeout", "60", broker=url)
        assert outcome.returncode == 0, outcome.stdout + outcome.stderr
        (entry,) = json.loads(outcome.stdout)["w1@test"]
        assert (entry["request"]["id"], entry["waiting_in_broker"]) == (broker.system.task_id(job_id), True)


@pytest.mark.parametrize("system", [system for system in SYSTEMS if system not in DELAYING], ids=str)
def test_a_system_that_holds_nothing_until_its_time_lists_nothing(server, system):
    assert system.live.upcoming(QUEUE, 10) is None
    with ForeignBroker(system, server).connection() as connection:
        assert entries(connection, [QUEUE]) == []
