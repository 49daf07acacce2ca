"""A process of ours that is measured, without Celery. Started by ``sides.py``.

python -m benchmarks.live.our_process <broker URL> consume <queue>            runs empty jobs until it is killed
python -m benchmarks.live.our_process <broker URL> stamp <queue>              waits for jobs, tells how soon each began
python -m benchmarks.live.our_process <broker URL> publish <queue> <task> <n> <at once>   publishes n jobs, says the seconds
python -m benchmarks.live.our_process <broker URL> send <queue> <task>        publishes a job, with the moment, for each line
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence

import redis
from ferryman.compat.client import ForeignClient
from ferryman.schema.connection.address import Address
from ferryman.schema.connection.call import Call
from ferryman.schema.connection.connect import connect
from ferryman.schema.connection.pipeline import PipelineConnection, open_pipeline
from ferryman.schema.live import ForeignFamily, NewJob

from ..broker.tasks import LEDGER, LEDGER_KEY

TAKEN = 200
"""Jobs taken in one call, and ended in another."""
LONG = 60.0
"""Seconds of a wait."""


def client_of(url: str) -> ForeignClient[ForeignFamily]:
    """A client of the keyspace behind a broker URL."""
    address = Address.parse(url)
    live = address.key_family.live(address.prefix, "ferryman")
    assert live is not None
    return ForeignClient(live, connect(address))


def consume(url: str, queue: str) -> None:
    """Takes and ends."""
    client = client_of(url)
    print("ready", flush=True)
    while True:
        jobs = client.take(queue, TAKEN)
        if jobs:
            client.send(client.live.complete(queue, client.consumer, [(job.id, None) for job in jobs]))
        else:
            time.sleep(0.001)


def stamp(url: str, queue: str) -> None:
    """Sleeps until a job comes, as a consumer without Celery does, and begins it."""
    with client_of(url) as client, redis.Redis.from_url(os.environ[LEDGER]) as ledger:
        client.wait(queue, 0)
        print("ready", flush=True)
        while True:
            for job in client.take(queue):
                ledger.rpush(LEDGER_KEY, time.time() - json.loads(job.payload)["at"])
                client.complete(job)
            client.wait(queue, LONG)


def publish(url: str, queue: str, task: str, number: str, at_once: str) -> None:
    """Publishes one by one, or several in each round trip."""
    client = client_of(url)
    name = task if client.live.has_names else None
    client.send(client.live.size(queue))
    start = time.time()
    if at_once == "1":
        for n in range(int(number)):
            client.put(queue, {"n": n}, name=name)
    else:
        batches(client, queue, name, int(number), int(at_once))
    print(time.time() - start, flush=True)


def batches(client: ForeignClient[ForeignFamily], queue: str, name: str | None, number: int, at_once: int) -> None:
    """Publishes by the calls themselves: one half of them is on its way while the other one is made."""
    half = at_once // 2
    with open_pipeline(client.server) as pipe:
        under_way: list[Call[str]] = []
        for first in range(0, number, half):
            jobs = [NewJob(queue, json.dumps({"n": n}).encode(), name) for n in range(first, min(first + half, number))]
            calls = [client.live.put(job) for job in jobs]
            pipe.send([call.words if first else call.eval() for call in calls])
            end(pipe, under_way)
            under_way = calls
        end(pipe, under_way)


def end(pipe: PipelineConnection, calls: Sequence[Call[str]]) -> None:
    """Reads the ids of jobs."""
    for call, reply in zip(calls, pipe.replies(len(calls)) if calls else (), strict=True):
        call.parse(reply)


def send(url: str, queue: str, task: str) -> None:
    """Publishes when it is told to."""
    client = client_of(url)
    name = task if client.live.has_names else None
    client.send(client.live.size(queue))
    print("ready", flush=True)
    for _ in sys.stdin:
        client.put(queue, {"at": time.time()}, name=name)


if __name__ == "__main__":
    {"consume": consume, "stamp": stamp, "publish": publish, "send": send}[sys.argv[2]](sys.argv[1], *sys.argv[3:])
