"""A mixed fleet: workers of kue 0.11.6 and Celery workers on one type, producers of both kinds, and deaths among all of them."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis
from celery import Celery

from ...conftest import SERVERS
from ...support.dumps import findings
from ...support.servers import Server
from ...support.workers import Ledger, Worker, worker
from .driver import Kue

APP = "tests.interop.kue.fleet_app"
JOBS = 300
ALONE = 10
"""Jobs that kue does before a Celery worker is there, so that both have had some, however fast each is."""
AT_ONCE = 2
"""Jobs that a process of kue has at most."""
TTL = 2500
"""ms that a job may run: what kue does for jobs of workers that died. Longer than any takes, and than a lease."""
LATER = 4_000_000_000_000
"""A moment after all that is delayed."""


def jobs(count: int) -> list[dict[str, Any]]:
    """Jobs with priorities, delays and failures."""
    dice, made = random.Random(7), []
    for number in range(count):
        fails = dice.choice((0, 0, 0, 1, 2))
        data = {"n": number, "do": "fail" if fails else "ok", "fails": fails, "message": "again", "ms": dice.choice((5, 20, 60))}
        made.append({**data, "result": {"n": number}, "priority": dice.randrange(-10, 11), "delay": dice.choice((0, 0, 300))})
    return made


class Effects:
    """What has happened to which job, on both sides."""

    def __init__(self, server: Server, originals: list[Kue]) -> None:
        self._ledger, self._originals = Ledger(server), originals

    def of(self, side: str, event: str) -> Counter[str]:
        """How often it has happened to each id."""
        if side == "ours":
            return Counter(str(name) for name in self._ledger.names({"begin": "start"}.get(event, event)))
        for original in self._originals:
            original.poll()
        return Counter(str(each["id"]) for original in self._originals for each in original.events if each["event"] == event)

    def all(self, event: str) -> Counter[str]:
        return self.of("ours", event) + self.of("theirs", event)

    def wait(self, number: int, lost: Callable[[], set[str]] = set, seconds: float = 120.0) -> None:
        """Returns when so many jobs have had their effect, or are lost."""
        deadline = time.monotonic() + seconds
        while len(self.all("end").keys() | lost()) < number:
            assert time.monotonic() < deadline, f"{len(self.all('end'))} of {number} in {seconds} s"
            time.sleep(0.05)


def a_pool_child(server: Server, parent: Worker) -> int:
    """The pid of a process in which a task of this worker has run, as soon as one has."""
    children = {int(pid) for pid in Path(f"/proc/{parent.process.pid}/task/{parent.process.pid}/children").read_text().split()}
    lines = Ledger(server).wait(lambda lines: any(line["pid"] in children for line in lines))
    return next(line["pid"] for line in reversed(lines) if line["pid"] in children)


def test_every_job_has_its_effect_once_whoever_dies(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(SERVERS[-1].start(tmp_path))
        client = server.client()
        broker = server.url(family="kue")
        originals = [stack.enter_context(Kue.start(server)) for _ in range(3)]
        effects = Effects(server, originals)
        made = jobs(JOBS)
        for original in originals:
            original.call("process", type="work", concurrency=AT_ONCE)
        _make(server, originals[0], made[:ALONE], broker)
        effects.wait(ALONE)
        prefork, threads, solo = (
            stack.enter_context(
                worker(server, tmp_path, pool=pool, concurrency=2, name=pool, app=APP, queues="work", broker=broker)
            )
            for pool in ("prefork", "threads", "solo")
        )
        _make(server, originals[0], made[ALONE:], broker)
        effects.wait(JOBS // 6)
        originals[0].kill()
        os.kill(a_pool_child(server, prefork), signal.SIGKILL)
        effects.wait(JOBS // 3)
        threads.kill()
        effects.wait(JOBS // 2)
        for original in originals:
            original.kill()
        # What a process of kue had and loses when it dies between failing a job and trying it again, an audit finds.
        killed = {original.process.pid for original in originals}
        effects.wait(JOBS, lambda: {job_id for job_id, pid in _half_failed(client).items() if pid in killed})

        ends, lost = effects.all("end"), _half_failed(client)
        assert ends.keys() | lost.keys() == {str(number) for number in range(1, JOBS + 1)}
        assert lost.keys() <= effects.of("theirs", "begin").keys()
        assert all(pid in killed and count <= AT_ONCE for pid, count in Counter(lost.values()).items())
        assert effects.of("ours", "end")
        assert effects.of("theirs", "end")
        # Whoever was killed had two jobs at most, whose effect may be there, and its end not.
        assert sum(ends.values()) - JOBS <= 2 * 5
        _settled(client, JOBS - len(lost))
        with Kue.start(server) as fresh:
            counts = fresh.call("counts")
            assert {state: counts[state] for state in ("inactive", "delayed", "active")} == dict.fromkeys(
                ("inactive", "delayed", "active"), 0
            )
            assert (counts["complete"], counts["failed"]) == (JOBS - len(lost), len(lost))
            by_side = {side: next(iter(effects.of(side, "end"))) for side in ("ours", "theirs")}
            seen = [fresh.call("get", id=int(job_id)) for job_id in by_side.values()]
            own = {"error", "failed_at", "delay"}  # of jobs that have failed once, or were delayed
            assert seen[0].keys() - own == seen[1].keys() - own
        # One that dies between the end of a job and the count of its attempt leaves that out.
        uncounted = _uncounted(client)
        assert all(pid in killed and count <= AT_ONCE for pid, count in Counter(uncounted).items())
        rules = Counter(finding.rule for finding in findings(client, "kue", "q", LATER))
        assert rules == Counter({"KUE-22": len(lost), "KUE-23": len(uncounted)})
        for worker_left in (prefork, solo):
            assert worker_left.stop() == 0
        assert [key for key in client.scan_iter("ferryman:live:*") if b":publisher:" not in key] == []


def _make(server: Server, original: Kue, made: list[dict[str, Any]], broker: str) -> None:
    """Half of the jobs by kue, half by Celery; all with three attempts and a limit."""
    theirs = [{"type": "work", "data": data, "options": _options(data) | {"attempts": 4, "ttl": TTL}} for data in made[::2]]
    original.call("createAll", jobs=theirs)
    mapping = server.folder / "mapping.toml"
    mapping.write_text("[queue.work]\nattempts = 4\n")
    with Celery(broker=f"{broker}&mapping={mapping}", set_as_current=False) as app:
        for data in made[1::2]:
            countdown = {"countdown": data["delay"] / 1000} if data["delay"] else {}
            app.send_task("work", [data], queue="work", priority=data["priority"], time_limit=TTL / 1000, **countdown)


def _options(data: dict[str, Any]) -> dict[str, Any]:
    return {name: data[name] for name in ("priority", "delay") if data[name]}


def _half_failed(client: redis.Redis) -> dict[str, int]:
    """The jobs that have failed and were to be tried again (KUE-22), each with the pid of the process that took it last."""
    found = {}
    for member in client.zrange("q:jobs:failed", 0, -1):
        job_id = member.split(b"|")[1].decode()
        attempts, worker_id = client.hmget(f"q:job:{job_id}", "attempts", "workerId")
        if int(attempts or 0) < 4:
            found[job_id] = int(worker_id.split(b":")[2])  # kue:<host>:<pid>:<type>:<n>, whoever writes it
    return found


def _uncounted(client: redis.Redis) -> list[int]:
    """For each job that is complete without an attempt (KUE-23), the pid of the process that took it last."""
    ids = [member.split(b"|")[1].decode() for member in client.zrange("q:jobs:complete", 0, -1)]
    taken = [client.hmget(f"q:job:{job_id}", "attempts", "workerId") for job_id in ids]
    return [int(worker_id.split(b":")[2]) for attempts, worker_id in taken if not int(attempts or 0)]


def _settled(client: redis.Redis, complete: int, seconds: float = 120.0) -> None:
    """Returns when no job is active any more: an effect is there a moment before its job's end is."""
    deadline = time.monotonic() + seconds
    while client.zcard("q:jobs:active") or client.zcard("q:jobs:complete") < complete:
        assert time.monotonic() < deadline, {state: client.zcard(f"q:jobs:{state}") for state in ("active", "complete", "failed")}
        time.sleep(0.05)
