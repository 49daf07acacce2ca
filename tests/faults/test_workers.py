"""What workers must live through that is no fault of their connections: a full server, delayed tasks by the thousand, tasks that
kill their worker, long tasks beside short ones.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import ferryman.transport  # noqa: F401 - registers the URL schemes
import pytest
from ferryman.schema.connection.call import run
from ferryman.schema.native import codec
from ferryman.schema.native.scripts.publication import Publication
from ferryman.schema.native.scripts.queue_scripts import QueueScripts
from kombu.exceptions import OperationalError

from ..support.servers import Server
from ..support.topologies import wait_until
from ..support.workers import Ledger, send, worker

NOTE = "tests.support.tasks.note"
NAP = "tests.support.tasks.nap"
HOLD = "tests.support.tasks.hold"
POISON = "tests.support.tasks.poison"


@pytest.fixture
def ledger(server: Server) -> Ledger:
    return Ledger(server)


def test_a_worker_drains_a_full_server_and_lives_on(kind, server, ledger, tmp_path):
    (tmp_path / "full").mkdir()
    with kind.start(tmp_path / "full") as full, full.client() as client:
        send(full, [(NOTE, [n], {}) for n in range(50)])
        client.config_set("maxmemory", "100kb")
        with pytest.raises(OperationalError, match="maxmemory"):
            send(full, [(NOTE, ["too much"], {"retry": False})])
        with worker(server, tmp_path, broker=full.url()) as running:
            ledger.wait_for("run", 50)
            client.config_set("maxmemory", "0")
            send(full, [(NOTE, ["room again"], {})])
            ledger.wait_for("run", 51)
            assert running.process.poll() is None
    assert Counter(ledger.names("run")) == Counter([*range(50), "room again"])


def test_a_countdown_of_many_leases_runs_once_and_in_time_though_a_worker_dies_meanwhile(server, ledger, tmp_path):
    lease = 1.5
    with (
        worker(server, tmp_path, name="one", pool="solo", lease=lease, late=1),
        worker(server, tmp_path, name="two", pool="threads", lease=lease, late=1),
        worker(server, tmp_path, name="three", pool="threads", lease=lease, late=1) as doomed,
    ):
        sending = time.time()
        send(server, [(NOTE, [n], {"countdown": 10 * lease}) for n in range(6)])
        sent = time.time()
        time.sleep(3 * lease)
        doomed.kill()
        lines = ledger.wait_for("run", 6)
        time.sleep(2 * lease)
    assert sorted(ledger.names("run")) == list(range(6))
    assert all(sending - 0.5 < line["at"] - 10 * lease < sent + 10 for line in lines if line["event"] == "run")


@pytest.mark.parametrize("delayed", [30_000, pytest.param(1_000_000, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
def test_delayed_tasks_by_the_thousand_wait_in_redis_and_neither_fill_nor_slow_a_worker(
    server, ledger, client, tmp_path, delayed
):
    scripts = QueueScripts()
    frame = codec.encode({"headers": {"task": NOTE, "id": "x", "lang": "py"}, "properties": {}}, b"[[], {}, {}]")
    in_an_hour = round(time.time() * 1000) + 3_600_000
    with worker(server, tmp_path, concurrency=1) as running:
        before = resident_megabytes(running.process.pid)
        for first in range(0, delayed, 1000):
            batch = [Publication(f"p-{n}", frame, due_ms=in_an_hour) for n in range(first, first + 1000)]
            run(client, scripts.publish("celery", "p", batch, create=True))
        send(server, [(NOTE, ["soon"], {"countdown": 1}), (NOTE, ["now"], {})])
        lines = ledger.wait_for("run", 2)
        assert [line["name"] for line in lines] == ["now", "soon"]
        size = run(client, scripts.size("celery"))
        assert (size.scheduled, size.held) == (delayed, 0)
        assert resident_megabytes(running.process.pid) - before < 20


def resident_megabytes(pid: int) -> float:
    """Memory that a process has in use."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / 1_000_000


