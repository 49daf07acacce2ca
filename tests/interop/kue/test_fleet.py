"""Mixed fleets: kue's processes and consumers of ferryman share queues, some are killed, nothing is lost or done twice."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import redis
from attrs import define, field
from ferryman.compat.kue.client import KueClient

from ...support.dumps import findings
from ...support.servers import Server
from .driver import Kue
from .waits import awaited

TYPES = ("mail", "video")
NOW = 4_000_000_000_000


@define
class Fleet:
    """Consumers of ferryman, each in a thread; together with processes of kue they work off all queues."""

    server: Server
    lease_ms: int = 30_000
    done: list[int] = field(factory=list)
    """The ids of jobs whose work was done here."""
    _stop: threading.Event = field(factory=threading.Event)
    _doomed: threading.Event = field(factory=threading.Event)
    """The next consumer that takes a job ends with it, as if it had been killed."""

    @contextmanager
    def running(self, consumers: int) -> Iterator[None]:
        with ThreadPoolExecutor(consumers) as threads:
            runs = [threads.submit(self._consume) for _ in range(consumers)]
            try:
                yield
            finally:
                self._stop.set()
            for run in runs:
                run.result()

    def kill_one(self) -> None:
        """Ends a consumer in the middle of its next job."""
        self._doomed.set()

    def _consume(self) -> None:
        next_timers = 0.0
        with suppress(_KilledError), self.server.client() as connection, KueClient(connection, lease_ms=self.lease_ms) as ours:
            while not self._stop.is_set():
                if time.monotonic() > next_timers:
                    ours.run_timers()
                    next_timers = time.monotonic() + 0.2
                if not sum(self._turn(ours, queue) for queue in TYPES):
                    self._stop.wait(0.005)

    def _turn(self, ours: KueClient, queue: str) -> bool:
        jobs = ours.take(queue, 2)
        for job in jobs:
            if self._doomed.is_set():
                self._doomed.clear()
                ours._queues.clear()  # the killed give nothing back
                raise _KilledError
            data = json.loads(job.payload)
            ours.heartbeat(queue)
            if data["do"] == "fail" and job.attempts < data.get("fails", 99):
                ours.fail(job, "it failed")
            elif ours.complete(job, data.get("result")) != "lost":
                self.done.append(int(job.id))
        return bool(jobs)


class _KilledError(Exception):
    pass


def some_jobs(number: int, ttl: int | None = None) -> list[dict[str, Any]]:
    """Jobs of all kinds, as kue's ``create`` and our ``put`` take them."""
    jobs = []
    for n in range(number):
        data: dict[str, Any] = {"do": "ok", "n": n, "result": {"n": n}}
        options: dict[str, Any] = {"attempts": 3, "priority": (n % 5 - 2) * 5}
        if n % 7 == 0:
            data |= {"do": "fail", "fails": 1}
        elif n % 11 == 0:
            data["do"] = "fail"
        if n % 4 == 0:
            options["delay"] = n % 9 * 30 + 1
        if n % 3 == 0:
            options["backoff"] = {"type": "fixed", "delay": 40}
        if ttl:
            options["ttl"] = ttl
        jobs.append({"type": TYPES[n % 2], "data": data, "options": options})
    return jobs


def put(ours: KueClient, job: dict[str, Any]) -> None:
    options = dict(job["options"])
    ours.put(job["type"], job["data"], priority=options.pop("priority"), delay_ms=options.pop("delay", 0), **options)


def is_over(client: redis.Redis, number: int) -> bool:
    return bool(client.zcard("q:jobs:complete") + client.zcard("q:jobs:failed") == number)


def assert_nothing_is_left_over(client: redis.Redis, besides: Collection[str] = ()) -> None:
    for state in ("inactive", "delayed", "active"):
        assert client.zcard(f"q:jobs:{state}") == 0
    awaited(lambda: not client.exists(*(f"q:{queue}:jobs" for queue in TYPES)))
    assert list(client.scan_iter("ferryman:*")) == []
    assert [finding for finding in findings(client, "kue", "q", NOW) if finding.rule not in besides] == []


