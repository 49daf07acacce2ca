"""Foreground: what another client of the server feels while a keyspace is read with ``--throttle polite``."""

from __future__ import annotations

import time
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from statistics import median, quantiles

from ferryman.migrations.source import open_source
from ferryman.migrations.throttle import Throttle
from ferryman.schema.address import Address

from tests.support.servers import Server

ROUNDS = 5
SECONDS = 2.0
"""Of each measurement; idle and reading take turns, since others may use the machine."""
PAUSE = 0.001
"""Seconds between two commands of the other client."""


def polite(server: Server, address: Address) -> tuple[float, float]:
    """The 99th percentile of another client's HGET, ms: on an idle server, and while the keyspace is read politely.

    The median of several rounds.
    """
    idle, reading = [], []
    for _ in range(ROUNDS):
        idle.append(_latency(server))
        reads = get_context("spawn").Event()
        reader = get_context("spawn").Process(target=_read, args=(address, reads))
        reader.start()
        try:
            reads.wait()
            reading.append(_latency(server))
        finally:
            reader.kill()
            reader.join()
    return median(idle), median(reading)


def _latency(server: Server) -> float:
    client = server.client()
    took = []
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        started = time.perf_counter()
        client.hget("q:job:1", "type")
        took.append((time.perf_counter() - started) * 1000)
        time.sleep(PAUSE)
    return quantiles(took, n=100)[98]


def _read(address: Address, reads: Event) -> None:
    """Reads the keyspace, over and over."""
    while True:
        with open_source(address, Throttle.parse("polite")) as source:
            for _ in source.entries(0):
                reads.set()
