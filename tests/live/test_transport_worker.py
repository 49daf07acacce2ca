"""Real Celery workers on another system's keyspace: what they take, when, and what becomes of it when they go."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest
from celery import Celery

from ..conftest import SERVERS
from ..support.foreign_brokers import ForeignBroker
from ..support.live_systems import SYSTEMS, side_keys
from ..support.payload_tasks import QUEUE
from ..support.proxy import proxy
from ..support.topologies import wait_until
from ..support.workers import Ledger, celery, wait_until_active, worker

APP = "tests.support.payload_tasks"


@pytest.fixture(scope="module")
def one_server(tmp_path_factory):
    with SERVERS[0].start(tmp_path_factory.mktemp("live")) as server:
        yield server


@pytest.fixture
def server(one_server):
    one_server.client().flushall()
    return one_server


@pytest.fixture(params=SYSTEMS, ids=str)
def broker(request, server) -> ForeignBroker:
    return ForeignBroker(request.param, server)


@pytest.fixture
def kue(server) -> ForeignBroker:
    (system,) = [system for system in SYSTEMS if system.family == "kue"]
    return ForeignBroker(system, server)


def running(broker, folder, where=None, **more):
    settings = {"app": APP, "queues": QUEUE, "broker": broker.url(where, **more.pop("url", {})), **more}
    return worker(broker.server, folder, **settings)


@contextlib.contextmanager
def most_held(broker):
    """Looks again and again how many jobs are held; gives a list of those numbers."""
    found, over = [], threading.Event()

    def look():
        while not over.wait(0.02):
            found.append(broker.size(QUEUE).held)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


def wait_until_empty(broker, seconds=120.0):
    deadline = time.monotonic() + seconds
    while (size := broker.size(QUEUE)).waiting + size.held:
        assert time.monotonic() < deadline, size
        time.sleep(0.05)


def test_a_worker_takes_no_job_before_a_process_is_free_to_begin_it(broker, tmp_path):
    ledger = Ledger(broker.server)
    with running(broker, tmp_path, concurrency=2) as celery_worker, most_held(broker) as held:
        for n in range(8):
            broker.put({"name": n, "seconds": 0.15, "holds": True}, QUEUE)
        ledger.wait_for("start", 2)
        wait_until(lambda: 2 in held)
        ledger.let_go()
        ledger.wait_for("end", 8)
        wait_until_empty(broker)
        with Celery(broker=broker.url()) as app:
            app.send_task("other", [1, 2], {"k": 3}, queue=QUEUE)
        assert ledger.wait_for("other", 1)[-1]["name"] == [[1, 2], {"k": 3}]
        wait_until_empty(broker)
        assert celery_worker.stop() == 0
    assert sorted(ledger.names("start")) == list(range(8))
    assert max(held) == 2
    assert side_keys(broker.server.client()) == set()
    assert "Traceback" not in celery_worker.log.read_text()


@pytest.mark.parametrize("pool", ["threads", "solo", "gevent"])
def test_so_it_is_on_other_pools(kue, tmp_path, pool):
    ledger = Ledger(kue.server)
    concurrency = 1 if pool == "solo" else 2
    with running(kue, tmp_path, pool=pool, concurrency=concurrency) as celery_worker, most_held(kue) as held:
        for n in range(6):
            kue.put({"name": n, "seconds": 0.15, "holds": True}, QUEUE)
        ledger.wait_for("start", concurrency)
        wait_until(lambda: concurrency in held)
        ledger.let_go()
        ledger.wait_for("end", 6)
        wait_until_empty(kue)
        celery_worker.stop()
    assert sorted(ledger.names("start")) == list(range(6))
    assert max(held) == concurrency


def test_a_pool_that_grows_by_need_grows_for_jobs_that_wait(kue, tmp_path):
    ledger = Ledger(kue.server)
    for n in range(8):
        kue.put({"name": n, "holds": True}, QUEUE)
    with most_held(kue) as held, running(kue, tmp_path, options=("--autoscale=4,1",)):
        ledger.wait_for("start", 4)
        ledger.let_go()
        ledger.wait_for("end", 8)
        wait_until_empty(kue)
    assert sorted(ledger.names("start")) == list(range(8))
    assert 2 <= max(held) <= 4


def test_a_job_whose_task_nobody_here_knows_stays_for_others_and_one_warning_names_it(kue, tmp_path):
    for n in range(3):
        kue.put({"name": n}, "audit")
    with Celery(broker=kue.url()) as app:
        app.send_task("unknown.task", [1], queue=QUEUE)
    ledger = Ledger(kue.server)
    with running(kue, tmp_path, queues=f"{QUEUE},audit") as celery_worker:
        kue.put({"name": 1}, QUEUE)
        ledger.wait_for("end", 1)
        celery_worker.wait_until_logged(b"'audit'")
        celery_worker.stop()
    assert (kue.size("audit").waiting, kue.size(QUEUE).waiting) == (3, 1)
    said = [line for line in celery_worker.log.read_text().splitlines() if "knows no such task" in line]
    assert len([line for line in said if "'audit'" in line]) == 1


@pytest.mark.parametrize(
    ("system", "late"), [*((system, 0) for system in SYSTEMS), *((system, 1) for system in SYSTEMS if system.family == "kue")]
)
def test_a_warm_shutdown_ends_what_runs_and_leaves_all_else_waiting(server, tmp_path, system, late):
    broker = ForeignBroker(system, server)
    ledger = Ledger(broker.server)
    with running(broker, tmp_path, concurrency=2, late=late, level="DEBUG") as celery_worker:
        for n in range(5):
            broker.put({"name": n, "holds": True}, QUEUE)
        ledger.wait_for("start", 2)
        celery_worker.stop_with(ledger)
    assert len(ledger.names("end")) == len(ledger.names("start")) == 2
    assert (broker.size(QUEUE).waiting, broker.size(QUEUE).held) == (3, 0)
    assert side_keys(broker.server.client()) == set()


def test_what_a_killed_worker_had_begun_runs_again(kue, tmp_path):
    ledger = Ledger(kue.server)
    with running(kue, tmp_path, concurrency=2, name="w1", url={"lease": 2}, lease=2) as first:
        for n in range(4):
            kue.put({"name": n, "holds": True}, QUEUE)
        ledger.wait_for("start", 2)
        first.kill()
    ledger.let_go()
    with running(kue, tmp_path, concurrency=2, name="w2"):
        ledger.wait_for("end", 4)
        wait_until_empty(kue)
    assert sorted(set(ledger.names("end"))) == list(range(4))
    assert len(ledger.names("end")) == 4


def test_a_lost_connection_ends_no_task_and_runs_none_twice(broker, tmp_path):
    ledger = Ledger(broker.server)
    with proxy(broker.server) as between, running(broker, tmp_path, between, concurrency=2) as held_up:
        for n in range(5):
            broker.put({"name": n, "holds": n < 2}, QUEUE)
        ledger.wait_for("start", 2)
        wait_until_active(broker.url(), 2)
        between.break_all()
        held_up.wait_until_logged(b"Connected to", times=2)
        ledger.let_go()
        ledger.wait_for("end", 5)
        wait_until_empty(broker)
        held_up.stop()
    assert sorted(ledger.names("start")) == list(range(5))
    assert side_keys(broker.server.client()) == set()


def test_a_task_whose_job_the_original_takes_away_is_stopped(kue, tmp_path):
    ledger = Ledger(kue.server)
    job_id = kue.put({"name": 1, "seconds": 60}, QUEUE)
    with running(kue, tmp_path, concurrency=1, url={"lease": 4}, lease=4) as celery_worker, kue.server.client() as client:
        ledger.wait_for("start", 1)
        for index in ("q:jobs", "q:jobs:active", f"q:jobs:{QUEUE}:active"):
            for member in client.zrange(index, 0, -1):
                client.zrem(index, member)
        client.delete(f"q:job:{job_id}", f"q:job:{job_id}:log")
        kue.put({"name": 2}, QUEUE)
        assert ledger.wait_for("end", 1)[-1]["name"] == 2
        celery_worker.stop()
    assert not client.exists(f"q:job:{job_id}")
    assert side_keys(kue.server.client()) == set()


def test_a_chain_goes_on_with_what_its_tasks_return_and_its_options(broker, tmp_path):
    ledger = Ledger(broker.server)
    with running(broker, tmp_path), Celery(broker=broker.url()) as app:
        first = app.signature("work", [{"name": 1}], queue=QUEUE)
        then = app.signature("other", [2], {"k": 3}, queue=QUEUE)
        (first | then).apply_async(link_error=[])
        assert ledger.wait_for("other", 1)[-1]["name"] == [[1, 2], {"k": 3}]
        wait_until_empty(broker)
    assert ledger.names("end") == [1]


def test_a_task_that_has_expired_or_was_revoked_does_not_run(kue, tmp_path):
    ledger = Ledger(kue.server)
    with Celery(broker=kue.url()) as app:
        app.send_task("other", [1], queue=QUEUE, expires=0.1)
        time.sleep(0.2)  # its own clock decides
        revoked = app.send_task("other", [2], queue=QUEUE)
        app.control.revoke(revoked.id)
        assert kue.size(QUEUE).waiting == 1
        app.send_task("other", [3], queue=QUEUE)
        with running(kue, tmp_path):
            ledger.wait_for("other", 1)
            wait_until_empty(kue)
    assert ledger.names("other") == [[[3], {}]]


def test_queues_can_be_added_and_left_at_run_time(kue, tmp_path):
    ledger = Ledger(kue.server)
    kue.put({"name": 1}, "more")
    mapping = tmp_path / "mapping.toml"
    mapping.write_text(f'[queue."*"]\ntasks = {{ more = "{QUEUE}" }}\n')
    with running(kue, tmp_path, url={"mapping": mapping}), Celery(broker=kue.url()) as app:
        app.control.add_consumer("more", reply=True, timeout=60, destination=["w1@test"])
        ledger.wait_for("end", 1)
        app.control.cancel_consumer("more", reply=True, timeout=60, destination=["w1@test"])
        kue.put({"name": 2}, "more")
        kue.put({"name": 3}, QUEUE)
        ledger.wait_for("end", 2)
        assert app.control.inspect(["w1@test"], timeout=60).ping()
    assert (ledger.names("end"), kue.size("more").waiting) == ([1, 3], 1)


def test_celerys_command_line_shows_and_purges_the_systems_queues(broker):
    for n in range(3):
        broker.put({"name": n}, QUEUE)
    url = broker.url(lease=5, side_prefix="mine")
    shown = celery(broker.server, "ferryman", "queues", "--format", "json", broker=url)
    assert (shown.returncode, f'"{QUEUE}"' in shown.stdout) == (0, True), shown.stderr
    purged = celery(broker.server, "purge", "-f", "-Q", QUEUE, broker=url)
    assert "Purged 3 messages" in purged.stdout
    assert broker.size(QUEUE).waiting == 0


def test_a_task_that_is_longer_than_its_lease_runs_once(kue, tmp_path):
    ledger = Ledger(kue.server)
    kue.put({"name": 1, "seconds": 7.0}, QUEUE)
    with (
        running(kue, tmp_path, name="w1", url={"lease": 4}, lease=4),
        running(kue, tmp_path, name="w2", url={"lease": 4}, lease=4),
    ):
        ledger.wait_for("end", 1)
        wait_until_empty(kue)
    assert ledger.names("start") == [1]


def test_a_worker_that_is_refused_says_so_and_ends(server, tmp_path):
    with server.client() as client:
        client.set("q:jobs", "no zset")
        client.sadd("q:job:types", "mail")
        client.set("q:ids", "1")
    (system,) = [system for system in SYSTEMS if system.family == "kickq"]
    refused = ForeignBroker(system, server).url().replace(f"prefix={system.prefix}", "prefix=q")
    with pytest.raises(AssertionError, match="did not say"), worker(server, tmp_path, app=APP, broker=refused):
        pass
    assert "KeyspaceRefused" in (tmp_path / "w1.log").read_text()
