"""A job that is taken away from a worker and taken again by the same one: the first run ends nothing, and is stopped."""

from __future__ import annotations

import contextlib

import pytest
from celery import Celery
from ferryman.compat.qless.client import QlessClient
from ferryman.schema.connection.call import run

from ..conftest import SERVERS
from ..support.foreign_brokers import ForeignBroker
from ..support.live_systems import SYSTEMS, side_keys
from ..support.topologies import wait_until
from ..support.workers import Ledger, worker

APP, QUEUE = "tests.support.foreign_tasks", "story"
BY_FAMILY = {system.family: system for system in SYSTEMS}


@pytest.fixture(scope="module")
def one_server(tmp_path_factory):
    with SERVERS[0].start(tmp_path_factory.mktemp("live")) as server:
        yield server


@pytest.fixture
def server(one_server):
    one_server.client().flushall()
    return one_server


def take_away(system, client, job_id):
    """Has a held job wait again without its worker: as the system's own programs do, or by the consumer's own transition."""
    match system.family:
        case "kue":  # job.inactive()
            (member,) = client.zrange("q:jobs:active", 0, -1)
            with client.pipeline() as pipe:
                for index in ("q:jobs", f"q:jobs:{QUEUE}"):
                    pipe.zrem(f"{index}:active", member)
                    pipe.zadd(f"{index}:inactive", {member: 0})
                pipe.hset(f"q:job:{job_id}", "state", "inactive")
                pipe.lpush(f"q:{QUEUE}:jobs", 1)
                pipe.execute()
        case "qless":
            assert QlessClient(client).timeout(job_id)
        case "kombu":  # a stock worker, after the visibility timeout
            ((tag, text),) = client.hgetall("unacked").items()
            client.zrem("unacked_index", tag)
            client.hdel("unacked", tag)
            client.rpush(QUEUE, b"[".join(text.split(b"[")[1:]).rsplit(b", ", 2)[0])
        case _:
            (consumers,) = client.keys(f"ferryman:live:*:consumers:{QUEUE}")
            (consumer,) = client.zrange(consumers, 0, -1)
            assert run(client, system.live.release(QUEUE, consumer.decode(), [job_id])) == 1


@contextlib.contextmanager
def taken_again(system, server, folder, **options):
    """A worker that runs one job twice at once: its first run is held up by the test, and so is its second."""
    broker, ledger = ForeignBroker(system, server), Ledger(server)
    with (
        worker(server, folder, app=APP, queues=QUEUE, broker=broker.url(), lease=30, **options) as running,
        server.client() as client,
    ):
        job_id = system.put(system.client(server), QUEUE, {"name": "one", "do": "linger"}, 3)
        ledger.wait_for("first", 1)
        take_away(system, client, job_id)
        ledger.wait_for("second", 1, seconds=15)
        yield broker, ledger, running, job_id


def is_held(broker):
    size = broker.size(QUEUE)
    return (size.waiting, size.held) == (0, 1)


def finish(broker, ledger, running, job_id):
    ledger.let_go("second")
    wait_until(lambda: not broker.size(QUEUE).held)
    assert running.stop() == 0
    job = broker.system.jobs(broker.server).get(job_id)
    if broker.system.family == "kue":  # which keeps what a job has returned
        assert job.result == b'"second"'
    assert side_keys(broker.server.client()) == set()
    assert broker.system.findings(broker.server) == []
    assert "Traceback" not in running.log.read_text()


@pytest.mark.parametrize("system", SYSTEMS, ids=str)
def test_the_first_run_is_terminated_and_the_job_is_the_second_ones(system, server, tmp_path):
    backend = f"redis://{server.host}:{server.port}/2"
    with taken_again(system, server, tmp_path, backend=backend) as (broker, ledger, running, job_id):
        running.wait_until_logged(b"its end is not written")
        ledger.let_go("first")
        assert is_held(broker)
        finish(broker, ledger, running, job_id)
        assert ledger.names("end") == ["one"]
        with Celery(backend=backend, set_as_current=False) as app:
            task_id = ledger.lines()[0]["id"]
            assert app.AsyncResult(task_id).get(timeout=60) == "second"


@pytest.mark.parametrize("pool", ["threads", "gevent"])
@pytest.mark.parametrize("family", ["kue", "qless", "kombu"])
def test_a_first_run_that_can_not_be_terminated_ends_nothing(family, server, tmp_path, pool):
    with taken_again(BY_FAMILY[family], server, tmp_path, pool=pool) as (broker, ledger, running, job_id):
        running.wait_until_logged(b"its end is not written")
        ledger.let_go("first")
        if pool == "threads":
            ledger.wait_for("end", 1)
        assert is_held(broker)
        finish(broker, ledger, running, job_id)
        assert len(ledger.names("end")) == (2 if pool == "threads" else 1)
