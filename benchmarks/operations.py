"""What operators wait for at a large keyspace: whole commands from start to exit, with what they cost the server.

    python -m benchmarks.operations --jobs 1000000

For each family whose indexes tell: the numbers of all queues, the first jobs, and a page from the other end of a queue, with the
commands that the server ran for it. Exit status 1 when a target is missed. Starts its own server on a free port and stops it. Run
from the repository, with the extra ``dev`` installed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
import redis
from attrs import frozen
from ferryman.migrations.generate import KeyspaceSpec, generate_keyspace
from ferryman.schema.connection.address import Address

from tests.support.servers import installed_servers

FAMILIES = ("ferryman", "kue")
QUEUES_SECONDS, JOBS_SECONDS = 1.0, 0.5
PROGRAM = (sys.executable, "-m", "ferryman.cli")


@frozen
class Row:
    """One command at one keyspace."""

    family: str
    words: tuple[str, ...]
    limit: float
    """Seconds that it may take."""


@click.command()
@click.option("--jobs", default=1_000_000, show_default=True)
@click.option("--repeat", default=3, show_default=True, help="How often each command runs; the median counts.")
def main(jobs: int, repeat: int) -> None:
    """Measures each command on each family."""
    missed = False
    with tempfile.TemporaryDirectory() as folder, installed_servers()[-1].start(Path(folder)) as server:
        client = server.client()
        for family in FAMILIES:
            client.flushall()
            url = server.url(family=family)
            generate_keyspace(Address.parse(url), KeyspaceSpec(jobs, 1, round(time.time() * 1000)))
            click.echo(f"\n{client.dbsize():,} keys, {jobs:,} jobs of {family}")
            for row in _rows(family, _largest_queue(url)):
                commands, seconds = _measure(client, (*row.words[:1], url, *row.words[1:]), repeat)
                met = "yes" if seconds <= row.limit else "NO"
                missed |= met == "NO"
                click.echo(f"{' '.join(row.words):64} {seconds:6.2f} s ≤ {row.limit} {met:3} {commands:7,} commands")
    sys.exit(missed)


def _rows(family: str, queue: str) -> tuple[Row, ...]:
    page = ("jobs", "--queue", queue, "--state", "waiting", "--limit", "50")
    return (
        Row(family, ("queues",), QUEUES_SECONDS),
        Row(family, ("jobs", "--limit", "50"), JOBS_SECONDS),
        Row(family, page, JOBS_SECONDS),
        Row(family, (*page, "--newest"), JOBS_SECONDS),
        Row(family, (*page, "--after", "0-100000"), JOBS_SECONDS),
    )


def _largest_queue(url: str) -> str:
    lines = subprocess.run([*PROGRAM, "queues", url, "--format", "json"], check=True, capture_output=True, text=True).stdout
    return str(max(map(json.loads, lines.splitlines()), key=lambda status: status["waiting"])["queue"])


def _measure(client: redis.Redis, words: tuple[str, ...], repeat: int) -> tuple[int, float]:
    """Commands of one run, those that scripts call included, and the median of the seconds."""
    times = []
    for _ in range(repeat):
        client.config_resetstat()
        started = time.perf_counter()
        subprocess.run([*PROGRAM, *words], check=True, capture_output=True)
        times.append(time.perf_counter() - started)
    return sum(stats["calls"] for stats in client.info("commandstats").values()), sorted(times)[len(times) // 2]


if __name__ == "__main__":
    main()
