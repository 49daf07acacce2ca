"""Foreground: what another client of the server feels while a keyspace is read with ``--throttle polite``."""

from __future__ import annotations

import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from statistics import median, quantiles

from ferryman.migrations.reading import read_all
from ferryman.migrations.source import open_source
from ferryman.migrations.throttle import Throttle
from ferryman.schema.connection.address import Address
from ferryman.schema.connection.connect import open_client
from ferryman.schema.connection.pipeline import open_pipeline

from tests.support.servers import Server

ROUNDS = 5
SECONDS = 2.0
"""Of each measurement; idle and reading take turns, since others may use the machine."""
PAUSE = 0.001
"""Seconds between two commands of the other client."""
LONG_KEY = b"q:jobs"
"""The key that has all jobs of a kue keyspace."""


def polite(server: Server, address: Address) -> tuple[float, float, float]:
    """The 99th percentile of another client's HGET, ms: on an idle server, while a kue keyspace is read politely, and while its
    longest key is.

    The medians of several rounds.
    """
    rounds = [(_latency(server), _while(_read, server, address), _while(_read_long, server, address)) for _ in range(ROUNDS)]
    idle, reading, reading_long = map(median, zip(*rounds, strict=True))
    return idle, reading, reading_long


def _while(read: Callable[[Address, Event], None], server: Server, address: Address) -> float:
    """The latency while another process reads."""
    reads = get_context("spawn").Event()
    reader = get_context("spawn").Process(target=read, args=(address, reads))
    reader.start()
    try:
        reads.wait()
        return _latency(server)
    finally:
        reader.kill()
        reader.join()


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


def _read_long(address: Address, reads: Event) -> None:
    """Reads one long key, over and over."""
    with open_client(address) as client, open_pipeline(client) as pipe:
        while True:
            for _ in read_all(pipe, [LONG_KEY], Throttle.parse("polite").pace()):
                reads.set()
