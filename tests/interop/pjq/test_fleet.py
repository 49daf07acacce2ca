"""Mixed fleets on one keyspace: pjq's program as the tests model it, with its workers, and Celery workers on ``ferryman://``."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from celery import Celery
from ferryman.compat.pjq.client import PjqClient
from ferryman.schema.errors import UsageError
from ferryman.schema.text import to_text

from ...support.dumps import findings
from ...support.foreign_keys import seen, side_keys
from ...support.pjq_program import Program
from ...support.servers import Server, installed_servers
from ...support.workers import LEDGER_DB, ROOT, Ledger, Worker, worker

QUEUE = "thumbs:large"
LEFT_BY_THE_PROGRAM = {"PJQ-10", "PJQ-11", "PJQ-25"}


@pytest.fixture(scope="module")
def fleet_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all fleets."""
    with installed_servers()[-1].start(tmp_path_factory.mktemp("fleet")) as server:
        yield server


@pytest.fixture
def server(fleet_server: Server) -> Server:
    fleet_server.client().flushall()
    return fleet_server


def broker(server: Server) -> str:
    return f"ferryman://{server.host}:{server.port}/0?family=pjq"


@contextlib.contextmanager
def original(server: Server, folder: Path, name: str, tick: float = 0.1) -> Iterator[Worker]:
    """A worker of the program's."""
    log = folder / f"{name}.log"
    address = f"redis://{server.host}:{server.port}"
    command = [sys.executable, "-m", "tests.interop.pjq.original", f"{address}/0", f"{address}/{LEDGER_DB}", QUEUE, str(tick)]
    with log.open("ab") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output, start_new_session=True, env=dict(os.environ))
    running = Worker(process, name, log)
    try:
        running.wait_until_ready()
        yield running
    finally:
        running.kill()


def ours(server: Server, folder: Path, name: str, concurrency: int = 1) -> contextlib.AbstractContextManager[Worker]:
    """A Celery worker."""
    options = ("--without-gossip", "--without-mingle", "--without-heartbeat")
    app = "tests.interop.pjq.app"
    return worker(
        server, folder, name=name, app=app, concurrency=concurrency, options=options, queues=QUEUE, broker=broker(server)
    )


def job(name: str, **more: object) -> dict[str, object]:
    return {"job": name, **more}


def added(server: Server, name: str, **more: object) -> str:
    """A job that a producer of the program's adds by message."""
    program = Program(server.client(), round(time.time() * 1000))
    job_id = f"id-{name}"
    for number, _ in enumerate(program.add_job({"uuid": job_id, "queue_name": QUEUE, "command": "run", **job(name, **more)})):
        if number == 0:
            break  # the programs of the workers give it out
    return job_id


def ends(ledger: Ledger) -> Counter[str]:
    return Counter(ledger.names("end"))


def is_idle(client: redis.Redis) -> bool:
    """Whether nothing waits, nobody has anything, and no worker of ours holds a lease."""
    keys = seen(client)
    return not any(key.startswith((b"jobs_queued:", b"jobs_dispatched:")) for key in keys)


