"""Whole commands of each family, from start to exit, on this machine: jobs a second, and what a job costs in CPU time.

    python -m benchmarks.families --jobs 100000
    python -m benchmarks.families --jobs 20000 --family bee --family qless --in-memory

Generates a keyspace of each family; audits it, carries it to ferryman, verifies that, lists its jobs and counts its queues.
Beside them stands the limit: SCAN and a plain read of every key, with replies that nobody looks at. The CPU time is that of all
processes of a command, without the servers'; it tells more than seconds do where a machine has other work. ``--in-memory``: in
one process, as small keyspaces are carried. Starts its own servers on free ports and stops them. Needs the extra ``dev``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence

import click
from attrs import frozen
from ferryman.migrations.generate import KeyspaceSpec, generate_keyspace
from ferryman.migrations.scan import EVERYTHING, scan_range
from ferryman.schema.connection.address import Address
from ferryman.schema.connection.connect import open_client
from ferryman.schema.connection.pipeline import open_pipeline

from benchmarks.server import Server

NOW = 1_795_262_676_000
FAMILIES = ("ferryman", "kue", "kombu", "qless", "bee", "kickq", "pjq")
READS = {b"hash": "HGETALL", b"string": "GET", b"set": "SMEMBERS"}
RANGES = {b"list": ("LRANGE", 0, -1), b"zset": ("ZRANGE", 0, -1, "WITHSCORES")}
TOGETHER = 500
"""Keys that are read in one round trip."""


@frozen
class Cost:
    """What some work on a keyspace took."""

    seconds: float
    cpu_seconds: float
    jobs: int

    def __str__(self) -> str:
        return f"{self.jobs / self.seconds:,.0f} ({self.cpu_seconds / self.jobs * 1e6:.0f})"


@click.command()
@click.option("--jobs", default=100_000, show_default=True)
@click.option("--family", "families", type=click.Choice(FAMILIES), multiple=True, help="Only this one. Repeatable.")
@click.option("--in-memory", is_flag=True, help="In one process, as small keyspaces are carried.")
def main(jobs: int, families: Sequence[str], in_memory: bool) -> None:
    """Prints a table for docs/benchmarks.md."""
    click.echo(f"{jobs:,} jobs: jobs/s, and CPU time in µs a job")
    click.echo("| | limit | audit | migrate | verify | jobs | queues |\n|---|--:|--:|--:|--:|--:|--:|")
    for family in families or FAMILIES:
        with Server() as source, Server() as target:
            costs = _costs(Address.parse(f"{source.url('ferryman')}?family={family}"), target.url("ferryman"), jobs, in_memory)
        click.echo(f"| {family} | {' | '.join(map(str, costs))} |")


def _costs(source: Address, target: str, jobs: int, in_memory: bool) -> list[Cost]:
    generate_keyspace(source, KeyspaceSpec(jobs, 1, NOW))
    way = f"ferryman://127.0.0.1:{source.hosts[0][1]}/0?family={source.family}"
    commands = (
        ("audit", way),
        ("migrate", way, target),
        ("verify", way, target),
        ("jobs", way, "--format", "json"),
        ("queues", way, "--scan"),
    )
    return [_limit(source, jobs), *(_command(words, jobs, in_memory) for words in commands)]


def _command(words: Sequence[str], jobs: int, in_memory: bool) -> Cost:
    """One command. Ends the program if it fails."""
    program = ["-c", IN_MEMORY] if in_memory else ["-m", "ferryman.cli"]
    started = time.perf_counter()
    process = subprocess.Popen([sys.executable, *program, *words, "--now", str(NOW)], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(words)} failed")
    return Cost(seconds, usage.ru_utime + usage.ru_stime, jobs)


IN_MEMORY = """
import sys
from ferryman.migrations import local
local.SMALL_KEYS = local.SMALL_BYTES = 1 << 60
from ferryman.cli.main import main
sys.argv[0] = "ferryman"
main()
"""


def _limit(source: Address, jobs: int) -> Cost:
    """SCAN, TYPE and a plain read of each key, with nothing done to the replies."""
    with open_client(source) as client, open_pipeline(client) as pipe:
        started, cpu_started = time.perf_counter(), time.process_time()
        for page in scan_range(client, EVERYTHING, ("*",), TOGETHER):
            types = pipe.call(("TYPE", key) for key in page)
            pipe.call(
                (READS[redis_type], key) if redis_type in READS else (RANGES[redis_type][0], key, *RANGES[redis_type][1:])
                for key, redis_type in zip(page, types, strict=True)
            )
        return Cost(time.perf_counter() - started, time.process_time() - cpu_started, jobs)


if __name__ == "__main__":
    main()