def test_a_mixed_fleet_does_every_job_once(server: Server, client: redis.Redis) -> None:
    number = 300
    fleet = Fleet(server)
    with ExitStack() as stack:
        workers = [stack.enter_context(Kue.start(server)) for _ in range(3)]
        for worker in workers:
            for queue in TYPES:
                worker.call("process", type=queue, concurrency=2)
        with fleet.running(3):
            jobs = some_jobs(number)
            workers[0].call("createAll", jobs=jobs[::2])
            with KueClient(client) as ours:
                for job in jobs[1::2]:
                    put(ours, job)
            awaited(lambda: is_over(client, number))
        awaited(lambda: sum(int(attempts or 0) for attempts in attempts_of(client, number)) == tries_of(jobs))
        theirs = [event["id"] for worker in workers for event in worker.events if event["event"] == "end"]
        for worker in workers:
            worker.call("counts")  # its events before the answer have been read
        theirs = [event["id"] for worker in workers for event in worker.events if event["event"] == "end"]
        counts = workers[0].call("counts")
    failed = sum(1 for job in jobs if job["data"]["do"] == "fail" and "fails" not in job["data"])
    done = Counter([*theirs, *fleet.done])
    assert set(done.values()) == {1}
    assert len(done) == number - failed
    assert theirs
    assert fleet.done
    assert (counts["complete"], counts["failed"]) == (number - failed, failed)
    durations = [int(client.hget(f"q:job:{n}", "duration") or 0) for n in range(1, number + 1)]
    assert int(client.get("q:stats:work-time") or 0) == sum(durations)
    assert_nothing_is_left_over(client)


def attempts_of(client: redis.Redis, number: int) -> list[Any]:
    pipeline = client.pipeline(transaction=False)
    for n in range(1, number + 1):
        pipeline.hget(f"q:job:{n}", "attempts")
    found: list[Any] = pipeline.execute()
    return found


def tries_of(jobs: list[dict[str, Any]]) -> int:
    return sum(1 if job["data"]["do"] == "ok" else min(3, job["data"].get("fails", 3) + 1) for job in jobs)


def test_nothing_is_lost_when_consumers_of_both_kinds_are_killed_and_all_of_kue_in_the_end(
    server: Server, client: redis.Redis
) -> None:
    """With a ttl, without which kue itself loses what its killed workers held."""
    number = 120
    fleet = Fleet(server, lease_ms=400)
    with ExitStack() as stack:
        workers = [stack.enter_context(Kue.start(server)) for _ in range(3)]
        for worker in workers:
            for queue in TYPES:
                worker.call("process", type=queue, concurrency=2)
        with fleet.running(3):
            jobs = some_jobs(number, ttl=500)
            workers[0].call("createAll", jobs=jobs[::2])
            fleet.kill_one()
            with KueClient(client) as ours:
                for job in jobs[1::2]:
                    put(ours, job)
            for worker in workers:
                worker.wait_for(lambda event: event["event"] == "begin")
                worker.kill()
            awaited(lambda: is_over(client, number - len(half_taken(client))))
    with KueClient(client) as ours:
        # What a worker of kue had half taken when it was killed is found, and some time later listed again.
        ours.run_timers()
        ours.run_timers(now=int(time.time() * 1000) + 11_000)
        for queue in TYPES:
            for job in ours.take(queue, number):
                ours.complete(job)
    assert is_over(client, number)
    # Killed within an end, a worker of kue leaves a failed job without its next attempt, or a done one uncounted.
    assert_nothing_is_left_over(client, besides={"KUE-22", "KUE-23"})


def half_taken(client: redis.Redis) -> set[bytes]:
    """Members that wait, but in no type's index."""
    listed = {member for queue in TYPES for member in client.zrange(f"q:jobs:{queue}:inactive", 0, -1)}
    return set(client.zrange("q:jobs:inactive", 0, -1)) - listed