def wait_until_idle(client: redis.Redis, seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_idle(client):
        assert time.monotonic() < deadline, seen(client)
        time.sleep(0.05)


def outcomes(client: redis.Redis) -> dict[str, dict[str, object]]:
    """The finished jobs by name."""
    found = {}
    for job_id in client.zrange(f"jobs_finished:{QUEUE}", 0, -1):
        stored = json.loads(client.hget(job_id, "json") or b"{}")
        found[str(stored["job"])] = stored
    return found


def test_a_mixed_fleet_runs_every_job_once_and_leaves_nothing_behind(server: Server, tmp_path: Path) -> None:
    """The originals are alone with the first jobs and ours with the last: how they share the others is the machine's affair."""
    ledger, names = Ledger(server), []

    def run_jobs(numbers: range) -> None:
        for number in numbers:
            names.append(f"theirs-{number}")
            added(server, names[-1], seconds=0.005)
            names.append(f"ours-{number}")
            fails = number % 10 == 0
            producer.send_task("run", [job(names[-1], seconds=0.005, fails=fails)], queue=QUEUE)
        ledger.wait_for("end", len(names))
        with server.client() as client:
            wait_until_idle(client)

    with (
        Celery(broker=broker(server), set_as_current=False) as producer,
        original(server, tmp_path, "o1") as first,
        original(server, tmp_path, "o2") as second,
    ):
        run_jobs(range(12))
        with ours(server, tmp_path, "f1") as third, ours(server, tmp_path, "f2") as fourth:
            run_jobs(range(12, 138))
            assert first.stop() == second.stop() == 0
            run_jobs(range(138, 150))
            assert third.stop() == fourth.stop() == 0
    assert ends(ledger) == Counter(dict.fromkeys(names, 1))
    sides = Counter(line["side"] for line in ledger.lines() if line["event"] == "end")
    assert min(sides["ours"], sides["original"]) > 20, f"one side had nothing to do: {sides}"
    with server.client() as client:
        found = outcomes(client)
        assert found.keys() == set(names)
        assert {name for name, stored in found.items() if stored["exitcode"]} == {f"ours-{n}" for n in range(0, 150, 10)}
        forms = {frozenset(client.hkeys(key)) - {b"ferryman"} for key in client.zrange(f"jobs_finished:{QUEUE}", 0, -1)}
        assert len(forms) == 1, forms
        assert side_keys(client) == []
        assert findings(client, "pjq", "", round(time.time() * 1000)) == []


def test_nothing_of_ours_is_lost_when_workers_of_both_kinds_are_killed_and_all_originals_at_last(
    server: Server, tmp_path: Path
) -> None:
    ledger, names = Ledger(server), [f"job-{number}" for number in range(30)]
    with contextlib.ExitStack() as fleet:
        mine = [fleet.enter_context(ours(server, tmp_path, f"f{number}")) for number in (1, 2)]
        originals = [fleet.enter_context(original(server, tmp_path, f"o{number}")) for number in (1, 2)]
        for name in names:
            added(server, name, holds=True)
        ledger.wait(lambda lines: Counter(line["side"] for line in lines) == {"ours": 2, "original": 2})
        os.killpg(mine[0].process.pid, signal.SIGKILL)
        for each in originals:
            each.kill()
        ledger.let_go(*names)
        with server.client() as client:
            # What their workers had accepted is lost to the program itself, and to everybody.
            accepted = {to_text(key).removeprefix("id-") for key in client.zrange(f"jobs_processing:{QUEUE}", 0, -1)}
        assert len(accepted) <= 2
        ledger.wait(lambda _: set(ends(ledger)) >= set(names) - accepted)
        with server.client() as client:
            wait_until_idle(client)
        assert mine[1].stop() == 0
    assert sum(times - 1 for times in ends(ledger).values() if times > 1) <= 1, "only what a killed one had may run twice"
    with server.client() as client:
        rules = {finding.rule for finding in findings(client, "pjq", "", round(time.time() * 1000))}
        assert rules <= LEFT_BY_THE_PROGRAM
        PjqClient(client).run_timers(now=round(time.time() * 1000) + 60_000)
        assert side_keys(client) == []


def test_a_task_that_runs_longer_than_the_programs_lease_runs_once(server: Server, tmp_path: Path) -> None:
    ledger = Ledger(server)
    with ours(server, tmp_path, "f1") as mine:
        added(server, "long", seconds=10.5)
        ledger.wait_for("start", 1)
        with original(server, tmp_path, "o1"):
            ledger.wait_for("end", 1)
            with server.client() as client:
                wait_until_idle(client)
        assert mine.stop() == 0
    assert [(line["event"], line["side"]) for line in ledger.lines()] == [("start", "ours"), ("end", "ours")]


def test_a_retry_with_a_countdown_waits_for_it_and_a_job_with_one_is_refused(server: Server, tmp_path: Path) -> None:
    ledger = Ledger(server)
    with ours(server, tmp_path, "f1") as mine, Celery(broker=broker(server), set_as_current=False) as producer:
        with pytest.raises(UsageError, match="countdown"):
            producer.send_task("run", [job("late")], queue=QUEUE, countdown=1)
        with server.client() as client:
            assert not [key for key in seen(client) if key.startswith(b"jobs_")]
        added(server, "again", retried=True)
        lines = ledger.wait_for("end", 1)
        assert mine.stop() == 0
    assert [line["event"] for line in lines] == ["retry", "start", "end"]
    assert lines[1]["at"] - lines[0]["at"] >= 0.2