def test_a_task_that_kills_its_worker_again_and_again_becomes_a_dead_letter(server, ledger, client, tmp_path):
    url = server.url(delivery_limit=2)
    send(server, [(POISON, ["poison"], {})])
    for n in range(2):
        with worker(server, tmp_path, name=f"victim{n}", broker=url, late=1, lease=1, concurrency=1) as victim:
            assert victim.process.wait(120) < 0
    with worker(server, tmp_path, name="survivor", broker=url, late=1, lease=1):
        wait_until(lambda: client.zcard("ferryman:{celery}:dead") == 1)
        send(server, [(NOTE, ["others"], {})])
        ledger.wait_for("run", 1)
    (job_id,) = client.zrange("ferryman:{celery}:dead", 0, -1)
    job = client.hgetall(b"ferryman:{celery}:job:" + job_id)
    assert job[b"reason"] == b"delivery_limit"
    assert b"2 times" in job[b"error"]
    poisoned = [line for line in ledger.lines() if line["event"] == "poison"]
    assert [line["before"] for line in poisoned] == [0, 1], "the task can see how often it was tried before"


def test_no_short_task_waits_behind_a_long_one(server, ledger, tmp_path):
    with (
        worker(server, tmp_path, name="one", concurrency=1, prefetch=1, late=1),
        worker(server, tmp_path, name="two", concurrency=1, prefetch=1, late=1),
    ):
        send(server, [(HOLD, ["long"], {}), *((NAP, [n, 0.1], {}) for n in range(10))])
        ledger.wait_for("end", 10)
        assert "long" not in ledger.names("end")
        ledger.let_go("long")
        ledger.wait_for("end", 11)


@pytest.mark.parametrize(("pool", "late"), [("prefork", 1), ("threads", 0)])
def test_a_worker_without_prefetch_holds_no_more_than_it_works_on(server, ledger, client, tmp_path, pool, late):
    queues = ["celery", "other"]
    for queue in queues:
        send(server, [(NAP, [n, 0.5], {"queue": queue}) for n in range(4)])
    settings = {"late": late, "queues": ",".join(queues), "options": ["--disable-prefetch"]}
    with worker(server, tmp_path, pool=pool, concurrency=2, **settings):
        most = 0
        while len(ledger.names("end")) < 8:
            waiting = sum(client.zcard(f"ferryman:{{{queue}}}:waiting") for queue in queues)
            most = max(most, 8 - waiting - len(ledger.names("end")))
            time.sleep(0.02)
    assert most == 2


@pytest.mark.parametrize("pings", [50, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])])
def test_every_ping_is_answered_while_the_workers_are_busy_and_other_keys_are_evicted(kind, server, ledger, tmp_path, pings):
    """Eviction of keys that expire takes the least recently used: others' caches, not the replies under way."""
    from celery import Celery

    (tmp_path / "full").mkdir()
    with (
        kind.start(tmp_path / "full", "--maxmemory-policy", "volatile-lru", "--maxmemory-samples", "64") as full,
        full.client() as client,
        worker(server, tmp_path, name="one", broker=full.url()),
        worker(server, tmp_path, name="two", broker=full.url(), pool="threads"),
        Celery(broker=full.url()) as app,
    ):
        for n in range(1000):
            client.set(f"cache:{n}", b"x" * 20_000, ex=3600)
        wait_until(lambda: client.object("idletime", "cache:999") >= 3)  # the server counts whole seconds
        client.config_set("maxmemory", client.info("memory")["used_memory"])
        names = ["one@test", "two@test"]
        for n in range(pings):
            client.set(f"cache:{n % 1000}", b"x" * 20_000, ex=3600)
            app.send_task(NAP, [n, 0.02])
            replies = app.control.ping(destination=names, timeout=60)
            assert sorted(name for reply in replies for name in reply) == names
        evicted = client.info("stats")["evicted_keys"]
        ledger.wait_for("end", pings)
    assert evicted > 0
