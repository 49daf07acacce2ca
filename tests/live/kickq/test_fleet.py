"""A mixed fleet on one kickq keyspace, in real time: producers and consumers of both kinds, kickq's scheduler, and one that dies.

kickq's own are the model's (tests/models/kickq_original.py), each with a thread and a connection of its own, so that their
commands fall between our scripts as they like.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import redis
from ferryman.compat.kickq import FAMILY
from ferryman.compat.kickq.client import KickqClient
from ferryman.testing.keyspaces import dump, read_keyspace

from ...models.kickq_original import OriginalKickq, Scheduler, perform
from ...support.servers import Server
from .tellers import side_keys

JOBS = 200
QUEUES = ("mail", "sms")
KICKQ = OriginalKickq()
OPTIONS = {"retry": True, "retryTimes": 3, "retryInterval": 300}
WAIT_S = 0.1


def _now() -> int:
    return round(time.time() * 1000)


def _payload(number: int) -> dict[str, int]:
    """What a job is told: which one it is, and how many of its runs are to fail."""
    return {"n": number, "failures": int(number % 5 == 0)}


class Fleet:
    """What all have done."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.originals_stop, self.ours_stop = threading.Event(), threading.Event()
        self.runs: Counter[int] = Counter()
        self.by: Counter[str] = Counter()
        self.errors: list[BaseException] = []
        self._lock = threading.Lock()

    def work(self, payload: Any, runs_before: int, who: str) -> bool:
        """One run of a job; False: it fails."""
        with self._lock:
            self.runs[payload["n"]] += 1
            self.by[who] += 1
        return bool(runs_before >= payload["failures"])

    def original_worker(self, client: redis.Redis) -> None:
        keys = [KICKQ.key("queue", queue) for queue in QUEUES]
        while not self.originals_stop.is_set():
            popped = client.blpop(keys, timeout=WAIT_S)
            job = popped and perform(client, KICKQ.begin(popped[1].decode(), _now()))
            if job:
                done = self.work(job.item["data"], len(job.item["runs"]), "kickq")
                perform(client, KICKQ.succeed(job, _now()) if done else KICKQ.fail(job, "not yet", _now()))

    def original_scheduler(self, client: redis.Redis) -> None:
        scheduler = Scheduler(KICKQ)
        looked = 0.0
        while not (self.originals_stop.wait(0.02) and not scheduler.taken):
            if time.monotonic() - looked > 1 and not self.originals_stop.is_set():
                looked = time.monotonic()
                perform(client, scheduler.look(_now()))
            perform(client, scheduler.fire(_now()))

    def our_consumer(self, client: redis.Redis) -> None:
        with KickqClient(client, lease_ms=30_000) as kickq, client.pubsub() as pubsub:
            pubsub.subscribe("kickq:queued")
            while not self.ours_stop.is_set():
                jobs = [job for queue in QUEUES for job in kickq.take(queue)]
                for job in jobs:
                    done = self.work(json.loads(job.payload), job.attempts, "ours")
                    outcome = kickq.complete(job) if done else kickq.fail(job, "not yet")
                    assert outcome == ("completed" if done else "scheduled")
                if not jobs:
                    pubsub.get_message(timeout=WAIT_S)
            kickq.run_timers()

    def original_producer(self, client: redis.Redis) -> None:
        for number in range(0, JOBS, 2):
            delay = {"delay": 200} if number % 7 == 0 else {}
            perform(client, KICKQ.create(QUEUES[number % 4 // 2], _payload(number), _now(), **OPTIONS, **delay))

    def our_producer(self, client: redis.Redis) -> None:
        kickq = KickqClient(client)
        for number in range(1, JOBS, 2):
            kickq.put(QUEUES[number % 4 // 2], _payload(number), delay_ms=200 if number % 7 == 0 else 0, **OPTIONS)

    @contextmanager
    def running(self, *parts: Callable[[redis.Redis], None]) -> Iterator[None]:
        """Each in a thread with a connection of its own, until the block ends and they do."""

        def guarded(part: Callable[[redis.Redis], None]) -> None:
            try:
                with self.server.client() as client:
                    part(client)
            except BaseException as error:
                self.errors.append(error)
                raise

        threads = [threading.Thread(target=guarded, args=(part,), daemon=True) for part in parts]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.originals_stop.set()
            self.ours_stop.set()
            for thread in threads:
                thread.join(90)
        assert not any(thread.is_alive() for thread in threads)
        assert self.errors == []


def _await_ends(pubsub: Any, number: int, seconds: float = 90) -> None:
    """Waits until so many jobs have ended for good."""
    deadline, ended = time.monotonic() + seconds, set[str]()
    while len(ended) < number:
        assert time.monotonic() < deadline, f"{len(ended)} of {number} jobs have ended"
        message = pubsub.get_message(timeout=1)
        if message is not None and message["type"] == "message":
            item = json.loads(message["data"])
            if item["complete"]:
                ended.add(item["id"])


def test_a_mixed_fleet_runs_every_job_and_a_dead_consumers_jobs_are_not_lost(server: Server, client: redis.Redis) -> None:
    fleet = Fleet(server)
    # One takes two jobs and is not heard of again.
    dead = KickqClient(client, lease_ms=1000)
    for number in (JOBS, JOBS + 1):
        dead.put("mail", _payload(number) | {"failures": 0})
    assert len(dead.take("mail", 2)) == 2
    originals = (fleet.original_worker,) * 3 + (fleet.original_scheduler, fleet.original_producer)
    with client.pubsub() as pubsub:
        pubsub.subscribe("kickq:success", "kickq:fail")
        with fleet.running(*originals, *(fleet.our_consumer,) * 3, fleet.our_producer):
            _await_ends(pubsub, JOBS // 2)
            fleet.originals_stop.set()
            _await_ends(pubsub, JOBS // 2 + 2)
    assert {number: fleet.runs[number] for number in range(JOBS)} == {n: 1 + _payload(n)["failures"] for n in range(JOBS)}
    assert fleet.runs[JOBS] == fleet.runs[JOBS + 1] == 1
    assert min(fleet.by["kickq"], fleet.by["ours"]) > 0
    counts = KickqClient(client).stats()
    assert {word: count for word, count in counts.items() if count} == {"success": JOBS + 2}
    entries = [entry for key, entry in dump(client).items() if key.startswith(b"kickq:")]
    assert read_keyspace(FAMILY, entries, "kickq", _now()).findings() == []
    assert side_keys(client) == []
