"""Mixed fleets on one keyspace: stock Celery workers on ``redis://`` and consumers of ours, with deaths on both sides."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest
import redis
from celery import Celery
from ferryman.compat.kombu.client import KombuClient
from ferryman.compat.kombu.keys import Settings

from ...support.servers import Server, installed_servers
from ...support.workers import LEDGER_DB, ROOT, Ledger, Worker, worker

APP = "tests.interop.kombu.app"
QUEUE = "jobs"
Start = Callable[[Server, Path, str, float], contextlib.AbstractContextManager[Worker]]
SOON = 4.0
"""A visibility timeout after which somebody looks, s: longer than any job takes."""


@pytest.fixture(scope="module")
def fleet_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all fleets: kombu's side of this is the same on each kind."""
    with installed_servers()[-1].start(tmp_path_factory.mktemp("fleet")) as server:
        yield server


@pytest.fixture
def server(fleet_server: Server) -> Server:
    fleet_server.client().flushall()
    return fleet_server


def original(server: Server, folder: Path, name: str, visibility: float = 3600.0) -> contextlib.AbstractContextManager[Worker]:
    """A stock Celery worker."""
    return celery_worker(server, folder, name, f"redis://{server.host}:{server.port}/0", visibility)


def on_ferryman(server: Server, folder: Path, name: str, visibility: float = 3600.0) -> contextlib.AbstractContextManager[Worker]:
    """A Celery worker on our broker."""
    return celery_worker(server, folder, name, ferryman_url(server, visibility), visibility)


def ferryman_url(server: Server, visibility: float = 3600.0) -> str:
    return server.url(family="kombu", prefix="", visibility_timeout=visibility)


def celery_worker(
    server: Server, folder: Path, name: str, broker: str, visibility: float
) -> contextlib.AbstractContextManager[Worker]:
    options = ("--without-gossip", "--without-mingle", "--without-heartbeat")
    return worker(
        server, folder, name=name, app=APP, concurrency=1, options=options, queues=QUEUE, broker=broker, visibility=visibility
    )


@contextlib.contextmanager
def ours(server: Server, folder: Path, name: str, visibility: float = 3600.0, lease_ms: int = 3000) -> Iterator[Worker]:
    """A consumer of ours."""
    log = folder / f"{name}.log"
    address = f"redis://{server.host}:{server.port}"
    command = [sys.executable, "-m", "tests.interop.kombu.consumer", f"{address}/0", f"{address}/{LEDGER_DB}", QUEUE]
    command += [str(visibility), str(lease_ms), ""]
    with log.open("ab") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output, start_new_session=True, env=dict(os.environ))
    running = Worker(process, name, log)
    try:
        running.wait_until_ready()
        yield running
    finally:
        running.kill()


def celery(server: Server) -> Celery:
    """A stock producer."""
    return Celery(broker=f"redis://{server.host}:{server.port}/0", set_as_current=False)


def client_of(server: Server, visibility: float = 3600.0) -> KombuClient:
    return KombuClient(server.client(), settings=Settings(visibility_timeout=visibility))


def started(ledger: Ledger, side: str) -> int:
    return sum(line["event"] == "start" and line["side"] == side for line in ledger.lines())


def begun(ledger: Ledger, names: Collection[str]) -> dict[int, str]:
    """The processes that have begun one of these jobs, and their side."""
    return {line["pid"]: line["side"] for line in ledger.lines() if line["event"] == "start" and line["name"] in names}


def ends(ledger: Ledger) -> Counter[str]:
    return Counter(line["name"] for line in ledger.lines() if line["event"] == "end")


_STAYS = (b"_kombu.", b"unacked_mutex")


def wait_until_empty(client: redis.Redis, seconds: float = 90.0) -> None:
    """Returns when no message waits, nobody has one, and no side key is left but what a producer remembers.

    A worker of kombu that is killed while it looks after the others leaves ``unacked_mutex``, and none looks for five minutes.
    """
    deadline = time.monotonic() + seconds
    while True:
        left = [key for key in client.scan_iter() if not key.startswith(_STAYS) and b":publisher:" not in key]
        if not left:
            return
        assert time.monotonic() < deadline, f"left: {sorted(left)}"
        time.sleep(0.05)


def publish_both(server: Server, count: int, dice: random.Random, url: str | None = None) -> dict[str, int]:
    """Jobs of both kinds of producers, with priorities, delays and failures: name -> how often it fails.

    ``url``: where Celery publishes ours; None: a KombuClient does.
    """
    client, failures = client_of(server), {}
    with contextlib.ExitStack() as stack:
        apps = [
            stack.enter_context(celery(server)),
            *([stack.enter_context(Celery(broker=url, set_as_current=False))] if url else []),
        ]
        producers = [app.amqp.Producer(stack.enter_context(app.connection_for_write())) for app in apps]
        for number in range(count):
            name = f"{'original' if number % 2 else 'ours'}-{number}"
            failures[name] = dice.choice((0, 0, 0, 0, 1, 2))
            args = [name, dice.choice((0.0, 0.0, 0.01)), failures[name]]
            priority = dice.randrange(10)
            delay = dice.choice((0, 0, 0, 0.3))
            if number % 2 == 0 and url is None:
                client.publish(QUEUE, "fleet.work", args, priority=priority, delay_ms=round(delay * 1000))
            else:
                app, producer = apps[number % 2 - 1], producers[number % 2 - 1]
                countdown = {"countdown": delay} if delay else {}
                app.send_task("fleet.work", args, queue=QUEUE, priority=priority, producer=producer, **countdown)
    return failures


def test_a_mixed_fleet_runs_every_job_once_and_leaves_nothing_behind(server: Server, tmp_path: Path) -> None:
    ledger = Ledger(server)
    with (
        original(server, tmp_path, "o1") as first,
        original(server, tmp_path, "o2") as second,
        ours(server, tmp_path, "f1", lease_ms=30_000) as third,
        ours(server, tmp_path, "f2", lease_ms=30_000) as fourth,
    ):
        failures = publish_both(server, 300, random.Random(7))
        ledger.wait_for("end", len(failures))
        assert third.stop() == fourth.stop() == 0
        assert first.stop() == second.stop() == 0
    assert ends(ledger) == Counter(dict.fromkeys(failures, 1))
    starts = Counter(line["name"] for line in ledger.lines() if line["event"] == "start")
    assert starts == Counter({name: 1 + times for name, times in failures.items()})
    assert min(started(ledger, "ours"), started(ledger, "original")) > 10, "one side had nothing to do"
    with server.client() as client:
        wait_until_empty(client)


def test_nothing_is_lost_when_workers_of_both_kinds_are_killed_and_all_originals_at_last(server: Server, tmp_path: Path) -> None:
    """kombu's workers lose what they have popped and not yet noted, so they are killed while a job keeps them from popping."""
    ledger, names = Ledger(server), [f"job-{number}" for number in range(24)]
    with contextlib.ExitStack() as fleet:
        originals = [fleet.enter_context(original(server, tmp_path, f"o{number}", SOON)) for number in (1, 2)]
        mine = [fleet.enter_context(ours(server, tmp_path, f"f{number}", SOON)) for number in (1, 2)]
        with celery(server) as app:
            for name in names:
                app.send_task("fleet.work", [name], {"holds": True}, queue=QUEUE)
        ledger.wait(lambda _: len(begun(ledger, names)) == 4)
        mine[0].kill()
        originals[0].kill()
        ledger.let_go(*names[:12])
        ledger.wait(lambda _: set(begun(ledger, names[12:]).values()) == {"ours", "original"})
        originals[1].kill()
        ledger.let_go(*names)
        ledger.wait(lambda _: set(ends(ledger)) == set(names))
        assert mine[1].stop() == 0
    doubled = {name: times for name, times in ends(ledger).items() if times > 1}
    assert sum(times - 1 for times in doubled.values()) <= 3, "only what a killed one had may run twice"
    with server.client() as client:
        wait_until_empty(client)


@pytest.mark.parametrize("start", [ours, on_ferryman], ids=["client", "celery"])
def test_what_ours_runs_longer_than_the_visibility_timeout_runs_once(server: Server, tmp_path: Path, start: Start) -> None:
    """The stock broker's own workers would be given it again and again."""
    ledger = Ledger(server)
    with start(server, tmp_path, "f1", 3.0) as mine:
        client_of(server, 3.0).publish(QUEUE, "fleet.work", ["long", 7.0])
        ledger.wait_for("start", 1)
        with original(server, tmp_path, "o1", 3.0):
            ledger.wait_for("end", 1)
            assert mine.stop() == 0
            with server.client() as client:
                assert not client.exists("unacked", "unacked_index", QUEUE)
    assert [line["event"] for line in ledger.lines()] == ["start", "end"]


def test_what_our_killed_consumers_had_goes_to_the_originals_when_none_of_ours_is_left(server: Server, tmp_path: Path) -> None:
    ledger = Ledger(server)
    with ours(server, tmp_path, "f1", 1.0) as mine:
        with celery(server) as app:
            app.send_task("fleet.work", ["orphan"], {"holds": True}, queue=QUEUE)
        ledger.wait_for("start", 1)
        mine.kill()
    ledger.let_go("orphan")
    with original(server, tmp_path, "o1", 1.0) as worker:
        ledger.wait_for("end", 1)
        assert worker.stop() == 0
    assert ledger.lines()[-1]["side"] == "original"
    with server.client() as client:
        client_of(server, 1.0).run_timers(now=round(time.time() * 1000) + 60_000)
        wait_until_empty(client)


def test_celery_workers_on_both_brokers_share_the_queues_of_one_keyspace(server: Server, tmp_path: Path) -> None:
    """Producers of both kinds, retries and delays; then a worker of each kind is killed; at last all originals are."""
    ledger = Ledger(server)
    with (
        original(server, tmp_path, "o1", SOON) as first,
        original(server, tmp_path, "o2", SOON) as second,
        on_ferryman(server, tmp_path, "c1", SOON) as third,
        on_ferryman(server, tmp_path, "c2", SOON) as fourth,
        Celery(broker=ferryman_url(server, SOON), set_as_current=False) as producer,
    ):
        failures = publish_both(server, 150, random.Random(11), ferryman_url(server, SOON))
        ledger.wait_for("end", 150)
        assert ends(ledger) == Counter(dict.fromkeys(failures, 1))
        assert min(started(ledger, "celery"), started(ledger, "original")) > 10, "one side had nothing to do"

        long = [f"long-{number}" for number in range(6)]
        for name in long:
            producer.send_task("fleet.work", [name], {"holds": True}, queue=QUEUE)
        ledger.wait(lambda _: Counter(begun(ledger, long).values()) == {"celery": 2, "original": 2})
        second.kill()
        third.kill()
        ledger.let_go(*long)
        ledger.wait(lambda _: set(ends(ledger)) == {*failures, *long})

        last = [f"last-{number}" for number in range(3)]
        for name in last:
            producer.send_task("fleet.work", [name], {"holds": True}, queue=QUEUE)
        ledger.wait(lambda _: "original" in begun(ledger, last).values())
        first.kill()
        ledger.let_go(*last)
        ledger.wait(lambda _: set(ends(ledger)) == {*failures, *long, *last})
        assert fourth.stop() == 0
    with server.client() as client:
        assert not client.exists("unacked", "unacked_index", QUEUE)
        assert not [key for key in client.scan_iter(b"ferryman:live:*") if b":publisher:" not in key]
